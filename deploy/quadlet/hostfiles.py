"""What a host without NixOS needs beside the images, made from the wiring: path on the host -> text. Pure.

`fixed` is the same on every machine and lies checked in, as deploy/quadlet/files; `machine` is what the installer adds:
tags of the images, the way to the model server, granted folders, the owner. Which unit sees what is said by roleplan.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from bxcore.wiring import OWNER, Directory, Network, Role, Wiring
from deploy.appliance import roleplan
from deploy.quadlet import unitfile

PREFIX = "bx-"
NOT_INSTALLED = "not-installed"
"""The tag in a checked-in unit: no image has it, so a unit without the installer's drop-in does not start."""

CLOSED = roleplan.Settings(upstream="", network="none")
"""For the checked-in units: no way to a model server, no granted folder."""

_MARK = "# Made from nix/roles.json by `make generate`; edit nix/roles.nix instead."
_LOCAL = (
    "# Written by deploy/quadlet/install for this machine, and written anew by it: change things in a file beside it."
)

# loopd is ready when its self-test has passed, which a busy model server delays; brokerd when its audit log is checked.
_START_SECONDS = 900
_STOP_SECONDS = 20
FOR_THE_OWNER = "74 78"
"""The exit codes after which the owner has to look first (bxcore/daemon.py): no role starts again by itself."""


def unit_name(role: str) -> str:
    """Return the name of the role's unit and of its container."""
    return f"{PREFIX}{role}"


def fixed(wiring: Wiring) -> dict[str, str]:
    """Return the files that are the same on every machine."""
    return {
        **{_unit_path(role, name): _role_unit(wiring, name) for name, role in wiring.roles.items()},
        f"/etc/systemd/user/{wiring.tools.user}.socket": _tool_socket(wiring),
        f"/etc/systemd/user/{wiring.tools.user}.service": _tool_service(wiring),
        "/etc/sysusers.d/boxmaker.conf": _joined(_MARK, _users(wiring)),
        "/etc/tmpfiles.d/boxmaker.conf": _joined(_MARK, _directories(wiring)),
    }


