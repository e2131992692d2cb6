"""The only module that speaks to Podman: its REST interface, over the Unix socket of the user that tools run as.

One call is: create, init, compare (containerplan), attach, record, start, feed and read, exit code, remove. The order
is Podman's: attaching needs what `init` made, and what is written before the attached stream stands is lost. The
container is removed, with everything in it, before a result is given; where that fails, the sweep does it, by our label
alone. Invariants: INV-2 (`started` returns before the start is asked for), INV-9. Every exchange has a deadline, for
all of it and not for each piece. Threads: any; each call has its own connections. The lock guards the set of calls that
run here. docs/containers.md.
"""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import attrs

from brokerd import attached, containerplan
from brokerd.attached import Frames, Reading
from brokerd.containerplan import CALL_LABEL, OWNER_LABEL, Plan
from brokerd.exited import Exited, Stop
from brokerd.runnerfaults import (
    ImageMissing,
    NotAsAsked,
    PodmanAway,
    PodmanForbidden,
    PodmanRefused,
    PodmanSlow,
    RunnerUnavailable,
)
from brokerd.timedsocket import TimedSocket
from bxcore import logs, strictjson
from bxcore.deadline import Clock, Deadline

log = logs.get("containers")

STEP_MS = 10_000
"""The longest that Podman may take for one step, all of them being local."""

PREPARE_MS = 8_000
"""The longest until a container is ready to start. What follows is the tool's own time."""

ENDING_MS = 5_000
"""The longest between the end of a container's output and its own. Our tools end with their output."""

REMOVE_MS = 5_000
REMOVE_TRIES = 3

SWEEP_MS = 300_000
"""After that the rest is left to the next sweep."""

_API = "/v4.3.1/libpod"
_MOST_ANSWER = 16 * 1024 * 1024
_MOST_HEADER = 8_192
_PAUSES_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z ]{2,60}")


@attrs.frozen(kw_only=True)
class Work:
    """What one container is to do: its input, the most that it may say, and for how long once it has started."""

    stdin: bytes
    output_bytes: int
    limit_ms: int
    cancelled: Callable[[], bool]


@attrs.frozen(kw_only=True)
class Swept:
    """What a sweep did: containers of ours that were left behind and removed, and those that would not go."""

    removed: int
    left: int


