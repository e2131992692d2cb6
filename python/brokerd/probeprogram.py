"""What the probe does inside a container: tries each way out, and each limit, and says which of them held.

Runs under the tool image's interpreter as `python3 -c`, with nothing of ours imported; its one argument is the
limits as JSON. Writes one JSON object to stdout: name of a limit or wall -> whether it held. Not imported by brokerd.
A busy machine must not look like a limit: what was refused counts only where less was given, and little processor
time only where a processor stood idle beside it.
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_NEW_USER = 0x10000000
_LOOK_S = 0.4
_LOOKS = 8
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


def only_too_much_refused(take: Callable[[int], object], most: int) -> bool:
    """Whether a quarter is given and all of it is not: a machine that has nothing left refuses both."""
    return not refused(lambda: take(most // 4)) and refused(lambda: take(most))


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
        "cpu": cpu_held(_looks(), most["cpu_percent"]),
        "file size": _file_size_held(most["file_bytes"]),
        "temporary files": _tmpfs_held(most["tmpfs_bytes"], most["file_bytes"]),
        "memory of a process": only_too_much_refused(bytearray, most["memory_bytes"]),
        "open files": _open_files_held(most["open_files"]),
        "processes": _processes_held(most["processes"]),
    }


class Look(NamedTuple):
    """Some time in which this process always wanted to run: how long, what it got, and what nobody took."""

    wall_s: float
    used_s: float
    idle_s: float


def cpu_held(looks: Iterable[Look], percent: int) -> bool:
    """Whether a limit of `percent` holds: the first look that can tell does. One that none can is not held.

    Too much time is a limit that does not hold, however busy the machine. Too little is one that does only where a
    processor that we may use was idle for as long as half of it: the scheduler leaves nobody waiting beside that.
    """
    for look in looks:
        if look.used_s > 2 * look.wall_s * percent / 100:
            return False
        if look.idle_s >= look.wall_s / 2:
            return True
    return False


def _looks() -> Iterator[Look]:
    for _ in range(_LOOKS):
        begin, used, idle = time.monotonic(), time.process_time(), _idle_s()
        while time.monotonic() - begin < _LOOK_S:
            hashlib.sha256(bytes(100_000))
        yield Look(time.monotonic() - begin, time.process_time() - used, _idle_s() - idle)


def _idle_s() -> float:
    """Return how long the processors that we may run on have been idle, all together; of the whole machine."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        rows = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        return sum(int(row[4]) for row in rows if row[0] in ours) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0  # never idle: then nothing is concluded from slowness


def _file_size_held(most: int) -> bool:
    return only_too_much_refused(lambda offset: _write_at(_TMP / "size", offset), most)


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
    started: list[threading.Thread] = []

    def start_all() -> None:
        for _ in range(most):
            thread = threading.Thread(target=end.wait)
            thread.start()
            started.append(thread)

    try:
        return refused(start_all) and len(started) >= most // 2
    finally:
        end.set()


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def shared_memory(most: int) -> None:
    """Take twice as much as all together may have, in a way that no limit of one process counts."""
    taken = mmap.mmap(-1, 2 * most)
    for offset in range(0, len(taken), _PAGE):
        taken[offset] = 1


def main() -> None:
    most = json.loads(sys.argv[1])
    if most.get("take_memory"):
        # Read where this process dies of it: at a limit, or because the machine had nothing left.
        sys.stdout.write(f"{_available_bytes()}\n")
        sys.stdout.flush()
        shared_memory(most["memory_bytes"])
        sys.stdout.write(json.dumps({"memory": False}))
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps({"walls": walls(), "limits": limits(most)}))


if __name__ == "__main__":
    main()
