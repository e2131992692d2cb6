"""Where a model server is, as an installation has to know it: the network to it, and what is no fit place.

What inferproxy takes for an address is its own rule (deploy/local/upstream.py); here stands what is narrower, and
nix/upstream.nix says the same for NixOS (tests/nix/test_upstream.py). Reads: links on the way to a socket.
"""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bxcore.wiring import Wiring
from deploy.appliance import roleplan

_NAME = re.compile(r"[a-z0-9._-]+")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?")
"""What inet_aton(3) might take for an address: 127.1 and 0x7f000001 are 127.0.0.1."""
_LED_IN = frozenset({"127.0.0.1", "::1"})
"""Not "localhost": a role's container has no /etc/hosts, so it would be asked of a name server."""
_STORE = Path("/nix")
_PATH = re.compile(r"(/[^/\x00-\x1f\x7f\",]+)+")


def network(upstream: str) -> str:
    """Return Podman's network that reaches a model server. Of this machine's loopback, its one port alone is led in."""
    if not upstream.startswith("http:"):
        return "pasta"
    url = urlsplit(upstream)
    return f"pasta:-T,{url.port or 80}" if _is_loopback(url.hostname or "") else "pasta"


def faults(upstream: str, wiring: Wiring) -> Iterator[str]:
    """Yield why no unit may lead inferproxy there."""
    directory = roleplan.socket_directory(upstream)
    if directory is None:
        yield from host_faults(urlsplit(upstream).hostname or "")
    elif not is_plain(upstream.removeprefix(roleplan.UNIX)):
        yield 'a socket is named by an absolute path without ".", "..", empty parts, quotes, commas and line breaks'
    else:
        for one in dict.fromkeys((directory, directory.resolve())):
            if one.is_relative_to(_STORE):
                yield f"{one} is Nix's; give the socket a directory of its own"
            elif fault := roleplan.unfit_socket_directory(one, wiring):
                yield fault


def is_plain(path: str) -> bool:
    """Say whether a path is absolute, has one spelling, and nothing in it that ends a word of Podman's."""
    return bool(_PATH.fullmatch(path)) and not {".", ".."} & set(path.split("/"))


def host_faults(host: str) -> Iterator[str]:
    """Yield why no role may be led to a server of this name or address."""
    address = _address(host)
    if address is None and (_NUMBER.fullmatch(host) or not _NAME.fullmatch(host)):
        yield f"{host} is neither a name in ASCII nor an address written in full, as 192.0.2.7 or [2001:db8::7]"
    elif _is_loopback(host) and host not in _LED_IN:
        yield f"{host} is this machine's loopback: write 127.0.0.1 or [::1], where its port is led in"


def _is_loopback(host: str) -> bool:
    """Say whether a connection to it stays on this machine: so does one to 0.0.0.0, on Linux."""
    address = _address(host)
    if address is None:
        return host.removesuffix(".").rpartition(".")[2] == "localhost"
    return address.is_loopback or address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
