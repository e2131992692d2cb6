"""Carries out commands, `!stop` and its kind, in the order in which they were written. None reaches a model.

Invariant: a command is done in the same step as its answer is kept to be posted; a yes or no to a question is done
before it takes effect, so that a kill between the two loses it (the question is asked again) and never doubles it.
Threads: one of its own, so that no command waits for a message; `wake` and `stop` from any.
"""

import random
from collections.abc import Callable
from typing import Protocol

from bxcore import logs, timestamp
from bxcore.errors import BoxmakerError, StateError
from bxcore.ids import SessionId
from bxcore.wire.channel import LoopStatusReport
from gatewayd import commands, markdown
from gatewayd.backoff import Backoff
from gatewayd.commands import Approve, Command, Deny, Help, Malformed, Status, Stop, Unknown
from gatewayd.condition import Condition, Part
from gatewayd.entries import Incoming, Kind, OpenTurn, Outgoing, State
from gatewayd.store import Store
from gatewayd.worker import UNTIL_WOKEN, Rest, Worker

log = logs.get("doing")

FIRST_PAUSE_MS = 500
MOST_PAUSE_MS = 10_000

NOTHING_RUNS = "Nothing is running here."
HELP = """\
- `!approve <id>` runs the call that the question of this number shows, once; in the thread where it was asked
- `!deny <id> [reason]` refuses it; the model is told the reason
- `!stop` stops the turn of this thread; at the top level of a direct message, all that run there
- `!status` says whether the model is there, what runs and what waits
- `!help` shows this list
- `!!word` is a message to the model that begins with `!word`"""
_EXACTLY = "in small letters, with single blanks, and with nothing before or behind it"
_FAILED = "This command failed, and was not tried again. The log of gatewayd has the details."


class Questions(Protocol):
    """As much of gatewayd.questions.Questions as is used here."""

    def answer(self, incoming: Incoming, command: Approve | Deny) -> str | None:
        """Take an answer; return what is to be said about it, None for nothing."""
        ...

    def open_count(self) -> int: ...


class Turns(Protocol):
    """As much of gatewayd.conversation.Conversation as is used here."""

    def stop_turn(self, session: SessionId) -> bool: ...

    def loop_status(self) -> LoopStatusReport | None: ...

    def running(self) -> tuple[OpenTurn, ...]: ...


