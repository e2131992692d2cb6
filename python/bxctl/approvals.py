"""`bxctl approvals`, `approve` and `deny`: what waits for the owner, shown whole, and answered by its number.

What is shown comes from brokerd, never from loopd, and the answer names the hash of it: brokerd runs
exactly what was read, or nothing.
"""

import re
import sys
from collections.abc import Iterator

from bxcore import tools
from bxcore.client import RemoteFault
from bxcore.timestamp import to_text
from bxcore.wire import admin
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.control import ErrorCode
from bxctl import render
from bxctl.events import json_line
from bxctl.exits import Exit
from bxctl.render import Cut, Ink, Screen
from bxctl.sessions import print_json
from bxctl.world import World


def show_all(world: World, *, json: bool) -> int:
    """Show every open question with its whole block."""
    if json:
        return print_json(world.admin.ask(admin.ApprovalList()))
    pending = world.admin.pending()
    shown = [_show(world, summary.id) for summary in pending]
    if not any(shown):
        world.errors.line("Nothing waits for an answer.", Ink.DIM)
    return Exit.OK


def _show(world: World, approval: int) -> bool:
    try:
        block, found = world.admin.block(approval)
    except RemoteFault as fault:
        if fault.code != ErrorCode.NO_APPROVAL.value:
            raise
        return False  # answered while we listed
    show_block(world.screen, block)
    yes, no = world.home.command(f"approve {approval}"), world.home.command(f"deny {approval}")
    world.screen.line(f"{yes}   or   {no}   before {to_text(found.summary.expires)}", Ink.DIM)
    world.screen.line("")
    return True


_PIPE_WIDTH = 79
_WHERE = re.compile(r"^  (?:path|host) +(\S.*)$", re.MULTILINE)
_OURS = re.compile(r"  [a-z][a-z ]*[a-z] {2,}[^\s\"'\\][^\"'\\]*")
"""A row of brokerd's own words: its name, then a value in which nothing is quoted."""


def gist(tool: str, block: str, screen: Screen) -> str:
    """Return the question on one line, since its block may have scrolled away: tool, path or host, whether it writes.

    The path stands in `block`, which brokerd wrote; where it is too long its middle is left out.
    """
    kind = tools.TOOLS.get(tool)
    does = "" if kind is None else ", which writes" if kind.writes else ", which only reads"
    name, where = render.safe_line(tool), _WHERE.search(block)
    if where is None:
        return f"{name}{does}"
    used = render.cells(name + does) + 2
    return f"{name} {render.clip_line(where[1], screen, used=used, where=Cut.MIDDLE)}{does}"


def show_block(screen: Screen, block: str) -> None:
    """Show what brokerd wrote for the owner. Escaped once more: brokerd's promise is not ours to rely on.

    A line that is longer than the terminal is broken here, at spaces where it holds brokerd's own words alone. One
    with text from outside is broken anywhere and marked. The terminal would go on at its left edge, where a text
    chosen by the model could pass for another line of the question.
    """
    for line in render.safe_block(block.rstrip("\n")).split("\n"):
        for piece in _fitted(line, screen):
            screen.line(piece, Ink.BOLD)


def _fitted(line: str, screen: Screen) -> Iterator[str]:
    if not _OURS.fullmatch(line):
        yield from _pieces(line, screen, mark=screen.glyph("  ↳ ", "  > "))
    elif not screen.terminal:
        yield line
    else:
        for row in render.wrap(line, screen.width() - 1, hang=2).split("\n"):
            yield from _pieces(row, screen, mark=" " * 18)  # a checksum is wider than a narrow terminal


def _pieces(line: str, screen: Screen, *, mark: str) -> Iterator[str]:
    # Into a pipe too: what reads it there, a pager say, has an edge that we do not know.
    width = screen.width() - 1 if screen.terminal else _PIPE_WIDTH
    if render.most_cells(line) <= width:
        yield line
        return
    rest, lead = line, ""
    while rest:
        room = max(8, width - len(lead))
        taken = render.head(rest, room)
        yield lead + taken
        rest, lead = rest[len(taken) :], mark


def answer(world: World, *, approval: int, approve: bool, reason: str | None, json: bool) -> int:
    """Show question `approval` whole and answer exactly what was shown."""
    block, shown = world.admin.block(approval)
    if not json:
        show_block(world.screen, block)
    outcome = world.admin.answer(shown, approve=approve, reason=reason)
    if json:
        sys.stdout.write(json_line(outcome) + "\n")
    else:
        say_outcome(world.screen, outcome)
    wanted = ApprovalEnding.APPROVED if approve else ApprovalEnding.REFUSED
    return Exit.OK if outcome.ending is wanted else Exit.REFUSED


_WORDS = {
    ApprovalEnding.APPROVED: ("approved: the call runs now", Ink.GOOD),
    ApprovalEnding.REFUSED: ("refused: the call does not run", Ink.WARN),
    ApprovalEnding.EXPIRED: ("too late: the question has expired", Ink.WARN),
    ApprovalEnding.VOID: ("too late: the question was withdrawn", Ink.WARN),
    ApprovalEnding.DENIED_NOW: ("not run: the grants or the session no longer allow it", Ink.BAD),
    ApprovalEnding.NOT_PENDING: ("nothing with this number waits for an answer", Ink.BAD),
    ApprovalEnding.CHANGED: ("not run: it is no longer what was shown; it has to be asked again", Ink.BAD),
}


def say_outcome(screen: Screen, outcome: admin.ApprovalOutcome) -> None:
    """Say what became of the question."""
    words, ink = _WORDS[outcome.ending]
    detail = f" ({render.safe_line(outcome.detail)})" if outcome.detail else ""
    screen.say(f"{outcome.id} {words}{detail}", ink, hang=2)
