"""The whole inference path as real processes: inferproxy and loopd in a home of their own, a fake server behind.

Each part is started, killed and started again by itself, so that a test can break the path at one place.
`Stack.say` and the like return a Talk, which reads in a thread of its own and is asked what has come.
"""

import hashlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from bxcore import client, ids
from bxcore.deadline import SystemClock
from bxcore.errors import BoxmakerError
from bxcore.ids import MessageKey, SessionId
from bxcore.wire.channel import (
    LoopStatus,
    LoopStatusReport,
    MessageAccepted,
    StepUsage,
    TextDelta,
    ToolReturned,
    TurnCancel,
    TurnCancelNoted,
    TurnEnded,
    TurnFollow,
    TurnStarted,
    UserMessage,
)
from deploy.local.home import Home
from tests.fakes.llama_server import Call, FakeLlama, Refusal, Reply, Vanish
from tests.process.role import Role

T = TypeVar("T")

PATIENCE_SECONDS = 60
"""How long a test waits for what must come; a test that passes never waits so long."""

N_CTX = 65_536
KILLED = -9

CLOCK = Reply(calls=(Call(name="clock"),))
OK = Reply(text="All right.")

Answer = Reply | Refusal | Vanish
Settings = Mapping[str, Mapping[str, object]]


class Talk:
    """One request on loop.sock and everything that came back."""

    def __init__(self, loop_socket: Path, message: object) -> None:
        self.message = message
        self.events: list[Any] = []
        self.fault: BoxmakerError | None = None
        self._over = False
        self._changed = threading.Condition()
        self._connection = client.Connection(loop_socket, clock=SystemClock(), connect_ms=30_000)
        self._answers = self._connection.request(message, idle_ms=PATIENCE_SECONDS * 1000)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, kind: type[T], count: int = 1) -> T:
        """Return the `count`-th event of a kind. Raises the fault that came in its place."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._over or len(self.of(kind)) >= count, PATIENCE_SECONDS)
            assert came, f"no {kind.__name__} number {count}, but {self.events}"
            if len(self.of(kind)) < count and self.fault is not None:
                raise self.fault
            assert len(self.of(kind)) >= count, f"over without {kind.__name__} number {count}: {self.events}"
            return self.of(kind)[count - 1]

    def ended(self) -> TurnEnded:
        """Return how the turn ended. Raises the fault that came in its place."""
        return self.wait(TurnEnded)

    def over(self) -> "Talk":
        """Return when nothing more will come, whatever it was that came last."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._over, PATIENCE_SECONDS), f"not over, but {self.events}"
        self._thread.join()
        return self

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def code(self) -> str | None:
        """The code of the fault that ended it."""
        return self.fault.code if self.fault is not None else None

    @property
    def text(self) -> str:
        """What was streamed of the answer."""
        return "".join(delta.text for delta in self.of(TextDelta))

    def leave(self) -> None:
        """Go away in the middle, as a client that was killed does."""
        # Not close(): that would not wake the thread that reads.
        self._connection._socket.shutdown(socket.SHUT_RDWR)
        self.over()

    def _read(self) -> None:
        fault: BoxmakerError | None = None
        try:
            for answer in self._answers:
                with self._changed:
                    self.events.append(answer.msg)
                    self._changed.notify_all()
        except BoxmakerError as came:
            fault = came
        finally:
            self._connection.close()
            with self._changed:
                self.fault, self._over = fault, True
                self._changed.notify_all()


