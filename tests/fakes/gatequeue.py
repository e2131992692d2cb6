"""What stands in gatewayd's queue, for tests: posts of a user, open turns, a store, settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bxcore.deadline import Clock
from bxcore.files import StateUnwritable
from bxcore.ids import MattermostId, SessionId
from bxcore.settings import gatewayd as settings_file
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.timestamp import Timestamp
from gatewayd.condition import Condition
from gatewayd.entries import Incoming, Kind, OpenTurn, Outgoing, session_of
from gatewayd.store import Store
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.postbox import an_id

T = TypeVar("T")

CHANNEL = an_id("channel")
OWNER = an_id("owner")


def settings(home: Path, *, attempts: int = 3, give_up_ms: int = 86_400_000) -> GatewaydSettings:
    """Return settings whose loopd is a FakeLoopd of `home`."""
    return GatewaydSettings(
        state=home,
        listen=settings_file.Listen(gateway=home / "gateway.sock", owner=home / "owner.sock"),
        mattermost=settings_file.Mattermost(url="http://127.0.0.1:1", retry_most_ms=20),
        loop=settings_file.Loop(socket=home / "run" / "loop-owner" / "loop.sock"),
        allow=settings_file.Allow(users=(OWNER,)),
        limits=settings_file.Limits(attempts=attempts, give_up_ms=give_up_ms),
    )


def post(
    name: str,
    *,
    at: int = 0,
    thread: str | None = None,
    text: str = "Hello",
    kind: Kind = Kind.MESSAGE,
    channel: MattermostId = CHANNEL,
    direct: bool = True,
) -> Incoming:
    """Return a post of the owner, `at` milliseconds after the first; it begins a thread where none is named."""
    return Incoming(
        id=an_id(name),
        channel=channel,
        thread=an_id(thread or name),
        user=OWNER,
        create_at=Timestamp(BEGIN + at),
        kind=kind,
        direct=direct,
        text=text,
    )


def command(text: str, name: str = "command", *, at: int = 1_000, thread: str | None = None) -> Incoming:
    return post(name, at=at, thread=thread, text=text, kind=Kind.COMMAND)


def session(thread: str) -> SessionId:
    return session_of(an_id(thread))


def turn(thread: str = "root", number: int = 1, *, first: bool = True) -> OpenTurn:
    root = an_id(thread)
    return OpenTurn(session=session_of(root), turn=number, channel=CHANNEL, thread=root, since=BEGIN, first=first)


def outgoing(key: str, message: str = "words", *, root: str | None = "root") -> Outgoing:
    return Outgoing(key=key, channel=CHANNEL, root=an_id(root) if root else None, message=message)


def full_once(write: Callable[..., T]) -> Callable[..., T]:
    """Return a write of the store that finds no room the first time."""
    failures = iter([StateUnwritable("the queue could not be written: database or disk is full")])

    def written(*arguments: Any, **more: Any) -> T:
        for failure in failures:
            raise failure
        return write(*arguments, **more)

    return written


class Queue:
    """A store, and the board beside it. `again` opens the store anew, as after a kill."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self.directory = directory
        self.clock = clock or HandClock()
        self.condition = Condition(self.clock)
        self.store = Store.open(directory, self.clock)

    def again(self) -> None:
        self.store.close()
        self.store = Store.open(self.directory, self.clock)

    def waiting(self) -> list[MattermostId]:
        return [one.id for one in self.store.waiting()]

    def unsent(self) -> list[tuple[str, str]]:
        return [(one.outgoing.key, one.outgoing.message) for one in self.store.unsent()]

    def trouble(self) -> str | None:
        worst = self.condition.worst()
        return worst.code if worst else None
