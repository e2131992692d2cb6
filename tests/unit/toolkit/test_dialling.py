"""The two acts of the proxy, on the real machine: no name of the internet is looked up here."""

import socket

import pytest

from tests.fakes.egress import Canary
from toolkit import dialling


@pytest.mark.parametrize("name", ["localhost", "a.b.localhost"])
def test_localhost_is_loopback_without_asking_anybody(name: str) -> None:
    assert dialling.resolve(name, 80) == ("127.0.0.1", "::1")


def test_a_name_below_nothing_has_no_address_whatever_the_search_domains() -> None:
    with pytest.raises(OSError, match=r".+"):
        dialling.resolve("nobody.invalid", 80)


def _own_address() -> str:
    """Return an address by which this machine speaks to the outside; loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_an_address_of_this_machine_is_not_dialled_though_somebody_listens() -> None:
    with Canary() as canary, socket.create_server(("0.0.0.0", 0)) as everywhere:
        everywhere.setblocking(False)
        for address, port in {"127.0.0.1": canary.port, _own_address(): everywhere.getsockname()[1]}.items():
            with pytest.raises(dialling.OwnAddress):
                dialling.dial(address, port, 5)
        assert canary.heard == 0
        with pytest.raises(BlockingIOError):
            everywhere.accept()


def test_an_address_of_a_family_that_is_not_there_is_an_ordinary_failure() -> None:
    with pytest.raises(OSError, match=r".+"):
        dialling.dial("100::1", 9, 0.2)  # the discard prefix: nobody is there on any network
