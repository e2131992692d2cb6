"""What `bxctl doctor` says of an appliance's files, grants, folders, sockets and images, and what mends them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore.ids import Hash32
from bxcore.wire import admin
from bxctl import hostchecks, imagechecks, placechecks, rolelimits, socketchecks, wayin
from bxctl.finding import Finding
from bxctl.imagechecks import Image
from bxctl.installed import Installed
from bxctl.machine import Kind, Space
from tests.fakes import machine as fakes
from tests.fakes.machine import ETC, HIDDEN, HOME, TOOL_IMAGE, FakeMachine, listed

REPORT = admin.BrokerStatusReport(
    denies=None,
    detail=None,
    grants=1,
    pending=0,
    running=0,
    audit_seq=7,
    audit_hash=Hash32("0" * 64),
    image=TOOL_IMAGE,
    limits_held=("time", "memory"),
    limits_missing=(),
)

Room = Callable[[Installed], Iterator[Finding]]


@pytest.fixture
def appliance() -> tuple[Installed, FakeMachine]:
    return fakes.another()


def faults(room: Room, made: Installed) -> list[tuple[str, str]]:
    """Return what was found and what mends it, of each check that failed."""
    return [(one.found, one.command) for one in room(made) if one.passed is False]


# -- files and grants -------------------------------------------------------------------------------

CONFIG = ETC / "loopd.toml"
FILES: dict[str, tuple[Callable[[FakeMachine], object], str]] = {
    "belongs to the role": (lambda m: m.change(CONFIG, uid=642), "owner is uid 642"),
    "belongs to another group": (lambda m: m.change(CONFIG, gid=643), "group is gid 643"),
    "may be written": (lambda m: m.change(CONFIG, mode=0o660), "mode 0660"),
    "has a list": (
        lambda m: m.change(CONFIG, acl=listed(0o640, u643=4), listed=True),
        "an access list lets others in",
    ),
    "is a link": (lambda m: m.change(CONFIG, kind=Kind.LINK), "a symbolic link"),
}


@pytest.mark.parametrize(("change", "found"), FILES.values(), ids=FILES.keys())
def test_a_settings_file_that_is_not_roots_alone(
    appliance: tuple[Installed, FakeMachine], change: Callable[[FakeMachine], object], found: str
) -> None:
    made, machine = appliance
    change(machine)
    assert faults(placechecks.files, made) == [(found, f"chown root:bx-loopd {CONFIG} && chmod 0640 {CONFIG}")]


def test_a_link_into_a_store_that_nobody_writes_is_a_settings_file(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.change(CONFIG, kind=Kind.LINK, mode=0o777)
    machine.links[CONFIG] = Path("/nix/store/abc-loopd.toml")
    assert faults(placechecks.files, made) == []


NOTES = Path("/home/alice/notes")
GRANT = """tool = "{tool}"
mode = "{mode}"
max_taint = "private"
[constraints]
paths = ["{path}"]
"""


def put_grant(
    machine: FakeMachine, name: str = "a.toml", *, tool: str = "read_file", mode: str = "ask", path: Path = NOTES
) -> Path:
    file = ETC / "grants" / name
    machine.put(file, Kind.FILE, fakes.OWNER_UID, 643, 0o640)
    machine.texts[file] = GRANT.format(tool=tool, mode=mode, path=path)
    return file


def put_notes(machine: FakeMachine, *, home: int = 0o700, notes: int = 0o700) -> None:
    machine.put(NOTES.parent, Kind.DIRECTORY, fakes.OWNER_UID, fakes.OWNER_UID, home)
    machine.put(NOTES, Kind.DIRECTORY, fakes.OWNER_UID, fakes.OWNER_UID, notes)


@pytest.mark.parametrize(
    ("to", "found"),
    [
        ({"uid": 642}, "owner is uid 642"),
        ({"mode": 0o664}, "others may write it, mode 0664"),
        ({"mode": 0o600}, "bx-brokerd may not read it, mode 0600"),
        ({"kind": Kind.LINK}, "a symbolic link"),
    ],
)
def test_a_grant_that_is_not_the_owners_word(
    appliance: tuple[Installed, FakeMachine], to: dict[str, object], found: str
) -> None:
    made, machine = appliance
    file = put_grant(machine)
    assert faults(placechecks.grants, made) == []
    machine.change(file, **to)
    assert faults(placechecks.grants, made) == [
        (found, f"setfacl -b {file} && chown root:bx-brokerd {file} && chmod 0640 {file}")
    ]


def test_a_grant_that_brokerd_reads_by_a_list_is_one(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    file = put_grant(machine)
    machine.change(file, gid=fakes.OWNER_UID, acl=listed(0o640, u643=4), listed=True)
    assert faults(placechecks.grants, made) == []


# -- granted folders --------------------------------------------------------------------------------


def opening(user: str, letters: str) -> str:
    return f"setfacl -R -m u:{user}:{letters},d:u:{user}:{letters} {NOTES}"


CLOSED_HOME = "setfacl -m u:bx-brokerd:x /home/alice && setfacl -m u:boxmaker-tools:x /home/alice"


@pytest.mark.parametrize(
    ("tool", "verb", "letters"),
    [("search_files", "read", "rX"), ("list_directory", "read", "rX"), ("write_file", "write in", "rwX")],
)
def test_a_folder_that_nobody_gets_to_is_said_with_all_that_opens_it(
    appliance: tuple[Installed, FakeMachine], tool: str, verb: str, letters: str
) -> None:
    made, machine = appliance
    put_grant(machine, tool=tool)
    put_notes(machine)
    assert faults(wayin.folders, made) == [
        (
            (
                "bx-brokerd may not enter /home/alice; boxmaker-tools may not enter /home/alice; "
                f"bx-brokerd may not enter {NOTES}; boxmaker-tools may not {verb} {NOTES}"
            ),
            f"{CLOSED_HOME} && {opening('bx-brokerd', 'X')} && {opening('boxmaker-tools', letters)}",
        )
    ]


def test_what_a_mode_or_a_list_opens_is_open(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    put_grant(machine, tool="search_files")
    put_notes(machine, home=0o711, notes=0o755)
    assert faults(wayin.folders, made) == []
    put_notes(machine)
    lists = {"acl": listed(0o710, u643=1, u650=1), "listed": True}
    machine.change(NOTES.parent, mode=0o710, **lists)
    machine.change(NOTES, mode=0o750, acl=listed(0o750, u643=1, u650=5), listed=True)
    assert faults(wayin.folders, made) == []
    machine.change(NOTES, acl=listed(0o710, u643=1, u650=5))
    assert [found for found, _ in faults(wayin.folders, made)] == [f"boxmaker-tools may not read {NOTES}"], "the mask"


def test_a_deny_and_a_path_that_is_not_there_need_no_way(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    put_grant(machine, mode="deny")
    put_grant(machine, "b.toml", path=Path("/home/alice/later"))
    put_notes(machine)
    assert faults(wayin.folders, made) == []


def test_a_grant_that_cannot_be_read_is_left_to_brokerd(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.texts[put_grant(machine)] = "no grant"
    assert faults(wayin.folders, made) == []


def test_a_folder_that_is_reached_through_a_link_is_two_names_for_brokerd(
    appliance: tuple[Installed, FakeMachine],
) -> None:
    made, machine = appliance
    put_grant(machine)
    put_notes(machine, home=0o755, notes=0o755)
    machine.links[NOTES] = Path("/srv/notes")
    assert faults(wayin.folders, made) == [
        ("a link on the way leads to /srv/notes", "write /srv/notes into the grant and the granted folders")
    ]


def test_a_folder_that_brokerds_container_is_not_shown(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    put_grant(machine)
    put_notes(machine, home=0o755, notes=0o755)
    machine.points = ["/", "/home/alice/notes2"]
    assert [found for found, _ in faults(wayin.folders, made)] == ["it is not"]
    for point in ("/home/alice", "/home/alice/notes"):
        machine.points = ["/", point]
        assert faults(wayin.folders, made) == []


# -- sockets ----------------------------------------------------------------------------------------

BROKER = HOME / "run/broker/broker.sock"
MEND_BROKER = f"chown bx-brokerd:bx-broker {BROKER} && chmod 0660 {BROKER} && setfacl -m u:bx-loopd:rw {BROKER}"
SOCKETS: dict[str, tuple[Callable[[FakeMachine], object], str, str]] = {
    "is not there": (lambda m: m.files.pop(BROKER), "nothing is there", "systemctl status '*brokerd*'"),
    "is dead": (lambda m: m.silent.add(BROKER), "nobody listens", "systemctl status '*brokerd*'"),
    "is a file": (lambda m: m.change(BROKER, kind=Kind.FILE), "a file", MEND_BROKER),
    "is everybody's": (lambda m: m.change(BROKER, mode=0o666), "mode 0666", MEND_BROKER),
    "is another role's": (lambda m: m.change(BROKER, uid=641), "owner is uid 641", MEND_BROKER),
    "lets in another role": (
        lambda m: m.change(BROKER, acl=listed(0o660, u642=6, u641=6)),
        "its access list lets in uid 641, uid 642",
        MEND_BROKER,
    ),
    "lets its client only look": (
        lambda m: m.change(BROKER, acl=listed(0o660, u642=4)),
        "its access list lets in uid 642",
        MEND_BROKER,
    ),
}


@pytest.mark.parametrize(("change", "found", "command"), SOCKETS.values(), ids=SOCKETS.keys())
def test_a_socket_that_is_not_between_its_two(
    appliance: tuple[Installed, FakeMachine], change: Callable[[FakeMachine], object], found: str, command: str
) -> None:
    made, machine = appliance
    change(machine)
    assert faults(socketchecks.sockets, made) == [(found, command)]


# -- images -----------------------------------------------------------------------------------------


def store(machine: FakeMachine, role: str, *images: Image, driver: str = "overlay") -> None:
    text = json.dumps([{"id": one.identity, "names": list(one.names)} for one in images])
    machine.texts[HOME / "containers" / role / driver / f"{driver}-images" / "images.json"] = text
    machine.put(HOME / "containers" / role, Kind.DIRECTORY, 0, 0, 0o711)


def image(name: str, identity: str = TOOL_IMAGE) -> Image:
    return Image(identity=identity, names=(name,))


def with_images(machine: FakeMachine) -> None:
    store(machine, "tools", image("localhost/boxmaker/tools:1"))
    for role in ("inferproxy", "loopd", "brokerd", "gatewayd"):
        store(machine, role, image(f"localhost/boxmaker/{role}:abc"))


def image_faults(made: Installed, report: admin.BrokerStatusReport | None = None) -> list[str]:
    return [one.found for one in imagechecks.images(made, report) if not one.passed]


def test_images_that_are_there(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    with_images(machine)
    for report in (None, REPORT):
        found = list(imagechecks.images(made, report))
        assert [one.name for one in found] == [
            "tool image",
            "image of brokerd",
            "image of gatewayd",
            "image of inferproxy",
            "image of loopd",
        ]
        assert all(one.passed for one in found)
    assert found[1].found == f"localhost/boxmaker/brokerd:abc ({TOOL_IMAGE[:12]})"


def leave_out_gatewayd(machine: FakeMachine) -> None:
    sockets = ("gateway/gateway.sock", "gateway-owner/gateway.sock", "loop-gateway/loop.sock")
    for path in (ETC / "gatewayd.toml", *(HOME / "run" / socket for socket in sockets)):
        del machine.files[path]
    machine.texts = {path: text for path, text in machine.texts.items() if "gatewayd" not in str(path)}


def test_no_image_of_a_role_that_is_left_out_is_asked_for(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    with_images(machine)
    leave_out_gatewayd(machine)
    assert image_faults(made) == []


def test_of_a_role_that_is_left_out_the_directories_are_there(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    leave_out_gatewayd(machine)
    for room in (placechecks.files, placechecks.directories, socketchecks.sockets, rolelimits.limits):
        (found,) = room(made)
        assert found.passed
        assert "gateway" not in found.found
    del machine.files[HOME / "gateway"]
    assert faults(placechecks.directories, made)[0][0] == "nothing is there"


def test_images_in_a_home_that_is_the_storage_are_found(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    with_images(machine)
    for path in [path for path in machine.texts if path.name == "images.json"]:
        held = machine.texts.pop(path)
        home = path.parents[2]
        machine.texts[home / ".local/share/containers/storage" / path.parent.name / path.name] = held
    assert image_faults(made) == []


def test_an_image_of_another_name_is_not_the_roles(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    with_images(machine)
    store(machine, "loopd", image("localhost/boxmaker/loopd2:abc"))
    assert image_faults(made) == ["none"]


@pytest.mark.parametrize("held", ["", "latest\n", "ab" * 31, "g" * 64, "AB" * 32])
def test_a_file_that_names_no_image(appliance: tuple[Installed, FakeMachine], held: str) -> None:
    made, machine = appliance
    with_images(machine)
    machine.texts[ETC / "tool-image"] = held
    assert image_faults(made) == ["the file holds no image ID"]


def test_an_image_that_is_not_loaded_or_not_the_one_that_brokerd_has(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    with_images(machine)
    machine.texts[ETC / "tool-image"] = "cd" * 32
    assert image_faults(made) == ["cdcdcdcdcdcd is not loaded for boxmaker-tools"]
    assert image_faults(made, REPORT) == ["brokerd uses abababababab, the file names cdcdcdcdcdcd: restart brokerd"]


def test_a_tool_image_that_brokerd_proved_and_that_is_gone_since_is_told(
    appliance: tuple[Installed, FakeMachine],
) -> None:
    made, machine = appliance
    with_images(machine)
    store(machine, "tools", image("localhost/boxmaker/tools:1", "cd" * 32))
    (found, *_) = imagechecks.images(made, REPORT)
    assert (found.passed, found.found) == (False, "abababababab is not loaded for boxmaker-tools")
    assert found.why
    assert "systemctl restart boxmaker-tools" in found.command
    machine.files[HOME / "containers" / "tools"] = HIDDEN
    (found, *_) = imagechecks.images(made, REPORT)
    assert found.passed is None, "brokerd proved it when it started, and only root sees whether it is still there"


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_list_of_images_is_read(text: str) -> None:
    assert all(isinstance(one.identity, str) for one in imagechecks.parse(text))


def test_a_list_of_images_that_is_too_deep_is_none() -> None:
    assert imagechecks.parse("[" * 100_000) == []


# -- host -------------------------------------------------------------------------------------------


def test_limits_that_the_host_does_not_enforce_are_named() -> None:
    (found,) = hostchecks.limits(attrs.evolve(REPORT, limits_missing=("cpu", "memory")))
    assert (found.passed, found.found, found.runbook) == (False, "not enforced: cpu, memory", "limits_missing")
    (found,) = hostchecks.limits(REPORT)
    assert found.passed
    assert list(hostchecks.limits(None)) == []


def test_limits_that_nobody_tried_are_not_said_to_hold() -> None:
    (found,) = hostchecks.limits(attrs.evolve(REPORT, limits_held=(), limits_missing=()))
    assert (found.passed, found.found) == (None, "brokerd could not try any yet; its log says why")


def test_a_clock_and_a_disk(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.clock, machine.left = False, Space(free_bytes=1, files_free=9_999)
    assert [found for found, _ in faults(hostchecks.clock, made)] == ["nothing keeps it right"]
    assert [found for found, _ in faults(hostchecks.inodes, made)] == ["9,999 free"]
    machine.clock, machine.left = None, Space(free_bytes=1, files_free=None)
    assert next(hostchecks.clock(made)).passed is None
    assert faults(hostchecks.inodes, made) == []
