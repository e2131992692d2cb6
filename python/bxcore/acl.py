"""Access lists of files (POSIX ACLs), as the kernel keeps them in an extended attribute. Pure, but for `of`.

The form is that of linux/posix_acl_xattr.h: a version, then entries of a tag, permissions and an id, little-endian.
Who may do what is decided as acl(5) says, without root's privileges. Standard library only: the listener reads them.
"""

import errno
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

READ, WRITE, ENTER = 4, 2, 1

ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"
"""What files that are made in a directory get."""

VERSION = 2
_HEADER, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_NO_LIST = frozenset({errno.ENODATA, errno.EOPNOTSUPP})


class Tag(IntEnum):
    """Whom an entry speaks of."""

    OWNER = 1
    USER = 2
    OWNING_GROUP = 4
    GROUP = 8
    MASK = 16
    OTHERS = 32


_NAMED = frozenset({Tag.USER, Tag.GROUP})
_GROUP_CLASS = frozenset({Tag.USER, Tag.OWNING_GROUP, Tag.GROUP})


class NoAcl(ValueError):
    """The bytes are no access list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line of a list. `who` is the uid or gid of a named user or group, else None."""

    tag: Tag
    allowed: int
    who: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Acl:
    """A list, or what a mode alone comes to."""

    entries: tuple[Entry, ...]

    @property
    def mask(self) -> int:
        """What everybody but the owner and the others has at most."""
        return next((entry.allowed for entry in self.entries if entry.tag is Tag.MASK), READ | WRITE | ENTER)

    def effective(self, entry: Entry) -> int:
        """What an entry comes to under the mask."""
        return entry.allowed & self.mask if entry.tag in _GROUP_CLASS else entry.allowed

    def named(self, tag: Tag) -> dict[int, int]:
        """Return what each named user or group may effectively do."""
        return {entry.who: self.effective(entry) for entry in self._tagged(tag) if entry.who is not None}

    def others_may(self, wanted: int) -> bool:
        """Whether anybody but the owner may do all of `wanted`."""
        return any(
            self.effective(entry) & wanted == wanted for entry in self.entries if entry.tag not in {Tag.OWNER, Tag.MASK}
        )

    def may(self, wanted: int, *, uid: int, groups: Collection[int], owner: int, group: int) -> bool:
        """Whether a user may do all of `wanted` to a file that belongs to `owner` and `group`."""
        return any(allowed & wanted == wanted for allowed in self._speaking_of(uid, groups, owner, group))

    def _speaking_of(self, uid: int, groups: Collection[int], owner: int, group: int) -> Iterator[int]:
        """Yield the entries that decide: the first kind that fits, and of groups any one."""
        if uid == owner:
            yield from (entry.allowed for entry in self._tagged(Tag.OWNER))
            return
        users = self.named(Tag.USER)
        if uid in users:
            yield users[uid]
            return
        of_groups = [
            self.effective(entry)
            for entry in self.entries
            if (entry.tag is Tag.OWNING_GROUP and group in groups) or (entry.tag is Tag.GROUP and entry.who in groups)
        ]
        yield from of_groups or (entry.allowed for entry in self._tagged(Tag.OTHERS))

    def _tagged(self, tag: Tag) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.tag is tag)


def of_mode(mode: int) -> Acl:
    """Return the list that a mode without one comes to."""
    owner, group, others = (mode >> shift & 7 for shift in (6, 3, 0))
    return Acl(
        entries=(
            Entry(tag=Tag.OWNER, allowed=owner),
            Entry(tag=Tag.OWNING_GROUP, allowed=group),
            Entry(tag=Tag.OTHERS, allowed=others),
        )
    )


def parse(untrusted: bytes) -> Acl:
    """Return the list that an attribute holds. Raises NoAcl."""
    if len(untrusted) < _HEADER.size or _HEADER.unpack_from(untrusted) != (VERSION,):
        raise NoAcl("another version, or none")
    body = untrusted[_HEADER.size :]
    if len(body) % _ENTRY.size:
        raise NoAcl("cut off in the middle of an entry")
    return Acl(entries=tuple(_entry(*fields) for fields in _ENTRY.iter_unpack(body)))


def of(path: Path, attribute: str = ACCESS) -> Acl | None:
    """Return the list of a file or directory; None where it has none. Raises OSError; NoAcl for what is none."""
    try:
        return parse(os.getxattr(path, attribute, follow_symlinks=False))
    except OSError as error:
        if error.errno in _NO_LIST:
            return None
        raise


def _entry(tag: int, allowed: int, who: int) -> Entry:
    try:
        kind = Tag(tag)
    except ValueError:
        raise NoAcl(f"an entry of an unknown kind, {tag}") from None
    if allowed > READ | WRITE | ENTER:
        raise NoAcl(f"an entry with unknown permissions, {allowed}")
    return Entry(tag=kind, allowed=allowed, who=who if kind in _NAMED else None)
