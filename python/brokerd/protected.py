"""What no container may ever see, whatever a grant says, and how it is recognised under another name.

Reads: the file system and the mount table, anew at each question. Two names of one thing are found by where they lie
on their file system (a bind mount shows a part of one, however deep), by the device and inode of every directory on
the way, and of every file below the protected directories (a hard link has the inode of its other name). In a
container what brokerd was not given is not to be seen; where that lies is told by what it was given beside it. Not
found is what a file system shows as its own while it keeps it in another one: an overlay, a network share.
Threads: any.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from brokerd import usermap
from bxcore import paths
from bxcore.settings.brokerd import BrokerdSettings

Identity = tuple[int, int]
"""Device and inode: the same for two names of one thing."""

Spot = tuple[str, str]
"""A file system, and where on it: the same for a path and for what a bind mount calls it."""

_MOUNTINFO = "/proc/self/mountinfo"
_MOUNT_ID = re.compile(r"^mnt_id:\t(\d+)$", re.MULTILINE)

# File systems whose files are the kernel's answers, wherever they are mounted.
_KERNELS = frozenset(
    {"autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"}
    | {"fusectl", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs"}
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def identity(found: os.stat_result) -> Identity:
    """Return what tells one thing from another on this machine."""
    return found.st_dev, found.st_ino


@attrs.frozen(kw_only=True)
class MountTable:
    """Where file systems are mounted, as this process sees it."""

    points: frozenset[str]
    kernels: frozenset[int]
    shows: Mapping[int, tuple[str, str, str]]
    """By the number of a mount: the file system, which part of it, and at which path."""

    @classmethod
    def read(cls) -> "MountTable":
        """Return the table of this moment."""
        kernels, shows = set[int](), dict[int, tuple[str, str, str]]()
        # Not splitlines: names may hold the line ends of Unicode, and only real ones are escaped.
        for line in Path(_MOUNTINFO).read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]:
            fields, _, kind = line.partition(" - ")
            number, _, device, root, point = fields.split(" ")[:5]
            shows[int(number)] = (device, _unescaped(root), _unescaped(point))
            if kind.split(" ")[0] in _KERNELS:
                major, minor = device.split(":")
                kernels.add(os.makedev(int(major), int(minor)))
        points = frozenset(point for _, _, point in shows.values())
        return cls(points=points, kernels=frozenset(kernels), shows=shows)

    def spot(self, path: str) -> Spot | None:
        """Return where a path without links really lies; None where there is nothing that can be looked at.

        Raises OSError where that is not in the table.
        """
        number = _mount_of(path)
        if number is None:
            return None
        device, root, point = self.shows.get(number, ("", "", ""))
        if not device or not paths.below(path, point):
            raise OSError(errno.ESTALE, "the mount table changed")
        inside = path if point == "/" else path[len(point) :]
        return device, (root.rstrip("/") + inside).rstrip("/") or "/"

    def around(self, path: str) -> Iterator[Spot]:
        """Yield where `path` lies outside of a container, as told by what is mounted beside it under its own name.

        Where /data/home/audit is mounted at /var/lib/home/audit, /data/home shows at /var/lib/home, so that
        /var/lib/home/sessions is the sessions in it. Too much may be yielded, where another file system is in between;
        nothing where all that is beside it are file systems of their own.
        """
        for device, root, point in self.shows.values():
            if point in {"/", path} or _last(root) != _last(point):
                continue
            above = os.path.commonpath([point, path]).rstrip("/")
            inside = point[len(above) :]
            if root.endswith(inside):
                yield device, root.removesuffix(inside) + path[len(above) :] or "/"

    def is_kernels(self, device: int) -> bool:
        """Whether the files of this device are the kernel's answers."""
        return device in self.kernels

    def is_mount(self, path: str) -> bool:
        """Whether something is mounted at exactly this path."""
        return path in self.points

    def holds_mounts(self, path: str) -> bool:
        """Whether something is mounted below this path: what it hides is not what would be seen."""
        return any(point != path and paths.below(point, path) for point in self.points)


