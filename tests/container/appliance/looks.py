"""What a role's place looks like from inside: a program for `python3 -I -S -c` in the role's own container.

Reads one JSON object from its first argument, writes one line to stdout: MARK and a JSON object, subject -> name ->
what came of it. "ok" always means that it worked. It tries; expected.py says what should have come of it.
"""

import json
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.container import inside
from tests.container.inside import tried

MARK = "@@looks "

Found = dict[str, str]

_LIMITS = ("NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE")
_CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_SHOWN_OPTIONS = ("ro", "rw", "nosuid", "nodev", "noexec")
_NET_CHOICES = {"raw tcp": (socket.AF_INET, socket.SOCK_RAW, 6), "ping": (socket.AF_INET, socket.SOCK_DGRAM, 1)}
_DNS_QUESTION = struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + b"\7example\3org\0" + struct.pack("!2H", 1, 1)


def identity() -> Found:
    status = _status()
    return {
        **{name: " ".join(status[name]) for name in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp")},
        "host uid": Path("/proc/self/uid_map").read_text(encoding="ascii").split()[1],
        "host gid": Path("/proc/self/gid_map").read_text(encoding="ascii").split()[1],
        "host name": socket.gethostname(),
        "umask": f"{_umask():04o}",
    }


def capabilities() -> Found:
    status = _status()
    return {name: str(int(status[name][0], 16)) for name in _CAPABILITY_SETS}


def network(addresses: list[tuple[str, int]], dns_port: int) -> Found:
    resolvers = _resolvers()
    found = {f"interface {name}": "there" for name in _interfaces()}
    found |= {f"tcp {host}": inside.by_tcp((host, port)) for host, port in addresses}
    found |= {f"udp {host}": inside.by_udp((host, port)) for host, port in addresses}
    found |= {f"dns {host}": _asked_dns(host, dns_port) for host, _ in addresses}
    found |= {f"dns of resolv.conf {host}": _asked_dns(host, 53) for host in resolvers}
    found["getaddrinfo"] = tried(lambda: socket.getaddrinfo("example.org", 443))
    found["routes"] = str(len(Path("/proc/net/route").read_text(encoding="ascii").splitlines()) - 1)
    return found


def kinds_of_socket() -> Found:
    return inside.sockets() | {name: inside.made(*what) for name, what in _NET_CHOICES.items()}


def abstract(name: str) -> Found:
    known = Path("/proc/net/unix").read_text(encoding="ascii", errors="replace").splitlines()[1:]
    named = [line for line in known if len(line.split()) > 7]
    return {"connect to the host's": inside.abstract(name), "names in /proc/net/unix": str(len(named))}


def mounts() -> Found:
    found = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        point, options = before.split(" ")[4:6]
        shown = [option for option in _SHOWN_OPTIONS if option in options.split(",")]
        # What is mounted twice at one place counts as the upper one, which comes later.
        kind = "nothing" if _hides_a_file(point) else after.split(" ")[0]
        found[_unescaped(point)] = f"{kind} {','.join(shown)}"
    return found


def writable() -> Found:
    """Return every directory in which a file can be made, the topmost, and every file that can be written."""
    found: Found = {}
    for directory in inside.writable():
        if not any(directory.startswith(f"{above}/") for above in found):
            found[directory] = "ok"
    for directory, below, files in os.walk("/"):
        if directory in ("/proc", *found):
            below[:] = ["sys"] if directory == "/proc" else []
            continue
        for name in files:
            path = f"{directory}/{name}"
            if stat.S_ISREG(os.lstat(path).st_mode) and tried(lambda path=path: _opened(path, os.O_WRONLY)) == "ok":  # type: ignore[misc]
                found[path] = "ok"
    return found


def paths(asked: list[str]) -> Found:
    """Say of each: absent, what it is called where it cannot be opened, "ok", or the names in it for a directory."""
    return {path: _looked_at(path) for path in asked}


def sockets(asked: list[str]) -> Found:
    """Return every socket, and whether somebody answers, and whether that is Podman.

    Those that are asked for, since they may lie where nobody may look, and all that can be found.
    """
    found = {path: _called(path) for path in asked if _is_socket(path)}
    for directory, below, names in os.walk("/"):
        below[:] = [name for name in below if f"{directory}/{name}" not in ("//proc", "//sys")]
        there = [path for path in (f"{directory}/{name}" for name in names) if _is_socket(path)]
        found |= {path: _called(path) for path in there}
    return found


def secrets(words: list[str]) -> Found:
    """Say where in what this process can read without asking anybody one of the words stands; they come backwards."""
    words = [word[::-1] for word in words]
    places = [Path("/proc/1/environ"), Path("/proc/1/cmdline"), Path("/proc/self/mountinfo"), Path("/proc/cmdline")]
    found = {place: _looked_at(place) for place in ("/run/credentials", "/run/secrets", "/root", "/home")}
    for path in (*places, *_small_files("/etc"), *_small_files("/run")):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        found |= {f"{path}: {word}": "read" for word in words if word.encode() in text}
    return found


def surroundings() -> Found:
    return {
        "processes": " ".join(str(number) for number in sorted(_processes())),
        "process 1 is": Path("/proc/1/cmdline").read_bytes().partition(b"\0")[0].decode(),
        "set-user programs": " ".join(_with_set_user()),
        "devices": " ".join(sorted(inside.names("/dev"))),
        "descriptors beyond 2": str(len([fd for fd in map(int, inside.names("/proc/self/fd")) if fd > 3])),
        "control group": _control_group(),
    }


def limits() -> Found:
    return {name: str(resource.getrlimit(getattr(resource, f"RLIMIT_{name}", _MSGQUEUE))[1]) for name in _LIMITS}


_MSGQUEUE = 12  # has no name in Python


def report(asked: dict[str, object]) -> dict[str, Found]:
    given = json.loads(json.dumps(asked))
    return {
        "identity": identity(),
        "capabilities": capabilities(),
        "network": network([(host, port) for host, port in given["addresses"]], given["dns port"]),
        "kinds of socket": kinds_of_socket(),
        "abstract names": abstract(given["abstract"]),
        "mounts": mounts(),
        "writable": writable(),
        "paths": paths(given["paths"]),
        "sockets": sockets(given["paths"]),
        "secrets": secrets(given["words"]),
        "environment": dict(os.environ),
        "surroundings": surroundings(),
        "limits": limits(),
        # Last: where one of them works, this process is somewhere else afterwards.
        "system calls": inside.system_calls(),
    }


# -- inside -----------------------------------------------------------------------------------------


def _status() -> dict[str, list[str]]:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: line.split()[1:] for line in lines}


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _interfaces() -> list[str]:
    return [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]]


