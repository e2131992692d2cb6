"""`bxctl cache`: how much of each request the server had already read, drawn.

prompt = cached + read; read = new + re-read. What is re-read is what a warm cache would have saved;
it should be nothing.
"""

from collections.abc import Sequence

from bxcore.errors import BoxmakerError
from bxcore.ids import SessionId
from bxcore.wire import channel
from bxcore.wire.channel import CacheReportEnd, CacheRow
from bxctl import message, render, sessions
from bxctl.exits import Exit
from bxctl.render import Ink, Screen
from bxctl.world import World

_MIN_BAR = 10
_PLAIN_BAR = 60
_HEAD = ("turn", "prompt", "cached", "new", "re-read")


class NoSessions(BoxmakerError):
    """There is no session to report on yet."""

    code = "no_session"


def show(world: World, *, session: str | None, json: bool) -> int:
    """Report on `session`, or on the one that spoke last."""
    wanted = message.session(session) if session else _newest(world)
    events = world.port.ask(channel.CacheReport(session=wanted))
    if json:
        return sessions.print_json(events)
    rows: list[CacheRow] = []
    for event in events:
        if isinstance(event, CacheRow):
            rows.append(event)
        elif isinstance(event, CacheReportEnd):
            world.screen.line(f"Session {wanted}", Ink.BOLD)
            draw(rows, event, world.screen)
    return Exit.OK


def _newest(world: World) -> SessionId:
    for event in world.port.ask(channel.SessionList(limit=1)):
        if isinstance(event, channel.SessionSummary):
            return event.session
    raise NoSessions("there is no session yet")


def draw(rows: Sequence[CacheRow], totals: CacheReportEnd, screen: Screen) -> None:
    """Draw one bar per request, and the totals."""
    if not rows:
        screen.line("No request to the model yet.", Ink.DIM)
        return
    head, *lines = render.table([_HEAD, *(_numbers(row) for row in rows)], right=frozenset(range(5)))
    column = max(render.cells(line) for line in (head, *lines))
    mark = " lost"
    room = (screen.width() if screen.terminal else column + 2 + _PLAIN_BAR + len(mark)) - column - 2 - len(mark)
    scale = max(row.prompt for row in rows)
    screen.line(f"{render.pad(head, column)}  {_legend(screen)}", Ink.DIM)
    for row, line in zip(rows, lines, strict=True):
        lost = screen.paint(mark, Ink.BAD) if row.lost else ""
        bar = _bar(row, scale=scale, width=max(room, _MIN_BAR), screen=screen)
        screen.line(f"{render.pad(line, column)}  {bar}{lost}")
    screen.line(_totals(totals))


def _numbers(row: CacheRow) -> tuple[str, ...]:
    new = max(0, row.read - row.reread)
    counts = (row.prompt, row.cached, new, row.reread)
    return (f"{row.turn}.{row.step}", *(render.count(number) for number in counts))


def _glyphs(screen: Screen) -> tuple[str, str, str]:
    return ("░", "█", "▒") if screen.unicode else ("-", "#", "!")


_INKS = (Ink.DIM, Ink.NEW, Ink.BAD)


def _bar(row: CacheRow, *, scale: int, width: int, screen: Screen) -> str:
    parts = (row.cached, max(0, row.read - row.reread), row.reread)
    columns = render.shares(parts, scale=scale, width=width)
    drawn = zip(_glyphs(screen), columns, _INKS, strict=True)
    return "".join(screen.paint(glyph * length, ink) for glyph, length, ink in drawn)


def _legend(screen: Screen) -> str:
    cached, new, again = _glyphs(screen)
    return f"{cached} cached  {new} new  {again} re-read"


def _totals(totals: CacheReportEnd) -> str:
    share = f"{totals.cached / totals.prompt:.0%}" if totals.prompt else "none"
    requests = render.count_of(totals.rows, "request")
    words = [
        f"{requests}, {render.count_of(totals.prompt, 'prompt token')}: {share} from the cache",
        f"{render.count(max(0, totals.read - totals.reread))} new",
        f"{render.count(totals.reread)} re-read",
    ]
    lost = f"; the cache was lost {render.count_of(totals.lost, 'time')}" if totals.lost else ""
    return ", ".join(words) + lost + "."
