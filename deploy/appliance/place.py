"""The directory of one appliance on a machine that is not one: "home" and "etc" of the wiring, and Podman's own.

Writes: every directory of the wiring with owner, mode and ACL; Podman's settings and run directory of each party; a
file that says which state this belongs to; `lock`. A party is a role, or "tools". It lies in /var/lib, or /var/tmp for
who may not write there, under a short name: the roles' users cannot enter a checkout of root's, and Podman refuses long
run directories.
"""

import fcntl
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bxcore import convert, strictjson
from bxcore.wiring import TOOLS, Directory, Network, Wiring
from deploy.appliance.users import Users
from deploy.local.refusal import Refusal
from deploy.local.tooluser import ToolUser

ROOTS = Path("/var/lib")
ELSEWHERE = Path("/var/tmp")  # noqa: S108  # survives a reboot; `prepare` accepts only a directory of our own
"""Systems that remove old files from here exist, and conversations lie in a place: so it is for who has no other."""
_PREFIX = "bx-"
_DIGITS = 10
MAX_RUN_BYTES = 39
"""Podman refuses more than 50 bytes for what it calls containers in here."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where one party has its Podman: podman.Account."""

    party: str
    user: ToolUser
    settings: Path
    storage: Path
    runtime: Path
    api_socket: Path

    def write(self, path: Path, text: str) -> None:
        """Write a file that the party may read, and not change."""
        write(path, text, gid=self.user.gid if self.user.own else None, mode=0o640)


