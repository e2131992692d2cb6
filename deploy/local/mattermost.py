"""Mattermost beside a conversation: what was typed about it, judged before anything starts, and what gatewayd says.

Reads: the files that were named; the token only to hand it on. What it takes for an
address or an id is gatewayd's own rule, kept in bxcore.settings.
"""

import os
import stat
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import attrs

from bxcore import client, logs
from bxcore.deadline import SystemClock
from bxcore.errors import BoxmakerError
from bxcore.settings import gatewayd as settings
from bxcore.wire import gateway
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal

T = TypeVar("T")

ROLE = "gatewayd"
SERVES = "serving Mattermost; Ctrl-C ends it"
_SERVER_MS = 20_000
_HICCUP_SECONDS = 5.0
_LASTING = frozenset({"token_refused"})
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_MOST_CERTIFICATES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was typed: the server, who may speak, the file with the bot's token."""

    url: str
    users: tuple[str, ...]
    channels: tuple[str, ...]
    token: Path
    ca_file: Path | None

    def secret(self) -> str:
        """Return what the token file holds now. Raises Refusal."""
        try:
            return self.token.read_text(encoding="utf-8")
        except OSError as error:
            raise Refusal(f"MATTERMOST_TOKEN={self.token}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Refusal(f"MATTERMOST_TOKEN={self.token} holds no text") from None

    @property
    def variables(self) -> dict[str, str | None]:
        """What to type to have the same again."""
        return {
            "MATTERMOST": self.url,
            "MATTERMOST_USERS": ",".join(self.users),
            "MATTERMOST_TOKEN": str(self.token),
            "MATTERMOST_CHANNELS": ",".join(self.channels) or None,
            "MATTERMOST_CA": str(self.ca_file) if self.ca_file else None,
        }


def declare(parser: ArgumentParser) -> None:
    """Give `parser` the words for it."""
    parser.add_argument("--mattermost", metavar="URL", help="talk in Mattermost too, on this server, while this runs")
    parser.add_argument("--mattermost-users", metavar="ID,ID", help="ids of those who may speak, and may approve")
    parser.add_argument(
        "--mattermost-token", type=Path, metavar="FILE", help="a file of yours alone with the bot's token"
    )
    parser.add_argument("--mattermost-channels", metavar="ID,ID", help="channels in which the bot answers when named")
    parser.add_argument("--mattermost-ca", type=Path, metavar="FILE", help="certificates to believe beside the host's")


def wish(given: Namespace) -> Wish | None:
    """Return what was typed; None where nothing was. Raises Refusal with the first slip."""
    rest = ("mattermost_users", "mattermost_token", "mattermost_channels", "mattermost_ca")
    if not given.mattermost:
        for name in rest:
            if getattr(given, name):
                raise Refusal(f"{name.upper()} is there and MATTERMOST= is not; it takes the server's address")
        return None
    # Without users too: gatewayd then ends the start, and names those who could be meant.
    return Wish(
        url=_valid(settings.Mattermost, "url", given.mattermost, "MATTERMOST"),
        users=_ids(given.mattermost_users, settings.Allow, "users", "MATTERMOST_USERS"),
        channels=_ids(given.mattermost_channels, settings.Allow, "channels", "MATTERMOST_CHANNELS"),
        token=_token(given.mattermost_token),
        ca_file=given.mattermost_ca and _certificates(given.mattermost_ca),
    )


def _valid(cls: Any, name: str, value: Any, variable: str) -> Any:
    field = getattr(attrs.fields(cls), name)
    try:
        field.validator(None, field, value)
    except ValueError as error:
        shown = value if isinstance(value, str) else ",".join(value)
        why = str(error.args[0]).removeprefix(f"{name}: ")
        raise Refusal(f"{variable}={logs.escape(shown)}: {why}") from None
    return value


def _ids(given: str | None, cls: Any, name: str, variable: str) -> tuple[str, ...]:
    found = tuple(part for word in (given or "").split(",") if (part := word.strip()))
    checked: tuple[str, ...] = _valid(cls, name, found, variable)
    return checked


def _token(path: Path | None) -> Path:
    """Return the whole path. gatewayd would refuse the same, later."""
    if path is None:
        raise Refusal("MATTERMOST_TOKEN= is missing: the path of a file, mode 0600, that holds the bot's access token")
    found = _looked_at(path, "MATTERMOST_TOKEN")
    if found.st_uid != os.geteuid():
        raise Refusal(f"MATTERMOST_TOKEN={path} is another user's file (uid {found.st_uid}); it has to be yours")
    if found.st_mode & 0o077:
        raise Refusal(
            f"MATTERMOST_TOKEN={path} is open to others (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 {path}. "
            "If others could read it, have Mattermost make a new token"
        )
    if not found.st_size:
        raise Refusal(f"MATTERMOST_TOKEN={path} is empty")
    return path.absolute()


def _certificates(path: Path) -> Path:
    _looked_at(path, "MATTERMOST_CA")
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_CERTIFICATES)
    except OSError as error:
        raise Refusal(f"MATTERMOST_CA={path}: {error.strerror}") from None
    if _CERTIFICATE not in content:
        raise Refusal(f"MATTERMOST_CA={path} holds no certificate in PEM, as a line {_CERTIFICATE.decode()} begins one")
    return path.absolute()


