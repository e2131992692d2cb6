"""Secrets: where they are found, and a type that shows nothing of them but to who asks by name.

Three backends, chosen per secret: a systemd credential (encrypted at rest; what a secret without an entry is), an
environment variable, an owner-only file. INV-1: loopd cannot import this module; import-linter holds it to that.
INV-11: no error here holds a value. Reads: the credentials' directory, the environment that it is handed, files.
Threads: any. Raises ConfigError only.
"""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, final

from bxcore import logs, regularfile
from bxcore.errors import ConfigError
from bxcore.settings.secrets import Backend, SecretSource, is_name

MOST_BYTES = 64 * 1024
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd says where a unit's credentials are."""

log = logs.get("secrets")


class SecretMissing(ConfigError):
    """There is nothing where the secret should be."""

    code = "secret_missing"


class SecretRefused(ConfigError):
    """Something is there, and it is not safe there, or it is no secret."""

    code = "secret_refused"


@final
class Secret:
    """A text that is opened by `reveal()` and in no other way.

    It has no text form, no JSON form, no copy, no comparison and no hash: each of these is where a secret
    gets into a log, a record or an error by accident. `repr` gives its name.
    """

    # Not the value itself: who dumps every attribute of an object finds a function.
    __slots__ = ("_open", "name")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self._open: Callable[[], str] = lambda: value

    def reveal(self) -> str:
        """Return the value. Each call of this is a place to look at in review."""
        return self._open()

    def __repr__(self) -> str:
        return f"Secret({self.name})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(f"{self!r} is not shown, compared, copied or stored; only reveal() opens it")

    __str__ = __format__ = __bytes__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse
    __iter__ = __len__ = __getitem__ = __contains__ = __add__ = __radd__ = __mod__ = _refuse


class SecretStore:
    """Finds secrets where `sources` says. `environment` is the process's own, handed in."""

    def __init__(self, sources: Mapping[str, SecretSource], *, environment: Mapping[str, str]) -> None:
        self._sources = sources
        self._environment = environment

    def get(self, name: str) -> Secret:
        """Return the secret, read now. Raises SecretMissing or SecretRefused, which name the place."""
        if not is_name(name):
            raise SecretMissing("a secret was asked for by what is no name")
        source = self._sources.get(name, SecretSource())
        match source.backend:
            case Backend.ENVIRONMENT:
                return _secret(name, *self._in_environment(name, str(source.variable)))
            case Backend.FILE:
                return _secret(name, *_in_file(name, Path(str(source.path))))
            case Backend.CREDENTIAL:
                return _secret(name, *self._in_credential(name))

    def _in_environment(self, name: str, variable: str) -> tuple[str, bytes]:
        place = f"environment variable {variable}"
        if variable not in self._environment:
            raise SecretMissing(f"secret {name}: there is no {place}")
        log.warning("a secret in plain text secret=%s place=environment", name)
        return place, os.fsencode(self._environment[variable])

    def _in_credential(self, name: str) -> tuple[str, bytes]:
        directory = self._environment.get(CREDENTIALS, "")
        if not directory.startswith("/"):
            raise SecretMissing(f"secret {name}: this process was given no credentials ({CREDENTIALS} is not set)")
        place = Path(directory) / name
        # Its mode says nothing: systemd opens it to the unit by an access list.
        return f"credential {place}", _content(name, place, _open(name, place))


def _in_file(name: str, path: Path) -> tuple[str, bytes]:
    descriptor = _open(name, path)
    fault = _readable_by_others(os.fstat(descriptor))
    if fault is not None:
        os.close(descriptor)
        raise SecretRefused(f"secret {name}: {path} {fault}")
    log.warning("a secret in plain text secret=%s place=%s", name, str(path))
    return str(path), _content(name, path, descriptor)


def _open(name: str, path: Path) -> int:
    try:
        return regularfile.descriptor(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise SecretMissing(f"secret {name}: there is no {path}") from None
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise SecretRefused(f"secret {name}: {path} cannot be opened: {why}") from None


def _readable_by_others(found: os.stat_result) -> str | None:
    if found.st_uid != os.geteuid():
        return f"belongs to uid {found.st_uid}; expected {os.geteuid()}, whom this role runs as"
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"is open to others than its owner (mode {stat.S_IMODE(found.st_mode):04o}); expected 0600"
    return None


def _content(name: str, path: Path, descriptor: int) -> bytes:
    try:
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MOST_BYTES + 3)  # one more than a line end can take away
    except OSError as error:
        raise SecretRefused(f"secret {name}: {path} cannot be read: {error.strerror}") from None


def _secret(name: str, place: str, raw: bytes) -> Secret:
    value, fault = _text(raw)
    del raw  # a traceback may show what stands in its frames
    if fault:
        raise SecretRefused(f"secret {name}: {place} {fault}")
    return Secret(name, value)


def _text(raw: bytes) -> tuple[str, str]:
    """Return what `raw` says, without the one line end that an editor puts behind it; or "" and what is wrong."""
    if raw.endswith(b"\n"):
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not raw:
        return "", "is empty"
    if len(raw) > MOST_BYTES:
        return "", f"is longer than {MOST_BYTES} bytes"
    try:
        return raw.decode(), ""
    except UnicodeDecodeError:
        return "", "is no UTF-8 text"
