"""Each built image holds what its table says and no more, nobody can write it, and twice it is the same bytes."""

import os
import re
import stat
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from images import build, closure, elf, layout, oci, table
from images.table import Image
from tests.structure import sources
from tests.unit.images.archive import Opened

MOST_MEGABYTES = {"inferproxy": 45, "tools": 70}
MOST_MEGABYTES_OF_OTHERS = 60
PLACES_OF_A_ROLE = {*layout.OWN, "/usr/share/zoneinfo"}
SECRETS = re.compile(rb"-----BEGIN (?!CERTIFICATE)[A-Z ]+-----\n|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}")
INSTALLERS = {"pip", "setuptools", "wheel", "ensurepip", "venv", "distutils", "_distutils_hack", "pkg_resources"}


def rebuilt(image: Image, output: Path, revision: str, *, umask: int, **environment: str) -> str:
    script = ["tool_image.py"] if image.shell else ["role_image.py", "--role", image.name]
    program = str(build.ROOT / "images" / script[0])
    ended = subprocess.run(
        [sys.executable, program, *script[1:], "--output", str(output), "--revision", revision],
        env={**os.environ, **environment}, cwd=output.parent, capture_output=True, text=True, check=True, umask=umask,
    )  # fmt: skip
    return ended.stdout


def label(opened: Opened, name: str) -> str:
    return str(opened.config["config"]["Labels"][f"org.opencontainers.image.{name}"])


def test_a_second_build_gives_the_same_bytes(stated: Image, built: Path, opened: Opened, tmp_path: Path) -> None:
    """Wherever, by whomever and with whatever in the environment: so nothing of these is in it either."""
    (tmp_path / "sitecustomize.py").write_text("import asyncio, decimal, unittest\n")
    ours = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path), "BOXMAKER_TOKEN": "secret"}
    other = {"LC_ALL": "C", "PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2", "TZ": "Pacific/Auckland"}
    again = tmp_path / "again.tar"
    told = rebuilt(stated, again, label(opened, "revision"), umask=0o077, **ours, **other)
    assert told.split() == [opened.identity, *([] if stated.shell else [opened.name.rpartition(":")[2]])]
    assert again.read_bytes() == built.read_bytes()


def test_its_python_packages_are_those_of_the_table(stated: Image, opened: Opened) -> None:
    assert opened.packages() == set(stated.packages)


def test_its_modules_of_ours_are_those_that_the_program_imports(stated: Image, opened: Opened) -> None:
    found = {name for name in opened.library("") if name.split("/")[0] in sources.packages()}
    wanted = [*closure.modules(build.PYTHON, stated.program).values(), *closure.data(build.PYTHON, stated.program)]
    assert {name for name in found if "__pycache__" not in name} == {
        str(path.relative_to(build.PYTHON)) for path in wanted
    }


def test_nothing_else_lies_beside_the_standard_library(stated: Image, opened: Opened) -> None:
    tops = {name.split("/")[0].split(".")[0] for name in opened.library()}
    strange = {top for top in tops - set(sys.stdlib_module_names) if not top.startswith("_sysconfigdata")}
    found = {top for top in strange if "-" not in top}
    packages = closure.stated(stated, build.PYTHON, Path(sysconfig.get_path("purelib")))
    of_packages = {top for each in packages for top in closure._tops(each)}
    assert found <= {"bxcore", stated.program} | of_packages
    assert not found & INSTALLERS


def test_its_programs_are_the_interpreter_and_a_shell_where_one_is_wanted(stated: Image, opened: Opened) -> None:
    found = {name: opened.members[name] for name in opened.members if name.startswith(f"{layout.PROGRAMS}/")}
    files = {name.rpartition("/")[2] for name, member in found.items() if member.isfile()}
    assert files == {"python3", *(["busybox"] if stated.shell else [])}
    links = {name for name, member in found.items() if member.issym()}
    assert links == {name for name in layout.links(stated) if name.startswith(f"{layout.PROGRAMS}/")}
    assert bool(links) == stated.shell


def test_no_other_file_is_a_program(opened: Opened) -> None:
    running = [name for name in opened.files() if opened.members[name].mode & 0o111]
    places = (f"{layout.PROGRAMS}/", f"{layout.LIBRARY}/")
    assert [name for name in running if not name.startswith(places)] == []
    assert all(elf.is_elf(opened.read(name)) for name in running)
    assert [name for name in running if elf.search_paths(opened.read(name))] == []


