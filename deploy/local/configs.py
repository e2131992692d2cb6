"""The roles' configuration files in a checkout: written by the launcher until the owner edits one.

Writes: <home>/etc/ROLE.toml; that of gatewayd only where Mattermost was asked for. Invariant: a file whose text is not
what the launcher wrote is never touched again; the first line carries the hash by which that is seen.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from bxcore import config, files
from bxcore.errors import ConfigError
from bxcore.settings.gatewayd import TOKEN
from bxcore.settings.roles import ROLES
from deploy.local.home import Home
from deploy.local.mattermost import Wish
from deploy.local.toolhost import ToolHost

_MARK = "# Written by `{writer}`, and written anew until you change it. "
WRITER = "make chat"


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a model server says of itself."""

    model: str
    n_ctx: int
    slots: int


class HasSettings(Protocol):
    """Where the roles' files lie: a home, or the place of an appliance."""

    @property
    def etc(self) -> Path: ...


class Outcome(Enum):
    """What became of a file."""

    WRITTEN = "written"
    KEPT = "kept"
    REMOVED = "removed"


def inferproxy(home: Home, upstream: str) -> str:
    """Return inferproxy.toml."""
    return f"listen = {quoted(home.infer_socket)}\nupstream = {quoted(upstream)}\n"


def brokerd(home: Home, host: ToolHost, *, gateway: bool = False) -> str:
    """Return brokerd.toml, for tools that run in `host`. `gateway`: questions are put in Mattermost too."""
    # Beside brokerd's own directories: what else lies in this home and is nobody's business.
    private = ", ".join(
        quoted(path) for path in (home.etc, home.log, home.path / "sessions", home.gateway, home.path / "run")
    )
    return f"""\
grants = {quoted(home.grants)}
audit = {quoted(home.audit)}
state = {quoted(home.broker)}
protect = [{private}]

[listen]
broker = {quoted(home.broker_socket)}
admin = {quoted(home.admin_socket)}
state = {quoted(home.state_socket)}

[podman]
socket = {quoted(host.api_socket)}
image_file = {quoted(host.image_id_file)}
calls = {quoted(host.calls_dir)}
seccomp = {quoted(host.seccomp_path)}

[egress]
network = {quoted(host.conditions.egress_network)}
{asks(home) if gateway else ""}"""


def asks(home: Home) -> str:
    """Return the part of brokerd.toml by which it puts its questions in Mattermost."""
    return f"\n[gateway]\nsocket = {quoted(home.gateway_socket)}\n"


def gatewayd(home: Home, wanted: Wish, *, ca_file: Path | None, token: Path | None) -> str:
    """Return gatewayd.toml. `token`: the file that it reads, None where it gets a credential."""
    believed = f"ca_file = {quoted(ca_file)}\n" if ca_file else ""
    secret = f'\n[secrets.{TOKEN}]\nbackend = "file"\npath = {quoted(token)}\n' if token else ""
    return f"""\
state = {quoted(home.gateway)}

[listen]
gateway = {quoted(home.gateway_socket)}
owner = {quoted(home.gateway_owner_socket)}

[mattermost]
url = {quoted(wanted.url)}
{believed}
[loop]
socket = {quoted(home.gateway_loop_socket)}

[allow]
users = [{", ".join(map(quoted, wanted.users))}]
channels = [{", ".join(map(quoted, wanted.channels))}]
{secret}"""


def loopd(home: Home, served: Served, *, small_model: bool, tools: bool, gateway: bool = False) -> str:
    """Return loopd.toml, which expects the server to stay what it is now.

    `tools`: there is a brokerd to ask. `gateway`: gatewayd speaks to it too.
    """
    broker = f"\n[broker]\nsocket = {quoted(home.broker_socket)}\n" if tools else ""
    listens = f"gateway = {quoted(home.gateway_loop_socket)}\n" if gateway else ""
    background = 0 if served.slots == 1 else 1
    text = f"""\
state = {quoted(home.path)}

[listen]
owner = {quoted(home.loop_socket)}
{listens}
[infer]
socket = {quoted(home.infer_socket)}

# The start-up self-test compares the server with this.
[expect]
n_ctx = {served.n_ctx}
slots = {served.slots}

[slots]
main = 0
background = {background}
{broker}"""
    return text + (_SMALL_MODEL if small_model else "")


# SmolLM2 often repeats itself until something stops it. The server's penalty (plan.py) is what ends its
# answers, and was measured without chance (docs/local.md); this is the net below it.
_SMALL_MODEL = """
# For the small model: no chance, and an early end where it repeats itself.
[sampling]
temperature = 0.0
max_tokens = 512

[limits]
loop_chars = 400
"""


def write(path: Path, body: str, *, writer: str = WRITER) -> Outcome:
    """Make `body` the content of `path`, unless the owner has made the file theirs."""
    if not _ours(path, writer):
        return Outcome.KEPT
    whole = f"{_first_line(body, writer)}\n{body}"
    files.DiskFiles().replace(path, whole.encode())
    return Outcome.WRITTEN


def leave_out(path: Path, *, writer: str = WRITER) -> Outcome:
    """Have no file for a role that does not run, unless the owner has made it theirs."""
    if not _ours(path, writer):
        return Outcome.KEPT
    path.unlink(missing_ok=True)
    return Outcome.REMOVED


def check_edited(home: HasSettings, *, writer: str = WRITER) -> None:
    """Raise ConfigError with every fault of the files that the owner has made theirs."""
    faults = []
    for role, settings in ROLES.items():
        path = home.etc / f"{role}.toml"
        if not _ours(path, writer):
            faults += _faults(path, settings)
    if faults:
        raise config.ConfigFaults("\n".join(faults))


def _faults(path: Path, settings: type) -> list[str]:
    try:
        config.load(path, settings)
    except ConfigError as error:
        return [error.detail]
    return []


def _ours(path: Path, writer: str) -> bool:
    """Say whether nothing would be lost. A link is the owner's, wherever it leads."""
    if path.is_symlink():
        return False
    try:
        first, _, body = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        return True
    except UnicodeDecodeError:
        return False
    return first == _first_line(body, writer)


def _first_line(body: str, writer: str) -> str:
    return f"{_MARK.format(writer=writer)}[{_hash(body)}]"


def _hash(body: str) -> str:
    return f"sha256 {hashlib.sha256(body.encode()).hexdigest()}"


def quoted(value: str | Path) -> str:
    """Return a TOML string: JSON's, but for the one control character that JSON leaves alone."""
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
