"""What of this machine and of this checkout becomes which file of an image.

Reads: the interpreter that runs this, its standard library, the Python packages, the shared libraries that these need,
our package and what it imports; where the image has them, busybox, the CA bundle and the time zones. Runs `ldd` on
files of the interpreter's own. Invariant: every Python file comes with compiled code (bytecode.py).
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from images import bytecode, closure, elf, layout, stdlib, zones
from images.oci import Directory, Entry, File, Link
from images.table import Image

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"{layout.LIBRARY}/{_PYTHON}"
"""Where Python code lies in the image: the standard library's directory, which is searched first and always."""

BUILD_SETTINGS = f"""# In place of how and where the interpreter was built.
build_time_vars = {{"TZPATH": "/{layout.TIME_ZONES}"}}
""".encode()

_BUSYBOX = (Path("/usr/bin/busybox"), Path("/bin/busybox"), Path("/usr/lib/initcpio/busybox"))
_CA_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/ssl/certs/ca-bundle.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
)
_TIME_ZONES = (Path("/usr/share/zoneinfo/Etc/UTC"),)
_LATE = ("libgcc_s.so.1",)  # by pthread_exit, which ends a process that exits while a daemon thread runs
_LIBRARY = re.compile(r"^\s+(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Unbuildable(Exception):
    """What the image is made of is not here. The text says what to install."""


def architecture() -> str:
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise Unbuildable(f"no image for {machine}; there are {', '.join(_ARCHITECTURES)}")
    return _ARCHITECTURES[machine]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the parts of an image lie that are no Python code. None: where Debian has them."""

    busybox: Path | None = None
    certificates: Path | None = None
    time_zones: Path | None = None


DEBIAN = Places()


def tree(image: Image, python: Path, packages: Path, places: Places = DEBIAN) -> dict[str, Entry]:
    """Return the whole image. `python` holds our packages, `packages` the installed ones.

    Raises Unbuildable, closure.Missing, bytecode.Uncompilable.
    """
    found: dict[str, Entry] = {path: Directory() for path in layout.MOUNT_POINTS}
    found |= {path: File(b"") for path in layout.MOUNT_FILES}
    found |= {path: Link(target) for path, target in layout.links(image).items()}
    found |= {path: File(text.encode()) for path, text in layout.texts(image).items()}
    if image.shell:
        found[layout.SCRATCH] = Directory(everyone=True)
        found[f"{layout.PROGRAMS}/busybox"] = File(_static(places.busybox or busybox()), runs=True)
    if image.certificates:
        found[layout.CA_BUNDLE] = File((places.certificates or ca_bundle()).read_bytes())
    if image.time_zones:
        found |= zones.entries(places.time_zones or time_zones())
    code = {**_library_files(image), **_installed(image, python, packages), **_ours(python, image.program)}
    found |= _interpreter(list(code.values()))
    found |= {f"{PACKAGES}/{name}": _file(path) for name, path in code.items()}
    return _compiled(found)


def machine(image: Image) -> Iterator[Path]:
    """Yield the places of this machine that decide what is in the image. Raises Unbuildable."""
    yield interpreter()
    yield standard_library()
    if image.shell:
        yield busybox()
    if image.certificates:
        yield ca_bundle()
    if image.time_zones:
        yield time_zones()


def busybox() -> Path:
    return _first(_BUSYBOX, "busybox", "busybox-static")


def ca_bundle() -> Path:
    return _first(_CA_BUNDLES, "no bundle of certificate authorities", "ca-certificates")


def time_zones() -> Path:
    return _first(_TIME_ZONES, "the rules of time zones", "tzdata").parents[1]


def interpreter() -> Path:
    """Return the real file of the interpreter that runs this; a virtual environment links to it."""
    return Path(sys.executable).resolve()


def standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _first(places: tuple[Path, ...], what: str, package: str) -> Path:
    for place in places:
        if place.is_file():
            return place
    raise Unbuildable(f"{what} is not here; Debian has it in {package}")


def _static(program: Path) -> bytes:
    if libraries := shared_libraries([program]):
        raise Unbuildable(f"{program} needs {libraries[0]}; Debian's busybox-static needs none")
    return program.read_bytes()


def _interpreter(code: list[Path]) -> dict[str, Entry]:
    """Return the interpreter, and the shared libraries that it and the extensions among the code need."""
    program = interpreter()
    libraries = shared_libraries([program, *(path for path in code if path.suffix == ".so")])
    return {
        f"{layout.PROGRAMS}/python3": File(elf.lean(program.read_bytes()), runs=True),
        **{f"{layout.LIBRARY}/{path.name}": _file(path) for path in [*libraries, *_loaded_late(libraries)]},
    }


def _library_files(image: Image) -> dict[str, Path]:
    """Return what the image has of the standard library, by its path in the directory of that."""
    top = standard_library()
    files = {path.relative_to(top): path for path in sorted(top.rglob("*")) if path.suffix in (".py", ".so")}
    return {str(name): path for name, path in files.items() if stdlib.wanted(name, image.parts) and path.is_file()}


def shared_libraries(programs: list[Path]) -> list[Path]:
    """Return what the loader takes along for them, the loader itself included.

    What it does not find is left out: such a module does not load on this machine either.
    """
    told = subprocess.run(
        ["ldd", *map(str, programs)],
        env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )  # ldd fails for a static program, and says so
    found = {Path(path).name: Path(path) for path in _LIBRARY.findall(told.stdout.decode())}
    return [path for _, path in sorted(found.items())]


def _loaded_late(libraries: list[Path]) -> Iterator[Path]:
    """Yield what the C library loads by itself, from beside itself; no program names it."""
    for name in _LATE:
        for directory in {path.parent for path in libraries if path.name.startswith("libc.so")}:
            if (directory / name).is_file():
                yield directory / name
                break
        else:
            raise Unbuildable(f"{name} is not beside the C library; Debian has it in libgcc-s1")


def _ours(python: Path, program: str) -> dict[str, Path]:
    files = [*closure.modules(python, program).values(), *closure.data(python, program)]
    return {str(path.relative_to(python)): path for path in files}


def _installed(image: Image, python: Path, packages: Path) -> dict[str, Path]:
    """Return the files of the Python packages: code, licences, and the metadata that name and version stand in."""
    return {
        str(file): Path(str(file.locate()))
        for distribution in closure.stated(image, python, packages)
        for file in distribution.files or ()
        if _is_code(file.parts) or _is_notice(file.parts)
    }


def _is_code(parts: tuple[str, ...]) -> bool:
    return parts[-1].endswith((".py", ".so")) and not {"tests", "testing", ".."}.intersection(parts)


def _is_notice(parts: tuple[str, ...]) -> bool:
    return parts[0].endswith(".dist-info") and (parts[-1] == "METADATA" or "LICENSE" in parts[-1].upper())


def _file(path: Path) -> File:
    if path.name.startswith("_sysconfigdata"):
        return File(BUILD_SETTINGS)
    content = path.read_bytes()
    return File(elf.lean(content), runs=True) if elf.is_elf(content) else File(content)


def _compiled(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Add to each Python file its compiled code: nothing can be written in a container, and compiling takes time."""
    sources = {
        f"/{path}": entry.content for path, entry in entries.items() if isinstance(entry, File) and path.endswith(".py")
    }
    found = dict(entries)
    for source, content in bytecode.compiled(sources).items():
        # Said, or the name would follow how this process was started.
        compiled = importlib.util.cache_from_source(source.removeprefix("/"), optimization="")
        found[compiled] = File(content)
    return found
