"""The grant files as they are now, looked at for every decision: the set, or why there is none.

Reads: the files of one directory whose names end in .toml and do not begin with a dot. Everything else there is
ignored: swap files (.a.toml.swp), backups (a.toml~), locks (.#a.toml). A look compares name, inode, size, times,
owner and mode of each file; it opens those that changed, or changed so lately that one more change could look the
same. Only where the kernel says that nothing happened there is a look of the last second as good as a new one.
Invariant: where one file is wrong in any way, somebody else could have written it, or what it denies lies behind
a link (brokerd.grantlinks), there is no set. In a container, where the owner cannot be told from other users of the
host, what belongs to one of them is believed only where it is mounted read-only: whoever let brokerd see it chose it.
Threads: any; a look that began after a caller came answers that caller too.
"""

import operator
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import attrs

from brokerd import grantlinks, usermap
from brokerd.dirwatch import DirectoryWatch
from bxcore import grants, logs, regularfile, tomlfile
from bxcore.deadline import Clock
from bxcore.grants import SUFFIX, Grant, GrantFault, GrantFaults, GrantSet
from bxcore.timestamp import Timestamp

MOST_FILES = 10_000
MOST_BYTES = tomlfile.MAX_BYTES

_TRIES = 5
_TRUSTED_MS = 1_000
"""How long the kernel's word is taken: it does not tell of everything (brokerd.dirwatch)."""

_SETTLED_MS = 3_000
"""More than one tick of any file system's clock: of two changes within a tick, the second shows in no time."""

_Signature = tuple[int, ...]
_Faults = tuple[GrantFault, ...]
_Answer = GrantSet | _Faults

_MODE, _UID, _SIZE, _NAMES, _CHANGED_NS = range(5)
_signature = operator.attrgetter(
    "st_mode", "st_uid", "st_size", "st_nlink", "st_ctime_ns", "st_mtime_ns", "st_ino", "st_dev"
)  # the first five are the ones that have names above

log = logs.get("grants")


class _Moved(Exception):
    """Something changed while it was looked at."""


@attrs.frozen(kw_only=True)
class _Read:
    """What one file said when it was read last. `content` is kept until a change would surely be seen."""

    signature: _Signature
    content: bytes | None
    meaning: Grant | _Faults


class Watch(Protocol):
    """Says whether nothing happened in the directory since a look at all of it began (brokerd.dirwatch)."""

    def begin(self, directory: int) -> None: ...

    def still(self) -> bool: ...


