"""What a role must find in its place, subject by subject, made from the wiring: the other half of looks.py. Pure.

A subject is a table: name -> patterns of which one must fit what was found. A name that is not in the table may not
be there at all, unless the table says what `others` may be. `differences` gives a readable line for each fault.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

import attrs

from bxcore.wiring import TOOLS, Network, Role, Wiring
from deploy.appliance import roleplan

Patterns = frozenset[str]

REFUSED: Patterns = frozenset(
    {"Operation not permitted", "Function not implemented", "Address family not supported by protocol"}
)
NO_WAY: Patterns = frozenset({"Network is unreachable", "Connection refused", "TimeoutError", "timed out"})
ABSENT: Patterns = frozenset({"absent"})
ANYTHING: Patterns = frozenset({"*"})
PROBE = "/probe"
"""Where the tests mount what looks.py needs and an image may lack."""

READ_ONLY, READ_WRITE = frozenset({"* ro,nosuid,nodev,noexec"}), frozenset({"* rw,nosuid,nodev,noexec"})

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
"""What the image of a role that dials out brings to judge servers by."""

_NOTIFY = Path("/run/notify/notify.sock")
"""Where the runtime takes a role's word that it is ready, to hand it on."""

_RUNTIME_MOUNTS: Mapping[str, Patterns] = {
    "/": frozenset({"* ro", "* ro,nodev", "* ro,nosuid,nodev"}),
    "/proc": frozenset({"proc rw,nosuid,nodev,noexec"}),
    "/sys": frozenset({"sysfs ro,nosuid,nodev,noexec", "tmpfs ro,nosuid,nodev,noexec"}),
    # Up to Podman 4 container root may write here, 64 MB that are gone with the container, and run nothing from it.
    "/dev": frozenset({"tmpfs rw,nosuid,noexec", "tmpfs ro,nosuid*"}),
    "/dev/pts": frozenset({"devpts rw,nosuid,noexec"}),
    "/dev/mqueue": frozenset({"mqueue *,nosuid,nodev,noexec"}),
    "/run/.containerenv": READ_ONLY,
    "/etc/hostname": READ_ONLY,
    _NOTIFY.parent.as_posix(): READ_ONLY,
}
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_DEV = "core fd full mqueue null ptmx pts random stderr stdin stdout tty urandom zero"
_ENVIRONMENT: Mapping[str, Patterns] = {
    "HOME": frozenset({"/*"}),
    "LANG": frozenset({"C.UTF-8"}),
    "PATH": frozenset({"/*"}),
    "PYTHONDONTWRITEBYTECODE": frozenset({"1"}),
    "TERM": frozenset({"xterm"}),
    "NOTIFY_SOCKET": frozenset({str(_NOTIFY)}),
    "container": frozenset({"podman", "oci"}),
}
_CAPABILITY_NAMES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
    SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG
"""
"""By their numbers, from 0 on."""


@attrs.frozen(kw_only=True)
class Expected:
    """One subject's table."""

    names: Mapping[str, Patterns]
    others: Patterns = frozenset()


@attrs.frozen(kw_only=True)
class View:
    """A role in one appliance. `uid` and `gid` are its user's on the host.

    `own`: that user is no other role's. `credentials`: where each role's secrets lie. `away`: roles that do not run.
    """

    wiring: Wiring
    settings: roleplan.Settings
    name: str
    uid: int
    gid: int
    own: bool
    credentials: Mapping[str, Path] = MappingProxyType({})
    away: frozenset[str] = frozenset()

    @property
    def role(self) -> Role:
        return self.wiring.roles[self.name]

    @property
    def upstream(self) -> Path | None:
        """The model server's socket, where this role may see it."""
        if self.role.network is not Network.UPSTREAM or roleplan.socket_directory(self.settings.upstream) is None:
            return None
        return Path(self.settings.upstream.removeprefix(roleplan.UNIX))

    @property
    def isolated(self) -> bool:
        """It has no network at all."""
        return self.role.network is Network.NONE or self.upstream is not None

    @property
    def on_the_hosts_network(self) -> bool:
        """As only `make appliance` has it, where the machine can make no other one."""
        return self.role.network is Network.OUTBOUND and self.settings.outbound == "host"

    @property
    def binds(self) -> Mapping[str, bool]:
        """Every path of the host that it sees, and whether it may write there."""
        given = {str(self.wiring.at(mount.path)): mount.writable for mount in self.role.mounts}
        if self.upstream:
            given[str(self.upstream.parent)] = False
        if self.name in self.credentials:
            given[str(self.credentials[self.name])] = False
        if self.name == self.wiring.edge("tool-runner").client:
            given |= {str(folder): False for folder in self.settings.granted}
        return given

    @property
    def reached(self) -> Mapping[str, str]:
        """The sockets that it can connect to, and how what answers is called."""
        called = {
            str(self.wiring.at(edge.path)): "podman" if edge.listener == TOOLS else "connected"
            for edge in self.wiring.edges
            if edge.client == self.name and edge.listener not in self.away
        }
        return called | ({str(self.upstream): "connected"} if self.upstream else {})


