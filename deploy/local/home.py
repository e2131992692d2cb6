"""Boxmaker's home in a checkout: which directory holds what, and who may start processes there.

Where sockets and state lie is the appliance's wiring (nix/roles.json), moved here; its users and containers are not.
Writes: the directories, their modes, launcher.lock, guests.lock. Invariants: one launcher a home, which
stops nothing while guests talk to its processes; decided by flock and by nothing else, so that a kill -9
leaves nothing to clean up. Nothing is written to a home that is another user's.
"""

import fcntl
import os
import pwd
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from bxcore import wiring
from bxcore.wiring import TOOLS, Wiring
from deploy.local.refusal import Refusal

ROLES = Path(__file__).resolve().parents[2] / "nix" / "roles.json"

PRIVATE = 0o700
"""Everything runs as one user here; on the appliance each pair of roles has a group, and 2750."""

MAX_SOCKET_BYTES = 107
"""What a socket's address holds, less its NUL."""


@dataclass(frozen=True)
class Home:
    """The directory that bxctl knows as BOXMAKER_HOME."""

    path: Path

    @property
    def etc(self) -> Path:
        return self.path / "etc"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def wiring(self) -> Wiring:
        """The appliance's wiring with its places here."""
        return _wiring().moved(home=self.path, etc=self.etc)

    @property
    def loop_socket(self) -> Path:
        return self.wiring.socket("loop-owner")

    @property
    def broker_socket(self) -> Path:
        return self.wiring.socket("broker")

    @property
    def admin_socket(self) -> Path:
        return self.wiring.socket("admin")

    @property
    def gateway_loop_socket(self) -> Path:
        return self.wiring.socket("loop-gateway")

    @property
    def gateway_socket(self) -> Path:
        return self.wiring.socket("gateway")

    @property
    def gateway_owner_socket(self) -> Path:
        return self.wiring.socket("gateway-owner")

    @property
    def state_socket(self) -> Path:
        """For memoryd, which is not there yet; so the wiring has no such edge."""
        return self.path / "run" / "state" / "state.sock"

    @property
    def grants(self) -> Path:
        """What the owner allows. Made by starter.py, once; then the owner's."""
        return self.etc / "grants"

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def broker(self) -> Path:
        """What brokerd keeps beside the audit log."""
        return self.path / "broker"

    @property
    def gateway(self) -> Path:
        """The queue of posts, gatewayd's."""
        return self.path / "gateway"

    @property
    def infer_socket(self) -> Path:
        return self.wiring.socket("infer")

    @property
    def model_socket(self) -> Path:
        return self.path / "run" / "model" / "model.sock"

    def notify_socket(self, name: str) -> Path:
        """Where the process called `name` tells the launcher that it is ready."""
        return self.path / "run" / "launcher" / f"{name}.sock"

    def prepare(self) -> None:
        """Make the directories that are missing. Raises Refusal where it is another user's, or its path too long."""
        refuse_unprintable(self.path)
        refuse_another_users(self.path)
        longest = max((self.gateway_owner_socket, self.infer_socket, self.notify_socket("inferproxy")), key=_size)
        if _size(longest) > MAX_SOCKET_BYTES:
            raise Refusal(
                f"{longest}: {_size(longest)} bytes, and the address of a socket may have {MAX_SOCKET_BYTES}; "
                "use a shorter directory, for example --home ~/boxmaker"
            )
        kept = [self.wiring.at(path) for role in self.wiring.roles.values() for path in role.keeps]
        kept.remove(self.wiring.at(self.wiring.tools.calls))  # with the tools, where their user can get to
        own = (self.etc, self.log, *kept)
        edges = (edge for edge in self.wiring.edges if TOOLS not in (edge.listener, edge.client))
        roles = (*(self.wiring.at(edge.path) for edge in edges), self.state_socket)
        sockets = (*roles, self.model_socket, self.notify_socket("any"))
        for directory in (*own, *(socket.parent for socket in sockets)):
            directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            directory.chmod(PRIVATE)

    def lock(self) -> BinaryIO | None:
        """Return the right to start processes here, held until it is closed; None where another has it."""
        return _locked(self.path / "launcher.lock", fcntl.LOCK_EX)

    def enter(self) -> BinaryIO | None:
        """Return a guest's right to talk to another launcher's processes; None where that one is leaving."""
        return _locked(self.path / "guests.lock", fcntl.LOCK_SH)

    def close_door(self) -> BinaryIO | None:
        """Let no more guests in until the result is closed; None where there are some."""
        return _locked(self.path / "guests.lock", fcntl.LOCK_EX)


@cache
def _wiring() -> Wiring:
    return wiring.load(ROLES)


def refuse_unprintable(directory: Path) -> None:
    """Raise Refusal for a name that cannot stand in a line of text, as in settings and in what names the home."""
    if not str(directory).isprintable():
        raise Refusal(f"{directory!a}: a home's name needs characters that can be printed; use another directory")


def refuse_another_users(directory: Path) -> None:
    """Raise Refusal where the directory is there and another user's: two users in it shut each other out."""
    try:
        uid = directory.stat().st_uid
    except OSError:
        return  # it is to be made; or it cannot be reached, which making it will say
    if uid != os.geteuid():
        owner = _name(uid)
        raise Refusal(
            f"{directory} belongs to the user {owner}, and you are {_name(os.geteuid())}: do this as {owner}, or in a "
            f"checkout of your own. Where nothing in it is wanted any more, the user {owner} may remove it"
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _locked(path: Path, kind: int) -> BinaryIO | None:
    lock = path.open("ab")
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _size(path: Path) -> int:
    return len(os.fsencode(path))