def machine(
    wiring: Wiring,
    settings: roleplan.Settings,
    *,
    owner: str,
    tags: Mapping[str, str],
    credentials: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the files that differ from machine to machine.

    `tags`: role -> tag of its image, for the roles that run here. `credentials`: secret -> its encrypted file; what has
    none there the role finds in its own way.
    """
    memberships = [f"m {owner} {group}" for group in wiring.owner_groups]
    entries = [_directory(wiring, entry, user=owner) for entry in wiring.directories if entry.user == OWNER]
    return {
        **{
            f"{_unit_path(wiring.roles[name], name)}.d/10-machine.conf": _drop_in(
                wiring, name, settings, tag, credentials
            )
            for name, tag in tags.items()
        },
        **{
            f"/etc/systemd/system/user@{role.uid}.service.d/boxmaker.conf": _wait(wiring, name, settings)
            for name, role in wiring.roles.items()
            if name in tags and role.network is not Network.NONE
        },
        "/etc/sysusers.d/boxmaker-owner.conf": _joined(_LOCAL, memberships),
        "/etc/tmpfiles.d/boxmaker-owner.conf": _joined(_LOCAL, entries),
    }


def of_a_role(wiring: Wiring, name: str) -> tuple[str, ...]:
    """Return where the files lie that are one role's alone: its units, and when its user's manager starts."""
    role = wiring.roles[name]
    unit = _unit_path(role, name)
    return (unit, f"{unit}.d/10-machine.conf", f"/etc/systemd/system/user@{role.uid}.service.d/boxmaker.conf")


def home(wiring: Wiring, user: str) -> str:
    """Return the home of a role's user, or of the tools': where its Podman keeps images and containers."""
    storages = {role.user: role.storage for role in wiring.roles.values()}
    return str(wiring.at({**storages, wiring.tools.user: wiring.tools.storage}[user]))


def _unit_path(role: Role, name: str) -> str:
    return f"/etc/containers/systemd/users/{role.uid}/{unit_name(name)}.container"


def _role_unit(wiring: Wiring, name: str) -> str:
    role = wiring.roles[name]
    return unitfile.text(
        f"{_MARK}\n# The role {name}, as a unit of the user {role.user}.",
        {
            # Quadlet would wait a minute and a half for a target that need not be wanted by anything: see _wait.
            "Quadlet": [("DefaultDependencies", "false")],
            "Unit": [("Description", f"Boxmaker: {name}"), ("StartLimitIntervalSec", "0")],
            "Container": [
                ("Image", f"{role.image}:{NOT_INSTALLED}"),
                ("ContainerName", unit_name(name)),
                ("Exec", " ".join(map(unitfile.plain, roleplan.command(wiring, name)))),
                ("Notify", "true"),
                ("LogDriver", "journald"),
                unitfile.line(f"--stop-timeout={_STOP_SECONDS}"),
                *map(unitfile.line, roleplan.options(wiring, name, CLOSED)),
            ],
            "Service": [
                # Roles may start in any order: each waits for the others, and no user's units know another user's.
                ("Restart", "always"),
                ("RestartSec", "2"),
                ("RestartPreventExitStatus", FOR_THE_OWNER),
                ("TimeoutStartSec", str(_START_SECONDS)),
                ("TimeoutStopSec", str(_STOP_SECONDS + 10)),
            ],
            "Install": [("WantedBy", "default.target")],
        },
    )


def _drop_in(wiring: Wiring, name: str, settings: roleplan.Settings, tag: str, credentials: Mapping[str, str]) -> str:
    usual = set(roleplan.options(wiring, name, CLOSED))
    more = [unitfile.line(option) for option in roleplan.options(wiring, name, settings) if option not in usual]
    # A list, to which a drop-in adds: empty it first, or the checked-in "none" stays.
    reset = [("Network", "")] if any(key == "Network" for key, _ in more) else []
    role = wiring.roles[name]
    image = ("Image", f"{role.image}:{tag}")
    sealed = [(secret, credentials[secret]) for secret in role.secrets if secret in credentials]
    if not sealed:
        return unitfile.text(_LOCAL, {"Container": [image, *reset, *more]})
    # Where the manager of a user puts them: it may mount nothing, and this is a tmpfs of that user's.
    place = Path(f"/run/user/{role.uid}/credentials/{unit_name(name)}.service")
    shown = [unitfile.line(option) for option in roleplan.secrets(wiring, name, place)]
    load = [("LoadCredentialEncrypted", f"{secret}:{unitfile.plain(file)}") for secret, file in sealed]
    return unitfile.text(_LOCAL, {"Container": [image, *reset, *more, *shown], "Service": load})


def _wait(wiring: Wiring, name: str, settings: roleplan.Settings) -> str:
    """Return when the manager of the role's user starts: a network that comes later is not seen by a container."""
    online = "network-online.target"
    alone = "--network=none" in roleplan.options(wiring, name, settings)
    return unitfile.text(_LOCAL, {"Unit": [] if alone else [("Wants", online), ("After", online)]})


def _tool_socket(wiring: Wiring) -> str:
    user = wiring.tools.user
    return unitfile.text(
        f"{_MARK}\n# The way to the Podman of {user}, for brokerd alone: who may enter the directory may connect.",
        {
            "Unit": [("Description", "Boxmaker: containers of tools"), ("ConditionUser", user)],
            "Socket": [("ListenStream", str(wiring.socket("tool-runner"))), ("SocketMode", "0660")],
            "Install": [("WantedBy", "sockets.target")],
        },
    )


def _tool_service(wiring: Wiring) -> str:
    user = wiring.tools.user
    return unitfile.text(
        f"{_MARK}\n# Started by its socket, and then it stays: starting it would be a part of every tool call.",
        {
            "Unit": [
                ("Description", "Boxmaker: containers of tools"),
                ("ConditionUser", user),
                ("Requires", f"{user}.socket"),
                ("After", f"{user}.socket"),
            ],
            "Service": [
                ("Type", "exec"),
                ("ExecStart", "/usr/bin/podman system service --time=0"),
                ("Delegate", "true"),
                ("KillMode", "process"),
                ("Restart", "on-failure"),
            ],
        },
    )


def _users(wiring: Wiring) -> Iterator[str]:
    yield from (f"g {edge.group} -" for edge in wiring.edges)
    for user, uid in wiring.users.items():
        yield f'u {user} {uid} "Boxmaker" {home(wiring, user)}'


def _directories(wiring: Wiring) -> Iterator[str]:
    for entry in wiring.directories:
        if entry.user != OWNER:
            yield _directory(wiring, entry, user=entry.user)


def _directory(wiring: Wiring, entry: Directory, *, user: str) -> str:
    path = wiring.at(entry.path)
    made = f"d {path} {entry.mode} {user} {entry.group} -"
    if not entry.enter:
        return made
    # By number: names would be those of the machine that the command runs on, also where it prepares another's tree.
    uids = [wiring.users[name] for name in entry.enter]
    enter = [f"user:{uid}:--x" for uid in uids]
    write = [f"default:user:{uid}:rw-" for uid in uids]
    usual = ["default:user::rwx", "default:group::rw-", "default:mask::rw-", "default:other::---"]
    # The bits of the mode's group, or those of its own would be narrowed to what the others get.
    bits = int(entry.mode, 8) >> 3
    mask = "mask::" + "".join(letter if bits & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
    entries = [*enter, mask, *usual, *write] if entry.sockets else [*enter, mask]
    return f"{made}\n# and {', '.join(entry.enter)}\na {path} - - - - {','.join(entries)}"


def _joined(head: str, lines: Iterable[str]) -> str:
    return "\n".join([head, *lines]) + "\n"
