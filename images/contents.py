"""What of this machine and of this checkout becomes which file of the tool image.

Reads: the interpreter that runs this, its standard library, the shared libraries that both need, busybox,
the CA bundle, the Python packages, python/toolkit and what it imports. Runs `ldd` on files of the
interpreter's own. Invariant: every Python file comes with compiled code that is never checked against it.
"""

import importlib.util
import marshal
import platform
import re
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from images import closure, elf, layout
from images.oci import Directory, Entry, File, Link

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"{layout.LIBRARY}/{_PYTHON}"
"""Where Python code lies in the image: the standard library's directory, which is searched first and always."""

_BUSYBOX = (Path("/usr/bin/busybox"), Path("/bin/busybox"), Path("/usr/lib/initcpio/busybox"))
_CA_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/ssl/certs/ca-bundle.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
)
_LIBRARY = re.compile(r"^\s+(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_UNCHECKED_HASH = struct.pack("<I", 0b01)  # the flags of PEP 552: a hash stands here, and nobody compares it
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Unbuildable(Exception):
    """What the image is made of is not here. The text says what to install."""


def architecture() -> str:
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise Unbuildable(f"no tool image for {machine}; there are {', '.join(_ARCHITECTURES)}")
    return _ARCHITECTURES[machine]


def tree(python: Path, packages: Path) -> dict[str, Entry]:
    """Return the whole image. `python` holds our packages, `packages` the installed ones."""
    found: dict[str, Entry] = {path: Directory() for path in layout.MOUNT_POINTS}
    found[layout.SCRATCH] = Directory(everyone=True)
    found |= {path: File(b"") for path in layout.MOUNT_FILES}
    found |= {path: Link(target) for path, target in layout.LINKS.items()}
    found |= {path: File(text.encode()) for path, text in layout.TEXTS.items()}
    found |= _busybox()
    found[layout.CA_BUNDLE] = File(ca_bundle().read_bytes())
    found |= _interpreter()
    found |= _ours(python)
    found |= _installed(python, packages)
    return _compiled(found)


def busybox() -> Path:
    return _first(_BUSYBOX, "busybox", "busybox-static")


def ca_bundle() -> Path:
    return _first(_CA_BUNDLES, "no bundle of certificate authorities", "ca-certificates")


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


def _busybox() -> dict[str, Entry]:
    content = busybox().read_bytes()
    if libraries := shared_libraries([busybox()]):
        raise Unbuildable(f"{busybox()} needs {libraries[0]}; Debian's busybox-static needs none")
    applets = {f"{layout.PROGRAMS}/{name}": Link("busybox") for name in layout.APPLETS}
    return {f"{layout.PROGRAMS}/busybox": File(content, runs=True), **applets}


def _interpreter() -> dict[str, Entry]:
    """Return the interpreter, its standard library, and the shared libraries of both."""
    program = interpreter()
    library = dict(_library_files(standard_library()))
    loaded = [program, *(path for path in library.values() if path.suffix == ".so")]
    return {
        f"{layout.PROGRAMS}/python3": File(elf.lean(program.read_bytes()), runs=True),
        **{f"{PACKAGES}/{name}": _file(path) for name, path in library.items()},
        **{
            f"{layout.LIBRARY}/{path.name}": File(elf.lean(path.read_bytes()), runs=True)
            for path in shared_libraries(loaded)
        },
    }


def _library_files(top: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is wanted of the standard library, by its path below `top`."""
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top)
        if path.suffix in (".py", ".so") and path.is_file() and _wanted(name):
            yield str(name), path


def _wanted(name: Path) -> bool:
    if layout.LEFT_OUT_DIRECTORIES.intersection(name.parts[:-1]) or name.parts[0].startswith("config-"):
        return False
    if name.suffix == ".so":
        return not name.name.startswith(layout.LEFT_OUT_EXTENSIONS)
    return name.stem not in layout.LEFT_OUT_MODULES


def shared_libraries(programs: list[Path]) -> list[Path]:
    """Return what the loader takes along for them, the loader itself included.

    What it does not find is left out: such a module does not load on this machine either.
    """
    told = subprocess.run(
        ["ldd", *map(str, programs)], env={"LC_ALL": "C"}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )  # ldd fails for a static program, and says so
    found = {Path(path).name: Path(path) for path in _LIBRARY.findall(told.stdout.decode())}
    return [path for _, path in sorted(found.items())]


def _ours(python: Path) -> dict[str, Entry]:
    return {f"{PACKAGES}/{path.relative_to(python)}": _file(path) for path in closure.modules(python).values()}


def _installed(python: Path, packages: Path) -> dict[str, Entry]:
    """Return the files of the Python packages: code, licences, and the metadata that name and version stand in."""
    found: dict[str, Entry] = {}
    for distribution in closure.distributions(closure.modules(python).values(), packages):
        for file in distribution.files or ():
            if _is_code(file.parts) or _is_notice(file.parts):
                found[f"{PACKAGES}/{file}"] = _file(Path(str(file.locate())))
    return found


def _is_code(parts: tuple[str, ...]) -> bool:
    return parts[-1].endswith((".py", ".so")) and not {"tests", "testing", ".."}.intersection(parts)


def _is_notice(parts: tuple[str, ...]) -> bool:
    return parts[0].endswith(".dist-info") and (parts[-1] == "METADATA" or "LICENSE" in parts[-1].upper())


def _file(path: Path) -> File:
    content = path.read_bytes()
    return File(elf.lean(content), runs=True) if elf.is_elf(content) else File(content)


def _compiled(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Add to each Python file its compiled code: nothing can be written in a container, and compiling takes time.

    A hash of the source instead of its time, so that the bytes are the same each time, and never checked.
    """
    found = dict(entries)
    for path, entry in sorted(entries.items()):
        if isinstance(entry, File) and path.endswith(".py"):
            code = compile(entry.content, f"/{path}", "exec", dont_inherit=True, optimize=0)
            head = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(entry.content)
            found[importlib.util.cache_from_source(path)] = File(head + marshal.dumps(code))
    return found
