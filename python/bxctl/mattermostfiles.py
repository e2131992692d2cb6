"""Checks of `bxctl doctor`: what the settings say of Mattermost, and whether the three roles that they join meet.

Reads: gatewayd.toml, brokerd.toml and loopd.toml, and looks at the files that gatewayd.toml names; the token's is not
opened. Without gatewayd.toml the only fault is a brokerd that would wait for a gatewayd.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.settings.gatewayd import TOKEN, GatewaydSettings
from bxcore.settings.loopd import LoopdSettings
from bxcore.settings.secrets import Backend
from bxctl import installed, render
from bxctl.finding import AS_ROOT, Fault, Finding, room
from bxctl.machine import Kind, Machine

T = TypeVar("T")

UNJOINED, IN_CLEAR = "gateway_unjoined", "mattermost_in_clear"
_NOBODY, _MISSING, _REFUSED, _CONFIG = "nobody_allowed", "secret_missing", "secret_refused", "config"
_ROLE = "gatewayd"
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_SECRET_NAME = "token of Mattermost"


@attrs.frozen(kw_only=True)
class Settings:
    """What the three files say. None: there is no such file, or it cannot be read, which a finding has told."""

    etc: Path
    gatewayd: GatewaydSettings | None
    brokerd: BrokerdSettings | None
    loopd: LoopdSettings | None


def read(etc: Path, machine: Machine) -> tuple[Settings, list[Finding]]:
    """Return the settings, and a finding for gatewayd's where they cannot be used."""
    findings: list[Finding] = []
    # What is wrong with the other two, their roles and `config check` say.
    found = Settings(
        etc=etc,
        gatewayd=_load(etc / "gatewayd.toml", GatewaydSettings, machine, findings.append),
        brokerd=_load(etc / "brokerd.toml", BrokerdSettings, machine, lambda _: None),
        loopd=_load(etc / "loopd.toml", LoopdSettings, machine, lambda _: None),
    )
    return found, findings


def _load(path: Path, cls: type[T], machine: Machine, tell: Callable[[Finding], object]) -> T | None:
    name, expected = "settings of Mattermost", f"{path} can be used"
    try:
        machine.text(path)
        return config.load(path, cls)
    except FileNotFoundError:
        return None
    except PermissionError:
        tell(Finding(name=name, passed=None, expected=expected, found=AS_ROOT))
    except (OSError, ConfigError) as error:
        found = error.detail if isinstance(error, ConfigError) else f"{path}: {error.strerror}"
        tell(
            Finding(
                name=name,
                passed=False,
                expected=expected,
                found=found,
                why="gatewayd ends at once",
                command="bxctl config check",
                runbook=_CONFIG,
            )
        )
    return None


def checks(settings: Settings, home: Path, machine: Machine) -> Iterator[Finding]:
    """Yield what the files show."""
    if settings.gatewayd is None:
        yield from _left_out(settings)
        return
    made = settings.gatewayd
    yield from _users(settings.etc, made)
    yield from _address(settings.etc, made)
    user = _user(home, settings.etc, machine)
    yield from _token(made, machine, uid=user)
    yield from _authority(settings.etc, made, machine)
    yield from room("sockets of Mattermost", held=_JOINED, faults=_joints(settings, made), runbook=UNJOINED)


_JOINED = "gatewayd, loopd and brokerd name the same ones"


def _left_out(settings: Settings) -> Iterator[Finding]:
    if settings.brokerd is None or settings.brokerd.gateway.socket is None or _is_there(settings.etc):
        return
    fault = Fault(
        expected=f"brokerd is told of a gatewayd only where {settings.etc / 'gatewayd.toml'} is",
        found="[gateway] socket stands in brokerd.toml, and there is no gatewayd.toml",
        why="each question waits for a gatewayd that never comes, beside the answer at this machine",
        command=f"remove socket under [gateway] in {settings.etc / 'brokerd.toml'}, or set Mattermost up",
    )
    yield from room("sockets of Mattermost", held=_JOINED, faults=[fault], runbook=UNJOINED)


def _is_there(etc: Path) -> bool:
    """Say whether gatewayd.toml is there although it could not be used."""
    try:
        return (etc / "gatewayd.toml").exists()
    except OSError:
        return True


def _users(etc: Path, made: GatewaydSettings) -> Iterator[Finding]:
    faults = []
    if not made.allow.users:
        faults = [
            Fault(
                expected="at least one user may speak",
                found=f"users under [allow] in {etc / 'gatewayd.toml'} is empty",
                why="gatewayd does not start: it would have nobody to answer",
                command="write a message to the bot and start gatewayd: its log names who wrote, with their ids",
            )
        ]
    users, channels = (
        render.count_of(len(made.allow.users), "user"),
        render.count_of(len(made.allow.channels), "channel"),
    )
    held = f"{users} may speak, directly and by name in {channels}; {len(made.approvers)} may approve"
    yield from room("who may speak", held=held, faults=faults, runbook=_NOBODY)