def identity(view: View) -> Expected:
    said = {
        "Uid": "0 0 0 0",
        "Gid": "0 0 0 0",
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "host uid": str(view.uid),
        "host gid": str(view.gid),
        "host name": view.name,
        "umask": "0077",
    }
    return Expected(names={**_exactly(said), "Groups": frozenset({"", "0"})})


def capabilities(view: View) -> Expected:
    known = _CAPABILITY_NAMES.split()
    held = sum(1 << known.index(name.upper().removeprefix("CAP_")) for name in view.role.capabilities)
    sets = {name: str(held) for name in ("CapPrm", "CapEff", "CapBnd")}
    return Expected(names={**_exactly(sets), "CapInh": frozenset({"0", str(held)}), "CapAmb": frozenset({"0"})})


def network(view: View) -> Expected:
    if not view.isolated:
        # What it reaches then is the network's own matter; other roles' rows say that it is this one alone.
        return Expected(names={"interface lo": frozenset({"there"})}, others=ANYTHING)
    names = {
        "interface lo": frozenset({"there"}),
        "udp 127.0.0.1": NO_WAY | {"ok"},  # to itself, where nobody listens; the canaries say whether it left
        "getaddrinfo": frozenset({"Temporary failure in name resolution", "Name or service not known"}),
        "routes": frozenset({"0"}),
    }
    return Expected(names=names, others=NO_WAY)


def kinds_of_socket(_: View) -> Expected:
    return Expected(names={"ping": REFUSED | {"Permission denied"}}, others=REFUSED)


def system_calls(_: View) -> Expected:
    return Expected(names={}, others=REFUSED)


def abstract_names(view: View) -> Expected:
    # The abstract names belong to the network, so a role on the host's sees them.
    if view.on_the_hosts_network:
        return Expected(names={"connect to the host's": frozenset({"ok"}), "names in /proc/net/unix": ANYTHING})
    return Expected(names=_exactly({"connect to the host's": "Connection refused", "names in /proc/net/unix": "0"}))


def mounts(view: View) -> Expected:
    given = {path: READ_WRITE if writable else READ_ONLY for path, writable in view.binds.items()}
    devices = {f"/dev/{name}": frozenset({"devtmpfs rw*", "tmpfs rw*", "* rw,nosuid,noexec"}) for name in _DEVICES}
    own = {} if view.isolated else {"/etc/resolv.conf": READ_ONLY | READ_WRITE}
    ours = {PROBE: frozenset({"* ro,nosuid,nodev"})}
    return Expected(names={**_RUNTIME_MOUNTS, **devices, **own, **ours, **given})


def writable(view: View) -> Expected:
    given = {path: frozenset({"ok"}) for path, may in view.binds.items() if may}
    return Expected(names={"/dev": frozenset({"ok"}), **given})


def paths(view: View) -> Expected:
    return Expected(names={path: _path(view, path) for path in every_path(view)})


def sockets(view: View) -> Expected:
    return Expected(names=_exactly({**view.reached, str(_NOTIFY): "Protocol wrong type for socket"}))


def secrets(_: View) -> Expected:
    return Expected(names=dict.fromkeys(("/run/credentials", "/run/secrets", "/root", "/home"), ABSENT))


def environment(view: View) -> Expected:
    held = view.credentials.get(view.name)
    secrets = {} if held is None else {"CREDENTIALS_DIRECTORY": frozenset({str(held)})}
    believed = {"SSL_CERT_FILE": frozenset({_CERTIFICATES})} if view.role.network is Network.OUTBOUND else {}
    return Expected(names={**_ENVIRONMENT, **secrets, **believed, "HOSTNAME": frozenset({view.name})})


