"""Host names, the hosts of a grant, and where a URL leads. Pure; one grammar for every program that reads a name.

A name is ASCII letters, digits and hyphens in labels, and its last label starts with a letter, so nothing that a
resolver would read as an address (`127.1`, `0x7f000001`, `[::1]`) is a name. Names beyond ASCII are taken in their
encoded form (`xn--...`) only. What is no name is refused, never repaired: two programs that mend a name differently
see two hosts. Which addresses a name may have is asked elsewhere (bxcore.addresses).
"""

import re
from collections.abc import Mapping

import attrs

MAX_NAME = 253
MAX_URL = 8_192
PORTS: Mapping[str, int] = {"https": 443, "http": 80}

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*(?=[a-z]){_LABEL}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_URL = re.compile(r"(?P<scheme>[A-Za-z]{4,5})://(?P<authority>[^/?#]*)(?P<resource>(?:/[^#]*)?)(?:#.*)?")
# RFC 3986 and nothing more, spelled out since parsers disagree on the rest (a backslash above all).
_URL_LETTERS = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")

# Second labels under which the registries of countries let anybody register: `co` of `co.uk`.
_OPEN_TO_ALL = frozenset(
    {
        *("ac", "co", "com", "edu", "gen", "go", "gob", "gouv", "gov", "govt", "gv", "id", "ltd", "me", "mil", "muni"),
        *("ne", "net", "nhs", "nic", "nom", "or", "org", "plc", "police", "sch", "school"),
    }
)
# Hosting firms below whose names strangers have names of their own. No list of these is ever complete.
_SHARED: Mapping[str, frozenset[str]] = {
    "app": frozenset({"netlify", "ngrok-free", "run", "vercel", "web"}),
    "com": frozenset({"amazonaws", "appspot", "blogspot", "firebaseapp", "herokuapp", "trycloudflare", "wordpress"}),
    "dev": frozenset({"deno", "fly", "pages", "workers"}),
    "io": frozenset({"github", "gitlab", "ngrok", "nip", "sslip"}),
    "net": frozenset({"akamaized", "azureedge", "azurewebsites", "cloudfront", "fastly"}),
    "org": frozenset({"duckdns", "eu"}),
}


class BadHost(ValueError):
    """A name, a host of a grant or a URL that is refused. The message says why and never quotes it."""


@attrs.frozen(kw_only=True)
class Target:
    """What would be dialled: `host` in lower case without a trailing dot, and the port, written or the scheme's."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """`host:port`, the port always written."""
        return f"{self.host}:{self.port}"


@attrs.frozen(kw_only=True)
class Url:
    """A URL in parts. `resource` is what a request line asks for: path and query, at least `/`, no fragment."""

    target: Target
    resource: str

    def __str__(self) -> str:
        shown = "" if self.target.port == PORTS[self.target.scheme] else f":{self.target.port}"
        return f"{self.target.scheme}://{self.target.host}{shown}{self.resource}"


@attrs.frozen(kw_only=True)
class HostRule:
    """One host of a grant. A wildcard stands for one label or more, so `host` itself (the apex) is not covered."""

    host: str
    wildcard: bool
    port: int

    def covers(self, target: Target) -> bool:
        if target.port != self.port:
            return False
        return target.host.endswith(f".{self.host}") if self.wildcard else target.host == self.host

    def __str__(self) -> str:
        return f"{'*.' if self.wildcard else ''}{self.host}:{self.port}"


def host(text: str) -> str:
    """Return `text` as a name: lower case, without its one trailing dot. Raises BadHost."""
    # Not lower() first: it turns the Kelvin sign into a plain k.
    if not text.isascii():
        raise BadHost("a host name is ASCII; write a name in other letters in its encoded form (xn--...)")
    name = text.lower().removesuffix(".")
    if len(name) > MAX_NAME:
        raise BadHost(f"a host name has at most {MAX_NAME} characters")
    if not _NAME.fullmatch(name):
        raise BadHost(
            "expected a host name: labels of 1 to 63 letters, digits and hyphens, the last one starting with a letter"
            " (addresses are not names)"
        )
    return name


def rule(text: str) -> HostRule:
    """Return a host of a grant: `name`, `name:port`, `*.name` or `*.name:port`; 443 where no port is written."""
    if "/" in text:
        raise BadHost("expected a host's name only, without https:// and without a path")
    name, colon, port = text.partition(":")
    wildcard = name.startswith("*.")
    checked = host(name.removeprefix("*."))
    if wildcard and belongs_to_many(checked):
        raise BadHost("a wildcard needs a name that one owner holds: not a top-level domain, nor one that all may use")
    return HostRule(host=checked, wildcard=wildcard, port=_port(port) if colon else PORTS["https"])


def belongs_to_many(name: str) -> bool:
    """Whether strangers can have names below `name`, as far as a short rule can tell.

    True for one label (`com`), for a usual second label below a country (`co.uk`, `com.br`), and for the best-known
    hosting firms and what is below them with a single label (`github.io`; not `x.github.io`, which is somebody's).
    This is a guard against slips, not the public suffix list: that list changes weekly and would have to be trusted.
    """
    labels = name.split(".")
    if len(labels) == 1:
        return True
    if len(labels) > 2:
        return False
    second, top = labels
    return (len(top) == 2 and second in _OPEN_TO_ALL) or second in _SHARED.get(top, frozenset())


def is_encoded(name: str) -> bool:
    """Whether a label of `name` stands for letters beyond ASCII, which the owner should be told."""
    return any(label.startswith("xn--") for label in name.split("."))


def target(url: str) -> Target:
    """Return what a request for `url` dials. Raises BadHost."""
    return parse_url(url).target


def parse_url(text: str) -> Url:
    """Take a URL apart, refusing every spelling that two parsers could read differently. Raises BadHost."""
    if len(text) > MAX_URL:
        raise BadHost(f"a URL has at most {MAX_URL} characters")
    if not _URL_LETTERS.fullmatch(text):
        raise BadHost("a URL holds letters, digits and the marks of RFC 3986 only; percent-encode the rest")
    parts = _URL.fullmatch(text)
    scheme = parts["scheme"].lower() if parts else ""
    if parts is None or scheme not in PORTS:
        raise BadHost("a URL starts with https:// or http://, and a slash stands between the host and the rest")
    # Some parsers take the host from behind such a mark: http://a#@b, http://a?@b.
    if not parts["resource"] and len(text) > parts.end("authority"):
        raise BadHost("a slash stands between the host of a URL and the rest")
    return Url(target=_authority(scheme, parts["authority"]), resource=parts["resource"] or "/")


def _authority(scheme: str, authority: str) -> Target:
    if "@" in authority:
        raise BadHost("a URL names no user")
    if "[" in authority or "]" in authority:
        raise BadHost("a URL names a host, not an address")
    name, colon, port = authority.partition(":")
    where = Target(scheme=scheme, host=host(name), port=_port(port) if colon else PORTS[scheme])
    if scheme == "http" and where.port == PORTS["https"]:
        raise BadHost("port 443 is for https")
    return where


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise BadHost("a port is a number of 1 to 65535, without sign or leading zero")
    return int(text)
