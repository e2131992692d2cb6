"""The running processes of one `make chat` or `make appliance`: started in order, tended, stopped in the reverse.

Invariant: when the context is left, by whatever way, none of them is left. Threads: one.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bxcore.errors import EXIT_CONFIG, EXIT_STATE
from deploy.local import logfiles, processes
from deploy.local.home import Home
from deploy.local.plan import Part
from deploy.local.processes import Process
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.wakeups import FROM_KEYBOARD, Interrupted, Wakeups

_LOOK_SECONDS = 0.5
_KILL_SECONDS = 5.0
_SHOWN_LINES = 15
_NO_REASON = " a secret in plain text secret="
"""A warning of every start with a token file; above the fault it would look like one."""

RESTARTS = 3
"""How often one part is started again during a conversation."""

_FOR_THE_OWNER = frozenset({0, EXIT_CONFIG, EXIT_STATE})
"""Whoever ends with these was told to, or would end the same way again until somebody mends something."""


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """One end of a process, and how often its part had been started again before."""

    process: Process
    what: str
    restarts: int


class Stack:
    """See the module's header. `begin` starts a part; without it, as a process of this home."""

    def __init__(
        self, home: Home, wakeups: Wakeups, progress: Progress, begin: Callable[[Part], Process] | None = None
    ) -> None:
        self._begin = begin or partial(processes.start, home=home)
        self._wakeups = wakeups
        self._progress = progress
        self._processes: list[Process] = []
        self._restarts: Counter[str] = Counter()
        self._endings: list[_Ending] = []

    def __enter__(self) -> "Stack":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, part: Part) -> Process:
        """Start `part` and go on at once."""
        process = self._begin(part)
        self._processes.append(process)
        return process

    def wait_ready(self, *awaited: Process) -> None:
        """Return when all of them are ready. Raises Refusal where one ends or takes too long, or Interrupted."""
        begun = time.monotonic()
        while waiting := [process for process in awaited if not process.news.ready]:
            descriptors = [number for process in waiting for number in process.news.descriptors()]
            pause(self._wakeups, self._progress, _said(waiting[-1]), descriptors)
            for process in waiting:
                process.news.read()
            for process in self._processes:  # one may wait for another, that has died
                self._check(process, time.monotonic() - begun if process in awaited else 0)

    def pause(self, doing: str) -> None:
        """Wait a little, saying what for. Raises Refusal where a process has ended, or Interrupted."""
        pause(self._wakeups, self._progress, doing)
        for process in self._processes:
            self._check(process, 0)

    def tend(self) -> list[int]:
        """Take the news, start again what has died, and return the descriptors that bring more news.

        A death is said at once, in one line, although the terminal is somebody else's: who waits for an answer
        wants to know. `report_endings` says it again, when there is nothing in the way.
        """
        self._processes = [living for process in self._processes if (living := self._living(process))]
        for process in self._processes:
            process.news.read()  # or its sender would have to wait one day
        return [number for process in self._processes for number in process.news.descriptors()]

    def status(self, name: str) -> str:
        """Return what a running part said last of how it is; nothing where it said nothing, or does not run."""
        return next((process.news.status for process in self._processes if process.part.name == name), "")

    def report_endings(self) -> None:
        """Say what has died although nobody asked it to, a line each. Starts nothing any more."""
        self._progress.clear()
        dead = [self._ended(process, "ended") for process in self._processes if process.exit_code is not None]
        for ending in (*self._endings, *dead):
            # Each start since then has moved its log on by one.
            number = self._restarts[ending.process.part.name] - ending.restarts
            self._progress.say(_ending(ending.process, ending.what, logs_since=number))

    def stop(self) -> None:
        """Stop all, the last one first, each with its deadline; a second Ctrl-C kills what is left."""
        for process in reversed(self._processes):
            process.signal(signal.SIGTERM)
            self._wait_end(process, process.part.stop_seconds)
            process.signal(signal.SIGKILL)
            self._wait_end(process, _KILL_SECONDS)
            if process.exit_code is None:
                self._progress.say(f"{process.part.name} (process {process.pid}) does not end, even killed")
            process.close()
        self._processes.clear()

    def _living(self, process: Process) -> Process | None:
        """Return the process, or the one that takes its place, or None where nothing should."""
        if process.exit_code is None:
            return process
        name = process.part.name
        again = process.exit_code not in _FOR_THE_OWNER and self._restarts[name] < RESTARTS
        process.close()
        if not again:
            self._endings.append(self._ended(process, "ended"))
            self._progress.interject(f"{_ending(process, 'ended')}. Leave and come back to start it")
            return None
        self._endings.append(self._ended(process, "ended and was started again"))
        self._progress.interject(f"{name} ended ({process.ending}) and is started again")
        self._restarts[name] += 1
        return self._begin(replace(process.part, once=()))

    def _ended(self, process: Process, what: str) -> _Ending:
        return _Ending(process=process, what=what, restarts=self._restarts[process.part.name])

    def _wait_end(self, process: Process, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while process.exit_code is None and (left := deadline - time.monotonic()) > 0:
            if FROM_KEYBOARD.intersection(self._wakeups.wait(left)):
                return

    def _check(self, process: Process, waited_seconds: float) -> None:
        if process.exit_code is not None:
            raise Refusal(_last_words(process, "did not start"))
        if not process.news.ready and waited_seconds > process.part.ready_seconds:
            raise Refusal(_last_words(process, f"was not ready after {process.part.ready_seconds} s"))


def pause(
    wakeups: Wakeups,
    progress: Progress,
    doing: str,
    descriptors: Sequence[int] = (),
    *,
    ignoring: frozenset[signal.Signals] = frozenset(),
) -> None:
    """Wait a little, or until there is something to read, saying what for. Raises Interrupted."""
    progress.doing(doing)
    for number in wakeups.wait(_LOOK_SECONDS, descriptors):
        if number not in ignoring:
            raise Interrupted(number)


def _said(process: Process) -> str:
    status = process.news.status
    return f"{process.part.doing} ({status})" if status else process.part.doing


def _ending(process: Process, what: str, *, logs_since: int = 0) -> str:
    """Say in one line what ended and how; why, where the process itself said it with its last line."""
    log = logfiles.numbered(process.log, logs_since) if logs_since else process.log
    why = ""
    if process.exit_code in (EXIT_CONFIG, EXIT_STATE):
        why = "".join(f": {line}" for line in logfiles.last_lines(log, 1))
    return f"{process.part.name} {what} ({process.ending}){why}; its log is {log}"


def _last_words(process: Process, what: str) -> str:
    how = f" ({process.ending})" if process.exit_code is not None else ""
    lines = [f"  {line}" for line in logfiles.last_lines(process.log, _SHOWN_LINES) if _NO_REASON not in line]
    return "\n".join([f"{process.part.name} {what}{how}; its log is {process.log}", *lines])
