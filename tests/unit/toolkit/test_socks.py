"""The bytes of SOCKS5, whatever they are. The proxy around them: test_egress.py."""

from hypothesis import given
from hypothesis import strategies as st

from bxcore import hosts
from toolkit import socks


def _reader(said: bytes) -> socks.Read:
    left = bytearray(said)

    def read(count: int) -> bytes:
        if len(left) < count:
            raise ConnectionError
        piece = bytes(left[:count])
        del left[:count]
        return piece

    return read


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=260).map(b"\x05\x01\x00\x03".__add__)))
def test_e7_any_bytes_are_a_proper_name_and_port_or_refused(said: bytes) -> None:
    try:
        host, port = socks.read_request(_reader(said))
    except (socks.SocksFault, ConnectionError):
        return
    assert hosts.host(host) == host
    assert 1 <= port <= 65_535
    assert set(host) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


@given(st.binary(max_size=80))
def test_any_greeting_is_answered_or_refused(said: bytes) -> None:
    try:
        assert socks.read_greeting(_reader(said)) == b"\x05\x00"
    except (socks.SocksFault, ConnectionError):
        return
    assert said[0] == 5
    assert 0 in said[2 : 2 + said[1]]


@given(st.from_regex(r"([a-z0-9]{1,9}\.){0,4}[a-z][a-z0-9]{0,9}", fullmatch=True), st.integers(1, 65_535))
def test_what_the_client_asks_is_what_the_proxy_reads(host: str, port: int) -> None:
    assert socks.read_request(_reader(socks.request(host, port))) == (host, port)


@given(st.sampled_from(socks.Reply))
def test_what_the_proxy_answers_is_what_the_client_reads(reply: socks.Reply) -> None:
    assert socks.read_answer(_reader(socks.answer(reply))) == reply
