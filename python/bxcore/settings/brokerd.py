"""/etc/boxmaker/brokerd.toml as one frozen type; defaults and units live here.

In bxcore because two programs read the file: brokerd, and `bxctl config check`.
"""

from enum import Enum
from pathlib import Path

import attrs

from bxcore.ids import MAX_SAFE_INTEGER
from bxcore.settings.ranges import whole
from bxcore.timestamp import DAY_MS

_MIB = 1024 * 1024


class EgressNetwork(Enum):
    """The network of the egress proxy's container. The tool's own container never has one."""

    SLIRP4NETNS = "slirp4netns"
    PASTA = "pasta"
    HOST = "host"


@attrs.frozen(kw_only=True)
class Listen:
    """Where brokerd listens; one directory for each pair of roles. `state` is for memoryd."""

    broker: Path
    admin: Path
    state: Path | None = None


@attrs.frozen(kw_only=True)
class Podman:
    """The container service of the user that tools run as, and the files that belong to it.

    `socket` is Podman's REST socket. `image_file` holds the tool image's ID (64 hexadecimal digits) in
    one line. `calls` is a directory that brokerd writes and the tool user reads, for sockets of the
    egress proxies; it must have the same path for both.
    """

    socket: Path
    image_file: Path
    calls: Path
    seccomp: Path
    sweep_ms: int = attrs.field(default=300_000, validator=whole(1_000, DAY_MS))


@attrs.frozen(kw_only=True)
class Limits:
    """What one tool container may use, and how much brokerd takes on."""

    memory_bytes: int = attrs.field(default=512 * _MIB, validator=whole(128 * _MIB, MAX_SAFE_INTEGER))
    file_bytes: int = attrs.field(default=64 * _MIB, validator=whole(1, MAX_SAFE_INTEGER))
    tmpfs_bytes: int = attrs.field(default=16 * _MIB, validator=whole(1, MAX_SAFE_INTEGER))
    output_bytes: int = attrs.field(default=4 * _MIB, validator=whole(1024, MAX_SAFE_INTEGER))
    processes: int = attrs.field(default=64, validator=whole(8, 4096))
    open_files: int = attrs.field(default=256, validator=whole(32, 65_536))
    running: int = attrs.field(default=4, validator=whole(1, 64))
    connections: int = attrs.field(default=32, validator=whole(4, 1024))
    denials_per_second: int = attrs.field(default=20, validator=whole(1, 10_000))


@attrs.frozen(kw_only=True)
class Approvals:
    """How long a question stays open, how many may be open, and how many may be asked in a minute."""

    ttl_ms: int = attrs.field(default=3_600_000, validator=whole(1_000, DAY_MS))
    open: int = attrs.field(default=16, validator=whole(1, 1024))
    per_minute: int = attrs.field(default=20, validator=whole(1, 10_000))


@attrs.frozen(kw_only=True)
class Egress:
    """How the egress proxy reaches the internet, and what one call may send and receive together."""

    network: EgressNetwork = EgressNetwork.SLIRP4NETNS
    total_bytes: int = attrs.field(default=32 * _MIB, validator=whole(1, MAX_SAFE_INTEGER))


@attrs.frozen(kw_only=True)
class Gateway:
    """The way to gatewayd, which puts questions to the owner in Mattermost. Without a socket it is not asked.

    `post_characters` is the most that one post may hold: the server's `MaxPostSize` or less.
    """

    socket: Path | None = None
    post_characters: int = attrs.field(default=16_000, validator=whole(1_000, 16_383))


@attrs.frozen(kw_only=True)
class BrokerdSettings:
    """The whole file. `protect` names further paths that no grant may mount or contain, beside brokerd's own.

    Each open question holds the connection that its request came in on, so fewer may be open than there are.
    """

    listen: Listen
    grants: Path
    audit: Path
    state: Path
    podman: Podman
    protect: tuple[Path, ...] = ()
    limits: Limits = attrs.field(factory=Limits)
    approvals: Approvals = attrs.field(factory=Approvals)
    egress: Egress = attrs.field(factory=Egress)
    gateway: Gateway = attrs.field(factory=Gateway)

    def __attrs_post_init__(self) -> None:
        if self.approvals.open >= self.limits.connections:
            raise ValueError(
                f"approvals.open is {self.approvals.open}, limits.connections {self.limits.connections}: expected fewer"
                " questions than connections, since each question holds one and other calls need one too"
            )
