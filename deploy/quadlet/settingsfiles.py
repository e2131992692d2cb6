"""The roles' settings files on a host: the examples with this host's values, until the owner changes one.

Invariant: a file whose text is not what the installer wrote is never touched again; the first line carries the hash by
which that is seen.
"""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.settings.inferproxy import InferproxySettings
from bxcore.settings.roles import ROLES
from bxcore.wiring import Wiring
from deploy.appliance import roleconfigs
from deploy.local.plan import ROOT
from deploy.quadlet import mattermost
from deploy.quadlet.answers import Answers

EXAMPLES = ROOT / "deploy" / "example"
_MARK = "# Written by deploy/quadlet/install, and written anew until you change it. "


def values(wiring: Wiring, answers: Answers) -> Mapping[str, Mapping[str, Any]]:
    """Return, for each role that runs here, what its example does not say as this host needs it.

    A dot leads into a table.
    """

    def at(path: str) -> str:
        return str(wiring.at(path))

    def socket(edge: str) -> str:
        return str(wiring.socket(edge))

    chat = answers.mattermost
    found: dict[str, Mapping[str, Any]] = {
        "inferproxy": {"listen": socket("infer"), "upstream": answers.upstream},
        "loopd": {
            "state": at("home"),
            "listen.owner": socket("loop-owner"),
            "listen.gateway": socket("loop-gateway"),
            "infer.socket": socket("infer"),
            "broker.socket": socket("broker"),
            "expect.n_ctx": answers.n_ctx,
            "expect.slots": answers.slots,
            "slots.background": min(1, answers.slots - 1),
        },
        # Podman 5's own network; a system that has it need not have slirp4netns.
        "brokerd": {
            **dict(_dotted(tomllib.loads(roleconfigs.brokerd(wiring, egress_network="pasta")))),
            **({"gateway.socket": socket("gateway")} if chat is not None else {}),
        },
    }
    return found if chat is None else {**found, mattermost.ROLE: mattermost.values(wiring, chat)}


def text(role: str, changed: Mapping[str, Any]) -> str:
    """Return a role's file: its example, comments and all, with these values."""
    document = tomlkit.parse((EXAMPLES / f"{role}.toml").read_text(encoding="utf-8"))
    for dotted, value in changed.items():
        *tables, key = dotted.split(".")
        table: Any = document
        for name in tables:
            table = table.setdefault(name, tomlkit.table())
        table[key] = value
    body = tomlkit.dumps(document)
    return f"{_MARK}[{_hash(body)}]\n{body}"


def is_ours(path: Path) -> bool:
    """Say whether nothing of the owner's would be lost. A link is the owner's, wherever it leads."""
    if path.is_symlink():
        return False
    try:
        first, _, body = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        return True
    except UnicodeDecodeError:
        return False
    return first == f"{_MARK}[{_hash(body)}]"


def faults(path: Path, role: str, answers: Answers) -> Iterator[str]:
    """Yield what is wrong with a file that the owner has made theirs."""
    try:
        settings: object = config.load(path, ROLES[role])
    except ConfigError as fault:
        yield fault.detail
        return
    chat = answers.mattermost
    if isinstance(settings, GatewaydSettings) and chat is not None and settings.mattermost.url != chat.url:
        yield f"{path}: its server is {settings.mattermost.url}, and the installer was told {chat.url}: write one"
    if isinstance(settings, InferproxySettings) and settings.upstream != answers.upstream:
        yield f"{path}: its upstream is {settings.upstream}, and the installer was told {answers.upstream}: write one"


def _dotted(table: Mapping[str, Any], begin: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{begin}{name}.")
        else:
            yield f"{begin}{name}", value


def _hash(body: str) -> str:
    return f"sha256 {hashlib.sha256(body.encode()).hexdigest()}"
