"""What a container is to be, as data: printed, hashed and compared before anything is started. Pure.

`spec` is what Podman is asked for, `differences` what is wrong with what Podman made of it: the service takes a
request with a key that it does not know, or a value that it does not use, without a word. Each key here was seen in
effect inside a container (tests/container/). What Podman does not show, the wrapper and the probe look at from
inside: the seccomp filter, the identity of the mounts. Specified in docs/containers.md.
"""

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from brokerd.mounts import Mount
from bxcore import strictjson
from bxcore.ids import Hash32
from bxcore.strictjson import JsonValue

OWNER_LABEL = "boxmaker.owner"
CALL_LABEL = "boxmaker.call"
PART_LABEL = "boxmaker.part"

USER = "1000:1000"
HOST_NAME = "tool"
ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/tmp",  # noqa: S108  # in the container, a file system of its own
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}
"""All that a tool finds in its environment, beside the host name that Podman adds: nothing of the host's."""

OWN_IDS = 1024
"""How many user ids a container of its own range gets; 1000 must be among them."""

MASKED = (
    *("/proc/acpi", "/proc/bus", "/proc/cmdline", "/proc/config.gz", "/proc/crypto", "/proc/diskstats", "/proc/fs"),
    *("/proc/interrupts", "/proc/irq", "/proc/kallsyms", "/proc/key-users", "/proc/partitions", "/proc/version"),
    "/proc/vmstat",
)
"""What /proc tells of the machine, beside what Podman masks by itself."""

_EMPTY = ("ro", "size=4k", "noexec", "nosuid", "nodev", "mode=0555", "notmpcopyup")
_EMPTIED = ("/dev/mqueue", "/sys", "/sys/fs/cgroup")
"""Empty file systems instead of the kernel's: less to see, and a dozen mounts fewer to make at each call."""


class Network(Enum):
    """What a container may reach. NONE has loopback alone; the others are for the egress proxy."""

    NONE = "none"
    SLIRP4NETNS = "slirp4netns"
    PASTA = "pasta"
    HOST = "host"


class Ids(Enum):
    """Who the container's user 1000 is on the host.

    OWN: nobody, an id out of a range of this container alone. HOST_USER: the user that owns the containers, who was
    given access to the granted paths.
    """

    OWN = "auto"
    HOST_USER = "keep-id"


@attrs.frozen(kw_only=True)
class Bounds:
    """What the container may use. `memory_bytes` holds for each process always, for all together where the host can.

    `cpu_percent` is of one core, where the host can. `lifetime_s` is Podman's own, should brokerd not be there.
    """

    memory_bytes: int
    file_bytes: int
    tmpfs_bytes: int
    processes: int
    open_files: int
    cpu_percent: int
    lifetime_s: int


