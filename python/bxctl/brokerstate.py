"""`bxctl broker status` and `bxctl broker session`: what brokerd knows and whether it works."""

from bxcore.wire import admin, state
from bxctl import message, render
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.sessions import print_json
from bxctl.world import World


def status(world: World, *, json: bool) -> int:
    """Say whether brokerd decides, what it runs tools in, and which limits hold."""
    found = world.admin.one(admin.BrokerStatus(), admin.BrokerStatusReport)
    if json:
        print_json([found])
    else:
        _show(world, found)
    return Exit.FAILED if found.denies else Exit.OK


def _show(world: World, found: admin.BrokerStatusReport) -> None:
    screen = world.screen
    if found.denies is not None:
        why = f": {render.safe_line(found.detail)}" if found.detail else ""
        screen.say(f"every call is denied{why} [{found.denies.value}]", Ink.BAD, hang=2)
    screen.line(f"grants     {render.count(found.grants)}")
    screen.line(f"questions  {render.count(found.pending)} open")
    screen.line(f"running    {render.count(found.running)}")
    screen.line(f"audit log  record {render.count(found.audit_seq)}, {found.audit_hash}")
    screen.line(f"image      {render.safe_line(found.image or 'none')}")
    held, missing = ", ".join(found.limits_held), ", ".join(found.limits_missing)
    screen.say(f"limits     {render.safe_line(held or 'none')}", hang=11)
    if missing:
        screen.say(f"           this machine does not enforce: {render.safe_line(missing)}", Ink.WARN, hang=11)


def session(world: World, *, session: str, rebuild: bool, json: bool) -> int:
    """Say what a session has seen; with `rebuild`, compute it again from the audit log first."""
    name = message.session(session)
    asked = admin.SessionRebuild(session=name) if rebuild else state.SessionStateAsk(session=name)
    found = world.admin.one(asked, state.SessionStateReport)
    if json:
        print_json([found])
        return Exit.OK if found.readable else Exit.FAILED
    trust = "has read untrusted text" if found.untrusted else "has read nothing untrusted"
    world.screen.line(f"{found.session}: {found.taint.value}, {trust}")
    if not found.readable:
        again = world.home.command(f"broker session {found.session} --rebuild")
        world.screen.say(
            f"Its file cannot be read, so every call of it is denied; {again} mends it. [state_unreadable]", Ink.BAD
        )
    return Exit.OK if found.readable else Exit.FAILED
