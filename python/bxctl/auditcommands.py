"""The command line of `bxctl audit`. Each command imports its own module when it runs, see cli."""

from pathlib import Path
from typing import Any

import click

from bxctl.sockets import Home

_pass_home = click.make_pass_decorator(Home)


@click.group()
def audit() -> None:
    """Look at brokerd's audit log: what was decided, and whether it is all there.

    Reads the files themselves, so it answers while brokerd is down or refuses to start.
    """


_directory = click.option(
    "--directory", type=click.Path(path_type=Path), metavar="DIR", help="The log's files, if not audit/ below the home."
)
_audit_json = click.option("--json", is_flag=True, help="JSON in place of words.")


def _head(_context: click.Context, _option: click.Parameter, text: str | None) -> object:
    from bxcore.chainreport import parse_head

    try:
        return None if text is None else parse_head(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@audit.command("verify")
@click.option("--head", callback=_head, metavar="SEQ:HASH", help="A head that you kept: the log must have it.")
@_audit_json
@_directory
@_pass_home
def audit_verify(where: Home, *, head: Any, json: bool, directory: Path | None) -> int:
    """Verify the whole log. Exit code 0: whole; 1: broken, or not there."""
    from bxctl import audit as verb
    from bxctl import world

    return verb.verify(world.of_process(where), verb.Log(directory=directory, head=head), json=json)


@audit.command("head")
@_directory
@_pass_home
def audit_head(where: Home, *, directory: Path | None) -> int:
    """Verify the log and print its head, SEQ:HASH: keep it where brokerd cannot write."""
    from bxctl import audit as verb
    from bxctl import world

    return verb.head(world.of_process(where), verb.Log(directory=directory))


@audit.command("show")
@click.argument("seq", required=False, type=click.IntRange(1))
@click.option("--session", metavar="ID", help="Only what is about this session.")
@click.option("--since", metavar="TIME", help="Only since 90m, 2h, 3d ago, a day (2026-11-30), or a time of the log.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, metavar="N", help="The last N (100).")
@_audit_json
@_directory
@_pass_home
def audit_show(
    where: Home,
    *,
    seq: int | None,
    session: str | None,
    since: str | None,
    limit: int,
    json: bool,
    directory: Path | None,
) -> int:
    """List records, or print record SEQ whole with all that is about its call."""
    from bxctl import audit as logs
    from bxctl import auditshow as verb
    from bxctl import message, world

    around, log = world.of_process(where), logs.Log(directory=directory)
    if seq is not None:
        return verb.show_one(around, log, seq=seq, json=json)
    try:
        start = None if since is None else verb.since(since, around.clock.now_ms())
    except ValueError as error:
        raise click.BadParameter(f"{error}; or 90m, 2h, 3d, or a day", param_hint="--since") from None
    of = None if session is None else message.session(session)
    return verb.show_list(around, log, verb.Wanted(session=of, since=start, limit=limit), json=json)
