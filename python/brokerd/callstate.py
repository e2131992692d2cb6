"""The states of one call and the moves between them, as a table; a move that is not there is a fault of ours.

The audit log tells every move but the first: which record says which is `event_of`. docs/authority.md holds
the table as `drawn` prints it. Pure. Threads: a Progress belongs to the one that handles its call.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from bxcore.auditlog import Answered, Decided, Ended, Record, RunEnding, Started
from bxcore.wire.admin import ApprovalEnding, Verdict


class CallState(Enum):
    """Where a call is. Only STARTED may have an effect; DENIED, REFUSED, EXPIRED and VOID never had one."""

    RECEIVED = "received"
    DENIED = "denied"
    ASKED = "asked"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    VOID = "void"
    STARTED = "started"
    ENDED = "ended"
    UNKNOWN = "unknown"


class CallEvent(Enum):
    """What moves a call on. ALLOW is a grant's word, APPROVE the owner's; LOSE: brokerd died while it ran."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"
    APPROVE = "approve"
    REFUSE = "refuse"
    EXPIRE = "expire"
    WITHDRAW = "withdraw"
    START = "start"
    END = "end"
    LOSE = "lose"


MOVES: Mapping[tuple[CallState, CallEvent], CallState] = MappingProxyType(
    {
        (CallState.RECEIVED, CallEvent.DENY): CallState.DENIED,
        (CallState.RECEIVED, CallEvent.ASK): CallState.ASKED,
        (CallState.RECEIVED, CallEvent.ALLOW): CallState.APPROVED,
        (CallState.ASKED, CallEvent.APPROVE): CallState.APPROVED,
        (CallState.ASKED, CallEvent.REFUSE): CallState.REFUSED,
        (CallState.ASKED, CallEvent.EXPIRE): CallState.EXPIRED,
        (CallState.ASKED, CallEvent.WITHDRAW): CallState.VOID,
        (CallState.APPROVED, CallEvent.START): CallState.STARTED,
        # What could not be started has ended too, without any effect.
        (CallState.APPROVED, CallEvent.END): CallState.ENDED,
        (CallState.STARTED, CallEvent.END): CallState.ENDED,
        (CallState.STARTED, CallEvent.LOSE): CallState.UNKNOWN,
    }
)

_VERDICTS: Mapping[Verdict, CallEvent] = {
    Verdict.DENIED: CallEvent.DENY,
    Verdict.ASK: CallEvent.ASK,
    Verdict.ALLOWED: CallEvent.ALLOW,
}

_ENDINGS: Mapping[ApprovalEnding, CallEvent] = {
    ApprovalEnding.APPROVED: CallEvent.APPROVE,
    ApprovalEnding.REFUSED: CallEvent.REFUSE,
    # The owner said yes, and it was no longer the question that had been asked.
    ApprovalEnding.DENIED_NOW: CallEvent.REFUSE,
    ApprovalEnding.CHANGED: CallEvent.REFUSE,
    ApprovalEnding.EXPIRED: CallEvent.EXPIRE,
    ApprovalEnding.VOID: CallEvent.WITHDRAW,
}


class IllegalMove(RuntimeError):
    """The code tried to take a call where no move leads."""


class Progress:
    """Where one call is."""

    def __init__(self, state: CallState = CallState.RECEIVED) -> None:
        self.state = state

    def move(self, event: CallEvent) -> None:
        """Go on, or raise IllegalMove and stay."""
        after = MOVES.get((self.state, event))
        if after is None:
            raise IllegalMove(f"{event.value} in state {self.state.value}")
        self.state = after

    def recorded(self, record: Record) -> None:
        """Go on as `record` says. Raises IllegalMove, also for a record of no single call."""
        event = event_of(record)
        if event is None:
            raise IllegalMove(f"{type(record).__name__} is no move of a call")
        self.move(event)


def event_of(record: Record) -> CallEvent | None:
    """Return the move that a record of the audit log tells; None for one that is about no call."""
    match record:
        case Decided():
            return _VERDICTS[record.verdict]
        case Answered():
            return _ENDINGS.get(record.ending)
        case Started():
            return CallEvent.START
        case Ended():
            return CallEvent.LOSE if record.ending is RunEnding.UNKNOWN else CallEvent.END
        case _:
            return None


def last(state: CallState) -> bool:
    """Whether nothing comes after `state`."""
    return all(before is not state for before, _ in MOVES)


def drawn() -> str:
    """Return the table as lines `received --ask--> asked`, for the page that explains it."""
    before_width = max(len(state.value) for state in CallState)
    event_width = max(len(event.value) for event in CallEvent) + len("-->")
    return "\n".join(
        f"{before.value:<{before_width}} --{f'{event.value}-->':<{event_width}} {after.value}{', final' * last(after)}"
        for (before, event), after in MOVES.items()
    )
