"""`bxctl sessions list` and `bxctl sessions show`."""

import sys
from collections.abc import Iterable

from bxcore.timestamp import Timestamp, to_text
from bxcore.wire import channel
from bxctl import message, render, transcript
from bxctl.events import json_line
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.world import World

_HEAD = ("session", "last (UTC)", "turns", "size", "begins with")


def show_list(world: World, *, limit: int, json: bool) -> int:
    """List the newest `limit` sessions."""
    events = world.port.ask(channel.SessionList(limit=limit))
    if json:
        return print_json(events)
    summaries, total = [], 0
    for event in events:
        if isinstance(event, channel.SessionSummary):
            summaries.append(event)
        elif isinstance(event, channel.SessionListEnd):
            total = event.total
    _print_table(world, summaries)
    if total > len(summaries):
        words = f"{render.count(len(summaries))} of {render.count(total)} sessions; --limit shows more"
        world.errors.line(words, Ink.DIM)
    if not total:
        world.errors.line(f"No sessions yet. {world.home.command('chat')} begins one.", Ink.DIM)
    return Exit.OK


def _print_table(world: World, summaries: list[channel.SessionSummary]) -> None:
    if not summaries:
        return
    rows = [_HEAD, *(_row(summary) for summary in summaries)]
    head, *lines = render.table(rows, right=frozenset({2, 3}))
    width = world.screen.width() if world.screen.terminal else None
    world.screen.line(head, Ink.DIM)
    for line in lines:
        world.screen.line(render.clip(line, width, unicode=world.screen.unicode) if width else line)


def _row(summary: channel.SessionSummary) -> tuple[str, ...]:
    opening = render.safe_line(summary.opening)
    return (
        summary.session,
        minute(summary.last),
        render.count(summary.turns),
        render.size(summary.bytes),
        f"DAMAGED {opening}" if summary.damaged else opening,
    )


def minute(when: Timestamp) -> str:
    """Return a time to the minute, for tables."""
    return to_text(when)[:16].replace("T", " ")


def show_one(world: World, *, session: str, json: bool, raw: bool) -> int:
    """Show one session: readable, as events, or its stored lines exactly."""
    events = world.port.ask(channel.SessionShow(session=message.session(session)))
    if json:
        return print_json(events)
    if raw:
        for stored in transcript.stored_lines(events):
            world.screen.write(world.screen.foreign(stored.text) + "\n")
        return Exit.OK
    for text, ink in transcript.readable(events, world.screen):
        world.screen.line(text, *((ink,) if ink else ()))
    return Exit.OK


def print_json(events: Iterable[object]) -> int:
    """Print each message of an answer as one line of ASCII JSON."""
    for event in events:
        sys.stdout.write(json_line(event) + "\n")
    sys.stdout.flush()
    return Exit.OK