@attrs.frozen(kw_only=True)
class Plan:
    """One container. `image` is an image ID, `call` the seq of its decision, `part` what it does for that call."""

    owner: str
    call: int
    part: str
    image: str
    argv: tuple[str, ...]
    mounts: tuple[Mount, ...]
    network: Network
    ids: Ids
    seccomp: str
    bounds: Bounds

    def spec(self) -> dict[str, JsonValue]:
        """Return what Podman is asked to create."""
        return {
            "image": self.image,
            "entrypoint": list(self.argv),
            "command": [],
            "labels": self.labels,
            "env": dict(ENVIRONMENT),
            "unsetenvall": True,
            "httpproxy": False,
            "hostname": HOST_NAME,
            "user": USER,
            "work_dir": "/",
            "stdin": True,
            "mounts": [*map(_bind, self.mounts), *map(_tmpfs, self.tmpfs.items())],
            **_CONSTANT,
            **self._network(),
            **self._user_namespace(),
            "seccomp_profile_path": self.seccomp,
            **self._bounds(),
        }

    @property
    def labels(self) -> dict[str, JsonValue]:
        """How the sweep knows this container again."""
        return {OWNER_LABEL: self.owner, CALL_LABEL: str(self.call), PART_LABEL: self.part}

    @property
    def tmpfs(self) -> dict[str, tuple[str, ...]]:
        """Mount point and options of each file system in memory."""
        room = ("rw", f"size={self.bounds.tmpfs_bytes}", "noexec", "nosuid", "nodev", "mode=1777", "notmpcopyup")
        return {"/tmp": room, **dict.fromkeys(_EMPTIED, _EMPTY)}  # noqa: S108

    @property
    def rlimits(self) -> dict[str, int]:
        """The limits that the kernel keeps for each process or user, whatever the host can do with cgroups."""
        bounds = self.bounds
        return {
            "CORE": 0,
            "DATA": bounds.memory_bytes,
            "FSIZE": bounds.file_bytes,
            "MEMLOCK": 65_536,
            "MSGQUEUE": 0,
            "NOFILE": bounds.open_files,
            "NPROC": bounds.processes,
        }

    def _network(self) -> dict[str, JsonValue]:
        inside = self.network is Network.NONE
        return {
            "netns": {"nsmode": self.network.value},
            "use_image_hosts": True,
            # The proxy looks names up, so it needs the machine's name servers; a tool is told of none.
            "use_image_resolve_conf": inside,
        }

    def _user_namespace(self) -> dict[str, JsonValue]:
        if self.ids is Ids.HOST_USER:
            return {"userns": {"nsmode": "keep-id", "value": "uid=1000,gid=1000"}}
        # "auto" alone would be taken, and share the user namespace of all the others.
        auto: JsonValue = {
            "HostUIDMapping": False,
            "HostGIDMapping": False,
            "AutoUserNs": True,
            "AutoUserNsOpts": {"Size": OWN_IDS},
        }
        return {"userns": {"nsmode": "auto"}, "idmappings": auto}

    def _bounds(self) -> dict[str, JsonValue]:
        bounds = self.bounds
        return {
            "r_limits": [{"type": name, "soft": most, "hard": most} for name, most in self.rlimits.items()],
            "resource_limits": {
                "memory": {"limit": bounds.memory_bytes, "swap": bounds.memory_bytes},
                "pids": {"limit": bounds.processes},
                "cpu": {"period": _CPU_PERIOD_US, "quota": _CPU_PERIOD_US * bounds.cpu_percent // 100},
            },
            "oom_score_adj": 1000,  # if the machine runs out of memory, the tool goes first
            "timeout": bounds.lifetime_s,
            "stop_timeout": 0,
        }


_CPU_PERIOD_US = 100_000

_CONSTANT: Mapping[str, JsonValue] = {
    "cap_drop": ["all"],
    "cgroupns": {"nsmode": "private"},
    "image_volume_mode": "ignore",
    "ipcns": {"nsmode": "none"},
    "log_configuration": {"driver": "none"},
    "manage_password": False,
    "mask": list(MASKED),
    "no_new_privileges": True,
    "read_only_filesystem": True,
    "systemd": "false",
    "volatile": True,  # nothing of the container outlives it, so nothing needs to reach the disk
}


def _bind(mount: Mount) -> JsonValue:
    # "bind", not "rbind": what the host mounts below a granted directory was not granted.
    return {
        "type": "bind",
        "source": mount.source,
        "destination": mount.destination,
        "options": ["rw" if mount.writable else "ro", "noexec", "nosuid", "nodev", "bind", "rprivate"],
    }


def _tmpfs(item: tuple[str, tuple[str, ...]]) -> JsonValue:
    destination, options = item
    return {"type": "tmpfs", "source": "tmpfs", "destination": destination, "options": list(options)}


def digest(*plans: Plan) -> Hash32:
    """Return the hash of everything that Podman is asked for, for one call: what the audit log says of its start."""
    asked: list[JsonValue] = [plan.spec() for plan in plans]
    return Hash32(hashlib.sha256(strictjson.dumps(asked)).hexdigest())


# -- what Podman made of it ---------------------------------------------------------------------


def differences(plan: Plan, made: Mapping[str, Any]) -> list[str]:
    """Return the names of what is not as planned in Podman's description of a container, before it is started."""
    config, host = made["Config"], made["HostConfig"]
    seen: dict[str, tuple[object, object]] = {
        "image": (made["Image"], plan.image),
        "program": ((made["Path"], *made["Args"]), plan.argv),
        "state": (made["State"]["Status"], "initialized"),
        "user": (config["User"], USER),
        "environment": (set(config["Env"]), {f"{k}={v}" for k, v in {**ENVIRONMENT, "HOSTNAME": HOST_NAME}.items()}),
        "labels": (plan.labels.items() <= config["Labels"].items(), True),  # the image has some too
        "stdin": ((config["OpenStdin"], config["Tty"]), (True, False)),
        "lifetime": (config["Timeout"], plan.bounds.lifetime_s),
        "network": (host["NetworkMode"], plan.network.value),
        "read-only root": (host["ReadonlyRootfs"], True),
        "privileged": (host["Privileged"], False),
        "capabilities": ((made["EffectiveCaps"] or [], made["BoundingCaps"] or [], host["CapAdd"] or []), ([], [], [])),
        "new privileges": ("no-new-privileges" in (host["SecurityOpt"] or []), True),
        "devices": (host["Devices"] or [], []),
        "namespaces": ((host["PidMode"], host["UTSMode"], host["UsernsMode"]), ("private", "private", "private")),
        "log": (host["LogConfig"]["Type"], "none"),
        "first to go": (host["OomScoreAdj"], 1000),
        "mounts": (sorted(map(_mounted, made["Mounts"])), sorted(map(_asked, plan.mounts))),
        "user ids": (_ids_as_planned(plan, host["IDMappings"] or {}), True),
        "tmpfs": (_tmpfs_as_planned(plan, host["Tmpfs"] or {}), True),
        "limits": (_rlimits_as_planned(plan, host["Ulimits"] or []), True),
    }
    return [name for name, (found, wanted) in seen.items() if found != wanted]


def _mounted(mount: Mapping[str, Any]) -> tuple[object, ...]:
    bare = "rbind" not in mount["Options"]
    return mount["Type"], mount["Source"], mount["Destination"], mount["RW"], mount["Propagation"], bare


def _asked(mount: Mount) -> tuple[object, ...]:
    return "bind", mount.source, mount.destination, mount.writable, "rprivate", True


def _ids_as_planned(plan: Plan, mappings: Mapping[str, Any]) -> bool:
    """`INSIDE:OUTSIDE:COUNT`, where 0 outside is the user that owns the containers."""
    for kind in ("UidMap", "GidMap"):
        ranges = [tuple(map(int, line.split(":"))) for line in mappings.get(kind) or []]
        owners = [inside for inside, outside, _ in ranges if outside == 0]
        if not ranges or owners != ([1000] if plan.ids is Ids.HOST_USER else []):
            return False
    return True


def _tmpfs_as_planned(plan: Plan, found: Mapping[str, str]) -> bool:
    asked = {where: set(options) - {"notmpcopyup"} for where, options in plan.tmpfs.items()}
    return found.keys() == asked.keys() and all(
        asked[where] <= set(options.split(",")) and "tmpcopyup" not in options.split(",")
        for where, options in found.items()
    )


def _rlimits_as_planned(plan: Plan, found: list[Mapping[str, Any]]) -> bool:
    limits = {limit["Name"].removeprefix("RLIMIT_"): (limit["Soft"], limit["Hard"]) for limit in found}
    return all(limits.get(name) == (most, most) for name, most in plan.rlimits.items())
