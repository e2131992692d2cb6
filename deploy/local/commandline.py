"""What both launchers are typed with, and how what fails in them ends: `make chat` and `make appliance`."""

import os
import stat
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from bxcore.errors import BoxmakerError
from deploy.local import mattermost, upstream
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.wakeups import Interrupted, ServiceEnded

EXIT_USAGE = 2
EXIT_NOT_STARTED = 69


def guarded(run: Callable[[], int], progress: Progress) -> int:
    """Return the exit code of `run`, or that of what it raised, having said why."""
    try:
        return run()
    except (Refusal, BoxmakerError) as error:
        progress.say(str(error))
    except OSError as error:
        progress.say(f"{error.filename or 'the system says'}: {error.strerror}")
    except ServiceEnded as ended:
        progress.say(f"stopped by {ended}")
        return 0
    except Interrupted as interrupted:
        progress.say(f"stopped by {interrupted}")
        return 128 + interrupted.number
    return EXIT_NOT_STARTED


def declare(parser: ArgumentParser, *, usual: Path, shown: str) -> None:
    """Give `parser` what both understand. `usual` is the home where none is named, and `shown` its name."""
    parser.add_argument("--upstream", metavar="URL", help="a llama.cpp server of yours: http://host:port or unix:/path")
    parser.add_argument("--model", type=Path, metavar="FILE", help="another GGUF file for the server started here")
    parser.add_argument("--home", type=Path, metavar="DIR", default=usual, help=f"default: {shown} here")
    parser.add_argument(
        "--accept-break",
        action="store_true",
        help="go on with an audit log that is broken, after you have looked at it: docs/runbook.md, audit_broken",
    )
    parser.add_argument("--say", metavar="TEXT", help="one message instead of a conversation")
    parser.add_argument("--session", metavar="ID", help="go on with this session")
    mattermost.declare(parser)
    parser.add_argument("chat", nargs="*", metavar="-- ARGUMENT", help="for `bxctl chat`")


def check(given: Namespace) -> None:
    """Raise Refusal for a slip in what says where the model is."""
    if given.upstream and given.model:
        raise Refusal("UPSTREAM names a server that has its model; MODEL is for the one that is started here")
    if given.upstream:
        upstream.check(given.upstream)
    if given.model:
        _refuse_what_is_no_file(given.model)


def for_chat(given: Namespace) -> tuple[str, ...]:
    """Return the words for `bxctl chat`."""
    return (
        *([] if given.say is None else [f"--say={given.say}"]),
        *([] if given.session is None else [f"--session={given.session}"]),
        *given.chat,
    )


def serves_only(given: Namespace) -> bool:
    """Say whether nobody is there to talk with in a terminal, nor by a pipe: Mattermost alone is served then."""
    if not given.mattermost or for_chat(given):
        return False
    try:
        return not os.isatty(0) and not _is_message(os.fstat(0).st_mode)
    except OSError:
        return True  # standard input is closed


def _is_message(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _refuse_what_is_no_file(model: Path) -> None:
    if model.is_dir():
        raise Refusal(f"MODEL={model} is a directory; name one .gguf file in it")
    if not model.is_file():
        raise Refusal(f"MODEL={model}: there is no such file")