class Stack:
    """Use as a context manager; nothing runs before it is started.

    `replies` is what the server says next, in order; where it is empty it says OK. The self-test is
    answered by the way. `settings` are tables of loopd.toml that replace or add to the usual ones.
    """

    def __init__(self, folder: Path, settings: Settings | None = None, *, state: Path | None = None) -> None:
        self.home = Home(folder)
        self.home.prepare()
        self.state = state or folder
        self.settings: Settings = settings or {}
        self.replies: deque[Answer] = deque()
        self.self_test: Answer = CLOCK
        self.llama = FakeLlama(script=self._answer, n_ctx=N_CTX)
        self._roles: dict[str, Role] = {}
        self._talks: list[Talk] = []

    def __enter__(self) -> Self:
        self.llama.start()  # for its address, which stays
        self.llama.kill()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._roles):
            self.kill(name)
        self.llama.kill()
        for talk in self._talks:
            talk.over()

    # -- parts ----------------------------------------------------------------------------------

    def start(self, module: str = "loopd") -> "Stack":
        """Start all three and wait until messages are taken."""
        self.llama.start()
        self.start_proxy()
        self.start_loopd(module).wait_ready()
        return self

    def start_proxy(self) -> Role:
        """Start inferproxy and wait until it serves."""
        tables = {"": {"listen": str(self.home.infer_socket), "upstream": self.llama.url, "accept_burst": 10_000}}
        return self._start("inferproxy", "inferproxy", tables).wait_ready()

    def start_loopd(self, module: str = "loopd") -> Role:
        """Start loopd; it may have to wait before it is ready. `module` may be a loopd that is broken on purpose."""
        tables: dict[str, dict[str, object]] = {
            "": {"state": str(self.state)},
            "listen": {"owner": str(self.home.loop_socket)},
            "infer": {"socket": str(self.home.infer_socket)},
            "expect": {"n_ctx": N_CTX, "slots": 2},
        }
        for name, table in self.settings.items():
            tables[name] = {**tables.get(name, {}), **table}
        return self._start("loopd", module, tables)

    def runs(self, name: str) -> bool:
        """Say whether a part was started, and has not been killed since or died of itself."""
        if name == "llama":
            return self.llama.listening
        return name in self._roles and self._roles[name].process.poll() is None

    @property
    def loopd(self) -> Role:
        return self._roles["loopd"]

    def kill(self, name: str) -> None:
        """End a part with kill -9; "llama" breaks every connection of the server."""
        if name == "llama":
            self.llama.kill()
            return
        with self._roles.pop(name) as role:
            role.kill()

    def start_again(self, name: str, module: str = "loopd") -> None:
        """Start a part that was killed, and wait until it serves."""
        match name:
            case "llama":
                self.llama.start()
            case "inferproxy":
                self.start_proxy()
            case _:
                self.start_loopd(module).wait_ready()

    def ended_by_itself(self) -> tuple[int, str]:
        """Wait for loopd to end; return its exit code and what it wrote to stderr."""
        with self._roles.pop("loopd") as role:
            return role.exit_code(), role.log()

    # -- clients --------------------------------------------------------------------------------

    def talk(self, message: object) -> Talk:
        """Send any request."""
        talk = Talk(self.home.loop_socket, message)
        self._talks.append(talk)
        return talk

    def say(self, text: str = "Hello.", *, session: str = "s", new: bool = False, key: str | None = None) -> Talk:
        """Say something; the answer comes in the Talk."""
        said_as = MessageKey(key) if key is not None else ids.new_message_key()
        return self.talk(UserMessage(session=SessionId(session), new=new, key=said_as, text=text))

    def follow(self, turn: int = 0, *, session: str = "s") -> Talk:
        return self.talk(TurnFollow(session=SessionId(session), turn=turn))

    def cancel(self, turn: int = 0, *, session: str = "s") -> TurnCancelNoted:
        return self.talk(TurnCancel(session=SessionId(session), turn=turn)).wait(TurnCancelNoted)

    def status(self) -> LoopStatusReport:
        return self.talk(LoopStatus()).wait(LoopStatusReport)

    # -- what is left behind ----------------------------------------------------------------------

    def log_file(self, session: str = "s") -> Path:
        return self.state / "sessions" / session / "0.jsonl"

    def records(self, session: str = "s") -> list[dict[str, Any]]:
        """The whole lines of a session's log, read by nobody's rules but JSON's. What a crash cut is left out."""
        found = []
        for line in self.log_file(session).read_bytes().split(b"\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def bodies(self, session_text: str | None = None) -> list[bytes]:
        """The requests of conversations, in order; those that hold `session_text` only, where it is given."""
        wanted = (session_text or "").encode()
        return [body for body in self.llama.completions if b"Self-test" not in body and wanted in body]

    def self_tests(self) -> int:
        """How many requests the self-test has made of the model."""
        return len(self.llama.completions) - len(self.bodies())

    def template_hash(self) -> str:
        """What loopd.toml has to say of the server's template."""
        return hashlib.sha256(self.llama.template.encode()).hexdigest()

    # -- inside ---------------------------------------------------------------------------------

    def _start(self, name: str, module: str, tables: Mapping[str, Mapping[str, object]]) -> Role:
        path = self.home.etc / f"{name}.toml"
        path.write_text(_toml(tables), encoding="utf-8")
        self._roles[name] = Role(module, "--config", str(path), home=self.home.log)
        return self._roles[name]

    def _answer(self, messages: list[dict[str, Any]]) -> Answer:
        if str(messages[0]["content"]).startswith("Self-test"):
            return self.self_test
        return self.replies.popleft() if self.replies else OK


def until(holds: Callable[[], object], what: str) -> None:
    """Return as soon as `holds` does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def of(records: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["type"] == kind]


def lost(talk: Talk, records: list[dict[str, Any]]) -> list[object]:
    """Return the events that a client saw and that the log does not back."""
    users = {record["key"] for record in of(records, "user")}
    starts = {record["turn"]: tuple(record["keys"]) for record in of(records, "turn_start")}
    results = {(record["turn"], record["call"], record["content"]) for record in of(records, "tool_result")}
    usages = {(record["turn"], record["step"], record["prompt"], record["output"]) for record in of(records, "usage")}
    ends = {(record["turn"], record["ending"]) for record in of(records, "turn_end")}

    def backed(event: object) -> bool:
        match event:
            case MessageAccepted():
                return event.key in users
            case TurnStarted():
                return starts.get(event.turn) == event.keys
            case ToolReturned():
                return (event.turn, event.call, event.content) in results
            case StepUsage():
                return (event.turn, event.step, event.prompt, event.output) in usages
            case TurnEnded():
                return (event.turn, event.ending.value) in ends
            case _:
                return True

    return [event for event in talk.events if not backed(event)]


def faults(records: list[dict[str, Any]]) -> list[str]:
    """Say what is wrong with a log whose turns are all over: what begins must end, what is called has one result."""
    wrong = []
    keys = [key for record in of(records, "turn_start") for key in record["keys"]]
    wrong += [f"{key} in {keys.count(key)} turns" for key in {u["key"] for u in of(records, "user")} | set(keys)
              if keys.count(key) != 1]  # fmt: skip
    starts, ends = ([record["turn"] for record in of(records, kind)] for kind in ("turn_start", "turn_end"))
    wrong += [] if starts == ends == list(range(1, len(starts) + 1)) else [f"turns {starts} ended {ends}"]
    asked = [call["id"] for record in of(records, "assistant") for call in record["tool_calls"]]
    answered = [record["tool_call_id"] for record in of(records, "tool_result")]
    wrong += [] if asked == answered else [f"calls {asked} answered {answered}"]
    numbers = [record["call"] for record in of(records, "tool_result")]
    wrong += [] if numbers == list(range(1, len(numbers) + 1)) else [f"calls numbered {numbers}"]
    return wrong


def _toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]"] if name else []
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"
