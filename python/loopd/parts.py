"""What every turn of this loopd works with: the world, handed in, and what a session offers its turns."""

from collections.abc import Callable
from typing import Protocol

import attrs

from bxcore.deadline import Clock
from bxcore.ids import CallId, SessionId
from bxcore.sessionrecords import Record
from bxcore.settings.loopd import LoopdSettings
from loopd.cancel import CancelToken
from loopd.history import History
from loopd.llama import ModelServer
from loopd.slots import SlotGate
from loopd.toolbox import Toolbox
from loopd.waits import OnWait

Tell = Callable[[object], None]
"""Takes an event of a turn (bxcore.wire.channel) to whoever listens; never blocks."""


class Watch(Protocol):
    """Whoever knows whether the server is still the one that was tested."""

    @property
    def n_ctx(self) -> int:
        """Context of one slot, in tokens."""
        ...

    def confirm(self, *, cancel: CancelToken, on_wait: OnWait) -> bool:
        """Return where the next request may be sent; say whether it is a changed server that passed the tests.

        Raises ModelChanged, Cancelled, ServerAway and the other faults that mean "not now"; never a refusal.
        """
        ...

    def neutralise(self, text: str) -> str:
        """Return a text from outside with all known chat-template markup broken up, the served template's own too."""
        ...

    def doubt(self) -> None:
        """Something happened that a changed server would explain: confirm before the next request."""
        ...

    def heard(self) -> None:
        """A reply has just come to its end: its server is still the one that was confirmed before it."""
        ...


class Conversation(Protocol):
    """What a turn needs of its session."""

    @property
    def id(self) -> SessionId: ...
    @property
    def slot(self) -> int: ...
    @property
    def history(self) -> History: ...

    def write(self, *records: Record) -> None:
        """Append the records durably and fold them in. Raises StateError."""
        ...

    def request(self) -> bytes:
        """The body of the next request."""
        ...

    def keep_result(self, call: CallId, text: str) -> None:
        """Keep the whole of a result that was too long for the log. Raises StateError."""
        ...


@attrs.frozen(kw_only=True)
class Parts:
    """Built once in __main__."""

    clock: Clock
    settings: LoopdSettings
    server: ModelServer
    gate: SlotGate
    toolbox: Toolbox
    watch: Watch
