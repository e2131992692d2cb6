"""What the probe does inside a container: tries each way out, and each limit, and says which of them held.

Runs under the tool image's interpreter as `python3 -c`, with nothing of ours imported; its one argument is the
limits as JSON. Writes one JSON object to stdout: name of a limit or wall -> whether it held. Not imported by brokerd.
"""

import ctypes
import errno
import hashlib
import json
import mmap
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_NEW_USER = 0x10000000
_SHORT_S = 0.3
_VSOCK = 40
_PAGE = 4096
_TMP = Path("/tmp")  # noqa: S108  # in the container, a file system of its own


def refused(try_it: Callable[[], object]) -> bool:
    """Whether the kernel says no."""
    try:
        try_it()
    except (OSError, MemoryError, RuntimeError):
        return True
    return False


def _unshare() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def _interfaces() -> set[str]:
    return {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]}


def walls() -> dict[str, bool]:
    """Without one of these no tool may run."""
    return {
        "system calls": refused(_unshare) and refused(lambda: socket.socket(_VSOCK, socket.SOCK_STREAM)),
        "capabilities": int(_status("CapEff"), 16) == int(_status("CapBnd"), 16) == 0,
        "new privileges": _status("NoNewPrivs") == "1" and _status("Seccomp") == "2",
        "network": _interfaces() <= {"lo"},
        "read-only root": refused(lambda: Path("/probe").write_bytes(b"")),
        "user": os.getuid() == os.geteuid() == 1000,
    }


def limits(most: dict[str, int]) -> dict[str, bool]:
    """What may not hold on this host; the order matters, since each takes up what the next needs."""
    return {
        "cpu": _cpu_held(most["cpu_percent"]),
        "file size": _file_size_held(most["file_bytes"]),
        "temporary files": _tmpfs_held(most["tmpfs_bytes"], most["file_bytes"]),
        "memory of a process": refused(lambda: bytearray(most["memory_bytes"])),
        "open files": _open_files_held(most["open_files"]),
        "processes": _processes_held(most["processes"]),
    }


def _cpu_held(percent: int) -> bool:
    begin, used = time.monotonic(), time.process_time()
    while time.monotonic() - begin < _SHORT_S:
        hashlib.sha256(bytes(100_000))
    return time.process_time() - used < _SHORT_S * (percent + 100) / 200


def _file_size_held(most: int) -> bool:
    return refused(lambda: _write_at(_TMP / "size", most))


def _write_at(path: Path, offset: int) -> None:
    with path.open("wb", buffering=0) as file:
        file.seek(offset)
        file.write(b"x")


def _tmpfs_held(most: int, piece: int) -> bool:
    try:
        for number in range(2 * most // piece + 2):
            (_TMP / f"fill{number}").write_bytes(bytes(piece))
    except OSError as error:
        return error.errno == errno.ENOSPC
    return False


def _open_files_held(most: int) -> bool:
    held: list[int] = []
    try:
        while len(held) <= most:
            held.append(os.open("/", os.O_PATH))
    except OSError as error:
        return error.errno == errno.EMFILE
    finally:
        for fd in held:
            os.close(fd)
    return False


def _processes_held(most: int) -> bool:
    end = threading.Event()

    def start_all() -> None:
        for _ in range(most):
            threading.Thread(target=end.wait).start()

    try:
        return refused(start_all)
    finally:
        end.set()


def shared_memory(most: int) -> None:
    """Take twice as much as all together may have, in a way that no limit of one process counts."""
    taken = mmap.mmap(-1, 2 * most)
    for offset in range(0, len(taken), _PAGE):
        taken[offset] = 1


def main() -> None:
    most = json.loads(sys.argv[1])
    if most.get("take_memory"):
        shared_memory(most["memory_bytes"])
        sys.stdout.write(json.dumps({"memory": False}))
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps({"walls": walls(), "limits": limits(most)}))


if __name__ == "__main__":
    main()
