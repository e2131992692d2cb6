"""What `make chat` runs, as data: command lines, conditions, waits. Pure: starts nothing, looks at nothing."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bxcore.wiring import Network
from deploy.local.home import Home

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".state"
MODEL_PYTHON = ROOT / ".state" / "model-venv" / "bin" / "python"

SLOT_TOKENS = 8_192
SLOTS = 2

# Without it the small model says one sentence for ever; stronger, it no longer spells a tool's name (docs/local.md).
SMALL_MODEL_PENALTY = "1.15"

# What a daemon may know of the environment that `make chat` was typed in.
_INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of the stack. `doing` says what the owner waits for until it is ready."""

    name: str
    argv: tuple[str, ...]
    doing: str
    ready_seconds: int
    stop_seconds: int
    network: bool
    powers: bool = False
    """Started by root it keeps root's powers: it has to reach what another user owns."""
    first_line_is_ready: bool = False
    """It says so with a line on standard output; the roles use NOTIFY_SOCKET."""
    umask: int = -1
    """For what it makes; -1: the launcher's."""
    once: tuple[str, ...] = ()
    """More words of the command line for the first start, and for no restart: what was asked for once."""


def model_server(home: Home, model: Path | None, *, listen: Path | None = None) -> Part:
    """llama.cpp on a Unix socket, in the home if nothing else is said. It needs no network, so it gets none."""
    which = ("--model", str(model)) if model else ("--repeat-penalty", SMALL_MODEL_PENALTY)
    return Part(
        name="model",
        argv=(
            str(MODEL_PYTHON), "-P", "-s", str(ROOT / "deploy" / "local" / "model_server.py"),
            "--listen", str(listen or home.model_socket), "--n-ctx", str(SLOT_TOKENS), "--slots", str(SLOTS), *which,
        ),
        doing=f"loading {model.name if model else 'the small model'}",
        ready_seconds=600,
        stop_seconds=2,
        network=False,
        first_line_is_ready=True,
    )  # fmt: skip


def inferproxy(home: Home, *, network: bool) -> Part:
    """It needs a network where the model server is elsewhere."""
    return Part(
        name="inferproxy",
        argv=_role("inferproxy", home),
        doing="starting inferproxy",
        ready_seconds=30,
        stop_seconds=3,
        network=network and _has_network("inferproxy", home),
    )


def brokerd(home: Home, *, accept_break: bool = False) -> Part:
    """Ready when its audit log has been checked and the limits of its containers tried out.

    `accept_break`: the owner has looked at a log that is broken, and accepts it, this time.
    """
    return Part(
        name="brokerd",
        argv=_role("brokerd", home),
        doing="starting brokerd",
        ready_seconds=120,
        stop_seconds=15,
        network=_has_network("brokerd", home),
        powers=True,  # the container service is the tool user's
        once=("--accept-break",) if accept_break else (),
    )


def loopd(home: Home) -> Part:
    """Ready when its self-test has passed, which a busy server delays."""
    return Part(
        name="loopd",
        argv=_role("loopd", home),
        doing="self-test",
        ready_seconds=900,
        stop_seconds=12,
        network=_has_network("loopd", home),
    )


def gatewayd(home: Home) -> Part:
    """Ready when it serves and has tried the server once, whatever came of that."""
    return Part(
        name="gatewayd",
        argv=_role("gatewayd", home),
        doing="connecting to Mattermost",
        ready_seconds=120,
        stop_seconds=15,
        network=_has_network("gatewayd", home),
    )


def bxctl(home: Home, arguments: Sequence[str], *, come_back: str = "make chat SESSION={session}") -> tuple[str, ...]:
    """The command line of the conversation. `come_back` is `make_chat`'s, of what was typed."""
    # bxctl alone would find nobody: the roles end with the conversation.
    back = ("--come-back", come_back)
    return (sys.executable, "-P", "-s", "-m", "bxctl", "--home", str(home.path), "chat", *back, *arguments)


def make_chat(
    home: Home,
    *,
    upstream: str | None,
    model: Path | None,
    tools: bool,
    mattermost: Mapping[str, str | None] = MappingProxyType({}),
    target: str = "chat",
    usual: Path = STATE,
) -> str:
    """Return what to type to go on with {session} under the same conditions, as one line for a shell.

    `mattermost`: its variables. `target`: what was made. `usual`: the home that it takes where none is named.
    """
    options = [] if home.path == usual else ["--home", str(home.path)]
    options += [] if tools else ["--no-tools"]
    variables = {
        "UPSTREAM": upstream,
        "MODEL": model and str(model),
        **mattermost,
        # The recipe's shell reads these words once more.
        "ARGS": shlex.join(options),
    }
    # make reads a dollar sign as the begin of a variable's name, unless it is doubled.
    words = [f"{name}={shlex.quote(value.replace('$', '$$'))}" for name, value in variables.items() if value]
    return " ".join(["make", target, *words, "SESSION={session}"])


def upstream_of(home: Home) -> str:
    """The address of the model server that we start."""
    return f"unix:{home.model_socket}"


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return a daemon's environment, rebuilt from what it may know."""
    kept = {name: inherited[name] for name in _INHERITED if name in inherited}
    return {**kept, "PYTHONPATH": str(ROOT / "python")}


def _has_network(role: str, home: Home) -> bool:
    return home.wiring.roles[role].network is not Network.NONE


def _role(name: str, home: Home) -> tuple[str, ...]:
    # -P: the directory we stand in has folders that Python would take for packages.
    return (sys.executable, "-P", "-s", "-m", name, "--config", str(home.etc / f"{name}.toml"))
