"""How this Boxmaker is wired: who runs as whom, what each role sees, which socket joins which two.

The JSON form of nix/roles.nix as frozen types; the launchers, `bxctl doctor`, the generators and the tests read the
wiring here and nowhere else. Pure, but for `load`.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path

import attrs

from bxcore import convert, regularfile, strictjson
from bxcore.errors import ConfigError, WireError

VERSION = 1
MOST_BYTES = 262_144

OWNER = "owner"
"""A person with bxctl, as the client of an edge or the user of a directory."""

TOOLS = "tools"
"""The tool user, as an end of an edge."""


class UnknownWiring(ConfigError):
    """The file is not a wiring that this version reads."""

    code = "wiring_unreadable"


class Network(Enum):
    """What a role reaches: loopback alone, the model server (nothing, where that listens on a socket), or out."""

    NONE = "none"
    UPSTREAM = "upstream"
    OUTBOUND = "outbound"
    """A server that the role's own settings name, through Podman's user-mode network."""


@attrs.frozen(kw_only=True)
class Places:
    """Where "home/…" and "etc/…" lie, as absolute paths."""

    home: str
    etc: str


@attrs.frozen(kw_only=True)
class Limits:
    """What one role may use. Memory and processes of the whole container hold where the host delegates cgroups."""

    memory_mb: int
    processes: int
    files: int


@attrs.frozen(kw_only=True)
class Mount:
    """A path that a role sees, under the same name inside and outside."""

    path: str
    writable: bool


@attrs.frozen(kw_only=True)
class Role:
    """One role: its user, its image, and all that its container is given.

    `optional`: an owner may leave it out. Its user and directories are there all the same, its container, image,
    settings and secrets only where it is enabled.
    """

    user: str
    uid: int
    optional: bool
    image: str
    command: tuple[str, ...]
    config: str
    storage: str
    network: Network
    capabilities: tuple[str, ...]
    secrets: tuple[str, ...]
    keeps: tuple[str, ...]
    mounts: tuple[Mount, ...]
    limits: Limits


@attrs.frozen(kw_only=True)
class Edge:
    """One socket: who listens, who calls, and the directory and group that are these two's alone."""

    name: str
    directory: str
    socket: str
    listener: str
    client: str
    group: str

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.socket}"


@attrs.frozen(kw_only=True)
class Tools:
    """The user that tool containers belong to, and the files that go with it."""

    user: str
    uid: int
    image: str
    image_file: str
    seccomp: str
    storage: str
    calls: str


@attrs.frozen(kw_only=True)
class Directory:
    """A directory that has to be there. `enter`: users that an ACL lets through.

    `sockets`: what is made in it belongs to its group, and the users of `enter` may write it.
    """

    path: str
    user: str
    group: str
    mode: str
    enter: tuple[str, ...]
    sockets: bool


@attrs.frozen(kw_only=True)
class ConfigFile:
    """A file of root's below "etc" that one group may read."""

    path: str
    group: str
    mode: str


@attrs.frozen(kw_only=True)
class Wiring:
    """The whole. Paths in it begin with "home" or "etc"; `at` makes them paths of a machine."""

    version: int
    places: Places
    roles: dict[str, Role]
    edges: tuple[Edge, ...]
    tools: Tools
    directories: tuple[Directory, ...]
    files: tuple[ConfigFile, ...]
    closed: tuple[str, ...]

    def at(self, path: str) -> Path:
        """Return the path on this machine of one that begins with a place."""
        place, _, rest = path.partition("/")
        return Path({"home": self.places.home, "etc": self.places.etc}[place]) / rest

    def moved(self, *, home: Path, etc: Path) -> "Wiring":
        """Return the same wiring in other places."""
        return attrs.evolve(self, places=Places(home=str(home), etc=str(etc)))

    def edge(self, name: str) -> Edge:
        """Return the edge of that name. Raises KeyError."""
        return {edge.name: edge for edge in self.edges}[name]

    def socket(self, name: str) -> Path:
        """Return where the socket of an edge lies on this machine."""
        return self.at(self.edge(name).path)

    def user(self, party: str) -> str | None:
        """Return the user of an edge's end; None for the owner, who is a person."""
        if party == OWNER:
            return None
        return self.tools.user if party == TOOLS else self.roles[party].user

    def running(self, enabled: Collection[str]) -> dict[str, Role]:
        """Return the roles that have a container: all but the optional ones that are not among `enabled`."""
        return {name: role for name, role in self.roles.items() if not role.optional or name in enabled}

    @property
    def users(self) -> Mapping[str, int]:
        """User name -> uid, of every role and of the tools."""
        roles = {role.user: role.uid for role in self.roles.values()}
        return {**roles, self.tools.user: self.tools.uid}

    @property
    def owner_groups(self) -> tuple[str, ...]:
        """The groups that make a person an owner."""
        return tuple(edge.group for edge in self.edges if edge.client == OWNER)


def read(content: bytes) -> Wiring:
    """Return the wiring that a file holds. Raises UnknownWiring."""
    try:
        value = strictjson.loads(content)
        version = value.get("version") if isinstance(value, dict) else None
        if version != VERSION:
            raise UnknownWiring(f"its version is {version!r:.40}, this program reads version {VERSION}")
        return convert.structure(value, Wiring)
    except WireError as fault:
        raise UnknownWiring(f"not the wiring of this version: {fault.detail}") from None


def load(path: Path) -> Wiring:
    """Return the wiring in `path`. Raises UnknownWiring, which names the file."""
    try:
        return read(regularfile.content(path, most=MOST_BYTES))
    except OSError as error:
        raise UnknownWiring(f"{path}: {error.strerror}") from None
    except UnknownWiring as fault:
        raise UnknownWiring(f"{path}: {fault.detail}") from None