class GrantFiles:
    """The directory of grants. `owners` may have written it and its files: root and this process's user if left out.

    `stranger` is the uid of everybody whom this process cannot name: where it runs in a container (brokerd.usermap).
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        owners: frozenset[int] | None = None,
        stranger: int | None = None,
        watch: Watch | None = None,
        opener: Callable[..., int] = os.open,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._watch = DirectoryWatch(directory) if watch is None else watch
        self._opener = opener
        self._owners = frozenset({0, os.geteuid()}) if owners is None else owners
        self._stranger = usermap.stranger() if stranger is None else stranger
        self._lock = threading.Lock()
        self._begun = 0  # looks so far; counted under the lock
        self._answer: _Answer = ()
        self._told: _Answer | None = None
        # Of the last look that came to its end: what was found, what each file said, and what that makes, before
        # and after the links of the host were looked at.
        self._found: dict[str, _Signature] | None = None
        self._read: dict[str, _Read] = {}
        self._said: _Answer = ()
        self._made: _Answer = ()
        self._made_ms: int | None = None  # None while nothing that was made can be trusted unseen

    @property
    def directory(self) -> Path:
        """Where the files lie."""
        return self._directory

    def current(self) -> GrantSet:
        """Return the grants as they are on the disk now, or raise GrantFaults with all that is wrong."""
        begun_before = self._begun
        with self._lock:
            # Whoever held the lock meanwhile may have begun after we came: then that look is ours too.
            if self._begun == begun_before:
                self._begun += 1
                self._answer = ()  # should the look not come to its end
                self._answer = self._look_until_still()
                self._tell()
            answer = self._answer
        if isinstance(answer, GrantSet):
            return answer
        raise GrantFaults(answer or self._whole("could not be looked at"))

    def _tell(self) -> None:
        """Log a change of what there is; everything else about a decision is in the audit log."""
        answer = self._answer
        if answer is self._told or answer == self._told:
            return
        self._told = answer
        if isinstance(answer, GrantSet):
            log.info("grants read count=%d digest=%s", len(answer.grants), answer.digest)
        else:
            log.error("grants refused faults=%d first=%s code=%s", len(answer), str(answer[0]), GrantFaults.code)

    def _look_until_still(self) -> _Answer:
        for _ in range(_TRIES):
            try:
                return self._look()
            except _Moved:
                continue
            except OSError as error:
                return self._whole(f"cannot be read: {error.strerror}")
            except GrantFaults as error:
                return error.faults
        return self._whole("changes again and again while it is read")

    def _look(self) -> _Answer:
        now, now_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        if self._made_ms is not None and now_ms - self._made_ms < _TRUSTED_MS and self._watch.still():
            return self._made
        self._made_ms = None
        directory = self._open()
        try:
            self._watch.begin(directory)
            self._look_at_all(directory, now)
        finally:
            os.close(directory)
        self._made = self._with_links()
        self._made_ms = now_ms
        return self._made

    def _look_at_all(self, directory: int, now: Timestamp) -> None:
        found = self._signatures(directory)
        if found == self._found:
            return
        read = {name: self._file(directory, name, signature, now) for name, signature in found.items()}
        if self._signatures(directory) != found:
            raise _Moved
        if _meanings(read) != _meanings(self._read) or self._said == ():
            self._said = _together(read)
        self._read = read
        self._found = found if all(file.content is None for file in read.values()) else None

    def _with_links(self) -> _Answer:
        """Return what the files say, unless deny grants lead elsewhere: links change while no file does."""
        astray = grantlinks.faults(file.meaning for file in self._read.values() if isinstance(file.meaning, Grant))
        if not astray:
            return self._said
        return astray if isinstance(self._said, GrantSet) else (*self._said, *astray)

    # -- the directory ------------------------------------------------------------------------

    def _open(self) -> int:
        """Return a descriptor of the directory, so that no other one can take its place during a look."""
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise GrantFaults(self._whole("there is no such directory")) from None
        except NotADirectoryError:
            raise GrantFaults(self._whole("not a directory, or only a link to one")) from None
        signature = _signature(os.fstat(directory))
        fault = self._writable_by_others(signature) or self._strangers(directory, signature)
        if fault is not None:
            os.close(directory)
            raise GrantFaults(self._whole(fault))
        return directory

    def _signatures(self, directory: int) -> dict[str, _Signature]:
        names = [name for name in os.listdir(directory) if _is_read(name)]
        if len(names) > MOST_FILES:
            raise GrantFaults(self._whole(f"holds more than {MOST_FILES} grants"))
        look, signature = partial(os.stat, dir_fd=directory, follow_symlinks=False), _signature
        try:
            return {name: signature(look(name)) for name in names}
        except FileNotFoundError:
            raise _Moved from None

    def _whole(self, text: str) -> _Faults:
        return (GrantFault(file=grants.shown(str(self._directory)), line=0, text=text),)

    # -- one file -----------------------------------------------------------------------------

    def _file(self, directory: int, name: str, signature: _Signature, now: Timestamp) -> _Read:
        known = self._read.get(name)
        if known is not None and known.signature != signature:
            known = None
        if known is not None and known.content is None:
            return known
        fault = self._unfit(signature)
        if fault is not None:
            return _Read(signature=signature, content=None, meaning=_fault(name, fault))
        try:
            with _opened(Path(name), partial(self._opener, dir_fd=directory)) as file:
                fault = self._strangers(file.fileno(), signature)
                content = _content(file, signature)
        except OSError as error:  # no content to compare: read again next time
            fault, content = f"cannot be read: {error.strerror}", b""
        if fault is not None:
            return _Read(signature=signature, content=b"", meaning=_fault(name, fault))
        meaning = known.meaning if known is not None and known.content == content else _meaning(name, content)
        settled = signature[_CHANGED_NS] // 1_000_000 + _SETTLED_MS <= now
        return _Read(signature=signature, content=None if settled else content, meaning=meaning)

    def _unfit(self, signature: _Signature) -> str | None:
        """Say why a file is not opened at all, or None."""
        if stat.S_ISLNK(signature[_MODE]):
            return "a symbolic link; expected the file itself"
        if not stat.S_ISREG(signature[_MODE]):
            return "not a regular file"
        if signature[_SIZE] > MOST_BYTES:
            return f"longer than the {MOST_BYTES} bytes that are read"
        if signature[_NAMES] > 1 and signature[_MODE] & stat.S_IWUSR:
            return "has a second name somewhere, under which it could be written; expected a file without hard links"
        return self._writable_by_others(signature)

    def _writable_by_others(self, signature: _Signature) -> str | None:
        if signature[_UID] not in self._owners and signature[_UID] != self._stranger:
            allowed = ", ".join(str(uid) for uid in sorted(self._owners))
            return f"belongs to uid {signature[_UID]}; expected one of {allowed}"
        if signature[_MODE] & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others than its owner may write it (mode {stat.S_IMODE(signature[_MODE]):04o})"
        return None

    def _strangers(self, descriptor: int, signature: _Signature) -> str | None:
        """Say why what belongs to somebody without a name here is not believed, or None."""
        if signature[_UID] != self._stranger or signature[_UID] in self._owners:
            return None
        # The whole mount, not the file's mode: what this process can in no way change, somebody outside gave it.
        if os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
            return None
        return "belongs to a user whom brokerd's container does not know; expected a mount that is read-only in there"


def _is_read(name: str) -> bool:
    # In any case of letters: a deny grant in a file called a.TOML must not be passed over in silence.
    return name[-5:].lower() == SUFFIX and name[0] != "."


def _opened(name: Path, opener: regularfile.Opener) -> BinaryIO:
    return os.fdopen(regularfile.descriptor(name, os.O_RDONLY | os.O_NOFOLLOW, opener=opener), "rb")


def _content(file: BinaryIO, signature: _Signature) -> bytes:
    """Return what the file holds that has this signature. Raises _Moved where it is another one by now."""
    if _signature(os.fstat(file.fileno())) != signature:
        raise _Moved
    content = file.read(MOST_BYTES + 1)
    if _signature(os.fstat(file.fileno())) != signature:
        raise _Moved
    return content


def _meaning(name: str, content: bytes) -> Grant | _Faults:
    try:
        return grants.parse(name, content)
    except GrantFaults as error:
        return error.faults


def _fault(name: str, text: str) -> _Faults:
    return (GrantFault(file=grants.shown(name), line=0, text=text),)


def _meanings(read: dict[str, _Read]) -> dict[str, Grant | _Faults]:
    return {name: file.meaning for name, file in read.items()}


def _together(read: dict[str, _Read]) -> _Answer:
    """Return the set, or every fault of every file where there is one."""
    faults = tuple(fault for file in read.values() if isinstance(file.meaning, tuple) for fault in file.meaning)
    return faults or GrantSet(grants=tuple(file.meaning for file in read.values() if isinstance(file.meaning, Grant)))