@dataclass(frozen=True, kw_only=True)
class Place:
    """See the module's header. `wiring` is moved to this place."""

    path: Path
    wiring: Wiring
    users: Users

    @property
    def etc(self) -> Path:
        return self.wiring.at("etc/")

    @property
    def grants(self) -> Path:
        """What the owner allows."""
        return self.wiring.at("etc/grants")

    @property
    def shared(self) -> Path:
        """Ours, and passed through: folders in it are to be granted."""
        return self.path / "shared"

    @property
    def model(self) -> Path:
        """Where a model server's socket lies; inferproxy's user may enter."""
        return self.path / "model"

    @property
    def model_socket(self) -> Path:
        return self.model / "model.sock"

    @property
    def state(self) -> Path:
        """A file that says which state this belongs to."""
        return self.path / "state"

    @property
    def parties(self) -> tuple[str, ...]:
        return (*self.wiring.roles, TOOLS)

    def of(self) -> Path | None:
        """Return the state that this belongs to; None where that is not written down."""
        try:
            # Not as text, in which a carriage return would become another character.
            return Path(os.fsdecode(self.state.read_bytes().removesuffix(b"\n")))
        except OSError:
            return None

    def account(self, party: str) -> Account:
        """Return where a party has its Podman."""
        held = self.wiring.tools if party == TOOLS else self.wiring.roles[party]
        return Account(
            party=party,
            user=self.users.user(held.user),
            settings=self.path / "podman" / party,
            storage=self.wiring.at(held.storage),
            runtime=self.path / "run" / party,
            api_socket=self.wiring.socket("tool-runner"),
        )

    def notify(self, party: str) -> Path:
        """Return the directory, passable for this party alone, in which it says that it is ready."""
        return self.path / "notify" / party

    def credentials(self, party: str) -> Path:
        """Return the directory in which this party, and nobody else, finds its secrets."""
        return self.path / "credentials" / party

    def prepare(self) -> None:
        """Make what is missing, under the lock. Raises Refusal where a name is too long."""
        for party in self.parties:
            if (size := len(os.fsencode(self.account(party).runtime))) > MAX_RUN_BYTES:
                raise Refusal(
                    f"the run directory of {party} would have {size} bytes, and Podman allows {MAX_RUN_BYTES}"
                )
        for ours in (
            self.path,
            self.shared,
            *(self.path / name for name in ("podman", "run", "notify", "credentials")),
        ):
            self._directory(ours, self._us, self._our_group, 0o711)
        self._directory(self.model, self._us, self.users.gid(self._caller_of_models), 0o2750)
        for party in self.parties:
            account = self.account(party)
            self._directory(account.settings, self._us, account.user.gid, 0o750)
            self._directory(account.runtime, account.user.uid, account.user.gid, 0o700)
            self._directory(self.notify(party), self._us, account.user.gid, 0o710)
        for name, role in self.wiring.roles.items():
            if role.secrets:
                self._directory(self.credentials(name), self._us, self.account(name).user.gid, 0o750)
        for directory in self.wiring.directories:
            self._wired(directory)
        write(self.wiring.at("etc/roles.json"), _text(self.wiring), gid=None, mode=0o644)

    def write(self, path: str, text: str) -> None:
        """Write one of the wiring's files, as root's, readable to whom the wiring says."""
        write(self.wiring.at(path), text, gid=None, mode=0o600)
        self.give(path)

    def give(self, path: str) -> None:
        """Make one of the wiring's files, which is there, readable to whom the wiring says."""
        found = {file.path: file for file in self.wiring.files}[path]
        if self.users.own:
            os.chown(self.wiring.at(path), self._us, self.users.gid(found.group))
        self.wiring.at(path).chmod(int(found.mode, 8))

    def write_secret(self, party: str, name: str, value: str) -> None:
        """Give a role one of its secrets."""
        self.account(party).write(self.credentials(party) / name, value)

    def forget_secrets(self) -> None:
        """Take every secret away again; the directories stay."""
        for name, role in self.wiring.roles.items():
            for secret in role.secrets:
                (self.credentials(name) / secret).unlink(missing_ok=True)

    def write_grant(self, name: str, text: str) -> None:
        """Write a file for brokerd among the grants."""
        gid = self.grants.stat().st_gid if self.users.own else None
        write(self.grants / name, text, gid=gid, mode=0o640)

    def lock(self) -> BinaryIO | None:
        """Return the right to run here, held until it is closed; None where another has it.

        Raises Refusal where somebody else has taken the place.
        """
        _our_directory(self.path)
        lock = (self.path / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        return lock

    @property
    def _caller_of_models(self) -> str:
        (user,) = (role.user for role in self.wiring.roles.values() if role.network is Network.UPSTREAM)
        return user

    @property
    def _us(self) -> int:
        return os.geteuid()

    @property
    def _our_group(self) -> int:
        return os.getegid()

    def _wired(self, directory: Directory) -> None:
        acl = _entries(directory) if self.users.own and (directory.enter or directory.sockets) else []
        self._directory(
            self.wiring.at(directory.path),
            self.users.uid(directory.user),
            self.users.gid(directory.group),
            int(directory.mode, 8),
            acl=acl,
        )

    def _directory(self, path: Path, uid: int, gid: int, mode: int, *, acl: Sequence[str] = ()) -> None:
        with suppress(FileExistsError):
            path.mkdir()
        with _opened(path) as itself:
            if self.users.own:
                os.chown(itself, uid, gid)
            itself.chmod(mode)  # after the change of owner, which clears the bit for the group
            if acl:
                set_acl(itself, acl)


def choose(state: Path, wiring: Wiring, users: Users) -> Place:
    """Return the place of this state, where there is one, or else where it is to be. Makes nothing."""
    digest = hashlib.sha256(f"{os.geteuid()} ".encode() + os.fsencode(state.resolve())).hexdigest()
    name = f"{_PREFIX}{digest[:_DIGITS]}"
    path = next((top / name for top in _tops() if _is_ours(top / name)), _tops()[0] / name)
    return _at(path, wiring, users)


def every(wiring: Wiring, users: Users) -> Iterator[Place]:
    """Yield our places."""
    for top in _tops():
        for path in sorted(top.glob(f"{_PREFIX}{'[0-9a-f]' * _DIGITS}")):
            if _is_ours(path):
                yield _at(path, wiring, users)


def lost(wiring: Wiring, users: Users) -> Iterator[Place]:
    """Yield our places whose states are gone: deleted checkouts, and the states of tests."""
    return (place for place in every(wiring, users) if _is_lost(place))


def _tops() -> tuple[Path, ...]:
    return (ROOTS, ELSEWHERE) if os.geteuid() == 0 else (ELSEWHERE,)


def _at(path: Path, wiring: Wiring, users: Users) -> Place:
    return Place(path=path, wiring=wiring.moved(home=path / "home", etc=path / "etc"), users=users)


def _is_lost(place: Place) -> bool:
    try:
        state = place.of()
        return state is not None and not state.exists()
    except OSError:
        return False  # it cannot be looked at, which is no reason to remove anything


def write(path: Path, text: str, *, gid: int | None, mode: int) -> None:
    """Write a file of ours, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.write_text(text, encoding="utf-8")
    if gid is not None:
        os.chown(unfinished, os.geteuid(), gid)
    unfinished.chmod(mode)
    unfinished.replace(path)


@contextmanager
def _opened(path: Path) -> Iterator[Path]:
    """Give a name of the directory that stays its own, whatever becomes of the path. Raises Refusal for a link."""
    try:
        # For its name alone: whoever owns it may have closed it to themselves.
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        what = f"a link to {path.readlink()}" if path.is_symlink() else "no directory"
        raise Refusal(
            f"{path} is {what}, and has to be a directory: what is done to it would be done elsewhere. "
            "Move it away; to have it on another disk, mount that one there"
        ) from None
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _entries(directory: Directory) -> list[str]:
    """Return who else may enter, and for sockets who may write what is made in it (nix/roles.nix)."""
    entries = [f"u:{user}:x" for user in directory.enter]
    if directory.sockets:
        entries += ["d:u::rwx", "d:g::rw", "d:m::rw", "d:o::-", *(f"d:u:{user}:rw" for user in directory.enter)]
    return entries


def set_acl(path: Path, entries: Sequence[str]) -> None:
    """Make these the access list of a file, beside its mode."""
    argv = ["setfacl", "--remove-all", "--modify", ",".join(entries), os.fspath(path)]
    ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise Refusal(f"setfacl failed: {ended.stderr.strip()}")


def _text(wiring: Wiring) -> str:
    return strictjson.dumps(convert.unstructure(wiring)).decode() + "\n"


def _our_directory(path: Path) -> None:
    """Make the directory, or make sure that it is one of ours: in /var/tmp anybody can make one first."""
    path.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(path):
        raise Refusal(f"{path} is not a directory of yours; remove it, or have its owner do so")


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