class Doing(Worker):
    """See the module's header. `on_outgoing`: there are posts to be made."""

    def __init__(
        self,
        *,
        store: Store,
        condition: Condition,
        turns: Turns,
        questions: Questions,
        attempts: int,
        on_outgoing: Callable[[], None],
        first_pause_ms: int = FIRST_PAUSE_MS,
    ) -> None:
        super().__init__("doing")
        self._store = store
        self._condition = condition
        self._turns = turns
        self._questions = questions
        self._attempts = attempts
        self._on_outgoing = on_outgoing
        self._pauses = Backoff(first_pause_ms, MOST_PAUSE_MS, random.random)

    # -- the queue ------------------------------------------------------------------------------

    def _work(self) -> Rest:
        try:
            self.do_all()
        except StateError as fault:
            self._condition.trouble(Part.STATE, fault)
        except Exception:
            log.exception("commands broke off code=internal")  # the thread's outermost frame
        else:
            self._condition.well(Part.STATE)
            self._pauses.reset()
            return UNTIL_WOKEN
        return Rest(ms=self._pauses.next_ms(), deaf=True)

    def do_all(self) -> None:
        """Carry out what waits, in the caller's thread. Raises StateError."""
        while (page := self._store.waiting(kind=Kind.COMMAND)) and not self._stopping.is_set():
            for incoming in page:
                self._do(incoming)

    def _do(self, incoming: Incoming) -> None:
        tries = self._store.attempted(incoming.id)
        if tries > self._attempts:
            # It took us down, or broke off, each time.
            log.error("command set aside post=%s tries=%d code=internal", incoming.id, tries - 1)
            self._store.settle(incoming.id, State.PARKED, _said(incoming, _FAILED))
            self._on_outgoing()
            return
        command = commands.parse(incoming.text)
        log.info("command post=%s kind=%s", incoming.id, type(command).__name__.lower())
        if isinstance(command, Approve | Deny):
            self._answer(incoming, command)
        else:
            self._store.settle(incoming.id, State.DONE, _said(incoming, self._told(incoming, command)))
        self._on_outgoing()

    def _answer(self, incoming: Incoming, command: Approve | Deny) -> None:
        if not self._store.settle(incoming.id, State.DONE):
            return
        try:
            words = self._questions.answer(incoming, command)
        except StateError:
            raise
        except BoxmakerError as fault:
            words = f"Your answer was not taken: {markdown.quote(fault.detail)}"
        self._store.add(_said(incoming, words))

    def _told(self, incoming: Incoming, command: Command | None) -> str | None:
        match command:
            case Stop():
                return self._stop(incoming)
            case Status():
                return self._status()
            case Help():
                return HELP
            case Malformed():
                return f"Not done: this command is written `{command.usage}`, {_EXACTLY}."
            case Unknown(word=""):
                return "Behind `!` its command follows at once. `!help` lists those that there are."
            case Unknown():
                return f"There is no command !{markdown.quote(command.word)}. `!help` lists those that there are."
            case _:
                return None

    # -- stop, status ---------------------------------------------------------------------------

    def _stop(self, incoming: Incoming) -> str | None:
        """Stop what runs, and take back what was written before and not said yet."""
        everywhere = incoming.first and incoming.direct
        dropped = self._store.drop(incoming, everywhere=everywhere)
        try:
            stopped = [self._turns.stop_turn(session) for session in self._sessions(incoming, everywhere=everywhere)]
        except BoxmakerError as fault:
            return f"Nothing could be stopped: {markdown.quote(fault.detail)}"
        if not any(stopped) and not dropped:
            return NOTHING_RUNS
        if any(stopped) and not everywhere and not dropped:
            return None  # the end of the turn is said in this thread, and says why
        return f"Stopped. Turns: {sum(stopped)}. Messages that were not begun and are dropped: {dropped}."

    def _sessions(self, incoming: Incoming, *, everywhere: bool) -> list[SessionId]:
        if not everywhere:
            return [incoming.session]
        turns = (turn for turn in self._store.open_turns() if turn.channel == incoming.channel)
        return list(dict.fromkeys(turn.session for turn in turns))

    def _status(self) -> str:
        counts = self._store.counts()
        waiting = max(0, counts.waiting - 1)  # this command is one of them
        since = timestamp.to_text(self._condition.since)
        lines = [
            f"Mattermost: {_connection(self._condition)} since {since}",
            f"loopd: {_loop(self._turns.loop_status())}",
            f"turns running: {len(self._turns.running())}",
            f"questions open: {self._questions.open_count()}",
            f"posts waiting: {waiting} to be said, {counts.outgoing} to be posted; set aside: {counts.parked}",
        ]
        worst = self._condition.worst()
        if worst is not None:
            lines.append(f"wrong now: {markdown.quote(worst.detail)} (`{worst.code}`)")
        return "\n".join(f"- {line}" for line in lines)


def _connection(condition: Condition) -> str:
    if condition.catching_up:
        return "what was missed is being read,"
    return "connected" if condition.connected else "not connected"


def _loop(status: LoopStatusReport | None) -> str:
    if status is None:
        return "does not answer"
    return "ready" if status.ready else f"waits for {markdown.quote(status.waiting_for or 'its start')}"


def _said(incoming: Incoming, words: str | None) -> tuple[Outgoing, ...]:
    if words is None:
        return ()
    key = f"command:{incoming.id}"
    return (Outgoing(key=key, channel=incoming.channel, root=incoming.thread, message=words),)
