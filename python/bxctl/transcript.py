"""Stored session records -> lines that a person can read. Pure.

Reads the frames of `session_show`; what a record holds is specified in docs/session-log.md. A record
of a kind that this version does not know is shown as it is, never left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from bxcore import strictjson
from bxcore.errors import WireError
from bxcore.strictjson import JsonValue
from bxcore.wire import channel
from bxctl import render
from bxctl.render import Ink, Screen

_TAIL_LINES = 12
_UNFINISHED = "! This turn has not ended: it still runs, or Boxmaker was stopped in the middle of it. [interrupted]"
Styled = tuple[str, Ink | None]
Fields = Mapping[str, JsonValue]


@attrs.frozen(kw_only=True)
class StoredLine:
    """One line of an epoch's log, put together again."""

    epoch: int
    line: int
    text: str


def stored_lines(events: Iterable[object]) -> Iterator[StoredLine]:
    """Join the pieces in which long lines travel."""
    pieces: list[str] = []
    for event in events:
        if isinstance(event, channel.SessionRecord):
            pieces.append(event.text)
            if not event.more:
                yield StoredLine(epoch=event.epoch, line=event.line, text="".join(pieces))
                pieces = []


def readable(events: Iterable[object], screen: Screen) -> Iterator[Styled]:
    """Yield the whole session as styled lines."""
    for stored in stored_lines(events):
        fields = _fields(stored.text)
        if fields is None:
            yield f"! epoch {stored.epoch}, line {stored.line} cannot be read: {_cut(stored.text, screen)}", Ink.WARN
        else:
            yield from _record(fields, stored, screen)


def tail(events: Iterable[object], screen: Screen) -> Iterator[Styled]:
    """Yield the last exchange, short: what was asked, what came back, and why it ended where that was no answer."""
    last = _last_exchange(events)
    if not last.asked:
        return
    before = f" ({render.count_of(last.turns_before, 'turn')} before it)" if last.turns_before else ""
    yield f"last time:{before}", Ink.DIM
    for line in _short(_prefixed("\n".join(last.asked), screen, "you> ", "     ")):
        yield line, None
    for line in _short(_prefixed(last.answer.strip("\n"), screen, "", "")):
        yield line, None
    if last.ending:
        yield last.ending, Ink.WARN


@attrs.frozen(kw_only=True)
class _Exchange:
    asked: tuple[str, ...] = ()
    answer: str = ""
    ending: str = ""  # the line that says why, where the turn was not answered
    turns_before: int = 0


def _last_exchange(events: Iterable[object]) -> _Exchange:
    last = _Exchange()
    turns = 0
    pending: tuple[str, ...] = ()  # said, but no turn has taken it yet: the one before may still run
    for stored in stored_lines(events):
        fields = _fields(stored.text) or {}
        match fields.get("type"):
            case "user":
                pending = (*pending, _text(fields, "content"))
            case "turn_start":
                last = _Exchange(asked=pending, ending=_UNFINISHED, turns_before=turns)
                turns, pending = turns + 1, ()
            case "assistant" if _text(fields, "content"):
                last = attrs.evolve(last, answer=_text(fields, "content"))
            case "turn_end":
                last = attrs.evolve(last, ending=_ending(fields))
    return _Exchange(asked=pending, turns_before=turns) if pending else last


def _short(lines: list[str]) -> list[str]:
    if len(lines) <= _TAIL_LINES:
        return lines
    return [*lines[:_TAIL_LINES], f"({render.count_of(len(lines) - _TAIL_LINES, 'more line')})"]


# -- one record ------------------------------------------------------------------------------------


def _record(fields: Fields, stored: StoredLine, screen: Screen) -> Iterator[Styled]:
    show = SHOW.get(_text(fields, "type"))
    if show is None:
        yield f"? {_cut(stored.text, screen)}", Ink.DIM
    else:
        yield from show(fields, screen)


def _session_start(fields: Fields, _screen: Screen) -> Iterator[Styled]:
    name = render.safe_line(f"{_text(fields, 'session')}, epoch {_number(fields, 'epoch')}")
    yield f"Session {name}, begun {render.safe_line(_text(fields, 'time'))}", Ink.BOLD


