"""Files as the tools read them: regular ones only, at most so many bytes, and whether they hold text.

A file that grows while it is read is read up to the size that it had when it was opened; one that
shrinks ends early. Whatever the tools print about a name or a byte of a file is made here.
"""

import os
import stat
from collections.abc import Sequence

import attrs

from toolkit import beneath
from toolkit.beneath import Root
from toolkit.order import ToolError

MOST_BYTES = 32 * 1024 * 1024
"""Of one file. What lies behind is never looked at."""

_BLOCK = 1024 * 1024
_LOOKED_AT = 65_536  # enough to tell a text from anything else

_MAGIC: Sequence[tuple[bytes, str]] = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program or library"),
    (b"SQLite format 3\0", "an SQLite database"),
)

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


@attrs.frozen(kw_only=True)
class Content:
    """What was read of a file: all where `whole`, else as much as was asked. `found` is from before the reading."""

    data: bytes
    found: os.stat_result
    whole: bool

    @property
    def sha256(self) -> str | None:
        """Of the whole file, or None where only a part was read."""
        import hashlib  # takes longer to load than most files take to read, and a text needs none

        return hashlib.sha256(self.data).hexdigest() if self.whole else None


def read(roots: Sequence[Root], path: str, *, most: int = MOST_BYTES) -> Content:
    """Read the regular file at `path`. ToolError for anything else, OSError where it cannot be opened."""
    fd = beneath.open_path(roots, path, os.O_RDONLY)
    try:
        return read_open(fd, most=most)
    finally:
        os.close(fd)


def read_open(fd: int, *, most: int = MOST_BYTES) -> Content:
    """Read the regular file that is open as `fd`, from its start."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"that is {kind_of(found)}, not a file")
    wanted = min(found.st_size, most)
    parts = []
    while wanted > 0 and (part := os.read(fd, min(wanted, _BLOCK))):
        parts.append(part)
        wanted -= len(part)
    return Content(data=b"".join(parts), found=found, whole=found.st_size <= most)


def is_text(data: bytes) -> bool:
    """Say whether the beginning of a file reads like text: no NUL, and nine bytes in ten are valid UTF-8."""
    head = data[:_LOOKED_AT]
    if b"\0" in head:
        return False
    strange = sum("\udc80" <= char <= "\udcff" for char in head.decode("utf-8", "surrogateescape"))
    return strange * 10 <= len(head)


def described(content: Content) -> str:
    """Say what a file that is no text is: its type as far as its first bytes tell, its size and its hash."""
    what = next((name for magic, name in _MAGIC if content.data.startswith(magic)), "binary data")
    digest = f"sha256 {content.sha256}" if content.whole else f"too large for a hash (over {MOST_BYTES} bytes)"
    return f"{what}, {content.found.st_size} bytes, {digest}"


def kind_of(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "a file")


def shown(name: str) -> str:
    r"""Return a name in which nothing is invisible: what is not printable shows as \u{...}.

    Half a surrogate is a byte that was no UTF-8; it becomes \udcXX when the text is written.
    """
    if name.isprintable():
        return name
    return "".join(
        char if char.isprintable() or "\udc80" <= char <= "\udcff" else f"\\u{{{ord(char):x}}}" for char in name
    )


def printed(text: str) -> str:
    """Return text of a file or a program as it is printed: NUL and bytes that were no UTF-8 show as escapes."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