def _address(etc: Path, made: GatewaydSettings) -> Iterator[Finding]:
    faults = []
    if made.mattermost.in_clear:
        faults = [
            Fault(
                expected="the token is sent through https://, or to this machine alone",
                found=f"{made.mattermost.url} is another machine, and nothing hides what is sent there",
                why="whoever sees the traffic has the bot's token, and all that is said",
                command=f"url under [mattermost] in {etc / 'gatewayd.toml'}: https://, or a tunnel's port here",
            )
        ]
    held = made.mattermost.url + ("" if made.mattermost.url.startswith("https:") else ", which is this machine")
    yield from room("address of Mattermost", held=held, faults=faults, runbook=IN_CLEAR)


def _user(home: Path, etc: Path, machine: Machine) -> int | None:
    """Return the uid that gatewayd runs as; None where there is no such user."""
    try:
        found = installed.find(home, etc, machine)
    except (ConfigError, OSError):
        return None
    return os.geteuid() if found is None else found.uid(found.wiring.roles[_ROLE].user)


def _token(made: GatewaydSettings, machine: Machine, *, uid: int | None) -> Iterator[Finding]:
    source = made.secrets.get(TOKEN)
    if source is None or source.backend is Backend.CREDENTIAL:
        found = f"the credential {TOKEN}, which systemd hands to gatewayd alone"
        yield Finding(name=_SECRET_NAME, passed=True, expected=found, found=found)
        return
    if source.path is None:
        found = f"in the environment variable {source.variable}: plain text, for gatewayd's user and root to see"
        yield Finding(name=_SECRET_NAME, passed=True, expected=found, found=found)
        return
    held = f"{source.path}: plain text that gatewayd's user alone may read"
    try:
        fault, code = _token_fault(source.path, machine, uid)
    except PermissionError:
        yield Finding(name=_SECRET_NAME, passed=None, expected=held, found=AS_ROOT)
        return
    yield from room(_SECRET_NAME, held=held, faults=[fault] if fault else [], runbook=code)


def _token_fault(path: Path, machine: Machine, uid: int | None) -> tuple[Fault | None, str]:
    seen, quoted = machine.look(path), shlex.quote(str(path))
    expected = f"{path} is a file that gatewayd's user alone may read"
    if seen is None:
        why = "without the token gatewayd ends at once"
        return Fault(expected=expected, found="nothing is there", why=why, command="docs/mattermost.md"), _MISSING
    faults = [] if seen.kind is Kind.FILE else [seen.kind.value]
    if not faults and uid is not None and seen.uid != uid:
        faults.append(f"owner is uid {seen.uid}, not {uid}")
    if not faults and seen.mode & 0o077:
        faults.append(f"mode {seen.mode:04o}")
    if not faults:
        return None, ""
    why = "gatewayd does not take it; and whoever could read it can speak as the bot"
    command = f"chmod 600 {quoted}" if uid is None else f"chown {uid} {quoted} && chmod 600 {quoted}"
    return Fault(expected=expected, found=", ".join(faults), why=why, command=command), _REFUSED


def _authority(etc: Path, made: GatewaydSettings, machine: Machine) -> Iterator[Finding]:
    path = made.mattermost.ca_file
    if path is None:
        return
    name, held = "authority of Mattermost", f"{path} holds certificates"
    try:
        fault = _authority_fault(etc, path, machine)
    except PermissionError:
        yield Finding(name=name, passed=None, expected=held, found=AS_ROOT)
        return
    yield from room(name, held=held, faults=[fault] if fault else [], runbook=_CONFIG)


def _authority_fault(etc: Path, path: Path, machine: Machine) -> Fault | None:
    found = command = ""
    try:
        if _CERTIFICATE not in machine.text(path):
            found, command = (
                "no certificate in PEM is in it",
                f"openssl x509 -in {shlex.quote(str(path))} -noout -subject",
            )
    except PermissionError:
        raise
    except OSError as error:
        found = error.strerror or "it cannot be read"
    shown = etc / _ROLE
    if not found and machine.look(etc / installed.FILE) is not None and not path.is_relative_to(shown):
        found, command = (
            f"it lies outside of {shown}, which is all that gatewayd's container is shown",
            "move it there",
        )
    if not found:
        return None
    why = "without it the server's certificate is not believed, and nothing is sent"
    return Fault(expected=f"{path} holds certificates that gatewayd can read", found=found, why=why, command=command)


def _joints(settings: Settings, made: GatewaydSettings) -> Iterator[Fault]:
    """Yield a fault for each of the two that would not find gatewayd, or not be found by it."""
    if settings.brokerd is not None and settings.brokerd.gateway.socket != made.listen.gateway:
        yield _joint(
            settings.etc / "brokerd.toml",
            f'[gateway] socket = "{made.listen.gateway}"',
            found=settings.brokerd.gateway.socket,
            why="questions are not put in Mattermost, so they are answered at this machine alone",
        )
    if settings.loopd is not None and settings.loopd.listen.gateway != made.loop.socket:
        yield _joint(
            settings.etc / "loopd.toml",
            f'[listen] gateway = "{made.loop.socket}"',
            found=settings.loopd.listen.gateway,
            why="nothing that is said in Mattermost reaches the model",
        )


def _joint(path: Path, line: str, *, found: Path | None, why: str) -> Fault:
    return Fault(
        expected=f"{path} says {line}",
        found="nothing of it" if found is None else f"it says {found}",
        why=why,
        command=f"write that into {path} and restart its role",
    )
