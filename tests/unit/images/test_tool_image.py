"""The built image holds what images/README.md says, nobody can write it, and twice it is the same bytes."""

import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import toolimage
from images import closure, contents, elf, layout, tool_image
from tests.structure import sources

README = (sources.ROOT / "images" / "README.md").read_text(encoding="utf-8")
PACKAGES = f"{contents.PACKAGES}/"
OURS = {"bxcore", "toolkit"}


@pytest.fixture(scope="module")
def image() -> toolimage.Image:
    return toolimage.built()


@pytest.fixture(scope="module")
def outer(image: toolimage.Image) -> Iterator[tarfile.TarFile]:
    with tarfile.open(image.archive) as tar:
        yield tar


@pytest.fixture(scope="module")
def layer(outer: tarfile.TarFile) -> Iterator[tarfile.TarFile]:
    manifest = described(outer, described(outer, "index.json")["manifests"][0])
    with tarfile.open(fileobj=io.BytesIO(read(outer, blob(manifest["layers"][0])))) as tar:
        yield tar


@pytest.fixture(scope="module")
def config(image: toolimage.Image, outer: tarfile.TarFile) -> dict[str, Any]:
    settings: dict[str, Any] = described(outer, f"blobs/sha256/{image.identity}")["config"]
    return settings


