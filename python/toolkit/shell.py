"""shell: one command line for /bin/sh in a granted directory, with its output as it came and its exit code.

The only tool code that starts a program. The command and what it starts run in a process group of
their own, which is killed at the end, at the time limit, beyond the output limit, and with the leash.
What left that group ends with the container. It cannot look into this process (toolkit.ownmemory), and its
memory is bounded, shared or not. The environment is the three variables below.
"""

import os
import resource
import select
import signal
import subprocess
import time
from collections import deque

import attrs

from bxcore import toolarguments, tools
from bxcore.tools import Shell
from toolkit import beneath, textfile
from toolkit.place import Place

MOST_OUTPUT_BYTES = 16 * 1024 * 1024
"""After these the command is stopped: nobody reads them, and something is wrong."""

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - the container's own

_PROGRAMS_BYTES = 128 * 1024 * 1024
"""What a program of the image maps beside its data: its own text, libraries, what its threads reserve."""

_DEFAULT_MS = toolarguments.default_of(Shell, "timeout_ms")
_TICK_MS = 50
_BLOCK = 65_536

_LIMITS = {
    signal.SIGXFSZ: "the limit on the size of a file",
    signal.SIGXCPU: "the limit on computing time",
}


@attrs.define(kw_only=True)
class Output:
    """The first and the last part of what a command prints, in memory that does not grow."""

    most: int
    head: bytearray = attrs.field(factory=bytearray)
    tail: deque[bytes] = attrs.field(factory=deque)
    in_tail: int = 0
    total: int = 0

    def add(self, part: bytes) -> None:
        self.total += len(part)
        room = self.most - len(self.head)
        self.head += part[:room]
        if rest := part[room:]:
            self.tail.append(rest)
            self.in_tail += len(rest)
        while self.tail and self.in_tail - len(self.tail[0]) >= self.most:
            self.in_tail -= len(self.tail.popleft())

    def text(self) -> tuple[str, int]:
        """Return what is shown, and how many bytes of the middle are not."""
        tail = b"".join(self.tail)[-self.most :]
        left_out = self.total - len(self.head) - len(tail)
        if not left_out:
            return _decoded(bytes(self.head) + tail), 0
        return f"{_decoded(bytes(self.head))}\n[... {left_out} bytes ...]\n{_decoded(tail)}", left_out


def run(asked: Shell, place: Place) -> str:
    directory = beneath.open_path(place.roots, asked.directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(directory)  # this process has nothing else to do, and a path could lead elsewhere by now
    os.close(directory)
    limit_ms = asked.timeout_ms or _DEFAULT_MS
    output = Output(most=(place.most_chars - 300) // 2)
    with place.leash.holding(lambda: _start(asked.command)) as command:
        stopped = _follow(command, output, limit_ms)
    with command:
        command.wait()  # it was killed, if it had not ended
    return _report(command.returncode, stopped, output)


def _start(command: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        _within_limits(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
        start_new_session=True,
    )


def _within_limits(command: str) -> list[str]:
    """Return the program that runs the command line, with that memory bounded which RLIMIT_DATA leaves out: shared."""
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY:
        return ["/bin/sh", "-c", command]
    bound = f'ulimit -v {(most + _PROGRAMS_BYTES) // 1024} && exec /bin/sh -c "$1"'
    return ["/bin/sh", "-c", bound, "sh", command]


def _follow(command: "subprocess.Popen[bytes]", output: Output, limit_ms: int) -> str | None:
    """Collect the output until the command has ended, or return why it has to be stopped."""
    assert command.stdout is not None
    fd = command.stdout.fileno()
    os.set_blocking(fd, False)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    end = time.monotonic() + limit_ms / 1000
    open_pipe = True
    while True:
        ended = _ended(command.pid)
        if open_pipe:
            poll.poll(0 if ended else _TICK_MS)
            open_pipe = _drain(fd, output)
        elif not ended:
            time.sleep(_TICK_MS / 1000)
        if ended:
            return None
        if output.total > MOST_OUTPUT_BYTES:
            return f"the limit of {MOST_OUTPUT_BYTES} bytes of output"
        if time.monotonic() >= end:
            return f"the time limit of {limit_ms} ms"


def _ended(pid: int) -> bool:
    # Looked at, not reaped: until its group is killed nobody else can get the number.
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain(fd: int, output: Output) -> bool:
    """Take what is there now, and say whether more may come."""
    try:
        while part := os.read(fd, _BLOCK):
            output.add(part)
            if output.total > MOST_OUTPUT_BYTES:
                return True
    except BlockingIOError:
        return True
    return False


def _report(code: int, stopped: str | None, output: Output) -> str:
    text, left_out = output.text()
    if stopped:
        head = f"[stopped: {stopped}]"
    elif code < 0:
        head = f"[ended by {_named(-code)}]"
    else:
        head = f"[exit code {code}]"
    tail = f"\n{tools.CUT}: {left_out} of {output.total} bytes are not shown]" if left_out else ""
    return f"{head}\n{text.rstrip()}{tail}".rstrip() if text else head


def _named(number: int) -> str:
    if number in _LIMITS:
        return _LIMITS[signal.Signals(number)]
    return f"signal {number}"


def _decoded(data: bytes) -> str:
    return textfile.printed(data.decode("utf-8", "surrogateescape"))
