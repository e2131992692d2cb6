"""`bxctl audit show`: the audit log for people, one line a record, or one record whole.

Reads the log's files itself. Everything in them that came from a model is escaped. Lines are decoded only where
they are shown: which session, which number and which call a line is about is read off its front.
"""

import json as jsonlib
import re
import sys
from collections import deque
from collections.abc import Iterator

import attrs

from bxcore import auditfiles, strictjson, timestamp
from bxcore.auditfiles import Entry
from bxcore.auditlog import Answered, BreakAccepted, Decided, Ended, Record, Recovered, Started
from bxcore.chainline import PREFIX
from bxcore.errors import BadMessage
from bxcore.ids import SessionId
from bxcore.timestamp import DAY_MS, Timestamp
from bxctl import audit, render
from bxctl.audit import Log
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.world import World

_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": DAY_MS}
_AGO = re.compile(r"([0-9]{1,6})([mhd])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TARGET_CUT = 200


@attrs.frozen(kw_only=True)
class Wanted:
    """Which records to list: those of a session, since a time, and of these the last `limit`."""

    session: SessionId | None
    since: Timestamp | None
    limit: int


def since(text: str, now: Timestamp) -> Timestamp:
    """Return the time that `text` names: 90m, 2h or 3d ago, a day (UTC), or a time of the log. ValueError otherwise."""
    if ago := _AGO.fullmatch(text):
        return Timestamp(max(0, now - int(ago[1]) * _UNITS_MS[ago[2]]))
    return timestamp.from_text(f"{text}T00:00:00.000Z" if _DAY.fullmatch(text) else text)


def show_list(world: World, log: Log, wanted: Wanted, *, json: bool) -> int:
    """List records, oldest first."""
    audit.require_open(world, log, "show")
    found: deque[Entry] = deque(maxlen=wanted.limit)
    total = 0
    for entry in _wanted(world, log, wanted):
        found.append(entry)
        total += 1
    width = world.screen.width() if world.screen.terminal else None
    for entry in found:
        if json:
            _print_json(entry)
            continue
        text, ink = _line(entry)
        line = render.clip(text, width, unicode=world.screen.unicode) if width else text
        world.screen.line(line, *((ink,) if ink else ()))
    if total > len(found) and not json:
        words = f"the last {render.count(len(found))} of {render.count(total)} records; --limit shows more"
        world.errors.line(words, Ink.DIM)
    if not total and not json:
        world.errors.line("No records.", Ink.DIM)
    return Exit.OK


def show_one(world: World, log: Log, *, seq: int, json: bool) -> int:
    """Show the record `seq` whole, and what else is on record about its call."""
    audit.require_open(world, log, "show", str(seq))
    number = b"%d" % seq
    about = [entry for entry in _entries(world, log) if number in _numbers(entry)]
    if not any(_numbers(entry)[0] == number for entry in about):
        world.errors.line(f"The audit log has no record {seq}. [no_record]", Ink.BAD)
        return Exit.FAILED
    for entry in about:
        if json:
            _print_json(entry)
        elif _numbers(entry)[0] == number:
            _show_whole(world, entry)
        else:
            world.screen.line(_line(entry)[0])
    return Exit.OK


# -- which ----------------------------------------------------------------------------------------


def _entries(world: World, log: Log) -> Iterator[Entry]:
    where = audit.directory(world, log)
    return auditfiles.entries(where, auditfiles.names(where))


def _wanted(world: World, log: Log, wanted: Wanted) -> Iterator[Entry]:
    since_text = b"" if wanted.since is None else timestamp.to_text(wanted.since).encode()
    session = None if wanted.session is None else b'"session":"%b"' % wanted.session.encode()
    decisions: set[bytes] = set()
    for entry in _entries(world, log):
        number, decision = _numbers(entry)
        # A decision and a result name their session; what is between them names the decision.
        if session is not None and session in entry.line.raw and _is_of(entry, wanted.session):
            decisions.add(decision or number)
        if session is not None and (decision or number) not in decisions:
            continue
        if _time(entry) >= since_text:
            yield entry


def _is_of(entry: Entry, session: SessionId | None) -> bool:
    record = entry.record
    return isinstance(record, Decided | Ended) and record.session == session


def _numbers(entry: Entry) -> tuple[bytes, bytes]:
    """Return the numbers of the record and of the decision that it is about; empty where there is none."""
    found = PREFIX.match(entry.line.raw)
    return (found[2], found[4] or b"") if found else (b"", b"")


def _time(entry: Entry) -> bytes:
    start = entry.line.raw.find(b'"time":"') + len(b'"time":"')
    return entry.line.raw[start : start + 24] if PREFIX.match(entry.line.raw) else b"~"


# -- how ------------------------------------------------------------------------------------------


def _line(entry: Entry) -> tuple[str, Ink | None]:
    record = entry.record
    if record is None:
        what = "torn: a crash cut it off" if entry.void else "no record"
        return f"{entry.line.seq:>7}  {entry.line.file}:{entry.line.number}: {what}", Ink.WARN
    when = timestamp.to_text(record.time)[:19].replace("T", " ")
    word, text, ink = _told(record)
    return f"{record.seq:>7}  {when}  {word:<9} {render.safe_line(text)}", ink


def _told(record: Record) -> tuple[str, str, Ink | None]:
    match record:
        case Decided():
            return _told_decision(record)
        case Answered(ending=ending):
            by = f" by {record.approver}" if record.approver else ""
            by += f", post {record.post}" if record.post else ""
            why = f": {record.reason}" if record.reason else ""
            return "answer", f"{record.decision} {ending.value}{by}{why}", None
        case Started():
            return "started", f"{record.decision} image {record.image[:12]}", None
        case Ended():
            trust = "untrusted" if record.untrusted else "trusted"
            labels = f"{record.data_class.value}, {trust}; session now {record.taint_after.value}"
            return "result", f"{record.decision} {record.ending.value}, {render.size(record.size)}, {labels}", None
        case Recovered():
            return "recovery", f"{record.file}:{record.line} torn, {render.size(record.bytes)} kept", Ink.WARN
        case BreakAccepted():
            place = f"{record.file}:{record.line}"
            return "accepted", f"{place} broken ({record.found.value}), good up to {record.last_good}", Ink.WARN


def _told_decision(record: Decided) -> tuple[str, str, Ink | None]:
    target = record.path or record.host or record.arguments[:_TARGET_CUT]
    if record.reason is not None:
        why = record.reason.value + (f": {record.detail}" if record.detail else "")
        return record.verdict.value, f"{record.tool} {target}  ({why})", Ink.BAD
    return record.verdict.value, f"{record.tool} {target}  (grant {record.grant})", None


def _show_whole(world: World, entry: Entry) -> None:
    world.screen.line(f"{entry.line.file}:{entry.line.number}", Ink.DIM)
    value = _value(entry)
    if value is None or entry.void:
        world.screen.line(_line(entry)[0], Ink.WARN)
        return
    width = max(len(key) for key in value)
    for key, item in value.items():
        shown = item if isinstance(item, str) else jsonlib.dumps(item)
        world.screen.line(f"  {render.safe_line(key):<{width}}  {render.safe_line(shown)}")


def _value(entry: Entry) -> dict[str, strictjson.JsonValue] | None:
    try:
        value = strictjson.loads(entry.line.raw)
    except BadMessage:
        return None
    return value if isinstance(value, dict) else None


def _print_json(entry: Entry) -> None:
    line = {"file": entry.line.file, "line": entry.line.number, "void": entry.void, "record": _value(entry)}
    sys.stdout.write(jsonlib.dumps(line) + "\n")