def test_nobody_but_root_may_write_anything_and_nothing_is_setuid(stated: Image, opened: Opened) -> None:
    members = opened.members.values()
    assert {(m.uid, m.gid, m.mtime) for m in members} == {(0, 0, 0)}
    assert [m.name for m in members if m.mode & (stat.S_ISUID | stat.S_ISGID)] == []
    open_to_all = [m.name for m in members if m.mode & 0o022 and not m.issym()]
    assert open_to_all == ([layout.SCRATCH] if stated.shell else [])
    assert {m.type for m in members} == {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}


def test_every_place_that_is_mounted_over_is_empty(opened: Opened) -> None:
    for place in (layout.SCRATCH, "proc", "sys", "dev/shm"):
        assert [name for name in opened.members if name.startswith(f"{place}/")] == []
    assert all(opened.members[file].size == 0 for file in layout.MOUNT_FILES)


def test_all_that_it_has_lies_in_the_images_own_places(stated: Image, opened: Opened) -> None:
    parents = {"", "etc", "usr", "usr/share"}
    places = layout.OWN if stated.shell else PLACES_OF_A_ROLE
    strange = [
        name
        for name in opened.members
        if name not in parents and not any(f"/{name}/".startswith(f"{place}/") for place in places)
    ]
    assert strange == []


def test_only_who_asks_for_them_has_certificates_and_time_zones(stated: Image, opened: Opened) -> None:
    assert (layout.CA_BUNDLE in opened.members) == stated.certificates
    assert (f"{layout.TIME_ZONES}/Europe/Berlin" in opened.members) == stated.time_zones


def test_every_python_file_comes_compiled_and_is_never_checked(opened: Opened) -> None:
    found = opened.files(".py")
    assert len(found) > 150
    for name in found:
        directory, _, file = name.rpartition("/")
        compiled = f"{directory}/__pycache__/{file.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        assert opened.read(compiled)[4:8] == b"\x01\0\0\0"


def test_it_holds_no_secret(opened: Opened) -> None:
    assert [name for name in opened.files() if SECRETS.search(opened.read(name))] == []
    endings = (".pem", ".key", ".p12", ".netrc", ".pgp", ".asc", ".env", ".a", ".pth")
    assert [name for name in opened.members if name.endswith(endings)] == []


def test_it_says_nothing_of_who_built_it(opened: Opened) -> None:
    """Only the interpreter's own libraries name the place that they were compiled for; nothing looks there."""
    here = {os.fsencode(build.ROOT), os.fsencode(Path.home()) + b"/", os.fsencode(sys.prefix)} - {b"//", b"/usr"}
    compiled_for = os.fsencode(sys.base_prefix)
    for name in opened.files():
        content = opened.read(name)
        if elf.is_elf(content):
            content = content.replace(compiled_for, b"")
        assert not [place for place in here if place in content], name


def test_a_container_starts_with_the_environment_of_the_table(stated: Image, opened: Opened) -> None:
    assert dict(entry.split("=", 1) for entry in opened.config["config"]["Env"]) == layout.environment(stated)


def test_its_name_and_labels(stated: Image, opened: Opened) -> None:
    tag = build.version() if stated.name == table.TOOLS else oci.content_tag(opened.identity)
    assert opened.name == f"localhost/boxmaker/{stated.name}:{tag}"
    assert label(opened, "title") == stated.title
    assert label(opened, "version") == build.version()
    assert re.fullmatch(r"[0-9a-f]{40}(-changed)?|unknown", label(opened, "revision"))
    assert opened.config["created"] == "1970-01-01T00:00:00Z"


def test_a_container_of_it_is_not_root_and_runs_its_program(stated: Image, opened: Opened) -> None:
    settings = opened.config["config"]
    assert settings["User"] == ("1000:1000" if stated.shell else "65534:65534")
    assert settings["Cmd"] == ["/usr/bin/python3", "-I", "-S", "-m", stated.program]
    assert not {"Entrypoint", "Volumes", "ExposedPorts"} & set(settings)


def test_it_stays_below_its_size(stated: Image, opened: Opened) -> None:
    assert opened.size < MOST_MEGABYTES.get(stated.name, MOST_MEGABYTES_OF_OTHERS) * 1_000_000


def test_the_c_library_finds_what_it_loads_to_end_a_thread(opened: Opened) -> None:
    assert {f"{layout.LIBRARY}/libc.so.6", f"{layout.LIBRARY}/libgcc_s.so.1"} <= set(opened.members)


def test_the_search_for_secrets_finds_one() -> None:
    found = [b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"-----BEGIN PRIVATE KEY-----\n", b"x AKIA" + b"A" * 16]
    assert all(SECRETS.search(each) for each in found)
    assert not SECRETS.search(b"-----BEGIN CERTIFICATE-----\n")
