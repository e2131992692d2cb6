"""The command line: names, options and help. Each command imports its own module when it runs.

Late imports on purpose: `bxctl --help` answers in the time that Python and click need.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from bxcore.errors import BoxmakerError
from bxctl import VERSION
from bxctl.auditcommands import audit
from bxctl.backupcommands import backup
from bxctl.exits import MEANINGS, Exit
from bxctl.mattermostcommands import mattermost
from bxctl.sockets import DEFAULT_HOME, Home, home

_EPILOG = """\b
Examples:
  bxctl chat                          talk; the answer streams in
  bxctl chat --say 'What time is it?' one question, the answer on standard output
  git diff | bxctl chat               everything piped in is one message
  bxctl chat --session ID             go on where you left off
  bxctl cache                         did the model read again what it should remember?
  bxctl approvals                     which tool calls wait for my answer?
  bxctl approve 42                    let one of them run, once
  bxctl grants explain 42             why was it decided like that?
  bxctl mattermost status             is the way to Mattermost up, and what waits?
  bxctl doctor                        is everything as it must be?
  bxctl backup create /mnt/disk/bx-1  keep a copy of all of it, while it runs

\b
In a checkout of Boxmaker:
  make chat                           starts everything and opens a conversation
  .state/venv/bin/bxctl               this program, with .state/ as its home; while make chat runs

