"""The session log's vocabulary: one class per kind of line, and the table that tells them apart.

A line is `{"type":"…", …fields in the order of the class}`. A field is never renamed and a kind
never changes its meaning: old logs are read for years. Specified in docs/session-log.md.
"""

from collections.abc import Mapping

import attrs

from bxcore import convert
from bxcore.ids import CallId, Hash32, MessageKey, SessionId
from bxcore.jsonl import Recovery
from bxcore.strictjson import JsonValue
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import TurnEnding
from bxcore.wire.tools import DataClass

FORMAT = 1
"""Written in every session_start; a log from the future is refused."""


@attrs.frozen(kw_only=True)
class SessionStart:
    """The first line of an epoch. `baseline` is the hash of the baseline file beside the log."""

    time: Timestamp
    format: int
    session: SessionId
    epoch: int
    slot: int
    baseline: Hash32


@attrs.frozen(kw_only=True)
class User:
    """A message of the owner, accepted. It joins the prompt with the turn that names its key."""

    time: Timestamp
    key: MessageKey
    content: str


@attrs.frozen(kw_only=True)
class TurnStart:
    """The messages `keys`, in this order, are the turn's question."""

    time: Timestamp
    turn: int
    keys: tuple[MessageKey, ...]


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call as the model made it. `arguments` is always a JSON object that a server can read.

    Where the model's own text was not one, `arguments` is `{}` and `broken` holds what came.
    """

    id: str
    name: str
    arguments: str
    broken: str | None


@attrs.frozen(kw_only=True)
class Assistant:
    """What the server returned, unchanged; None where the server sent no such field."""

    time: Timestamp
    turn: int
    step: int
    content: str | None
    reasoning_content: str | None
    tool_calls: tuple[ToolCall, ...]


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one request: prompt = cached + read; finish is the server's word for why it ended."""

    time: Timestamp
    turn: int
    step: int
    prompt: int
    cached: int
    read: int
    reread: int
    output: int
    reasoning: int
    finish: str


@attrs.frozen(kw_only=True)
class ToolResult:
    """What the model reads as the result of a call; labels are those of whoever ran the tool."""

    time: Timestamp
    turn: int
    call: CallId
    tool_call_id: str
    name: str
    ok: bool
    content: str
    data_class: DataClass
    untrusted: bool
    truncated: bool


@attrs.frozen(kw_only=True)
class Nudge:
    """Boxmaker's own words to the model, in the owner's place: the one retry after an empty reply."""

    time: Timestamp
    turn: int
    content: str


@attrs.frozen(kw_only=True)
class CacheLoss:
    """The server read again what it had read before. Expected now and then; never an error."""

    time: Timestamp
    turn: int
    step: int
    expected: int
    got: int


@attrs.frozen(kw_only=True)
class ThinkingCap:
    """The model thought for `tokens` and was told to stop; `ended` says whether the server took the order."""

    time: Timestamp
    turn: int
    step: int
    tokens: int
    ended: bool


@attrs.frozen(kw_only=True)
class TurnEnd:
    """The turn is over. `dropped`: the server refused to read its messages; they leave the prompt again.

    `sentence` joins the prompt where there was no answer; `detail` is for the owner alone.
    """

    time: Timestamp
    turn: int
    ending: TurnEnding
    sentence: str | None
    detail: str | None
    dropped: bool


Record = (
    SessionStart
    | User
    | TurnStart
    | Assistant
    | Usage
    | ToolResult
    | Nudge
    | CacheLoss
    | ThinkingCap
    | TurnEnd
    | Recovery
)

TYPES: Mapping[str, type] = {
    "session_start": SessionStart,
    "user": User,
    "turn_start": TurnStart,
    "assistant": Assistant,
    "usage": Usage,
    "tool_result": ToolResult,
    "nudge": Nudge,
    "cache_loss": CacheLoss,
    "thinking_cap": ThinkingCap,
    "turn_end": TurnEnd,
    "recovery": Recovery,
}
NAMES: Mapping[type, str] = {record: name for name, record in TYPES.items()}
TAG = "type"


def to_value(record: object) -> JsonValue:
    """Return the object that a line holds."""
    return convert.unstructure_tagged(record, NAMES, tag=TAG)


def from_value(untrusted: JsonValue) -> Record:
    """Return the record that a line's object holds. Raises BadMessage where it holds none."""
    record: Record = convert.structure_tagged(untrusted, TYPES, tag=TAG)
    return record
