import ipaddress

import pytest

from bxcore import addresses

REFUSED = {
    # E3: is_global of Python 3.11 says True for seven of these.
    "E3 mapped": "::ffff:10.0.0.1",
    "E3 mapped, of a public one": "::ffff:1.1.1.1",
    "E3 compatible": "::127.0.0.1",
    "E3 NAT64": "64:ff9b::7f00:1",
    "E3 NAT64 of a public one": "64:ff9b::101:101",
    "E3 local NAT64": "64:ff9b:1::1",
    "E3 6to4": "2002:7f00:1::",
    "E3 6to4 of a public one": "2002:101:101::1",
    "E3 Teredo": "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "E3 translated": "::ffff:0:127.0.0.1",
    "E3 site-local": "fec0::1",
    "E3 multicast": "ff02::1",
    "E3 global multicast": "ff0e::1",
    "E3 link-local with a zone": "fe80::1%eth0",
    "E3 public with a zone": "2606:4700::1111%eth0",
    "E3 unspecified": "::",
    "E3 in brackets": "[::]",
    "E3 loopback": "::1",
    "E3 ISATAP": "2606:4700::5efe:10.0.0.1",
    "E3 ISATAP, universal": "2606:4700::200:5efe:10.0.0.1",
    # E4
    "E4 any": "0.0.0.0",
    "E4 this network": "0.1.2.3",
    "E4 loopback, last": "127.255.255.255",
    "E4 10, first": "10.0.0.0",
    "E4 10, last": "10.255.255.255",
    "E4 172.16, first": "172.16.0.0",
    "E4 172.16, last": "172.31.255.255",
    "E4 192.168, first": "192.168.0.0",
    "E4 192.168, last": "192.168.255.255",
    "E4 metadata": "169.254.169.254",
    "E4 link-local, last": "169.254.255.255",
    "E4 shared, first": "100.64.0.0",
    "E4 shared": "100.64.0.1",
    "E4 shared, last": "100.127.255.255",
    "E4 another metadata": "100.100.100.200",
    "E4 benchmarks, first": "198.18.0.1",
    "E4 benchmarks, last": "198.19.255.255",
    "E4 protocol assignments": "192.0.0.8",
    "E4 documentation 1": "192.0.2.1",
    "E4 documentation 2": "198.51.100.255",
    "E4 documentation 3": "203.0.113.7",
    "E4 reserved": "240.0.0.1",
    "E4 broadcast": "255.255.255.255",
    "E4 multicast": "224.0.0.1",
    "E4 multicast, last": "239.255.255.255",
    "E4 a cloud's wire server": "168.63.129.16",
    "E4 6to4 relay": "192.88.99.1",
    "E4 a tailnet": "fd7a:115c:a1e0::1",
    "E4 metadata, v6": "fd00:ec2::254",
    "E4 unique-local, first": "fc00::1",
    "documentation v6": "2001:db8::1",
    "documentation v6, newer": "3fff::1",
    "benchmarks v6": "2001:2::1",
    "ORCHID": "2001:20::1",
    "6bone": "3ffe::1",
    "discard": "100::1",
    "SRv6": "5f00::1",
    "beyond unicast": "4000::1",
    # Unreadable.
    "E1 short": "127.1",
    "E1 number": "2130706433",
    "E1 octal": "0177.0.0.1",
    "leading zero": "08.8.8.8",
    "E2 full width": "\uff18.8.8.8",
    "a name": "example.org",
    "empty": "",
    "space": " 8.8.8.8",
    "newline": "8.8.8.8\n",
    "a network": "8.8.8.0/24",
    "a port": "8.8.8.8:53",
}


@pytest.mark.parametrize("address", REFUSED.values(), ids=REFUSED.keys())
def test_an_address_that_is_not_plainly_public(address: str) -> None:
    assert not addresses.is_public(address)


PUBLIC = {
    "1.0.0.0", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.1",
    "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.0.1",
    "192.0.1.1", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "2000::1", "2001:200::1", "2001:4860:4860::8888", "2606:4700:4700::1111", "2a00::1", "3ffd:ffff::1",
}  # fmt: skip


@pytest.mark.parametrize("address", sorted(PUBLIC))
def test_e4_what_lies_just_outside_of_a_range_is_public(address: str) -> None:
    assert addresses.is_public(address)


# Where this Python says "global" and we do not: the reason why the table is our own.
WRONG_IN_PYTHON = ["224.0.0.1", "168.63.129.16", "ff0e::1", "192.88.99.1", "64:ff9b::7f00:1"]


@pytest.mark.parametrize("address", WRONG_IN_PYTHON)
def test_the_table_is_stricter_than_the_library(address: str) -> None:
    assert ipaddress.ip_address(address).is_global
    assert not addresses.is_public(address)