@attrs.frozen(kw_only=True)
class Protected:
    """`whole` are paths of Boxmaker's own, with every file in them; `places` are only kept from being shown.

    `contained`: this runs in a container, where such a place may not be seen, or only what is mounted in it.
    """

    whole: tuple[Path, ...]
    places: tuple[Path, ...] = ()
    contained: bool = False

    @classmethod
    def of(cls, settings: BrokerdSettings, *, also: Iterable[Path] = ()) -> "Protected":
        """Return what `settings` name, and `also`: the settings' own file, where Podman keeps its containers."""
        sockets = [settings.listen.broker, settings.listen.admin, settings.listen.state]
        podman = settings.podman
        # Not whole: its directory is another role's, where brokerd may pass and not look.
        gateway = () if settings.gateway.socket is None else (settings.gateway.socket.parent,)
        return cls(
            whole=(settings.grants, settings.audit, settings.state, *(path.parent for path in sockets if path)),
            places=(podman.socket, podman.image_file, podman.seccomp, podman.calls, *gateway, *settings.protect, *also),
            contained=usermap.stranger() is not None,
        )

    def touches(self, source: str, way: list[Identity]) -> bool:
        """Whether `source` is, holds or lies in something protected; `way` leads from the root to it."""
        for path in (*self.whole, *self.places):
            names = {str(path), os.path.realpath(path)}
            if any(paths.below(source, name) or paths.below(name, source) for name in names):
                return True
            ours = list(_way(os.path.realpath(path)))
            if way[-1] in ours or (ours and ours[0] in way):
                return True
        return False

    def shows(self, source: str, table: MountTable) -> bool:
        """Whether `source` is, holds or lies in something protected, by any mount. OSError where nobody knows."""
        spot = table.spot(source)
        if spot is None:
            raise FileNotFoundError(errno.ENOENT, "it is gone")
        names = [os.path.realpath(path) for path in (*self.whole, *self.places)]
        ours = [one for one in map(table.spot, names) if one is not None]
        if self.contained:
            ours += [one for name in names for one in table.around(name)]
        return any(_same_place(spot, one) for one in ours)

    def holds(self, wanted: Identity) -> bool:
        """Whether a file with this identity is, or lies in, something protected. OSError where that cannot be seen."""
        return any(identity(found) == wanted for found in self._files())

    def has_second_names(self, device: int) -> bool:
        """Whether a protected file on this device has another name, which may lie anywhere on it. OSError as above."""
        return any(found.st_nlink > 1 and found.st_dev == device for found in self._files())

    def _files(self) -> Iterator[os.stat_result]:
        """Yield what is known of every protected file. What goes away meanwhile is not there."""
        todo = [os.fspath(path) for path in self.whole]
        for path in self.places:
            found = _seen(path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                yield found
        while todo:
            for entry in _scan(todo.pop()):
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif (found := _seen(entry)) is not None:
                    yield found


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _same_place(one: Spot, other: Spot) -> bool:
    return one[0] == other[0] and (paths.below(one[1], other[1]) or paths.below(other[1], one[1]))


def _mount_of(path: str) -> int | None:
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = _MOUNT_ID.search(Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii"))
    finally:
        os.close(fd)
    if found is None:
        raise OSError(errno.ENOSYS, "the kernel does not say which mount a file is on")
    return int(found[1])


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _seen(what: "Path | os.DirEntry[str]") -> os.stat_result | None:
    try:
        return what.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _scan(directory: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _way(path: str) -> Iterator[Identity]:
    """Yield the identity of `path` and of every directory above it; nothing for what does not exist."""
    while True:
        try:
            yield identity(os.stat(path))  # noqa: PTH116
        except OSError:
            return
        if path == "/":
            return
        path = path.rpartition("/")[0] or "/"
