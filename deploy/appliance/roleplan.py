"""A role's container as options of `podman run`, made from the wiring. Pure: starts nothing, looks at nothing.

The launcher runs these words, the Quadlet units are written from them, and the isolation tests hold the container to
them. nix/module.nix says the same for NixOS; a test compares the two.
"""

from collections.abc import Sequence
from pathlib import Path

import attrs

from bxcore.wiring import Network, Role, Wiring
from images import layout

UNIX = "unix:"

_OWN_DIRECTORY = "give the socket a directory of its own"
_CROWDED = frozenset(
    map(
        Path,
        (
            "/home", "/media", "/mnt", "/opt", "/root", "/run/dbus", "/run/lock", "/run/systemd", "/run/user", "/srv",
            "/var", "/var/cache", "/var/lib", "/var/log", "/var/tmp",  # noqa: S108  # named, not used
        ),
    )
)  # fmt: skip
"""Where many things lie, beside what holds a part of an image."""
_PERSONS = frozenset(map(Path, ("/home", "/run/user")))
"""What is in one of these is all that somebody has."""
_ROOMY = frozenset(map(Path, ("/run", "/tmp")))  # noqa: S108  # named, not used
"""Places of the image in which nothing of it lies: a directory of its own may be mounted there."""


@attrs.frozen(kw_only=True)
class Settings:
    """What is not wiring but a machine's own: where the model server is, and what tools may be granted.

    `upstream` as in inferproxy.toml. `network`: Podman's name of the network that reaches an upstream over TCP.
    `granted`: the folders that grants may speak of. `outbound`: Podman's name of the network of a role that dials out.
    """

    upstream: str
    network: str
    granted: tuple[Path, ...] = ()
    outbound: str = "none"


def options(wiring: Wiring, name: str, settings: Settings) -> tuple[str, ...]:
    """Return everything that decides what the container may do and see."""
    role = wiring.roles[name]
    return (
        *wiring.closed,
        f"--security-opt=seccomp={wiring.at(wiring.tools.seccomp)}",
        f"--hostname={name}",
        f"--network={_network(role, settings)}",
        f"--memory={role.limits.memory_mb}m",
        f"--pids-limit={role.limits.processes}",
        f"--ulimit=nofile={role.limits.files}:{role.limits.files}",
        f"--ulimit=nproc={role.limits.processes}:{role.limits.processes}",
        *(f"--cap-add={capability}" for capability in role.capabilities),
        *mounts(wiring, name, settings),
    )


def mounts(wiring: Wiring, name: str, settings: Settings) -> tuple[str, ...]:
    """Return the mounts alone, in the order in which they are made."""
    role = wiring.roles[name]
    given = [_bind(wiring.at(mount.path), writable=mount.writable) for mount in role.mounts]
    if role.network is Network.UPSTREAM and (directory := socket_directory(settings.upstream)):
        given.append(_bind(directory, writable=False))
    if wiring.user(wiring.edge("tool-runner").client) == role.user:
        given += [_bind(folder, writable=False) for folder in _outermost(settings.granted)]
    return tuple(given)


def secrets(wiring: Wiring, name: str, place: Path) -> tuple[str, ...]:
    """Return the options beside `options` that show a role its secrets, which lie in `place`; none without secrets.

    The role finds them as it would without a container: by the variable in which systemd says where credentials are.
    """
    if not wiring.roles[name].secrets:
        return ()
    return (f"--env=CREDENTIALS_DIRECTORY={place}", _bind(place, writable=False))


def command(wiring: Wiring, name: str) -> tuple[str, ...]:
    """Return what runs inside."""
    role = wiring.roles[name]
    return (*role.command, "--config", str(wiring.at(role.config)))


def socket_directory(upstream: str) -> Path | None:
    """Return the directory of a model server that listens on a socket."""
    return Path(upstream.removeprefix(UNIX)).parent if upstream.startswith(UNIX) else None


def unfit_socket_directory(directory: Path, wiring: Wiring) -> str | None:
    """Return why inferproxy must not be shown this directory of a model server's socket; None where it may be.

    By its name alone: whoever asks about a machine asks for the resolved path as well.
    """
    if not directory.is_absolute() or ".." in directory.parts:
        return f"{directory} is not its whole path"
    for own in map(Path, layout.OWN):
        if own.is_relative_to(directory) or (own not in _ROOMY and directory.is_relative_to(own)):
            return f"{directory} would take the place of {own} in inferproxy's image; {_OWN_DIRECTORY}"
    for ours in (wiring.at("home"), wiring.at("etc")):
        if ours.is_relative_to(directory) or directory.is_relative_to(ours):
            return f"{directory} is, holds or lies in {ours}, which is Boxmaker's own; {_OWN_DIRECTORY}"
    if directory in _CROWDED or directory.parent in _PERSONS:
        return f"inferproxy would see all of {directory}; {_OWN_DIRECTORY}"
    return None


def run(
    wiring: Wiring,
    name: str,
    settings: Settings,
    *,
    container: str,
    image: str,
    more: Sequence[str] = (),
    instead: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return the words after `podman` that run the role in the foreground, and take the container away at its end.

    `more`: further options. `instead`: another command in the same container.
    """
    return (
        "run",
        "--rm",
        "--replace",
        f"--name={container}",
        "--log-driver=none",
        *options(wiring, name, settings),
        *more,
        image,
        *(command(wiring, name) if instead is None else instead),
    )


def _outermost(folders: Sequence[Path]) -> list[Path]:
    """Leave out what is there twice, or lies in another one: that would be a mount on, or below, a granted folder."""
    return [folder for folder in dict.fromkeys(folders) if not set(folder.parents).intersection(folders)]


def _network(role: Role, settings: Settings) -> str:
    match role.network:
        case Network.NONE:
            return "none"
        case Network.UPSTREAM:
            return "none" if socket_directory(settings.upstream) else settings.network
        case Network.OUTBOUND:
            return settings.outbound


def _bind(path: Path, *, writable: bool) -> str:
    # A list of values separated by commas, so one with a comma in it stands in quotes.
    source, destination = (f'"{key}={path}"' if "," in str(path) else f"{key}={path}" for key in ("src", "dst"))
    return f"--mount=type=bind,{source},{destination},ro={str(not writable).lower()},noexec,nosuid,nodev"