\b
Where things lie:
  BOXMAKER_HOME or --home, else {home}
    run/loop-owner/loop.sock          the socket on which loopd listens for bxctl
    run/admin/admin.sock              the socket on which brokerd does
    run/gateway-owner/gateway.sock    the socket on which gatewayd does, where there is one
    audit/                            every decision and every run, one file a day (brokerd's)
    sessions/                         every conversation, one folder each (loopd's)
    bxctl-history                     what you typed in chat; on an appliance in ~/.local/state/boxmaker
  etc/ there, else /etc/boxmaker      one TOML file per role: bxctl config check

\b
Exit codes:
{exits}

\b
What stands in [brackets] after a message is its entry in docs/runbook.md.
docs/bxctl.md describes every command, option and key.
"""


def _epilog() -> str:
    exits = "\n".join(f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items())
    return _EPILOG.format(home=DEFAULT_HOME, exits=exits)


class ReaderGone(Exception):
    """Nobody reads standard output any more. Not an OSError: click would make exit code 1 of that."""


class Commands(click.Group):
    """The top of the command line, its commands in the order in which they stand below."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise ReaderGone from None


@click.group(
    cls=Commands,
    epilog=_epilog(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--home",
    "home_path",
    envvar="BOXMAKER_HOME",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Boxmaker's directory (or BOXMAKER_HOME; default {DEFAULT_HOME}).",
)
@click.version_option(VERSION, prog_name="bxctl", message="%(prog)s %(version)s, protocol 1")
@click.pass_context
def main(context: click.Context, home_path: Path | None) -> None:
    """Boxmaker's command line: talk to your agent, and see what it does.

    bxctl speaks to loopd over a Unix socket on this machine. Who may enter the socket's folder
    may use it; there is nothing to log in to.
    """
    context.obj = home(home_path)


_json = click.option("--json", is_flag=True, help="One JSON object a line, as loopd sent it.")
_pass_home = click.make_pass_decorator(Home)


@main.command()
@click.option("--session", metavar="ID", help="Go on with this session; else a new one begins.")
@click.option("--say", metavar="TEXT", help="Say this, print the answer, leave.")
@click.option("--reasoning/--no-reasoning", default=True, help="Show the model's thinking, dimmed (default: yes).")
@click.option("--usage/--no-usage", default=True, help="Show what each turn cost in tokens (default: yes).")
@click.option("--wait", type=click.IntRange(0, 86_400), default=60, metavar="SECONDS", help="Wait for loopd (60).")
@click.option("--verbose", is_flag=True, help="Without a terminal too: thinking, tools and notices on standard error.")
@click.option("--come-back", metavar="COMMAND", hidden=True, help="Name this at the end; {session} is the session.")
@_json
@_pass_home
def chat(
    where: Home,
    *,
    come_back: str | None,
    session: str | None,
    say: str | None,
    reasoning: bool,
    usage: bool,
    wait: int,
    verbose: bool,
    json: bool,
) -> int:
    """Talk with the agent.

    On a terminal this is a conversation: /help there lists its keys. With --say, or with a message
    on standard input, it is one question: standard output carries the answer and nothing else.
    """
    from bxctl import oneshot, world
    from bxctl.events import Wishes

    wishes, wait_ms = Wishes(reasoning=reasoning, usage=usage), wait * 1000
    if say is None and not json and sys.stdin.isatty() and sys.stdout.isatty():
        from bxctl import chat as conversation

        options = conversation.Options(session=session, wishes=wishes, wait_ms=wait_ms, come_back=come_back)
        return conversation.run(world.of_process(where), options)
    errand = oneshot.Errand(say=say, session=session, json=json, verbose=verbose, wishes=wishes, wait_ms=wait_ms)
    return oneshot.run(world.of_process(where), errand)


@main.group()
def sessions() -> None:
    """List conversations, and read one."""


@sessions.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, metavar="N", help="At most this many (20).")
@_json
@_pass_home
def sessions_list(where: Home, *, limit: int, json: bool) -> int:
    """List the sessions that spoke last."""
    from bxctl import sessions as verb
    from bxctl import world

    return verb.show_list(world.of_process(where), limit=limit, json=json)


@sessions.command("show")
@click.argument("session", metavar="ID")
@click.option("--raw", is_flag=True, help="The stored lines exactly as they are on disk.")
@_json
@_pass_home
def sessions_show(where: Home, *, session: str, raw: bool, json: bool) -> int:
    """Print a whole session, readable."""
    from bxctl import sessions as verb
    from bxctl import world

    if raw and json:
        raise click.UsageError("--raw and --json exclude each other")
    return verb.show_one(world.of_process(where), session=session, json=json, raw=raw)


@main.command()
@click.argument("session", required=False)
@_json
@_pass_home
def cache(where: Home, *, session: str | None, json: bool) -> int:
    """Show how much the model remembered, turn by turn."""
    from bxctl import cache as verb
    from bxctl import world

    return verb.show(world.of_process(where), session=session, json=json)


@main.command()
@_json
@_pass_home
def approvals(where: Home, *, json: bool) -> int:
    """Show every tool call that waits for your answer, whole."""
    from bxctl import approvals as verb
    from bxctl import world

    return verb.show_all(world.of_process(where), json=json)


@main.command()
@click.argument("approval", metavar="NUMBER", type=click.IntRange(1))
@_json
@_pass_home
def approve(where: Home, *, approval: int, json: bool) -> int:
    """Show one waiting call and let it run, once."""
    from bxctl import approvals as verb
    from bxctl import world

    return verb.answer(world.of_process(where), approval=approval, approve=True, reason=None, json=json)


@main.command()
@click.argument("approval", metavar="NUMBER", type=click.IntRange(1))
@click.argument("reason", required=False)
@_json
@_pass_home
def deny(where: Home, *, approval: int, reason: str | None, json: bool) -> int:
    """Show one waiting call and refuse it; the model is told REASON."""
    from bxctl import approvals as verb
    from bxctl import world

    return verb.answer(world.of_process(where), approval=approval, approve=False, reason=reason, json=json)


@main.group()
def grants() -> None:
    """Look at what you allow, and try it out."""


@grants.command("check")
@_json
@_pass_home
def grants_check(where: Home, *, json: bool) -> int:
    """Say what is wrong with the grants, and which can never matter."""
    from bxctl import grants as verb
    from bxctl import world

    return verb.check(world.of_process(where), json=json)


@grants.command("test")
@click.option("--tool", required=True, metavar="NAME", help="The tool that would be called.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="One argument; a number stays a number.")
@click.option("--arguments", metavar="JSON", help="All arguments as one JSON object, instead of --arg.")
@click.option(
    "--taint",
    type=click.Choice(["public", "private", "secret"]),
    default="private",
    help="What the session has seen (private).",
)
@click.option("--untrusted/--trusted", default=False, help="Whether it has read untrusted text (no).")
@_json
@_pass_home
def grants_test(
    where: Home, *, tool: str, pairs: tuple[str, ...], arguments: str | None, taint: str, untrusted: bool, json: bool
) -> int:
    """Say what would be decided about a call, and why. Runs nothing."""
    from bxcore.wire.tools import DataClass
    from bxctl import grants as verb
    from bxctl import message, world

    if arguments is not None and pairs:
        raise click.UsageError("--arg and --arguments exclude each other")
    text = arguments if arguments is not None else message.arguments(tool, pairs)
    message.check_call(tool, text)
    return verb.test(
        world.of_process(where), tool=tool, arguments=text, taint=DataClass(taint), untrusted=untrusted, json=json
    )


@grants.command("explain")
@click.argument("seq", metavar="NUMBER", type=click.IntRange(1))
@_json
@_pass_home
def grants_explain(where: Home, *, seq: int, json: bool) -> int:
    """Say why a recorded decision came out as it did, grant by grant."""
    from bxctl import grants as verb
    from bxctl import world

    return verb.explain(world.of_process(where), seq=seq, json=json)


@grants.command("suggest")
@click.argument("seq", metavar="NUMBER", type=click.IntRange(1))
@_json
@_pass_home
def grants_suggest(where: Home, *, seq: int, json: bool) -> int:
    """Print the narrowest grant for a denied call. Writes nothing: that is for you to do."""
    from bxctl import grants as verb
    from bxctl import world

    return verb.suggest(world.of_process(where), seq=seq, json=json)


@main.group()
def broker() -> None:
    """See how the broker is, and what it knows of a session."""


@broker.command("status")
@_json
@_pass_home
def broker_status(where: Home, *, json: bool) -> int:
    """Say whether calls are decided, and which limits hold."""
    from bxctl import brokerstate as verb
    from bxctl import world

    return verb.status(world.of_process(where), json=json)


@broker.command("session")
@click.argument("session", metavar="ID")
@click.option("--rebuild", is_flag=True, help="Compute it again from the audit log first.")
@_json
@_pass_home
def broker_session(where: Home, *, session: str, rebuild: bool, json: bool) -> int:
    """Say what a session has seen: how secret, and whether untrusted."""
    from bxctl import brokerstate as verb
    from bxctl import world

    return verb.session(world.of_process(where), session=session, rebuild=rebuild, json=json)


main.add_command(audit)
main.add_command(backup)
main.add_command(mattermost)


@main.command()
@click.option(
    "--etc", type=click.Path(path_type=Path), metavar="DIR", help="Where the settings are (else as config check)."
)
@_json
@_pass_home
def doctor(where: Home, *, etc: Path | None, json: bool) -> int:
    """Check the installation, loopd and the model."""
    from bxctl import doctor as verb
    from bxctl import world

    return verb.run(world.of_process(where), json=json, etc=etc)


@main.group()
def config() -> None:
    """Look at the configuration."""


@config.command("check")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@_pass_home
def config_check(where: Home, *, directory: Path | None) -> int:
    """Say what is wrong with the configuration files, without starting anything."""
    from bxctl import configcheck as verb
    from bxctl import world

    return verb.run(world.of_process(where), directory=directory)


# -- running ---------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; never a traceback for what the owner can mend."""
    _prepare_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)  # an exception, so that the terminal gets its modes back
    try:
        code = _guarded(arguments)
        sys.stdout.flush()
        return code
    except (ReaderGone, BrokenPipeError):
        _give_output_up()
        return Exit.BROKEN_PIPE
    except OSError as error:  # a full disk behind the output, a terminal that has gone away
        _give_output_up()
        return _complain(error)


def _guarded(arguments: Sequence[str]) -> int:
    try:
        code: object = main.main(list(arguments), prog_name="bxctl", standalone_mode=False)
        return code if isinstance(code, int) else Exit.OK
    except click.Abort:
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except BoxmakerError as error:
        from bxctl import failure

        return failure.tell(error)


def _give_output_up() -> None:
    # Python flushes standard output once more at its end; let that go somewhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: OSError) -> int:
    try:
        sys.stderr.write(f"bxctl: cannot go on: {error.strerror or error}\n")
    except OSError:
        pass  # nobody is left who could read it
    return Exit.FAILED


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(Exit.TERMINATED)


def _prepare_streams() -> None:
    """Text that the locale cannot spell is written escaped, never a crash; pipes carry UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue  # closed before we were started
        if stream.isatty():
            stream.reconfigure(errors="backslashreplace")
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
