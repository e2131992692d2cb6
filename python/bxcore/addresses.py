"""Which addresses are plainly on the public internet. Pure; the table is written by hand.

`ipaddress.is_global` and `is_private` are wrong for a dozen ranges and change with the Python release. This table
follows the special-purpose registries (RFC 6890 and its followers) and is stricter where an address carries
another one: those are refused wholly. What cannot be read is not public. Only the egress proxy asks.
"""

import ipaddress
from ipaddress import IPv4Network, IPv6Network

_NOT_PUBLIC_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host, this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared behind carriers; tailnets; a cloud's metadata at 100.100.100.200
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's wire server, public by number and local by meaning
        "169.254.0.0/16",  # link-local, metadata services
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

# The only range that is assigned to global unicast. Outside of it lie loopback, mapped and compatible v4, NAT64
# (64:ff9b::/96, 64:ff9b:1::/48), SRv6, unique-local, link-local, site-local and multicast.
_UNICAST_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, AS112
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: a v4 address inside
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone, given back
        "3fff::/20",  # documentation
    )
)
# ISATAP writes a v4 address into the lower half, behind one of these.
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})


def is_public(address: str) -> bool:
    """Whether `address` (v4 or v6, as a resolver prints it) is an ordinary address of the internet."""
    # A zone (fe80::1%eth0) is a matter of one link, and ipaddress would accept it on any address.
    if not address.isascii() or "%" in address:
        return False
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_4)
    if parsed not in _UNICAST_6 or (int(parsed) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return False
    return not any(parsed in network for network in _NOT_PUBLIC_6)
