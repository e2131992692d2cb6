"""`bxctl grants check|test|explain|suggest`: what the grants say, asked of the policy that decides."""

from collections.abc import Iterable

from bxcore.wire import admin
from bxcore.wire.admin import FindingLevel, Verdict
from bxcore.wire.tools import DataClass, DenyReason
from bxctl import render
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.sessions import print_json
from bxctl.world import World

_LEVELS = {FindingLevel.ERROR: Ink.BAD, FindingLevel.WARNING: Ink.WARN, FindingLevel.NOTE: Ink.DIM}
_NOT_BY_GRANTS = frozenset(DenyReason) - {
    DenyReason.NO_GRANT,
    DenyReason.GRANT_EXPIRED,
    DenyReason.TAINT_TOO_HIGH,
    DenyReason.DENIED_BY_GRANT,
}
_VERDICTS = {Verdict.ALLOWED: Ink.GOOD, Verdict.ASK: Ink.WARN, Verdict.DENIED: Ink.BAD}


def check(world: World, *, json: bool) -> int:
    """Show what is wrong with the grants, and which of them can never matter."""
    answers = list(world.admin.ask(admin.GrantsCheck()))
    end = next(found for found in answers if isinstance(found, admin.GrantsCheckEnd))
    if json:
        print_json(answers)
        return Exit.OK if end.valid else Exit.FAILED
    for found in answers:
        if isinstance(found, admin.GrantFinding):
            place = f"{found.file}:{found.line}" if found.line else found.file
            words = f"{render.safe_line(place)}: {found.level.value}: {render.safe_line(found.text)}"
            world.screen.say(words, _LEVELS[found.level], hang=2)
    if not end.valid:
        words = "brokerd denies every call until this is mended. [grants_invalid]"
        world.screen.line(words, Ink.BAD)
        return Exit.FAILED
    about = "nothing to say about them" if not end.findings else render.count_of(end.findings, "finding")
    world.screen.line(f"{render.count_of(end.grants, 'grant')}, {about}.", Ink.GOOD)
    return Exit.OK


def test(world: World, *, tool: str, arguments: str, taint: DataClass, untrusted: bool, json: bool) -> int:
    """Say what policy would decide about a call, and why. Nothing is run or recorded."""
    asked = admin.GrantsTest(tool=tool, arguments=arguments, taint=taint, untrusted=untrusted)
    return _verdict(world, world.admin.ask(asked), json=json)


def explain(world: World, *, seq: int, json: bool) -> int:
    """Say of a recorded decision which grant matched, and of each other one why not."""
    return _verdict(world, world.admin.ask(admin.GrantsExplain(seq=seq)), json=json)


def _verdict(world: World, answers: Iterable[object], *, json: bool) -> int:
    if json:
        return print_json(answers)
    screen, told = world.screen, list(answers)
    # What no grant decided, such as a file that is not there: a grant that fits then does nothing else.
    beside = any(
        isinstance(found, admin.GrantsVerdict) and found.verdict is Verdict.DENIED and found.reason in _NOT_BY_GRANTS
        for found in told
    )
    for found in told:
        if isinstance(found, admin.GrantReason):
            mark = screen.glyph("✓", "+") if found.matched else screen.glyph("·", "-")
            name, why = render.safe_line(found.grant), render.safe_line(found.why)
            if found.matched and beside:
                why = "it fits"
            screen.say(f"{mark} {name}: {why}", *(() if found.matched else (Ink.DIM,)), hang=4)
        elif isinstance(found, admin.GrantsVerdict):
            _show_verdict(world, found)
    return Exit.OK


def _show_verdict(world: World, found: admin.GrantsVerdict) -> None:
    screen = world.screen
    if found.recorded is not None:
        screen.say(f"on record: {render.safe_line(found.recorded)}", hang=2)
        if not found.same_grants:
            screen.say("The grant files have changed since; what follows is what they say now.", Ink.WARN)
    words = found.verdict.value
    if found.reason is not None:
        words += f": {found.reason.value}"
    if found.detail:
        words += f" ({render.safe_line(found.detail)})"
    if found.grant is not None:
        words += f", by grant {render.safe_line(found.grant)}"
    screen.say(words, _VERDICTS[found.verdict], hang=2)
    for mount in found.mounts:
        screen.line(f"  mounts  {render.safe_line(mount)}")
    for host in found.hosts:
        screen.line(f"  dials   {render.safe_line(host)}")
    if found.result_class is not None:
        trust = "untrusted" if found.result_untrusted else "trusted"
        screen.line(f"  result  {found.result_class.value}, {trust}")


def suggest(world: World, *, seq: int, json: bool) -> int:
    """Print the narrowest grant that would have brokerd ask about a denied call. Writes nothing."""
    if json:
        return print_json(world.admin.ask(admin.GrantsSuggest(seq=seq)))
    found = world.admin.one(admin.GrantsSuggest(seq=seq), admin.GrantSuggestion)
    world.errors.say(render.safe_line(found.note), Ink.DIM)
    if found.toml is None:
        return Exit.FAILED
    world.errors.line(f"{render.safe_line(found.file)}:", Ink.DIM)
    world.screen.write(render.safe_block(found.toml.rstrip("\n")) + "\n")
    return Exit.OK