def _resolvers() -> list[str]:
    try:
        lines = Path("/etc/resolv.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.split()[1] for line in lines if line.startswith("nameserver ")]


def _asked_dns(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.5)
        try:
            asking.sendto(_DNS_QUESTION, (host, port))
            asking.recv(512)
        except OSError as error:
            return error.strerror or type(error).__name__
    return "ok"


def _hides_a_file(point: str) -> bool:
    """Say whether it is the null device in a place of the kernel's. The file system of that is the host's matter."""
    if not point.startswith(("/proc/", "/sys/")):
        return False
    try:
        return Path(point).stat().st_rdev == os.makedev(1, 3)
    except OSError:
        return False


def _unescaped(point: str) -> str:
    return point.encode().decode("unicode_escape").encode("latin-1").decode()


def _opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK))


def _looked_at(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        return "absent" if isinstance(error, FileNotFoundError | NotADirectoryError) else f"{error.strerror}"
    if stat.S_ISSOCK(mode):
        return _called(path)
    if stat.S_ISDIR(mode):
        try:
            return " ".join(["has", *sorted(inside.names(path))])
        except OSError as error:
            return f"there: {error.strerror}"
    return tried(lambda: _opened(path, os.O_RDONLY))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _called(path: str) -> str:
    """Connect, and ask for what only Podman's service knows."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        try:
            client.connect(path)
        except OSError as error:
            return error.strerror or type(error).__name__
        try:
            client.sendall(b"GET /_ping HTTP/1.0\r\nHost: x\r\n\r\n")
            return "podman" if b"Libpod-Api-Version" in client.recv(4096) else "connected"
        except OSError:
            return "connected"


def _small_files(top: str) -> Iterator[Path]:
    for directory, _, names in os.walk(top):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and path.stat().st_size < 65_536:
                yield path


def _processes() -> list[int]:
    return [int(name) for name in inside.names("/proc") if name.isdecimal()]


def _with_set_user() -> list[str]:
    found = []
    for directory, below, files in os.walk("/"):
        below[:] = [name for name in below if f"{directory}/{name}" not in ("//proc", "//sys", "//dev")]
        found += [f"{directory}/{name}" for name in files if os.lstat(f"{directory}/{name}").st_mode & 0o6000]
    return found


def _control_group() -> str:
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    return " ".join(sorted({line.split(":", 2)[2] for line in lines}))


def main() -> None:
    asked = json.loads(sys.argv[1])
    sys.stdout.write(f"{MARK}{json.dumps(report(asked))}\n")