def _looked_at(path: Path, variable: str) -> os.stat_result:
    try:
        found = path.lstat() if variable == "MATTERMOST_TOKEN" else path.stat()
    except FileNotFoundError:
        raise Refusal(f"{variable}={path}: there is no such file") from None
    except OSError as error:
        raise Refusal(f"{variable}={path}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        what = "a link; name the file itself" if stat.S_ISLNK(found.st_mode) else "not a file"
        raise Refusal(f"{variable}={path} is {what}")
    return found


def warning(wanted: Wish | None) -> str | None:
    """Return what to think of before the token is sent; None where nothing is."""
    if wanted is None or not settings.in_clear(wanted.url):
        return None
    return (
        f"MATTERMOST={wanted.url}: the bot's token, and all that is said, can be read on the way to that machine; "
        "write https:// where the server has it [mattermost_in_clear]"
    )


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the start says of it. `trouble` is the code where gatewayd still tries."""

    text: str
    trouble: str | None = None


def told(socket: Path, wanted: Wish) -> Told:
    """Return in a sentence as whom gatewayd listens, and to whom; or why it does not yet."""
    try:
        with client.Connection(socket, clock=SystemClock()) as connection:
            status = _one(connection, gateway.GatewayStatus(), gateway.GatewayStatusReport)
            if status.code is not None:
                return _trying(wanted, f"{status.detail} [{status.code}]", status.code)
            # Whether the event connection is up is a matter of milliseconds now; whether the server answers is not.
            account = _one(connection, gateway.GatewayWhoami(), gateway.GatewayAccount)
    except client.RemoteFault as fault:
        return _trying(wanted, str(fault), fault.code)
    except BoxmakerError as error:
        return Told(text=f"Mattermost: gatewayd runs, and does not say how it is: {logs.escape(str(error))}")
    return Told(text=logs.escape(_listening(account)))


def _trying(wanted: Wish, why: str, code: str) -> Told:
    return Told(text=f"Mattermost: not connected to {wanted.url}: {logs.escape(why)}; it goes on trying", trouble=code)


class Watch:
    """Says during a conversation that the way to Mattermost is lost, and that it is there again; a hiccup is not told.

    `look` is given what gatewayd tells its service manager, whenever it has said something; it does at every try.
    """

    def __init__(self, progress: Progress, now: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._now = progress, now
        self._told = set[str]()
        self._since: float | None = None

    def begin(self, socket: Path, wanted: Wish) -> None:
        """Ask gatewayd how it is, and say so."""
        first = told(socket, wanted)
        if first.trouble is not None:
            self._told.add(first.trouble)
        self._progress.say(first.text)

    def look(self, status: str) -> None:
        """Say what has changed for longer than a moment, once."""
        code, is_trouble, detail = status.partition(": ")
        if status == "connected":
            if self._told:
                self._progress.interject("Mattermost: connected")
            self._told.clear()
            self._since = None
        elif is_trouble:
            self._since = self._now() if self._since is None else self._since
            lasts = code in _LASTING or self._now() - self._since >= _HICCUP_SECONDS
            if lasts and code not in self._told:
                self._told.add(code)
                self._progress.interject(f"Mattermost: {detail} [{code}]; gatewayd goes on trying")


def _one(connection: client.Connection, message: object, answer: type[T]) -> T:
    for envelope in connection.request(message, idle_ms=_SERVER_MS):
        if isinstance(envelope.msg, answer):
            return envelope.msg
    raise client.PeerUnclear(f"gatewayd's answer is not {answer.__name__}")


def _listening(account: gateway.GatewayAccount) -> str:
    people = ", ".join(f"@{name}" for name in account.allowed) or "nobody"
    where = "in direct messages"
    if account.channels_allowed:
        where += f" and, when named, in {account.channels_allowed} of its channels"
    said = [f"Mattermost: @{account.username} on {account.server} answers {people} {where}, while this runs"]
    if account.unfit:
        said.append(
            f"no person has the ids {', '.join(account.unfit)}; write to the bot, and gatewayd's log names your id "
            "for MATTERMOST_USERS= [mattermost_users_unfit]"
        )
    if account.channels_absent:
        said.append(
            f"it is not in {', '.join(account.channels_absent)}; invite it there, or correct MATTERMOST_CHANNELS= "
            "[mattermost_channels_absent]"
        )
    return ". ".join(part[0].upper() + part[1:] for part in said)
