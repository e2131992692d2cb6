"""`bxctl mattermost whoami|post|status`: what gatewayd, which holds the token, says of its way to Mattermost."""

from bxcore.timestamp import to_text
from bxcore.wire import gateway
from bxctl import message, render
from bxctl.exits import Exit
from bxctl.render import Ink
from bxctl.sessions import print_json
from bxctl.world import World


def whoami(world: World, *, json: bool) -> int:
    """Show the bot as the server knows it, and the people who may speak to it."""
    found = world.gateway.whoami()
    code = Exit.FAILED if found.unfit or found.channels_absent or not found.is_bot else Exit.OK
    if json:
        print_json([found])
        return code
    screen = world.screen
    kind = "a bot" if found.is_bot else "NOT a bot"
    screen.line(f"bot        @{render.safe_line(found.username)} ({found.id}), {kind}")
    screen.line(f"server     {_server(found.server, found.server_version)}")
    screen.line(f"posts      up to {render.count(found.max_post_characters)} characters each")
    screen.say(f"may speak  {_names(found.allowed)}", hang=11)
    screen.say(f"approvers  {_names(found.approvers)}", hang=11)
    inside = f"in {render.count(found.channels)}, direct messages too"
    screen.line(f"channels   {inside}; where it is named, it answers in {render.count(found.channels_allowed)} of them")
    if found.channels_absent:
        why = "it is not there: invite it, or correct the id [mattermost_channels_absent]"
        screen.say(f"absent     {', '.join(found.channels_absent)}: {why}", Ink.BAD, hang=11)
    if found.unfit:
        why = "no such account, deactivated, or a bot [mattermost_users_unfit]"
        screen.say(f"unusable   {', '.join(found.unfit)}: {why}", Ink.BAD, hang=11)
    return code


def post(world: World, *, text: str, json: bool) -> int:
    """Post a direct message to the first user who may speak."""
    made = world.gateway.post(message.checked(text))
    if json:
        return print_json([made])
    world.screen.line(f"Posted to @{render.safe_line(made.to)}: post {made.post}.", Ink.GOOD)
    return Exit.OK


def status(world: World, *, json: bool) -> int:
    """Say whether gatewayd is connected, as whom, and what waits."""
    found = world.gateway.status()
    if json:
        print_json([found])
    else:
        _show(world, found)
    return Exit.FAILED if found.code is not None or not found.connected else Exit.OK


def _show(world: World, found: gateway.GatewayStatusReport) -> None:
    screen = world.screen
    word, ink = ("connected", Ink.GOOD) if found.connected else ("not connected", Ink.BAD)
    who = f" as @{render.safe_line(found.bot)}" if found.bot is not None else ""
    screen.say(f"{word} since {to_text(found.since)}{who}: {_server(found.server, found.server_version)}", ink, hang=2)
    if found.code is not None:
        detail = f"{render.safe_line(found.detail)} " if found.detail else ""
        screen.say(f"{detail}[{render.safe_line(found.code)}]", Ink.BAD, hang=2)
    elif found.detail is not None:
        screen.say(render.safe_line(found.detail), Ink.WARN, hang=2)
    screen.line(f"waiting    {render.count_of(found.waiting, 'post')}, not yet said to loopd")
    screen.line(f"asked      {render.count_of(found.asked, 'post')}, not answered yet")
    screen.line(f"outgoing   {render.count_of(found.outgoing, 'post')} to be made")
    screen.line(f"questions  {render.count(found.questions)} that can be answered there")
    screen.line(f"listed     {render.count_of(found.listed, 'post')} too old to be acted upon")
    screen.line(
        f"parked     {render.count_of(found.parked, 'post')} set aside, since they could not be handled or made",
        *((Ink.WARN,) if found.parked else ()),
    )


def _server(url: str, version: str | None) -> str:
    return f"{render.safe_line(url)}, version {render.safe_line(version or 'unknown')}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"@{render.safe_line(name)}" for name in names) or "nobody"
