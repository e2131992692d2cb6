"""S7, S6 and E15 in the appliance: without exactly the tool image that is named nothing runs; a tool has no way out."""

import io
import json
import socket
import tarfile
from collections.abc import Iterator

import pytest

from bxcore.wire.tools import DenyReason, ToolDenied, ToolResult
from tests.container.appliance import bundle, expected, wayout
from tests.container.appliance.rig import Rig, until

FILE = "etc/tool-image"


@pytest.fixture
def named(running: Rig) -> Iterator[str]:
    """The image's ID; the file names it again afterwards. Written in place: brokerd's mount is of this one file."""
    before = running.at(FILE).read_text()
    yield before.strip()
    running.at(FILE).write_text(before)


def denied(rig: Rig) -> str:
    """Return what a granted call is told; no container was made for it."""
    answer = rig.ask(rig.request())
    assert isinstance(answer, ToolDenied), answer
    assert answer.reason is DenyReason.RUNNER_UNAVAILABLE
    assert rig.tool_containers() == []
    return answer.detail or ""


@pytest.mark.parametrize("content", ["f" * 64, "", "latest", "localhost/boxmaker/tools", f"sha256:{'f' * 64}"])
def test_s7_another_name_than_that_of_a_loaded_image_runs_nothing(running: Rig, named: str, content: str) -> None:
    running.at(FILE).write_text(f"{content}\n")
    denied(running)
    running.at(FILE).write_text(f"{named}\n")
    assert isinstance(running.ask(), ToolResult), "the file is read anew for each call"


def test_s7_a_file_that_was_replaced_counts_from_brokerds_next_start_on(running: Rig, named: str) -> None:
    running.appliance.place.write(FILE, f"{'f' * 64}\n")
    running.stop("brokerd")
    denied(running.up())
    running.appliance.place.write(FILE, f"{named}\n")
    running.stop("brokerd")
    assert isinstance(running.up().ask(), ToolResult)


def test_s7_an_image_that_is_loaded_and_not_ours_runs_nothing(running: Rig, named: str) -> None:
    archive = running.appliance.place.shared / "other.tar"
    with tarfile.open(archive, "w") as tar:
        told = tarfile.TarInfo("usr/bin/python3")
        told.size, told.mode = 10, 0o755
        tar.addfile(told, io.BytesIO(b"#!/bin/sh\n"))
    archive.chmod(0o644)
    other = running.appliance.podman("tools", "import", "--quiet", str(archive)).splitlines()[-1]
    try:
        running.at(FILE).write_text(f"{other.removeprefix('sha256:')}\n")
        denied(running)
    finally:
        running.appliance.podman("tools", "rmi", "--force", other)
        archive.unlink()


def test_s7_an_image_that_was_removed_runs_nothing_until_it_is_loaded(running: Rig, named: str) -> None:
    podman = running.appliance.podman
    kept = running.appliance.place.account("tools").storage / "kept.tar"
    podman("tools", "save", "--quiet", f"--output={kept}", named)
    try:
        podman("tools", "rmi", "--force", named)
        denied(running)
    finally:
        podman("tools", "load", "--quiet", f"--input={kept}")
        kept.unlink()
    assert isinstance(running.ask(), ToolResult)


def test_s7_without_the_container_service_no_tool_runs_and_brokerd_says_so(running: Rig) -> None:
    running.at("tool-runner").rename(away := running.at("tool-runner").with_name("away.sock"))
    try:
        assert denied(running)
    finally:
        away.rename(running.at("tool-runner"))
    assert isinstance(running.ask(), ToolResult)


def test_e15_a_tool_has_no_way_out_and_the_canaries_hear_nothing(running: Rig) -> None:
    """Sockets by address, raw and by packet, DNS, abstract names, Podman's socket and every socket of a role."""
    text = bundle.program(
        "tests.container.inside", "tests.container.appliance.looks", "tests.container.appliance.wayout"
    )
    asked = {
        "addresses": running.canaries.addresses,
        "dns port": running.canaries.dns_port,
        "abstract": running.canaries.name,
        "paths": [*expected.every_path(running.view("loopd")), "/run/podman.sock", "/run/podman/podman.sock"],
    }
    for name, content in {"wayout.py": text, "asked.json": json.dumps(asked)}.items():
        path = running.files / name
        path.write_text(content)
        running.give(path)
    running.grant("shells", tool="shell", mode="ask", paths=json.dumps([str(running.files)]))
    running.canaries.heard.clear()
    command = "python3 -I -S wayout.py asked.json"
    answer = running.approved(running.request("shell", directory=str(running.files), command=command))
    assert isinstance(answer, ToolResult), answer
    (line,) = [line for line in answer.content.splitlines() if line.startswith(wayout.MARK)]
    found = json.loads(line.removeprefix(wayout.MARK))
    view = running.view("loopd")  # which has no network either, and the same filter
    for subject in ("network", "kinds of socket", "abstract names"):
        assert expected.differences(subject, view, found[subject]) == []
    assert found["sockets"] == {}
    assert running.canaries.heard == []


def test_the_canaries_would_have_heard(rig: Rig) -> None:
    canaries = rig.canaries
    canaries.heard.clear()
    socket.create_connection(("127.0.0.1", canaries.port)).close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket(socket.AF_UNIX) as unix:
        udp.sendto(b"x", ("127.0.0.1", canaries.port))
        udp.sendto(b"x", ("127.0.0.1", canaries.dns_port))
        unix.connect(f"\0{canaries.name}")
        until(lambda: sorted(canaries.heard) == ["abstract", "dns", "tcp", "udp"], "the canaries sing")
    canaries.heard.clear()
