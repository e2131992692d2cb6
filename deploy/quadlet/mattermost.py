"""Mattermost in an installation: what is said of it, what is wrong with that, where token and authority go.

Reads: the files that --mattermost-token and --mattermost-ca name, once; what lies below /etc/boxmaker is kept then.
Invariant: the token is in no answer, no unit, no argument of a program and no text for a person.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from bxcore.settings import gatewayd as settings
from bxcore.wiring import Wiring
from deploy.local.refusal import Refusal
from deploy.quadlet import modelserver
from deploy.quadlet.steps import PROGRAMS, Remove, Step, Write, below

ROLE = "gatewayd"
SYSTEMD = 258
"""The first whose managers of users open what `systemd-creds encrypt --user` wrote; 256 and 257 can only write it."""

_MOST_BYTES = 65_536
_SECONDS = 60


@attrs.frozen(kw_only=True)
class Mattermost:
    """The server's address and who may speak there, by their ids. `sealed`: the token is an encrypted credential.

    `authority`: certificates of an authority of the owner's own lie beside the token.
    """

    url: str
    users: tuple[str, ...]
    sealed: bool = True
    authority: bool = False


@dataclass(frozen=True, kw_only=True)
class Brought:
    """Files that the owner hands over this time; None: what was handed over before."""

    token: Path | None = None
    authority: Path | None = None


NOTHING = Brought()


def network(said: Mattermost | None) -> str:
    """Return Podman's network that reaches the server, as that to a model server. Without a server there is none."""
    if said is None:
        return "none"
    url = urlsplit(said.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return modelserver.network(f"http://{url.netloc.removesuffix(f':{port}')}:{port}")


def values(wiring: Wiring, said: Mattermost) -> dict[str, Any]:
    """Return what gatewayd.toml has to say here that the example does not."""
    found: dict[str, Any] = {
        "state": str(wiring.at("home/gateway")),
        "listen.gateway": str(wiring.socket("gateway")),
        "listen.owner": str(wiring.socket("gateway-owner")),
        "loop.socket": str(wiring.socket("loop-gateway")),
        "mattermost.url": said.url,
        "allow.users": list(said.users),
    }
    if said.authority:
        found["mattermost.ca_file"] = str(_authority(wiring))
    if not said.sealed:
        found |= {
            f"secrets.{settings.TOKEN}.backend": "file",
            f"secrets.{settings.TOKEN}.path": str(_plain(wiring)),
        }
    return found


def credentials(wiring: Wiring, said: Mattermost | None) -> dict[str, str]:
    """Return secret -> its encrypted file, for the unit."""
    return {settings.TOKEN: str(_sealed(wiring))} if said is not None and said.sealed else {}


def check(said: Mattermost | None, brought: Brought, wiring: Wiring, root: Path) -> None:
    """Raise Refusal for what gatewayd would not take, and for a file that is not there."""
    if said is None:
        if brought != NOTHING:
            raise Refusal("--mattermost-token and --mattermost-ca are of use with --mattermost URL alone")
        return
    try:
        settings.Mattermost(url=said.url)
        urlsplit(said.url).port  # noqa: B018  # raises where there is no such port
        settings.Allow(users=said.users)
    except ValueError as error:
        raise Refusal(f"--mattermost: {error}") from None
    if not said.users:
        raise Refusal("--mattermost: nobody may speak; say --mattermost-user ID (docs/mattermost.md tells yours)")
    for fault in modelserver.host_faults(urlsplit(said.url).hostname or ""):
        raise Refusal(f"--mattermost: {fault}")
    kept = below(root, str((_sealed if said.sealed else _plain)(wiring)))
    # Below a staging root nothing is encrypted: it would be for another machine.
    if brought.token is None and not kept.exists() and (root == Path("/") or not said.sealed):
        raise Refusal("--mattermost: the bot's token is not here yet; say --mattermost-token FILE")
    for option, path in (("--mattermost-token", brought.token), ("--mattermost-ca", brought.authority)):
        if path is not None and not _content(path):
            raise Refusal(f"{option}: {path} is no file, or empty, or longer than {_MOST_BYTES} bytes")


def old(said: Mattermost | None, systemd: int) -> Iterator[str]:
    """Yield why this machine cannot keep the token as it is told to."""
    if said is not None and said.sealed and systemd < SYSTEMD:
        yield (
            f"systemd {systemd} gives users' units no encrypted credentials, which came with {SYSTEMD}: say "
            "--mattermost-plain-token, and the bot's token lies in a file that gatewayd's user alone may read"
        )


def steps(wiring: Wiring, said: Mattermost | None, brought: Brought) -> Iterator[Step]:
    """Yield what puts token and authority where gatewayd finds them, and takes away what is of no use any more."""
    role = wiring.roles[ROLE]
    if said is None:
        return
    if brought.authority is not None:
        content = _content(brought.authority)
        yield Write(path=str(_authority(wiring)), content=content, mode=0o440, gid=role.uid)
    if brought.token is not None and said.sealed:
        yield Seal(path=str(_sealed(wiring)), token=brought.token, user=role.user, gid=role.uid)
        yield Remove(path=str(_plain(wiring)))
    elif brought.token is not None:
        content = _content(brought.token)
        yield Write(path=str(_plain(wiring)), content=content, mode=0o400, gid=role.uid, uid=role.uid)
        yield Remove(path=str(_sealed(wiring)))


@dataclass(frozen=True, kw_only=True)
class Seal:
    """The token as a credential that this machine's systemd opens for one user alone. Reads the file itself."""

    path: str
    token: Path
    user: str
    gid: int
    program: str = "systemd-creds"

    def needed(self, root: Path) -> bool:
        # It is encrypted for a user of the machine that runs this.
        return root == Path("/")

    def told(self) -> str:
        return f"encrypt the token as {self.path}, for {self.user}"

    def do(self, root: Path) -> None:
        argv = [
            self.program, "encrypt", "--user", f"--uid={self.user}", f"--name={settings.TOKEN}", str(self.token), "-",
        ]  # fmt: skip
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS,
            env={"LANG": "C.UTF-8", "PATH": PROGRAMS},
        )  # fmt: skip
        if ended.returncode != 0:
            said = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise Refusal(f"{self.told()}: it failed with exit code {ended.returncode}\n{''.join(said)}")
        Write(path=self.path, content=ended.stdout, mode=0o440, gid=self.gid).do(root)


def _sealed(wiring: Wiring) -> Path:
    return wiring.at(f"etc/gatewayd/{settings.TOKEN}.cred")


def _plain(wiring: Wiring) -> Path:
    return wiring.at(f"etc/gatewayd/{settings.TOKEN}")


def _authority(wiring: Wiring) -> Path:
    return wiring.at("etc/gatewayd/ca.pem")


def _content(path: Path) -> bytes:
    """Return what a file of the owner's holds; nothing where that is no use to anybody."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        return b""
    return content if len(content) <= _MOST_BYTES else b""
