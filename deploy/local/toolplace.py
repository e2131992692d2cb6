"""The directory of one home's tools: Podman's storage and sockets, and what tools are to see.

Writes: the directories with their owners and modes, and `lock`. It lies in the home where the tool user may
enter it, else in /var/tmp under a name made from the home's path (a checkout below /root is the usual case).
Invariant: what brokerd trusts (image-id, etc/, the seccomp profile) the tool user can read and not write.
"""

import fcntl
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from deploy.local.refusal import Refusal
from deploy.local.tooluser import ToolUser, may_enter

ELSEWHERE = Path("/var/tmp")  # noqa: S108  # survives a reboot; `prepare` accepts only a directory of our own
_PREFIX = "boxmaker-tools-"
MAX_PATH_BYTES = 35
"""Podman refuses a run directory (run/containers in here) of more than 50 bytes, and when it cleans up a
container that has ended it says so to nobody. Sockets in here stay far below their 107 bytes."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """See the module's header. `path` belongs to whoever starts Boxmaker; others see what is said here."""

    path: Path
    user: ToolUser

    @property
    def settings(self) -> Path:
        """Podman's configuration: read by the tool user."""
        return self.path / "etc"

    @property
    def storage(self) -> Path:
        """The tool user's own: images and containers."""
        return self.path / "storage"

    @property
    def runtime(self) -> Path:
        """The tool user's own: XDG_RUNTIME_DIR."""
        return self.path / "run"

    @property
    def api_socket(self) -> Path:
        return self.runtime / "api.sock"

    @property
    def calls(self) -> Path:
        """What brokerd writes and the tool user reads. Directories made in it belong to the tool user's group."""
        return self.path / "calls"

    @property
    def shared(self) -> Path:
        """Ours, and passed through: the tool user's own folders in it are to be granted, such as the sample folder."""
        return self.path / "shared"

    @property
    def image_id(self) -> Path:
        return self.path / "image-id"

    @property
    def seccomp(self) -> Path:
        return self.path / "tool-seccomp.json"

    @property
    def home(self) -> Path:
        """A file that says which home this belongs to."""
        return self.path / "home"

    def of(self) -> Path | None:
        """Return the home that this belongs to; None where that is not written down, as while it is being made."""
        try:
            return Path(self.home.read_text(encoding="utf-8").removesuffix("\n"))
        except OSError:
            return None

    def prepare(self) -> None:
        """Make what is missing. Raises Refusal where somebody else has taken the place."""
        _our_directory(self.path)
        self._directory(self.path, self._us, 0o711)
        self._directory(self.settings, self._us, 0o750)
        self._directory(self.calls, self._us, 0o2750)
        self._directory(self.runtime, self.user.uid, 0o700)
        # Podman 5 puts containers together below it, seen from user ids that own nothing.
        self._directory(self.storage, self.user.uid, 0o711)
        # Ours: what is the tool user's could put a link in the way of what we make in it.
        self._directory(self.shared, self._us, 0o711)

    def lock(self) -> BinaryIO | None:
        """Return the right to run a service here, held until it is closed; None where another has it."""
        lock = (self.path / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return lock

    def give(self, path: Path) -> None:
        """Make a file or directory of ours the tool user's."""
        if self.user.own:
            os.chown(path, self.user.uid, self.user.gid, follow_symlinks=False)

    def write(self, path: Path, text: str) -> None:
        """Write a file that the tool user may read."""
        path.write_text(text, encoding="utf-8")
        if self.user.own:
            os.chown(path, self._us, self.user.gid)
        path.chmod(0o640)

    @property
    def _us(self) -> int:
        return os.geteuid()

    def _directory(self, path: Path, owner: int, mode: int) -> None:
        path.mkdir(exist_ok=True)
        if self.user.own:
            os.chown(path, owner, self.user.gid)
        path.chmod(mode)


def choose(home: Path, user: ToolUser) -> Place:
    """Return where the tools of this home have their directory. Makes nothing but the home."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = home.resolve() / "tools"
    if len(os.fsencode(inside)) <= MAX_PATH_BYTES and may_enter(home, user):
        return Place(path=inside, user=user)
    digest = hashlib.sha256(f"{os.geteuid()} {user.uid} ".encode() + os.fsencode(home.resolve())).hexdigest()
    return Place(path=ELSEWHERE / f"{_PREFIX}{digest[:10]}", user=user)


def lost(user: ToolUser) -> list[Place]:
    """Return the places in /var/tmp whose homes are gone: deleted checkouts, and the homes of tests."""
    return [place for place in elsewhere(user) if _is_lost(place)]


def elsewhere(user: ToolUser) -> list[Place]:
    """Return the places in /var/tmp that are ours."""
    places = [Place(path=path, user=user) for path in sorted(ELSEWHERE.glob(f"{_PREFIX}*"))]
    return [place for place in places if _is_ours(place.path)]


def _is_lost(place: Place) -> bool:
    try:
        home = place.of()
        return home is not None and not home.exists()
    except OSError:
        return False  # its home cannot be looked at, which is no reason to delete anything


def _our_directory(path: Path) -> None:
    """Make the directory, or make sure that it is one of ours: in /var/tmp anybody can make one first."""
    path.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(path):
        raise Refusal(f"{path} is not a directory of yours; remove it, or have its owner do so")


def _is_ours(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
