"""Reads inferproxy.toml: where to listen, the one upstream, the limits. Every fault at once.

tomllib and not bxcore.config, which brings tomlkit and cattrs: this role holds nothing but an address,
and what holds nothing should load nothing.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from bxcore import regularfile
from bxcore.errors import ConfigError

_MAX_BYTES = 64 * 1024

_UPSTREAM_FORM = 'expected "http://host:port" or "unix:/absolute/path"'


# NamedTuple and not dataclass, whose module alone would be a tenth of this process.
class Upstream(NamedTuple):
    """The one peer: a host and port, or a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""


class Config(NamedTuple):
    """One file, one type; the defaults live here."""

    listen: Path
    upstream: Upstream
    max_connections: int = 32
    accept_burst: int = 32
    accept_per_second: int = 16
    idle_ms: int = 900_000
    connect_ms: int = 5_000


# Each connection takes six descriptors, and 1024 is the usual limit of a process.
_RANGES = {
    "max_connections": (1, 128),
    "accept_burst": (1, 10_000),
    "accept_per_second": (1, 10_000),
    "idle_ms": (1_000, 86_400_000),
    "connect_ms": (10, 60_000),
}


def load(path: Path) -> Config:
    """Return what `path` says, or raise ConfigError with one line for each fault."""
    text = _read(path)
    untrusted = _parsed(path, text)
    faults = _Faults(path, text)
    for key in untrusted.keys() - {"listen", "upstream"} - _RANGES.keys():
        faults.add(key, "unknown key")
    listen = _absolute_path(untrusted, "listen", faults)
    upstream = parse_upstream(_string(untrusted, "upstream", faults), faults)
    numbers = {key: _number(untrusted[key], key, faults) for key in _RANGES if key in untrusted}
    faults.raise_if_any()
    return Config(listen=listen, upstream=upstream, **numbers)


def parse_upstream(text: str, faults: "_Faults") -> Upstream:
    """Return the address that `text` spells; a fault where it is not exactly host and port, or a path."""
    if text.startswith("unix:/") and "\0" not in text:
        return Upstream(path=text.removeprefix("unix:"))
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", 80 if url.port is None else url.port
        named = _can_be_looked_up(host)
    except ValueError:  # a port that is no number, an unclosed bracket
        host, port, url, named = "", 0, urlsplit(""), False
    if url.scheme == "https":
        faults.add("upstream", f"{_UPSTREAM_FORM}; https cannot be forwarded unread")
    # The text too: urlsplit drops line breaks and tabs silently.
    elif not (named and port and text.isprintable() and _is_only_an_address(url)):
        faults.add("upstream", _UPSTREAM_FORM)
    return Upstream(host=host, port=port)


def _can_be_looked_up(host: str) -> bool:
    """Say whether getaddrinfo takes the name. UnicodeError (a ValueError) where its own encoding refuses it."""
    return bool(host.encode("idna")) and " " not in host


def _is_only_an_address(url: SplitResult) -> bool:
    return url.scheme == "http" and not (url.path.strip("/") or url.query or url.fragment or "@" in url.netloc)


class _Faults:
    """Collects what is wrong, each with the line of its key."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._faults: list[tuple[int, str]] = []

    def add(self, key: str, fault: str) -> None:
        written = re.compile(rf"\s*\[?[\"']?{re.escape(key)}\b")
        line = next((number for number, line in enumerate(self._lines, 1) if written.match(line)), 1)
        self._faults.append((line, f"{self._path}:{line}: {key}: {fault}"))

    def raise_if_any(self) -> None:
        if self._faults:
            raise ConfigError("\n".join(text for _, text in sorted(self._faults)))


def _read(path: Path) -> str:
    try:
        raw = regularfile.content(path, most=_MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: longer than the {_MAX_BYTES} bytes that are read")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 from byte {error.start} on") from error


def _parsed(path: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except RecursionError:
        fault = "nested too deeply"
    except ValueError:  # int() refuses thousands of digits with this and nothing else
        fault = "a number of too many digits"
    raise ConfigError(f"{path}:{_line_of_failure(text)}: not TOML: {fault}")


def _line_of_failure(text: str) -> int:
    """Return the line up to which the text can be read, or is only unfinished, and fails with the next."""
    lines = text.splitlines(keepends=True)
    fine, failing = 0, len(lines)
    while failing - fine > 1:
        middle = (fine + failing) // 2
        if _fails_otherwise("".join(lines[:middle])):
            failing = middle
        else:
            fine = middle
    return failing


def _fails_otherwise(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    except (RecursionError, ValueError):
        return True
    return False


def _absolute_path(untrusted: dict[str, object], key: str, faults: _Faults) -> Path:
    value = untrusted.get(key)
    if isinstance(value, str) and value.startswith("/") and "\0" not in value:
        return Path(value)
    faults.add(key, "missing" if value is None else "expected an absolute path")
    return Path()


def _string(untrusted: dict[str, object], key: str, faults: _Faults) -> str:
    value = untrusted.get(key)
    if isinstance(value, str) and value:
        return value
    faults.add(key, "missing" if value is None else "expected text that is not empty")
    return ""


def _number(value: object, key: str, faults: _Faults) -> int:
    low, high = _RANGES[key]
    if type(value) is int and low <= value <= high:
        return value
    faults.add(key, f"expected a whole number from {low} to {high}")
    return low
