"""E16: the name in a ClientHello, as OpenSSL writes it and as nobody should."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import clienthello
from toolkit.clienthello import NoHello, NotYet


def _hello(name: str | None) -> bytes:
    """Return what a real client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def _in_records(hello: bytes, size: int) -> bytes:
    """Cut the one record of `hello` into many."""
    body = hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


def _with_names(extension: bytes) -> bytes:
    """Return a minimal ClientHello with these extensions."""
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + len(extension).to_bytes(2) + extension
    message = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16\x03\x01" + len(message).to_bytes(2) + message


def _sni(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes([kind]) + len(name).to_bytes(2) + name for name in names)
    listed = len(entries).to_bytes(2) + entries
    return b"\0\0" + len(listed).to_bytes(2) + listed


def test_the_name_of_a_real_client_is_found() -> None:
    assert clienthello.is_tls(_hello("www.example.org"))
    assert clienthello.server_name(_hello("www.example.org")) == b"www.example.org"
    assert clienthello.server_name(_hello(None)) is None


def test_a_hello_in_many_records_is_one_hello() -> None:
    for size in (1, 7, 100):
        assert clienthello.server_name(_in_records(_hello("www.example.org"), size)) == b"www.example.org"


def test_every_beginning_of_a_hello_needs_more() -> None:
    hello = _hello("www.example.org")
    for length in range(1, len(hello)):
        with pytest.raises(NotYet):
            clienthello.server_name(hello[:length])


BAD = {
    "two names": _with_names(_sni(b"www.example.org", b"evil.example.org")),
    "two lists": _with_names(_sni(b"www.example.org") + _sni(b"evil.example.org")),
    "another kind of name": _with_names(_sni(b"www.example.org", kind=1)),
    "an empty list": _with_names(_sni()),
    "a length beyond the end": _with_names(b"\0\0\0\x20abc"),
    "no ClientHello": b"\x16\x03\x01\0\x04\x02\0\0\0",
    "an empty record": b"\x16\x03\x01\0\0",
    "a record too long": b"\x16\x03\x01\xff\xff",
    "a message too long": b"\x16\x03\x01\0\x04\x01\xff\xff\xff",
    "another record before the end": b"\x16\x03\x01\0\x02\x01\0" + b"\x17\x03\x03\0\x01x",
    "SSL 2": b"\x16\x02\x01\0\x04\x01\0\0\0",
}


@pytest.mark.parametrize("start", BAD.values(), ids=BAD.keys())
def test_what_is_no_readable_hello_is_refused(start: bytes) -> None:
    with pytest.raises(NoHello):
        clienthello.server_name(start)


def test_the_minimal_hello_of_these_tests_is_readable() -> None:
    assert clienthello.server_name(_with_names(_sni(b"www.example.org"))) == b"www.example.org"


@given(st.binary(max_size=200), st.integers(0, 250))
def test_any_bytes_give_a_name_none_or_a_refusal(noise: bytes, at: int) -> None:
    hello = _with_names(_sni(b"www.example.org"))
    for start in (noise, b"\x16\x03\x01" + noise, hello[:at] + noise, hello[:at] + noise + hello[at + len(noise) :]):
        try:
            clienthello.server_name(start)
        except (NotYet, NoHello):
            pass