def surroundings(_: View) -> Expected:
    exact = {
        "processes": "1",
        "process 1 is": "/usr/bin/python3",
        "set-user programs": "",
        "descriptors beyond 2": "0",
        "control group": "/",
    }
    return Expected(names={**_exactly(exact), "devices": frozenset({_DEV, _DEV.removeprefix("core ")})})


def limits(view: View) -> Expected:
    given = view.role.limits
    held = {"NOFILE": given.files, "NPROC": given.processes, "CORE": 0, "MEMLOCK": 65536, "MSGQUEUE": 0}
    return Expected(names=_exactly({name: str(value) for name, value in held.items()}))


SUBJECTS: Mapping[str, Callable[[View], Expected]] = {
    "identity": identity,
    "capabilities": capabilities,
    "network": network,
    "kinds of socket": kinds_of_socket,
    "abstract names": abstract_names,
    "mounts": mounts,
    "writable": writable,
    "paths": paths,
    "sockets": sockets,
    "secrets": secrets,
    "environment": environment,
    "surroundings": surroundings,
    "limits": limits,
    "system calls": system_calls,
}
MAY_BE_MISSING: Mapping[str, Iterable[str]] = {
    "mounts": (
        *(f"/dev/{name}" for name in _DEVICES),
        "/dev/pts",
        "/etc/resolv.conf",
        "/run/.containerenv",
        "/run/notify",
    ),
    "writable": ("/dev",),
    "environment": tuple(_ENVIRONMENT),
    "sockets": (str(_NOTIFY),),
}
"""What one runtime or Podman makes and another does not, or an image need not set."""


def every_path(view: View) -> list[str]:
    """Return every path that the wiring speaks of, sockets included, and where secrets lie."""
    wiring = view.wiring
    names = [one.path for one in wiring.directories] + [one.path for one in wiring.files]
    paths = {str(wiring.at(name)) for name in (*names, *(edge.path for edge in wiring.edges))}
    return sorted(paths | {str(directory) for directory in view.credentials.values()})


def differences(subject: str, view: View, found: Mapping[str, str]) -> list[str]:
    """Return a line for each thing that is not as the wiring has it."""
    wanted = SUBJECTS[subject](view)
    missing = set(wanted.names) - set(found) - set(MAY_BE_MISSING.get(subject, ()))
    lines = [f"{subject}: {name} should be {_either(wanted.names[name])}, and there is none" for name in missing]
    for name, value in found.items():
        if subject == "mounts" and (_is_hidden_kernel_tree(name, value) or _is_hosts_tree(view, name)):
            continue
        patterns = wanted.names.get(name, wanted.others)
        if not any(fnmatchcase(value, pattern) for pattern in patterns):
            should = f"should be {_either(patterns)}" if patterns else "should not be there"
            lines.append(f"{subject}: {name} is {value!r} and {should}")
    return sorted(lines)


def _is_hidden_kernel_tree(point: str, value: str) -> bool:
    """Say whether it is one of the runtime's own covers over /proc and /sys, or read-only in them."""
    kind, _, options = value.partition(" ")
    within = point.startswith(("/proc/", "/sys/"))
    covered = kind == "nothing" or options.split(",")[0] == "ro"
    return within and (covered or (point == "/sys/fs/cgroup" and kind == "tmpfs"))


def _is_hosts_tree(view: View, point: str) -> bool:
    """Say whether it belongs to the host's /sys: with the host's network there is no other to mount.

    What is below /sys/fs is covered there, so that nobody gets to it: the subject "writable" would say so.
    """
    return view.on_the_hosts_network and point.startswith("/sys/fs/")


def _path(view: View, path: str) -> Patterns:
    if path in view.reached:
        return frozenset({view.reached[path]})
    sockets_of_all = {str(view.wiring.at(edge.path)) for edge in view.wiring.edges}
    if path in sockets_of_all:
        return ABSENT
    # A client may pass through a socket's directory, and not look around in it.
    if view.own and path in {str(Path(socket).parent) for socket in view.reached}:
        return frozenset({"there: Permission denied"})
    if any(Path(path).is_relative_to(bind) for bind in view.binds):
        return frozenset({"ok", "has", "has *"})
    below = sorted({Path(bind).relative_to(path).parts[0] for bind in view.binds if Path(bind).is_relative_to(path)})
    return frozenset({" ".join(["has", *below])}) if below else ABSENT


def _exactly(values: Mapping[str, str]) -> dict[str, Patterns]:
    return {name: frozenset({value}) for name, value in values.items()}


def _either(patterns: Patterns) -> str:
    return " or ".join(repr(pattern) for pattern in sorted(patterns))
