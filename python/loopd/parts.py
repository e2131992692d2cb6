"""What every turn of this loopd works with: the world, handed in, and what a session offers its turns."""

from collections.abc import Callable
from typing import Protocol

import attrs

from bxcore.deadline import Clock
from bxcore.errors import UpstreamError
from bxcore.ids import CallId, SessionId
from bxcore.settings.loopd import LoopdSettings
from bxcore.wire.channel import WaitReason
from loopd.cancel import CancelToken
from loopd.history import History
from loopd.llama import ModelServer
from loopd.records import Record
from loopd.slots import SlotGate
from loopd.toolbox import Toolbox

Tell = Callable[[object], None]
"""Takes an event of a turn (bxcore.wire.channel) to whoever listens; never blocks."""


class ModelChanged(UpstreamError):
    """The server serves something else than what was tested, and may not or does not pass the tests."""

    code = "model_changed"


class Watch(Protocol):
    """Whoever knows whether the server is still the one that was tested."""

    @property
    def n_ctx(self) -> int:
        """Context of one slot, in tokens."""
        ...

    def confirm(self, *, cancel: CancelToken, on_wait: Callable[[WaitReason, int, int], None]) -> None:
        """Return where the next request may be sent. Raises ModelChanged, Cancelled or another UpstreamError."""
        ...

    def doubt(self) -> None:
        """Something happened that a changed server would explain: confirm before the next request."""
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
