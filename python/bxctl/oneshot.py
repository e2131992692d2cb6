"""One message, one answer, one exit code: `bxctl chat --say TEXT`, piped input, and `--json`.

Standard output carries the answer (or the events) and nothing else; whatever else is worth saying
goes to standard error.
"""

import sys

import attrs

from bxcore.client import RemoteFault
from bxcore.errors import BoxmakerError
from bxcore.wire.channel import ApprovalPending, TurnEnded, TurnEnding
from bxcore.wire.control import ErrorCode, WireFault
from bxctl import loopport, message, render
from bxctl.approvals import show_block
from bxctl.events import JsonView, TurnView, View, Wishes, ending_line
from bxctl.exits import Exit
from bxctl.render import Ink, Screen
from bxctl.turns import Ask, Leave, Peek, TurnRun
from bxctl.world import World


@attrs.frozen(kw_only=True)
class Errand:
    """What was asked for. `say` is None where the message comes from standard input."""

    say: str | None
    session: str | None
    json: bool
    verbose: bool
    wishes: Wishes
    wait_ms: int


def run(world: World, errand: Errand) -> int:
    """Say one message and return the exit code."""
    text = message.checked(_text(world, errand))
    session = message.session(errand.session) if errand.session else message.new_session(world.clock)
    loopport.wait_visibly(world.port, world.errors, world.clock, wait_ms=errand.wait_ms, pause=world.pause)
    view = _view(world, errand)
    turn = TurnRun(
        world.port,
        view,
        world.clock,
        session=session,
        new=not errand.session,
        wait_ms=errand.wait_ms,
        ask=_leave_open if errand.json else _teller(world),
    )
    try:
        return _exit(turn.run(text), world, errand)
    except Leave:
        world.errors.line("left; the turn was told to stop" if turn.accepted else "left")
        return Exit.INTERRUPTED
    except RemoteFault as fault:
        if errand.json:
            view.show(WireFault(code=ErrorCode(fault.code), detail=fault.detail))
        raise


def _leave_open(_event: ApprovalPending, _peek: Peek) -> None:
    """The program that reads the events knows what to do, or asks brokerd itself."""


def _teller(world: World) -> Ask:
    """Show a question on standard error, however quiet we are, and ask nothing: standard input was the message."""

    def tell(event: ApprovalPending, peek: Peek) -> None:
        try:
            block, _ = world.admin.block(event.approval)
        except BoxmakerError as error:
            if peek() is None:
                world.errors.line(
                    f"question {event.approval} cannot be shown: {render.safe_line(str(error))}", Ink.WARN
                )
            return
        show_block(world.errors, block)
        yes, no = (world.home.command(f"{verb} {event.approval}") for verb in ("approve", "deny"))
        world.errors.line(f"waiting for an answer: {yes}   or   {no}", Ink.DIM)

    return tell


def _text(world: World, errand: Errand) -> str:
    if errand.say is not None:
        return errand.say
    if sys.stdin.isatty():
        world.errors.line("Type the message; Ctrl-D on an empty line sends it.")
    return message.read(sys.stdin.buffer)


def _view(world: World, errand: Errand) -> View:
    if errand.json:
        return JsonView(sys.stdout)
    talkative = world.errors.terminal or errand.verbose
    aside = world.errors if talkative else Screen.nowhere()
    return TurnView(answer=world.screen, aside=aside, clock=world.clock, wishes=errand.wishes)


def _exit(ended: TurnEnded, world: World, errand: Errand) -> int:
    if ended.ending is TurnEnding.ANSWERED:
        return Exit.OK
    if not errand.json and not world.errors.terminal and not errand.verbose:
        world.errors.line(ending_line(ended), Ink.WARN)
    return Exit.INTERRUPTED if ended.ending is TurnEnding.CANCELLED else Exit.FAILED