class Podman:
    """The containers of one Podman service that bear the label of one owner."""

    def __init__(self, path: Path, *, clock: Clock, owner: str = "brokerd") -> None:
        self.owner = owner
        self.path, self._clock = path, clock
        self._lock = threading.Lock()
        self._live: dict[int, int] = {}

    def run(self, plan: Plan, work: Work, started: Callable[[], None]) -> Exited:
        """Run one container to its end. `started` is called when all is ready, right before it starts.

        RunnerUnavailable, and whatever `started` raises, mean that nothing ran. After the start this always returns.
        """
        ready_by = Deadline.after(self._clock, milliseconds=PREPARE_MS)
        with self._alive(plan.call), contextlib.closing(self._prepare(plan, ready_by)) as running:
            started()
            reading = Reading(
                deadline=Deadline.after(self._clock, milliseconds=work.limit_ms), cancelled=work.cancelled
            )
            return running.work(work, reading)

    def ready(self, plan: Plan, deadline: Deadline) -> "Service":
        """Return a container that is to serve another one (the egress proxy), ready to start. Close it."""
        ready_by = deadline.sooner(milliseconds=PREPARE_MS)
        held = contextlib.ExitStack()
        with held:
            held.enter_context(self._alive(plan.call))
            running = held.enter_context(contextlib.closing(self._prepare(plan, ready_by)))
            return Service(running, held.pop_all())

    def sweep(self) -> Swept:
        """Remove every container with our label that belongs to no call of this process. Raises RunnerUnavailable."""
        removed = left = 0
        until = Deadline.after(self._clock, milliseconds=SWEEP_MS)
        with contextlib.closing(self._connect()) as api:
            for ident, call in self._ours(api):
                with self._lock:
                    if call in self._live:
                        continue
                if not until.passed() and _discard(api, ident):
                    removed += 1
                else:
                    left += 1
        return Swept(removed=removed, left=left)

    def has_image(self, image: str) -> bool:
        """Whether the image of this ID is there. Raises RunnerUnavailable."""
        with contextlib.closing(self._connect()) as api:
            return api.ask("GET", f"/images/{image}/exists", accept=(204, 404)).status == 204

    def places(self) -> tuple[Path, ...]:
        """Return where Podman keeps containers and images: no tool may see them. Raises RunnerUnavailable."""
        with contextlib.closing(self._connect()) as api:
            store = api.ask("GET", "/info", accept=(200,)).object["store"]
        return tuple(Path(store[name]) for name in ("graphRoot", "runRoot", "volumePath") if store.get(name))

    def _prepare(self, plan: Plan, deadline: Deadline) -> "Running":
        """Return the container of `plan`: made, compared and attached, not yet started."""
        api = self._connect(deadline)
        with contextlib.ExitStack() as undo:
            undo.callback(api.close)
            created = api.ask("POST", "/containers/create", plan.spec(), accept=(201,))
            ident = str(created.object["Id"])
            undo.callback(_discard, api, ident)
            api.ask("POST", f"/containers/{ident}/init", accept=(200, 204))
            wrong = containerplan.differences(plan, api.ask("GET", f"/containers/{ident}/json", accept=(200,)).object)
            if wrong:
                raise NotAsAsked(f"podman made another container than it was asked for: {', '.join(wrong)}")
            sock = attach(self.path, ident, deadline.sooner(milliseconds=STEP_MS))
            undo.pop_all()
        return Running(api, ident, sock)

    def _connect(self, deadline: Deadline | None = None) -> "Api":
        return Api(self.path, deadline or Deadline.after(self._clock, milliseconds=STEP_MS))

    def _ours(self, api: "Api") -> Iterator[tuple[str, int | None]]:
        wanted = strictjson.dumps({"label": [f"{OWNER_LABEL}={self.owner}"]}).decode()
        found = api.ask("GET", f"/containers/json?all=true&filters={quote(wanted)}", accept=(200,))
        for container in found.array:
            labels = container["Labels"] or {}
            # Asked twice: a filter that the service did not use would have us end the owner's containers.
            if labels.get(OWNER_LABEL) == self.owner:
                number = str(labels.get(CALL_LABEL, ""))
                yield str(container["Id"]), int(number) if number.isdecimal() else None

    @contextlib.contextmanager
    def _alive(self, call: int) -> Iterator[None]:
        """While inside, the sweep leaves containers of `call` alone: entered before there is one."""
        with self._lock:
            self._live[call] = self._live.get(call, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._live[call] -= 1
                if not self._live[call]:
                    del self._live[call]


class Running:
    """One container that is ready or runs. Belongs to the thread that made it. Close it: that ends all in it."""

    def __init__(self, api: "Api", ident: str, sock: socket.socket) -> None:
        self._api, self._ident, self._sock = api, ident, sock

    def start(self, deadline: Deadline | None = None) -> None:
        """Start it; without a deadline the one of a step holds. Raises RunnerUnavailable: then it may have started."""
        self._api.wait_until(deadline)
        self._api.ask("POST", f"/containers/{self._ident}/start", accept=(204, 304))

    def feed(self, stdin: bytes, deadline: Deadline) -> None:
        """Send its first input, which fits into a pipe. Raises PodmanAway."""
        try:
            self._sock.settimeout(max(deadline.remaining_ms(), 1) / 1000)
            self._sock.sendall(stdin)
        except OSError as fault:
            raise PodmanAway("podman closed the stream of a container") from fault

    def work(self, work: Work, reading: Reading) -> Exited:
        """Start it, and stay with it to its end."""
        frames, exit_code, killed = Frames(most_bytes=work.output_bytes), None, False
        try:
            self.start()  # from now on the call's own time counts
            stop = attached.pump(self._sock, work.stdin, frames, reading)
            if stop in {Stop.END, Stop.BROKEN}:
                stop, exit_code, killed = self._ending(stop, reading)
        except RunnerUnavailable as fault:
            log.warning("podman was lost while a container ran call=%s error=%s code=podman_away", self._ident, fault)
            stop = Stop.BROKEN
        size, stdout = frames.size, bytes(frames.stdout)
        return Exited(stop=stop, exit=exit_code, stdout=stdout, size=size, out_of_memory=killed)

    def read(self, *, most_bytes: int) -> bytes:
        """Return what its stdout has said by now, without waiting."""
        frames = Frames(most_bytes=most_bytes)
        self._sock.settimeout(0)
        with contextlib.suppress(OSError):  # nothing more yet, or nobody there: either way that is all
            while not frames.broken and not frames.full and (data := self._sock.recv(65_536)):
                frames.feed(data)
        return bytes(frames.stdout)

    def close(self) -> None:
        """Kill everything in it and remove it. Where that fails the sweep tries again."""
        # The stream first: while nobody reads it, conmon does not get to see that the container died.
        self._sock.close()
        _discard(self._api, self._ident)
        self._api.close()

    def _ending(self, stop: Stop, reading: Reading) -> tuple[Stop, int | None, bool]:
        """Return how a container ends whose output has ended. Without conmon nobody ever sees it end."""
        pauses, patience = iter(_PAUSES_S), reading.deadline.sooner(milliseconds=ENDING_MS)
        while True:
            state = self._api.ask("GET", f"/containers/{self._ident}/json", accept=(200,)).object["State"]
            if state["Status"] in {"exited", "stopped"}:
                return stop, int(state["ExitCode"]), bool(state.get("OOMKilled"))
            if reading.deadline.passed() or reading.cancelled():
                return (Stop.DEADLINE if reading.deadline.passed() else Stop.CANCELLED), None, False
            if patience.passed():
                return Stop.BROKEN, None, False
            time.sleep(next(pauses, _PAUSES_S[-1]))


class Service:
    """A container that runs beside another one, once it was started."""

    def __init__(self, running: Running, held: contextlib.ExitStack) -> None:
        self._running, self._held = running, held

    def start(self, stdin: bytes, deadline: Deadline) -> None:
        """Start it, with `stdin` as its first input. Raises RunnerUnavailable."""
        self._running.start(deadline)
        self._running.feed(stdin, deadline)

    def read(self, *, most_bytes: int) -> bytes:
        """Return what it has written to stdout since it started or since the last time, without waiting."""
        return self._running.read(most_bytes=most_bytes)

    def close(self) -> None:
        """End it."""
        self._held.close()


# -- HTTP ---------------------------------------------------------------------------------------


@attrs.frozen
class Answer:
    """One answer of Podman's."""

    status: int
    body: bytes

    @property
    def object(self) -> Mapping[str, Any]:
        """The body as a JSON object. Raises PodmanRefused where it is none."""
        value = _json(self.body)
        if not isinstance(value, dict):
            raise PodmanRefused("podman's answer is no JSON object")
        return value

    @property
    def array(self) -> list[Mapping[str, Any]]:
        """The body as a JSON array of objects. Raises PodmanRefused where it is none."""
        value = _json(self.body)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise PodmanRefused("podman's answer is no JSON array")
        return cast("list[Mapping[str, Any]]", value)


class _Connection(http.client.HTTPConnection):
    """http.client, to a path instead of a host, and within a deadline instead of a timeout for each read."""

    def __init__(self, path: Path) -> None:
        super().__init__("podman")
        self._path = path
        self._timed: TimedSocket | None = None
        self.deadline: Deadline | None = None

    def obey(self, deadline: Deadline) -> None:
        """From now on this deadline holds."""
        self.deadline = deadline
        if self._timed is not None:
            self._timed.deadline = deadline

    def connect(self) -> None:
        if self.deadline is None:
            raise RuntimeError("a connection without a deadline")
        self.sock = self._timed = TimedSocket.connected(self._path, self.deadline)


class Api:
    """Requests over one connection, one after the other, all within one deadline."""

    def __init__(self, path: Path, deadline: Deadline) -> None:
        self._path, self._clock = path, deadline.clock
        self._deadline: Deadline | None = deadline
        self._connection: _Connection | None = None

    def wait_until(self, deadline: Deadline | None) -> None:
        """From now on another deadline holds for all; None: the one of each step alone."""
        self._deadline = deadline

    def ask(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        accept: tuple[int, ...],
        most_ms: int | None = None,
    ) -> Answer:
        """Return the answer, if its status is one of `accept`. Raises RunnerUnavailable."""
        step = Deadline.after(self._clock, milliseconds=most_ms or STEP_MS)
        if self._deadline is not None:
            step = step.sooner(milliseconds=self._deadline.remaining_ms())
        connection = self._ready(step)
        try:
            with _faults():
                headers = {} if body is None else {"Content-Type": "application/json"}
                payload = None if body is None else strictjson.dumps(dict(body))
                connection.request(method, _API + target, body=payload, headers=headers)
                response = connection.getresponse()
                answer = Answer(response.status, response.read(_MOST_ANSWER))
        except RunnerUnavailable:
            self.close()  # what comes next on it would be the answer to this
            raise
        if answer.status not in accept:
            raise _refusal(method, target, answer)
        return answer

    def close(self) -> None:
        """Hang up; the next request opens another connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ready(self, step: Deadline) -> _Connection:
        if self._connection is None:
            self._connection = _Connection(self._path)
        self._connection.obey(step)
        return self._connection


def remove(api: Api, ident: str) -> bool:
    """Kill everything in a container and remove it; whether it is gone. Without conmon the first try may fail."""
    for attempt in range(REMOVE_TRIES):
        if attempt:
            time.sleep(0.1 * attempt)
        with contextlib.suppress(RunnerUnavailable):
            target = f"/containers/{ident}?force=true&timeout=0&v=true"
            answer = api.ask("DELETE", target, accept=(200, 204, 404), most_ms=REMOVE_MS)
            if answer.status != 200 or not any(report.get("Err") for report in answer.array):
                return True
    log.warning("a container could not be removed, the sweep tries again id=%s code=container_left", ident[:12])
    return False


def _discard(api: Api, ident: str) -> bool:
    api.wait_until(None)  # the time of a call may be over; this must be done all the same
    return remove(api, ident)


def attach(path: Path, ident: str, deadline: Deadline) -> socket.socket:
    """Return the stream of a container: our bytes to stdin, frames back. Raises RunnerUnavailable."""
    request = (
        f"POST {_API}/containers/{ident}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
        "Host: podman\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
    )
    with contextlib.ExitStack() as undo, _faults():
        sock = undo.enter_context(TimedSocket.connected(path, deadline))
        sock.sendall(request.encode("ascii"))
        header = bytearray()
        # One byte at a time: what stands behind the empty line is the container's already.
        while not header.endswith(b"\r\n\r\n") and len(header) < _MOST_HEADER:
            if not (byte := sock.recv(1)):
                break
            header += byte
        if not header.startswith(b"HTTP/1.1 101 ") or not header.endswith(b"\r\n\r\n"):
            raise PodmanRefused("podman did not open the stream of a container")
        sock.release()
        undo.pop_all()
    return sock


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except TimeoutError as fault:
        raise PodmanSlow("podman did not answer in time") from fault
    except (OSError, http.client.HTTPException) as fault:
        why = fault.strerror if isinstance(fault, OSError) and fault.strerror else type(fault).__name__
        raise PodmanAway(f"podman's service cannot be reached ({why})") from fault


def _refusal(method: str, target: str, answer: Answer) -> RunnerUnavailable:
    """Say which step was refused, and why if Podman says it in plain words: its message may hold a path."""
    step = f"{method} {re.sub('[0-9a-f]{64}', 'ID', target.partition('?')[0])}"
    cause = ""
    with contextlib.suppress(PodmanRefused):
        cause = str(answer.object.get("cause", ""))
    if "image not known" in cause or "no such image" in cause:
        return ImageMissing("the tool image is not loaded")
    words = f": {cause}" if _PLAIN_WORDS.fullmatch(cause) else ""
    kind = PodmanForbidden if "permission denied" in cause.lower() else PodmanRefused
    return kind(f"podman answered {answer.status} to {step}{words}")


def _json(body: bytes) -> object:
    # Not strictjson: there are fractions in them.
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise PodmanRefused("podman's answer is no JSON") from fault
