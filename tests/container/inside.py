"""What a test looks at from inside a container: `python3 -c` in the tool image, stdlib only, one JSON object out.

The tests send this file's own text. It tries what no tool may do, each in a way that would work without the walls.
"""

import ctypes
import json
import os
import platform
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_TMP = "/tmp"
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000

# What has no wrapper in the C library, by its number.
_NUMBERS = {
    "x86_64": {"userfaultfd": 323, "bpf": 321, "perf_event_open": 298, "keyctl": 250, "add_key": 248, "kcmp": 312},
    "aarch64": {"userfaultfd": 282, "bpf": 280, "perf_event_open": 241, "keyctl": 219, "add_key": 217, "kcmp": 272},
}
_SAME_EVERYWHERE = {"io_uring_setup": 425, "open_tree": 428, "fsopen": 430, "pidfd_getfd": 438}


def names(directory: str) -> list[str]:
    return [path.name for path in Path(directory).iterdir()]


def outcome(number: int, *arguments: int) -> str:
    """Return "ok" or the name of the error."""
    _LIBC.syscall.restype = ctypes.c_long
    done = _LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in arguments))
    return "ok" if done >= 0 else os.strerror(ctypes.get_errno())


def called(name: str, *arguments: object) -> str:
    done = getattr(_LIBC, name)(*arguments)
    return "ok" if done >= 0 else os.strerror(ctypes.get_errno())


def tried(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return error.strerror or type(error).__name__
    return "ok"


def system_calls() -> dict[str, str]:
    numbers = {**_NUMBERS.get(platform.machine(), {}), **_SAME_EVERYWHERE}
    return {
        **{name: outcome(number, 0, 0, 0, 0, 0) for name, number in numbers.items()},
        "unshare user": called("unshare", _NEW_USER),
        "unshare network": called("unshare", _NEW_NET),
        "setns": called("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0),
        "ptrace": called("ptrace", 0, 0, 0, 0),
        "mount": called("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "umount": called("umount2", b"/tmp", 2),
        "chroot": called("chroot", b"/tmp"),
        "mknod": tried(lambda: os.mknod(f"{_TMP}/device", 0o20666, os.makedev(1, 3))),
        "setuid": tried(lambda: os.setuid(0)),
        "process memory": called("process_vm_readv", os.getpid(), None, 0, None, 0, 0),
        "memfd": called("memfd_create", b"x", 0),
    }


def made(family: int, kind: int, protocol: int = 0) -> str:
    return tried(lambda: socket.socket(family, kind, protocol).close())


def sockets() -> dict[str, str]:
    families = {"vsock": 40, "netlink": 16, "packet": 17, "bluetooth": 31, "alg": 38, "key": 15}
    return {
        **{name: made(family, socket.SOCK_DGRAM) for name, family in families.items()},
        "raw": made(socket.AF_INET, socket.SOCK_RAW, 1),
    }


def by_tcp(target: tuple[str, int]) -> str:
    return tried(lambda: socket.create_connection(target, 1).close())


def by_udp(target: tuple[str, int]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return tried(lambda: sender.sendto(b"x", target))


def reached(addresses: list[list[object]]) -> dict[str, str]:
    """Try to reach canaries of the host."""
    targets = [(str(host), int(str(port))) for host, port in addresses]
    return {f"tcp {target[0]}": by_tcp(target) for target in targets} | {
        f"udp {target[0]}": by_udp(target) for target in targets
    }


def abstract(name: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        return tried(lambda: client.connect(f"\0{name}"))


def writable() -> list[str]:
    """Return every directory in which a file can be made, the kernel's own trees among them."""
    found = []
    for directory, below, _ in os.walk("/"):
        if directory.startswith("/proc/"):
            below.clear()
        try:
            path = Path(directory, ".boxmaker-probe")
            path.write_bytes(b"")
            path.unlink()
        except OSError:
            continue
        found.append(directory)
    return sorted(found)


def mounts() -> list[list[str]]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    fields = [line.partition(" - ") for line in lines]
    return [[*before.split(" ")[3:6], after.split(" ")[0]] for before, _, after in fields]


def looks(asked: dict[str, object]) -> dict[str, object]:
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    wanted = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups")
    addresses = asked.get("addresses", [])
    assert isinstance(addresses, list)
    return {
        "status": {line.split(":")[0]: line.split()[1:] for line in status if line.split(":")[0] in wanted},
        "environment": dict(os.environ),
        "descriptors": sorted(map(int, names("/proc/self/fd"))),
        "interfaces": [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]],
        "unix sockets": len(Path("/proc/net/unix").read_text().splitlines()) - 1,
        "system calls": system_calls(),
        "sockets": sockets(),
        "reached": reached(addresses),
        "abstract": abstract(str(asked.get("abstract", "nobody"))),
        "resolved": tried(lambda: socket.getaddrinfo("example.org", 443)),
        "writable": writable(),
        "mounts": mounts(),
        "processes": sorted(int(name) for name in names("/proc") if name.isdecimal()),
        "uid map": Path("/proc/self/uid_map").read_text().split(),
        "exists": {str(path): Path(str(path)).exists() for path in asked.get("paths", [])},  # type: ignore[attr-defined]
        "host name": socket.gethostname(),
        "hosts": Path("/etc/hosts").read_text(),
        "read": {name: len(Path(name).read_bytes()) for name in ("/proc/cmdline", "/proc/kallsyms", "/proc/version")},
        "devices": sorted(names("/dev")),
        "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
        "set-user programs": _set_user_programs(),
    }


def _set_user_programs() -> list[str]:
    found = []
    for directory, below, files in os.walk("/usr"):
        below[:] = [name for name in below if not Path(directory, name).is_symlink()]
        found += [f"{directory}/{name}" for name in files if os.lstat(f"{directory}/{name}").st_mode & 0o6000]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(looks(json.loads(sys.argv[1]))))
