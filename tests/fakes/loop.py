"""A loopd without its sockets: sessions over a directory, and a scripted model behind them.

Threads: turns run in threads of their own, as in production; `said` waits for the turn's last event.
"""

from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import attrs

from bxcore import sanitize
from bxcore.deadline import Clock, Deadline, SystemClock
from bxcore.files import Files
from bxcore.ids import MessageKey, SessionId, new_message_key
from bxcore.sessionrecords import Record
from bxcore.settings.loopd import Infer, Limits, Listen, LoopdSettings, Sampling, Slots
from bxcore.wire.channel import TurnEnded, WaitReason
from loopd.broadcast import Listener
from loopd.brokerport import BrokerPort, NoBroker
from loopd.cancel import CancelToken
from loopd.parts import Parts
from loopd.session import Accepted, Session
from loopd.sessionlog import SessionStore
from loopd.sessions import Sessions
from loopd.slots import SlotGate
from loopd.toolbox import ECHO, Tool, Toolbox
from tests.fakes.clocks import HandClock
from tests.fakes.faulty_files import FaultyFiles
from tests.fakes.scripted_model import ScriptedModel

PATIENCE_SECONDS = 30


class SteadyWatch:
    """The server is always the one that was tested, unless a test says otherwise."""

    def __init__(self, *, n_ctx: int = 4_096) -> None:
        self.n_ctx = n_ctx
        self.doubts = 0
        self.replies = 0
        self.tags: tuple[str, ...] = ()
        """Markup of the served template alone."""
        self.fault: Exception | None = None
        self.changed = False
        """It is another server, which has just passed the self-test."""
        self.on_confirm: Callable[[], object] = lambda: None

    def confirm(self, *, cancel: CancelToken, on_wait: Callable[[WaitReason, int, int], None]) -> bool:
        self.on_confirm()
        cancel.check()
        if self.fault is not None:
            raise self.fault
        return self.changed

    def neutralise(self, text: str) -> str:
        return sanitize.neutralise(text, self.tags)

    def doubt(self) -> None:
        self.doubts += 1

    def heard(self) -> None:
        self.replies += 1


@attrs.frozen(kw_only=True)
class Said:
    """One message and everything that its sender was told."""

    accepted: Accepted
    events: list[object]

    @property
    def ended(self) -> TurnEnded:
        last = self.events[-1]
        assert isinstance(last, TurnEnded), self.events
        return last


class Loop:
    """See the module's header."""

    def __init__(
        self,
        directory: Path,
        model: ScriptedModel | None = None,
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        slots: Slots | None = None,
        broker: BrokerPort | None = None,
        found: tuple[Tool, ...] = (ECHO,),
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.directory = directory
        self.model = model or ScriptedModel()
        self.clock = clock or HandClock()
        self.watch = SteadyWatch()
        self.files = files or FaultyFiles(None)  # syncs nothing, which is what makes these tests quick
        settings = LoopdSettings(
            state=directory,
            listen=Listen(owner=directory / "loop.sock"),
            infer=Infer(socket=directory / "infer.sock"),
            limits=limits or Limits(),
            sampling=sampling or Sampling(),
            slots=slots or Slots(),
        )
        self.parts = Parts(
            clock=self.clock,
            settings=settings,
            server=self.model,
            gate=SlotGate(self.clock),
            toolbox=Toolbox(clock=self.clock, broker=broker or NoBroker(), zone=ZoneInfo("UTC"), found=found),
            watch=self.watch,
        )
        self.store = SessionStore(directory / "sessions", files=self.files, clock=self.clock)
        self.sessions = Sessions(self.parts, self.store)

    # -- speaking -----------------------------------------------------------------------------------

    def accept(
        self, text: str, *, session: str = "s", key: str = "", new: bool | None = None
    ) -> tuple[Session, Accepted]:
        """Send a message and do not wait. Without `new`, the session is made where it does not exist."""
        name = SessionId(session)
        if new is None:
            new = not self.store.exists(name)
        return self.sessions.say(name, MessageKey(key) if key else new_message_key(), text, new=new)

    def say(self, text: str, *, session: str = "s", key: str = "", new: bool | None = None) -> Said:
        """Send a message, wait for the end of its turn."""
        _, accepted = self.accept(text, session=session, key=key, new=new)
        return Said(accepted=accepted, events=heard(accepted.listener))

    # -- looking ------------------------------------------------------------------------------------

    def records(self, session: str = "s") -> list[Record]:
        return list(self.store.read(SessionId(session)))

    def log(self, session: str = "s") -> Path:
        return self.directory / "sessions" / session / "0.jsonl"

    def settle(self) -> None:
        """Wait until no turn runs."""
        left = self.sessions.join(Deadline.after(SystemClock(), milliseconds=PATIENCE_SECONDS * 1000))
        assert left == 0

    def close(self) -> None:
        """Give the logs back, so that another Loop can open them."""
        self.settle()
        for session in self.sessions._live():
            session.close()


def heard(listener: Listener | None) -> list[object]:
    """Return the events up to the end of the turn, or until loopd ends the listening."""
    assert listener is not None, "that turn has ended"
    events: list[object] = []
    for event in listener.events(look_seconds=PATIENCE_SECONDS):
        assert event is not None, f"nothing came for {PATIENCE_SECONDS} s after {events}"
        events.append(event)
        if isinstance(event, TurnEnded):
            break
    return events