def read(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    assert member is not None
    return member.read()


def blob(entry: dict[str, str]) -> str:
    return f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"


def described(tar: tarfile.TarFile, entry: str | dict[str, str]) -> Any:
    return json.loads(read(tar, entry if isinstance(entry, str) else blob(entry)))


def table(heading: str) -> set[str]:
    """Return the first column of the README's table under a heading of the third level."""
    part = README.split(f"### {heading}\n", 1)[1].split("\n## ")[0].split("\n### ")[0]
    return {row[0].strip("`") for row in sources.table_rows(part)}


def build(output: Path, revision: str, **environment: str) -> str:
    script = str(sources.ROOT / "images" / "tool_image.py")
    ended = subprocess.run(
        [sys.executable, script, "--output", str(output), "--revision", revision],
        env={**os.environ, **environment}, cwd=output.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ended.stdout


def test_a_second_build_gives_the_same_bytes(image: toolimage.Image, config: dict[str, Any], tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    revision = config["Labels"]["org.opencontainers.image.revision"]
    assert build(again, revision, TZ="Pacific/Auckland", LC_ALL="C", HOME=str(tmp_path)) == f"{image.identity}\n"
    assert again.read_bytes() == image.archive.read_bytes()


def test_the_id_is_the_digest_of_the_configuration(image: toolimage.Image, outer: tarfile.TarFile) -> None:
    manifest = described(outer, described(outer, "index.json")["manifests"][0])
    assert manifest["config"]["digest"] == f"sha256:{image.identity}"


def test_its_python_packages_are_those_of_the_table(layer: tarfile.TarFile) -> None:
    found = {
        name.removeprefix(PACKAGES).split("-")[0]
        for name in layer.getnames()
        if name.startswith(PACKAGES) and name.endswith(".dist-info")
    }
    assert found == table("Python packages")


def test_nothing_lies_beside_the_standard_library_but_these(layer: tarfile.TarFile) -> None:
    tops = {name.removeprefix(PACKAGES).split("/")[0] for name in layer.getnames() if name.startswith(PACKAGES)}
    modules = {top.split(".")[0] for top in tops} - set(sys.stdlib_module_names) - {"__pycache__", "lib-dynload"}
    strange = {name for name in modules if "-" not in name and not name.startswith("_sysconfigdata")}
    assert strange == OURS | {"attr", "attrs", "bs4", "soupsieve", "typing_extensions"}


def test_its_modules_of_ours_are_those_that_the_tools_import(layer: tarfile.TarFile) -> None:
    found = {
        name
        for name in layer.getnames()
        if name.startswith(tuple(f"{PACKAGES}{ours}/" for ours in OURS)) and name.endswith(".py")
    }
    expected = {path.relative_to(tool_image.PYTHON) for path in closure.modules(tool_image.PYTHON).values()}
    assert found == {f"{PACKAGES}{path}" for path in expected}


def test_its_programs_are_those_of_the_table(layer: tarfile.TarFile) -> None:
    programs = [m for m in layer.getmembers() if m.name.startswith(f"{layout.PROGRAMS}/")]
    assert {m.name.rpartition("/")[2] for m in programs if m.isfile()} == table("Programs in /usr/bin")
    links = {m.name.rpartition("/")[2]: m.linkname for m in programs if m.issym()}
    assert links == {"python": "python3", **dict.fromkeys(layout.APPLETS, "busybox")}


def test_no_other_file_is_a_program(layer: tarfile.TarFile) -> None:
    places = (f"{layout.PROGRAMS}/", f"{layout.LIBRARY}/")
    running = [m for m in layer.getmembers() if m.isfile() and m.mode & 0o111]
    assert [m.name for m in running if not m.name.startswith(places)] == []
    assert all(elf.is_elf(read(layer, m.name)) for m in running)


def test_busybox_knows_its_other_names() -> None:
    told = subprocess.run([contents.busybox(), "--list"], capture_output=True, text=True, check=True)
    assert set(layout.APPLETS) - set(told.stdout.split()) == set()


def test_nobody_but_root_may_write_anything_and_nothing_is_setuid(layer: tarfile.TarFile) -> None:
    members = [m for m in layer.getmembers() if not m.issym()]
    assert {(m.uid, m.gid) for m in layer.getmembers()} == {(0, 0)}
    assert [m.name for m in members if m.mode & (stat.S_ISUID | stat.S_ISGID)] == []
    assert [m.name for m in members if m.mode & 0o022] == [layout.SCRATCH]
    assert {m.type for m in layer.getmembers()} == {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}


def test_every_place_that_is_mounted_over_is_empty(layer: tarfile.TarFile) -> None:
    for place in (layout.SCRATCH, "proc", "sys", "dev/shm"):
        assert [name for name in layer.getnames() if name.startswith(f"{place}/")] == []
    assert all(layer.getmember(file).size == 0 for file in layout.MOUNT_FILES)


def test_all_that_it_has_lies_in_its_own_places(layer: tarfile.TarFile) -> None:
    parents = {"", "etc", "usr"}
    strange = [
        name
        for name in layer.getnames()
        if name not in parents and not any(f"/{name}/".startswith(f"{place}/") for place in layout.OWN)
    ]
    assert strange == []


def test_every_python_file_comes_compiled_and_is_never_checked(layer: tarfile.TarFile) -> None:
    names = set(layer.getnames())
    sources_in_it = [name for name in names if name.endswith(".py")]
    assert len(sources_in_it) > 300
    for name in sources_in_it:
        directory, _, file = name.rpartition("/")
        compiled = f"{directory}/__pycache__/{file.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        assert compiled in names
        assert read(layer, compiled)[4:8] == b"\x01\0\0\0"


def test_no_library_has_a_search_path(layer: tarfile.TarFile) -> None:
    libraries = [m.name for m in layer.getmembers() if m.isfile() and m.mode & 0o111]
    dynamic = [name for name in libraries if elf.search_paths(read(layer, name))]
    assert dynamic == []


def test_nothing_of_it_says_where_it_was_built_or_holds_a_secret(layer: tarfile.TarFile) -> None:
    ours = [name for name in layer.getnames() if name.startswith(tuple(f"{PACKAGES}{each}/" for each in OURS))]
    here = os.fsencode(sources.ROOT)
    assert [n for n in ours if layer.getmember(n).isfile() and here in read(layer, n)] == []
    assert [name for name in layer.getnames() if name.endswith((".pem", ".key", ".a", ".pth"))] == []


def test_it_says_its_version_and_revision(config: dict[str, Any]) -> None:
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == tool_image.version()
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?|unknown", labels["org.opencontainers.image.revision"])


def test_a_container_of_it_is_not_root_and_runs_the_tools(config: dict[str, Any]) -> None:
    assert config["User"] == "1000:1000"
    assert config["Cmd"] == ["/usr/bin/python3", "-I", "-S", "-m", "toolkit"]
    assert "Entrypoint" not in config
    assert "Volumes" not in config


def test_it_stays_below_its_size(layer: tarfile.TarFile) -> None:
    megabytes = sum(m.size for m in layer.getmembers()) / 1e6
    assert megabytes < 70
