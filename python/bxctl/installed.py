"""An installed appliance as `bxctl doctor` sees it: its wiring, this machine, and who the wiring's names are here."""

import functools
from pathlib import Path

import attrs

from bxcore import wiring
from bxcore.wiring import OWNER, TOOLS, ConfigFile, Edge, Role, Wiring
from bxctl.machine import Machine

FILE = "roles.json"
"""The wiring, beside the roles' settings. A checkout has none."""

ROOT = "root"


@attrs.frozen(kw_only=True)
class Installed:
    """See the module's header. `one`: the uid of the one user that is every role, where root set up nothing."""

    wiring: Wiring
    machine: Machine
    one: int | None = None

    def uid(self, name: str) -> int | None:
        """Return the uid that a user of the wiring has here; None where there is no such user."""
        if self.one is not None:
            return self.one
        if name == ROOT:
            return 0
        user = self.machine.user(name)
        return None if user is None else user.uid

    def gid(self, name: str) -> int | None:
        """Return the gid of a group of the wiring; None where there is none, or where groups mean nothing."""
        if self.one is not None:
            return None
        group = self.machine.group(name)
        return None if group is None else group.gid

    def owners(self) -> frozenset[int]:
        """Return the uids of the people who may talk to it, and root's."""
        if self.one is not None:
            return frozenset({self.one})
        groups = [self.machine.group(name) for name in self.wiring.owner_groups]
        names = {member for group in groups if group is not None for member in group.members}
        users = [self.machine.user(name) for name in names]
        return frozenset({0, *(user.uid for user in users if user is not None)})

    def may_own(self, name: str) -> frozenset[int]:
        """Return the uids that what belongs to a user of the wiring may have: one, but owners may be several."""
        if name == OWNER:
            return self.owners()
        uid = self.uid(name)
        return frozenset() if uid is None else frozenset({uid})

    @property
    def roles(self) -> dict[str, Role]:
        """The roles that are to run here: all but the optional ones without a settings file."""
        return self.wiring.running({name for name, role in self.wiring.roles.items() if self._is_there(role.config)})

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The sockets whose two ends are to run here."""
        there = {*self.roles, TOOLS, OWNER}
        return tuple(edge for edge in self.wiring.edges if {edge.listener, edge.client} <= there)

    @property
    def files(self) -> tuple[ConfigFile, ...]:
        """The files that have to be there: of a role that is left out there is none."""
        left_out = {role.config for name, role in self.wiring.roles.items() if name not in self.roles}
        return tuple(file for file in self.wiring.files if file.path not in left_out)

    def _is_there(self, path: str) -> bool:
        try:
            return self.machine.look(self.wiring.at(path)) is not None
        except PermissionError:
            return True  # whoever may not look does not call it missing

    def command(self, role: str) -> tuple[str, ...]:
        """Return what runs in a role's container."""
        row = self.wiring.roles[role]
        return (*row.command, "--config", str(self.wiring.at(row.config)))

    @functools.cached_property
    def role_users(self) -> tuple[str, ...]:
        """The users of the roles and of the tools."""
        return tuple(self.wiring.users)

    def user_of(self, party: str) -> str:
        """Return the user of an edge's end, whom the caller knows to be no person. Raises KeyError."""
        name = self.wiring.user(party)
        if name is None:
            raise KeyError(party)
        return name


def find(home: Path, etc: Path, machine: Machine) -> Installed | None:
    """Return the appliance whose files lie in `etc`; None where there is none. Raises UnknownWiring."""
    if machine.look(etc / FILE) is None:
        return None
    found = wiring.load(etc / FILE).moved(home=home, etc=etc)
    seen = machine.look(home)
    # A home that is a role's is no home of one user: it is a directory with a wrong owner, and told as that.
    many = {0, *(user.uid for user in map(machine.user, found.users) if user is not None)}
    return Installed(wiring=found, machine=machine, one=None if seen is None or seen.uid in many else seen.uid)