def _user(fields: Fields, screen: Screen) -> Iterator[Styled]:
    yield "", None
    yield render.safe_line(_text(fields, "time")), Ink.DIM
    for line in _prefixed(_text(fields, "content"), screen, "you> ", "     "):
        yield line, Ink.BOLD


def _assistant(fields: Fields, screen: Screen) -> Iterator[Styled]:
    for line in _prefixed(_text(fields, "reasoning_content").strip("\n"), screen, "~ ", "~ "):
        yield line, Ink.DIM
    for line in _prefixed(_text(fields, "content").strip("\n"), screen, "", ""):
        yield line, None
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            yield _call(call, screen), Ink.DIM


def _call(call: Fields, screen: Screen) -> str:
    words = f"{_text(call, 'name')} {_text(call, 'broken') or _text(call, 'arguments')}"
    return f"{screen.glyph('· ', '- ')}{render.safe_line(words)}"


def _tool_result(fields: Fields, screen: Screen) -> Iterator[Styled]:
    words = "" if fields.get("ok") is True else " was not carried out"
    yield f"  {render.safe_line(_text(fields, 'name'))}{words}:", Ink.DIM
    for line in _prefixed(_text(fields, "content"), screen, "  | ", "  | "):
        yield line, Ink.DIM


def _usage(fields: Fields, _screen: Screen) -> Iterator[Styled]:
    counted = {name: render.count(_number(fields, name)) for name in ("read", "cached", "output")}
    yield f"  read {counted['read']}, {counted['cached']} from the cache; wrote {counted['output']}", Ink.DIM


def _nudge(fields: Fields, screen: Screen) -> Iterator[Styled]:
    for line in _prefixed(_text(fields, "content"), screen, "boxmaker> ", "          "):
        yield line, Ink.DIM


def _cache_loss(fields: Fields, _screen: Screen) -> Iterator[Styled]:
    expected, got = (render.count(_number(fields, name)) for name in ("expected", "got"))
    yield f"! the cache was lost: {expected} tokens were expected in it, {got} were there", Ink.WARN


def _thinking_cap(fields: Fields, _screen: Screen) -> Iterator[Styled]:
    took = "stopped" if fields.get("ended") is True else "was told to stop and did not"
    yield f"! the model thought for {render.count(_number(fields, 'tokens'))} tokens and {took}", Ink.WARN


def _turn_end(fields: Fields, _screen: Screen) -> Iterator[Styled]:
    if ending := _ending(fields):
        yield ending, Ink.WARN


def _ending(fields: Fields) -> str:
    sentence, more = _text(fields, "sentence"), _text(fields, "detail")
    if not sentence:
        return ""
    words = f"{sentence} ({more})" if more else sentence
    return f"! {render.safe_line(words)} [{render.safe_line(_text(fields, 'ending'))}]"


def _recovery(fields: Fields, _screen: Screen) -> Iterator[Styled]:
    line, size = _number(fields, "line"), render.size(_number(fields, "bytes"))
    yield f"! line {line} ({size}) was cut off by a crash; it is kept and skipped", Ink.WARN


def _nothing(_fields: Fields, _screen: Screen) -> Iterator[Styled]:
    return iter(())


SHOW: Mapping[str, Callable[[Fields, Screen], Iterator[Styled]]] = {
    "session_start": _session_start,
    "user": _user,
    "turn_start": _nothing,
    "assistant": _assistant,
    "usage": _usage,
    "tool_result": _tool_result,
    "nudge": _nudge,
    "cache_loss": _cache_loss,
    "thinking_cap": _thinking_cap,
    "turn_end": _turn_end,
    "recovery": _recovery,
}


# -- fields ------------------------------------------------------------------------------------------


def _fields(untrusted_line: str) -> Fields | None:
    try:
        untrusted = strictjson.loads(untrusted_line.encode())
    except WireError:
        return None
    return untrusted if isinstance(untrusted, dict) else None


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Fields, name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def _prefixed(untrusted: str, screen: Screen, first: str, each: str) -> list[str]:
    if not untrusted:
        return []
    lines = screen.foreign(untrusted).split("\n")
    return [(each if index else first) + line for index, line in enumerate(lines)]


def _cut(untrusted: str, screen: Screen) -> str:
    return render.clip_line(untrusted, screen, used=40)
