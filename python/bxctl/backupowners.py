"""Whose each restored file is, and its mode: by the wiring where there is one, as on an appliance.

Reads: roles.json in the configuration directory, the users of this machine. Only root gives files away.
"""

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from bxcore import wiring
from bxcore.backupmanifest import AUDIT, BROKER, ETC, GRANTS, SESSIONS
from bxcore.wiring import OWNER, Wiring
from bxctl import rootsword
from bxctl.machine import Machine
from bxctl.rootsword import WiringUnsafe

WIRING = "roles.json"
_ROLES: Mapping[str, str] = {SESSIONS: "loopd", AUDIT: "brokerd", BROKER: "brokerd"}


@attrs.frozen(kw_only=True)
class Owner:
    """User and group by number, None for whoever runs this; modes of the directory and of what is in it."""

    uid: int | None = None
    gid: int | None = None
    directory_mode: int = 0o700
    below_mode: int = 0o700
    file_mode: int = 0o600

    def own_directory(self, path: Path, *, top: bool) -> None:
        """Give a directory its owner and mode: the part itself where `top`, else one in it."""
        self._give(path)
        path.chmod(self.directory_mode if top else self.below_mode)

    def own_file(self, path: Path) -> None:
        """Give a file its owner and mode."""
        self._give(path)
        path.chmod(self.file_mode)

    def _give(self, path: Path) -> None:
        if self.uid is not None or self.gid is not None:
            os.chown(path, -1 if self.uid is None else self.uid, -1 if self.gid is None else self.gid)


class Owners:
    """Made once for a restore. `missing` names users that the wiring has and this machine has not."""

    def __init__(self, home: Path, etc: Path | None) -> None:
        self._home, self._etc = home, etc
        self._root = os.geteuid() == 0
        self.wiring = self._load() if self._root else None
        self.missing: list[str] = []
        self._unknown: list[str] = []

    def _load(self) -> Wiring | None:
        places = [place / WIRING for place in (self._etc, self._home / ETC) if place is not None]
        found = next((path for path in places if path.is_file()), None)
        if found is None:
            return None
        self._require_roots(found)
        return wiring.load(found)

    def _require_roots(self, found: Path) -> None:
        """Raise WiringUnsafe unless the wiring is root's word, and root alone says what lies in the place."""
        machine, trusted = Machine(), {0}
        doubts = [*rootsword.of_file(machine, found, trusted=trusted)]
        # The name stands for something below: the place itself is judged too.
        doubts += rootsword.of_way(machine, self._home / WIRING, trusted=trusted)
        for doubt in doubts:
            raise WiringUnsafe(
                f"expected that {doubt.expected}; {doubt.found}. root gives files away by the wiring, so nothing was "
                f"restored{': ' + doubt.command if doubt.command else ''}"
            )

    def of(self, part: str) -> Owner:
        """Return the owner of a part of the home, or of `etc/grants`."""
        path = part if part.startswith(f"{ETC}/") else f"home/{part}"
        if not self._root:
            return Owner()
        row = None if self.wiring is None else next((row for row in self.wiring.directories if row.path == path), None)
        if row is None:
            return self._as_it_lies(part)
        uid, gid = self._user(row.user), self._group(row.group)
        mode = int(row.mode, 8)
        if part == f"{ETC}/{GRANTS}":
            return Owner(uid=uid, gid=gid, directory_mode=mode, file_mode=0o640)
        return Owner(uid=uid, gid=gid, directory_mode=mode)

    def of_file(self, name: str) -> Owner:
        """Return the owner of a role's file in the configuration directory."""
        if self.wiring is None:
            return Owner()
        row = next((row for row in self.wiring.files if row.path == f"{ETC}/{name}"), None)
        if row is None:
            return Owner()
        return Owner(uid=0, gid=self._group(row.group), file_mode=int(row.mode, 8))

    def _as_it_lies(self, part: str) -> Owner:
        """Without a wiring: as the empty directory that the installation has made there, else root's."""
        place = (self._etc or self._home) / GRANTS if part.startswith(f"{ETC}/") else self._home / part
        try:
            found = place.lstat()
        except OSError:
            self._unknown.append(part)
            return Owner()
        mode = stat.S_IMODE(found.st_mode)
        file_mode = 0o640 if mode & stat.S_IRGRP else 0o600
        return Owner(uid=found.st_uid, gid=found.st_gid, directory_mode=mode, file_mode=file_mode)

    def _user(self, name: str) -> int | None:
        if name == OWNER:
            return 0
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            self._miss(name)
            return None

    def _group(self, name: str) -> int | None:
        try:
            return grp.getgrnam(name).gr_gid
        except KeyError:
            self._miss(name)
            return None

    def _miss(self, name: str) -> None:
        if name not in self.missing:
            self.missing.append(name)

    def still_to_do(self) -> Iterator[str]:
        """Yield what the owner has to do by hand: commands, one a line. Nothing where roles run as the caller."""
        if self.missing:
            assert self.wiring is not None
            for part, role in _ROLES.items():
                user = self.wiring.roles[role].user
                if user in self.missing and (self._home / part).exists():
                    yield shlex.join(["chown", "-R", f"{user}:", str(self._home / part)])
        for part in self._unknown:
            if part in _ROLES and (self._home / part).exists():
                yield shlex.join(["chown", "-R", f"bx-{_ROLES[part]}:", str(self._home / part)])
