"""/etc/boxmaker/loopd.toml as one frozen type; defaults and units live here.

In bxcore because two programs read the file: loopd, and `bxctl config check`.
"""

from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs

from bxcore.settings.ranges import whole
from bxcore.timestamp import DAY_MS

_MOST = 2**31 - 1
_PLACES = 6


_positive = whole(1, _MOST)
_not_negative = whole(0, _MOST)
_wait = whole(1, DAY_MS)


def _zone(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{attribute.name}: expected an IANA zone that this machine knows, as Europe/Berlin") from None


def _between(low: str, high: str) -> "attrs._ValidatorType[Decimal]":
    def check(_: object, attribute: "attrs.Attribute[Decimal]", value: Decimal) -> None:
        exponent = value.as_tuple().exponent
        # Sent in each request with all its digits: 1e-30000000 would be thirty million of them.
        written_out = isinstance(exponent, int) and -_PLACES <= exponent <= 0
        if not written_out or not Decimal(low) <= value <= Decimal(high):
            raise ValueError(f"{attribute.name}: expected {low} to {high}, with at most {_PLACES} decimal places")

    return check


@attrs.frozen(kw_only=True)
class Listen:
    """Where loopd listens. Each pair of roles has a directory of its own."""

    owner: Path
    gateway: Path | None = None


@attrs.frozen(kw_only=True)
class Infer:
    """The way to the model server, and how long to wait for it (milliseconds)."""

    socket: Path
    model: str = ""
    """Sent as `model` where it is not empty; a router needs it."""
    slot_wait_ms: int = attrs.field(default=600_000, validator=_wait)
    load_wait_ms: int = attrs.field(default=180_000, validator=_wait)
    liveness_ms: int = attrs.field(default=30_000, validator=_wait)
    connect_ms: int = attrs.field(default=5_000, validator=_wait)
    stall_ms: int = attrs.field(default=600_000, validator=_wait)
    """A reply that only pings, and says nothing, is given up after this."""
    recheck_ms: int = attrs.field(default=1_000, validator=whole(0, DAY_MS))
    """This long after the server was last heard of, the next request asks first whether it is still the same one.
    No server that loads a model is replaced faster than the default."""


@attrs.frozen(kw_only=True)
class Broker:
    """The way to brokerd. Without a socket every tool call is denied."""

    socket: Path | None = None
    timeout_ms: int = attrs.field(default=150_000, validator=_wait)
    """For a call that nobody is asked about, and for one after the owner was asked; above every tool's own limit."""


@attrs.frozen(kw_only=True)
class Expect:
    """What the start-up self-test compares the server with. The server's flags are the owner's."""

    n_ctx: int = attrs.field(default=131_072, validator=_positive)
    """Context of one slot, in tokens."""
    slots: int = attrs.field(default=2, validator=_positive)
    template_sha256: str = ""
    """SHA-256 of the chat template that /props shows; empty: any that passes the self-test."""
    baseline_tokens: int = attrs.field(default=3_000, validator=_positive)
    """System prompt, tool schemas and memory together may take this much."""


@attrs.frozen(kw_only=True)
class Slots:
    """Which server slot serves whom. Conversations share `main`; scheduled work uses `background`."""

    main: int = attrs.field(default=0, validator=_not_negative)
    background: int = attrs.field(default=1, validator=_not_negative)


@attrs.frozen(kw_only=True)
class Sampling:
    """Sent with every request; frozen into a session when it starts."""

    temperature: Decimal = attrs.field(default=Decimal("0.6"), validator=_between("0", "2"))
    top_p: Decimal = attrs.field(default=Decimal("0.95"), validator=_between("0", "1"))
    top_k: int = attrs.field(default=20, validator=_not_negative)
    max_tokens: int = attrs.field(default=8_192, validator=_positive)


@attrs.frozen(kw_only=True)
class Limits:
    """Where loopd stops a model that runs away."""

    thinking_tokens: int = attrs.field(default=4_096, validator=_positive)
    thinking_slack_tokens: int = attrs.field(default=256, validator=_not_negative)
    """Thinking that goes on this far past its cap, although it was told to end, ends the turn."""
    steps: int = attrs.field(default=24, validator=_positive)
    """Requests to the model in one turn."""
    calls_per_step: int = attrs.field(default=16, validator=_positive)
    repeats_refused: int = attrs.field(default=3, validator=_positive)
    """The n-th equal call of a turn is answered "not run"."""
    repeats_end: int = attrs.field(default=5, validator=_positive)
    """The n-th equal call of a turn ends it."""
    loop_chars: int = attrs.field(default=3_000, validator=_not_negative)
    """An answer whose last so many characters only repeat one short piece is ended; 0: never."""
    result_chars: int = attrs.field(default=32_768, validator=_positive)
    """A longer tool result is cut when it is first logged; the whole text is kept beside the log."""
    gate_wait_ms: int = attrs.field(default=3_600_000, validator=_wait)
    """How long a turn waits for other turns of this loopd on the same slot."""
    open_sessions: int = attrs.field(default=64, validator=_positive)
    """Idle sessions kept in memory; the rest are read again from disk when they speak."""
    waiting_messages: int = attrs.field(default=64, validator=_positive)
    waiting_bytes: int = attrs.field(default=1_048_576, validator=_positive)
    """What may wait in one session for its next turn: so many messages, so many bytes of UTF-8."""
    running_turns: int = attrs.field(default=256, validator=_positive)
    """With so many turns at work, a message that would begin one more is refused. Not exact: messages of one moment may
    pass it together, and so may turns of messages that waited already."""
    connections: int = attrs.field(default=128, validator=_positive)
    """Clients at a time on one socket."""

    def __attrs_post_init__(self) -> None:
        if self.repeats_end < self.repeats_refused:
            raise ValueError("repeats_end is below repeats_refused; a call is refused before it ends the turn")


@attrs.frozen(kw_only=True)
class LoopdSettings:
    """The whole file."""

    state: Path
    """Directory that holds sessions/."""
    listen: Listen
    infer: Infer
    broker: Broker = Broker()
    expect: Expect = Expect()
    slots: Slots = Slots()
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    time_zone: str = attrs.field(default="UTC", validator=_zone)
    """IANA name; the clock tool tells this zone beside UTC."""
