"""What the owner was asked at the installation, kept so that an upgrade asks nothing.

Reads and writes: /etc/boxmaker/install/answers.toml. An option that is given takes the place of what is kept.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import tomlkit

from bxcore import config
from bxcore.wiring import Wiring
from deploy.appliance import roleplan
from deploy.local.refusal import Refusal
from deploy.quadlet import mattermost, modelserver, unitfile
from deploy.quadlet.mattermost import Mattermost
from images import layout

_HEAD = "What deploy/quadlet/install was told; run it again with other options to change this."
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}")
"""What systemd-sysusers takes for a name: in its lines, anything else could be another line."""


@attrs.frozen(kw_only=True)
class Answers:
    """The model server: its address as in inferproxy.toml, its size. Who may use bxctl. What grants may speak of.

    `mattermost`: None where gatewayd is left out.
    """

    upstream: str
    owner: str
    n_ctx: int = 131_072
    slots: int = 2
    grants: tuple[Path, ...] = ()
    mattermost: Mattermost | None = None

    @property
    def enabled(self) -> frozenset[str]:
        """The optional roles that are wanted."""
        return frozenset() if self.mattermost is None else frozenset({mattermost.ROLE})

    @property
    def settings(self) -> roleplan.Settings:
        """The same, as the containers' options depend on it."""
        return roleplan.Settings(
            upstream=self.upstream, network=modelserver.network(self.upstream), granted=self.grants,
            outbound=mattermost.network(self.mattermost),
        )  # fmt: skip


@attrs.frozen(kw_only=True)
class Chat:
    """What the options say of Mattermost this time; None: as before. `none`: nothing any more."""

    none: bool = False
    url: str | None = None
    users: tuple[str, ...] | None = None
    sealed: bool | None = None
    authority: bool = False


UNSAID = Chat()


def path(wiring: Wiring, root: Path) -> Path:
    """Return where the answers lie."""
    return root / str(wiring.at("etc/install/answers.toml")).removeprefix("/")


def joined(
    kept: Path,
    *,
    upstream: str | None,
    owner: str | None,
    n_ctx: int | None,
    slots: int | None,
    grants: Sequence[Path] | None,
    chat: Chat = UNSAID,
) -> Answers:
    """Return the options, and for what was not given (None) what was kept. Raises Refusal where one is unknown."""
    before = config.load(kept, Answers) if kept.exists() else None
    if before is None and (upstream is None or owner is None):
        raise Refusal("a first installation needs --upstream URL and --owner USER")
    base = before or Answers(upstream="", owner="")
    return Answers(
        upstream=upstream or base.upstream,
        owner=owner or base.owner,
        n_ctx=base.n_ctx if n_ctx is None else n_ctx,
        slots=base.slots if slots is None else slots,
        grants=base.grants if grants is None else tuple(dict.fromkeys(grants)),
        mattermost=_joined(base.mattermost, chat),
    )


def _joined(before: Mattermost | None, chat: Chat) -> Mattermost | None:
    if chat.none:
        return None
    if before is None and chat.url is None:
        if chat != UNSAID:
            raise Refusal("what is said of Mattermost is of use with --mattermost URL alone")
        return None
    base = before or Mattermost(url="", users=())
    return Mattermost(
        url=chat.url or base.url,
        users=base.users if chat.users is None else tuple(dict.fromkeys(chat.users)),
        sealed=base.sealed if chat.sealed is None else chat.sealed,
        authority=base.authority or chat.authority,
    )


def text(answers: Answers) -> str:
    """Return answers.toml."""
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEAD))
    for name, value in attrs.asdict(answers).items():
        if value is not None:
            document.add(name, _plain(value))
    return tomlkit.dumps(document)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [str(each) for each in value] if isinstance(value, tuple) else value


def check(answers: Answers, wiring: Wiring) -> None:
    """Raise Refusal for what no unit and no settings file can hold, and for folders that no container may see."""
    if answers.n_ctx < 1 or answers.slots < 1:
        raise Refusal("--n-ctx and --slots are numbers from 1")
    if not _USER.fullmatch(answers.owner):
        raise Refusal("--owner: a user's name is letters, digits, _ and -, at most 31, and begins with a letter or _")
    for folder in answers.grants:
        _mountable("--grant", folder)
        _grantable(folder, wiring)
    for fault in modelserver.faults(answers.upstream, wiring):
        raise Refusal(f"--upstream: {fault}")
    if directory := roleplan.socket_directory(answers.upstream):
        _mountable("--upstream", directory)


def _grantable(folder: Path, wiring: Wiring) -> None:
    """Raise Refusal for a folder that would take the place of a part of brokerd's image, or that no tool may see."""
    for closed in (*map(Path, layout.OWN), wiring.at("home"), wiring.at("etc")):
        if any(_meet(one, closed) for one in (folder, folder.resolve())):
            raise Refusal(f"--grant: {folder} is, holds or lies in {closed}, which is Boxmaker's or the images' own")
    if not modelserver.is_plain(str(folder)) or folder.resolve() != folder:
        # brokerd is shown the granted name alone, so a deny for the real one would not hold.
        raise Refusal(f"--grant: {folder} is another name, by a link on the way, of {folder.resolve()}: grant that")


def _meet(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _mountable(option: str, folder: Path) -> None:
    if not folder.is_absolute() or not folder.is_dir():
        raise Refusal(f"{option}: {folder} is no directory, or not its whole path")
    try:
        unitfile.plain(str(folder))
    except unitfile.Unwritable as fault:
        raise Refusal(f"{option}: {fault}") from None
    if {":", ","} & set(str(folder)):
        raise Refusal(f"{option}: Podman takes a colon or a comma for the end of a path, and {folder} has one")
