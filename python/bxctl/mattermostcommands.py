"""The command line of `bxctl mattermost`. Each command imports its own module when it runs, see cli."""

import click

from bxctl.sockets import Home

_json = click.option("--json", is_flag=True, help="One JSON object, as gatewayd sent it.")
_pass_home = click.make_pass_decorator(Home)


@click.group()
def mattermost() -> None:
    """Try the way to Mattermost, and see how it is.

    gatewayd is asked, which holds the token; bxctl itself never speaks to the server.
    """


@mattermost.command("whoami")
@_json
@_pass_home
def mattermost_whoami(where: Home, *, json: bool) -> int:
    """Ask the server now who the bot is, and who may speak to it."""
    from bxctl import mattermost as verb
    from bxctl import world

    return verb.whoami(world.of_process(where), json=json)


@mattermost.command("post")
@click.argument("text", metavar="TEXT")
@_json
@_pass_home
def mattermost_post(where: Home, *, text: str, json: bool) -> int:
    """Post TEXT to the first user who may speak, as a direct message."""
    from bxctl import mattermost as verb
    from bxctl import world

    return verb.post(world.of_process(where), text=text, json=json)


@mattermost.command("status")
@_json
@_pass_home
def mattermost_status(where: Home, *, json: bool) -> int:
    """Say whether gatewayd is connected, and which posts wait."""
    from bxctl import mattermost as verb
    from bxctl import world

    return verb.status(world.of_process(where), json=json)
