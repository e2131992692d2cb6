"""Checks of `bxctl doctor`: directories and files have the owner, group, mode and access list of nix/roles.nix.

A directory's access list is all that lets one role pass into another's, so each must name whom the wiring names and
nobody else. The grants are judged here by their real owners: brokerd's container does not know them.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

from bxcore import acl
from bxcore.acl import Tag
from bxcore.grants import SUFFIX
from bxcore.wiring import OWNER, ConfigFile, Directory
from bxctl import finding
from bxctl.finding import Fault, Finding
from bxctl.installed import ROOT, Installed
from bxctl.machine import Kind, Seen
from bxctl.rootsword import STORE

DIRECTORY_UNFIT, FILE_UNFIT, GRANTS_UNFIT = "directory_unfit", "file_unfit", "grants_unfit"

_WRITE_BY_OTHERS = 0o022


def directories(installed: Installed) -> Iterator[Finding]:
    """Check every directory of the wiring."""
    faults = [_guarded(installed, one) for one in installed.wiring.directories]
    told = [fault for found in faults for fault in found]
    held = f"{len(installed.wiring.directories)}, each with its owner, mode and access list"
    yield from finding.room("directories", held=held, faults=told, runbook=DIRECTORY_UNFIT)


def _guarded(installed: Installed, wanted: Directory) -> list[Fault | None]:
    path = installed.wiring.at(wanted.path)
    try:
        seen = installed.machine.look(path)
    except PermissionError:
        return [None]
    found = directory_faults(installed, wanted, seen)
    if not found:
        return []
    return [
        Fault(
            expected=f"{path} is {_described(installed, wanted)}",
            found=", ".join(found),
            why="who may enter it is who may do what it is for",
            command=mending(installed, wanted, missing=seen is None),
        )
    ]


def directory_faults(installed: Installed, wanted: Directory, seen: Seen | None) -> list[str]:
    """Say what is wrong with a directory."""
    if seen is None:
        return ["nothing is there"]
    if seen.kind is not Kind.DIRECTORY:
        return [seen.kind.value]
    mode = int(wanted.mode, 8)
    faults = [f"mode {seen.mode:04o}"] if seen.mode != mode else []
    # The wiring speaks of root's directories as everybody's; for one user alone they are that user's.
    if seen.uid not in installed.may_own(wanted.user):
        faults.insert(0, f"owner is uid {seen.uid}")
    if installed.one is not None:
        return faults
    if wanted.group != ROOT and seen.gid != installed.gid(wanted.group):
        faults.insert(0, f"group is gid {seen.gid}")
    return [*faults, *_list_faults(installed, wanted, seen)]


def _list_faults(installed: Installed, wanted: Directory, seen: Seen) -> Iterator[str]:
    entering = {installed.uid(name): acl.ENTER for name in wanted.enter}
    if seen.acl.named(Tag.USER) != entering:
        yield f"its access list lets in {_uids(seen.acl.named(Tag.USER))}"
    if seen.acl.named(Tag.GROUP):
        yield f"its access list names groups, gid {', '.join(map(str, sorted(seen.acl.named(Tag.GROUP))))}"
    default = {} if seen.default is None else seen.default.named(Tag.USER)
    writing = dict.fromkeys(entering, acl.READ | acl.WRITE) if wanted.sockets else {}
    if default != writing:
        yield f"what is made in it is open to {_uids(default)}"


def _uids(named: dict[int, int]) -> str:
    words = [f"uid {uid} ({_letters(allowed)})" for uid, allowed in sorted(named.items())]
    return ", ".join(words) or "nobody else"


def _letters(allowed: int) -> str:
    return "".join(letter for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if allowed & bit) or "nothing"


def _described(installed: Installed, wanted: Directory) -> str:
    words = f"{wanted.user}:{wanted.group}, mode {wanted.mode}"
    if installed.one is not None:
        return f"uid {installed.one}'s, mode {wanted.mode}"
    if wanted.enter:
        words += f", entered by {' and '.join(wanted.enter)} too"
    return words


def mending(installed: Installed, wanted: Directory, *, missing: bool) -> str:
    """Return the command that makes a directory what it must be."""
    path = shlex.quote(str(installed.wiring.at(wanted.path)))
    user = ROOT if wanted.user == OWNER else wanted.user
    if installed.one is not None:
        return f"{'mkdir -p ' + path + ' && ' if missing else ''}chmod {wanted.mode} {path}"
    make = f"install -d {path} && " if missing else ""
    command = f"{make}setfacl -b {path} && chown {user}:{wanted.group} {path} && chmod {wanted.mode} {path}"
    entries = [f"u:{name}:x" for name in wanted.enter]
    if wanted.enter and wanted.sockets:
        entries += ["d:u::rwx", "d:g::rw", "d:m::rw", "d:o::-", *(f"d:u:{name}:rw" for name in wanted.enter)]
    return f"{command} && setfacl -m {','.join(entries)} {path}" if entries else command


# -- files ------------------------------------------------------------------------------------------


def files(installed: Installed) -> Iterator[Finding]:
    """Check every settings file of the wiring."""
    faults = [fault for wanted in installed.files for fault in _file(installed, wanted)]
    held = f"{len(installed.files)}, root's, each readable to its role"
    yield from finding.room("settings files", held=held, faults=faults, runbook=FILE_UNFIT)


def _file(installed: Installed, wanted: ConfigFile) -> list[Fault | None]:
    path = installed.wiring.at(wanted.path)
    try:
        seen = installed.machine.look(path)
        if seen is not None and seen.kind is Kind.LINK and installed.machine.real(path).is_relative_to(STORE):
            return []
    except PermissionError:
        return [None]
    found = file_faults(installed, wanted, seen)
    if not found:
        return []
    quoted = shlex.quote(str(path))
    return [
        Fault(
            expected=f"{path} is root:{wanted.group}, mode {wanted.mode}",
            found=", ".join(found),
            why="a role does what its file says, so the role itself must not be able to write it",
            command="" if seen is None else f"chown root:{wanted.group} {quoted} && chmod {wanted.mode} {quoted}",
        )
    ]


def file_faults(installed: Installed, wanted: ConfigFile, seen: Seen | None) -> list[str]:
    """Say what is wrong with a settings file."""
    if seen is None:
        return ["nothing is there"]
    if seen.kind is not Kind.FILE:
        return [seen.kind.value]
    faults = [] if seen.uid in installed.may_own(ROOT) else [f"owner is uid {seen.uid}"]
    if installed.one is None and wanted.group != ROOT and seen.gid != installed.gid(wanted.group):
        faults.append(f"group is gid {seen.gid}")
    if seen.mode != int(wanted.mode, 8):
        faults.append(f"mode {seen.mode:04o}")
    if seen.acl.named(Tag.USER) or seen.acl.named(Tag.GROUP):
        faults.append("an access list lets others in")
    return faults


# -- grants -----------------------------------------------------------------------------------------


def grants(installed: Installed) -> Iterator[Finding]:
    """Check whose the grant files really are."""
    directory = installed.wiring.at("etc/grants")
    faults: list[Fault | None] = []
    names: list[str] = []
    try:
        names = [name for name in installed.machine.names(directory) if name.lower().endswith(SUFFIX)]
        faults = [fault for name in names if (fault := _grant(installed, directory / name)) is not None]
    except FileNotFoundError:
        pass  # the check of directories has said so
    except OSError:
        faults = [None]
    held = f"{len(names)}, the owner's alone to write"
    yield from finding.room("grant files", held=held, faults=faults, runbook=GRANTS_UNFIT)


def _grant(installed: Installed, path: Path) -> Fault | None:
    seen = installed.machine.look(path)
    found = [] if seen is None else grant_faults(installed, seen)
    if not found:
        return None
    reader, quoted = installed.wiring.roles["brokerd"].user, shlex.quote(str(path))
    return Fault(
        expected=f"{path} is a file of root's or an owner's, who alone may write it, and {reader} may read it",
        found=", ".join(found),
        why="a grant is your word; brokerd cannot see in its container whose file it is",
        command=f"setfacl -b {quoted} && chown root:{reader} {quoted} && chmod 0640 {quoted}",
    )


def grant_faults(installed: Installed, seen: Seen) -> list[str]:
    """Say what is wrong with a grant file."""
    if seen.kind is not Kind.FILE:
        return [seen.kind.value]
    faults = [] if seen.uid in installed.owners() else [f"owner is uid {seen.uid}"]
    if seen.mode & _WRITE_BY_OTHERS:
        faults.append(f"others may write it, mode {seen.mode:04o}")
    user = installed.wiring.roles["brokerd"].user
    uid, gid = installed.uid(user), installed.gid(user)
    groups = frozenset() if gid is None else frozenset({gid})
    if uid is not None and not seen.acl.may(acl.READ, uid=uid, groups=groups, owner=seen.uid, group=seen.gid):
        faults.append(f"{user} may not read it, mode {seen.mode:04o}")
    return faults
