"""What http_fetch makes of what servers send: sizes, encodings, character sets, nonsense."""

import gzip
import socket
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bxcore import tools
from bxcore.deadline import SystemClock
from tests.fakes import fetching
from tests.fakes.egress import HOST, PUBLIC, RunningProxy
from tests.fakes.web_server import WebServer, authorities, page
from toolkit.httpfetch import BODY_BYTES, Fetcher
from toolkit.order import ToolError


def _packed(data: bytes, window: int) -> bytes:
    packer = zlib.compressobj(wbits=window)
    return packer.compress(data) + packer.flush()


ENCODINGS = {
    "gzip": gzip.compress(b"packed text", mtime=0),
    "x-gzip": gzip.compress(b"packed text", mtime=0),
    "deflate": _packed(b"packed text", zlib.MAX_WBITS),
    "Deflate": _packed(b"packed text", -zlib.MAX_WBITS),
    "identity": b"packed text",
}


@pytest.mark.parametrize(("encoding", "body"), ENCODINGS.items())
def test_a_packed_page_is_unpacked_though_it_was_not_asked_for(tmp_path: Path, encoding: str, body: bytes) -> None:
    assert fetching.get(tmp_path, page(body, f"Content-Encoding: {encoding}")).endswith("\n\npacked text")


def test_a_packed_page_that_unpacks_to_a_gigabyte_is_cut(tmp_path: Path) -> None:
    bomb = _packed(bytes(200_000_000).replace(b"\0", b"x"), zlib.MAX_WBITS | 16)
    text = fetching.get(tmp_path, page(bomb, "Content-Encoding: gzip"))
    assert text.endswith(f"xxx\n{tools.CUT}: only the first {BODY_BYTES} bytes were unpacked]")
    assert len(text) < BODY_BYTES + 500


def test_a_page_packed_twice_or_in_an_unknown_way_is_described(tmp_path: Path) -> None:
    for number, encoding in enumerate(("gzip, gzip", "br", "zstd")):
        (tmp_path / str(number)).mkdir()
        text = fetching.get(tmp_path / str(number), page(b"abc", f"Content-Encoding: {encoding}"))
        assert f"not text, packed as {encoding}: 3 bytes, sha256 ba7816bf" in text


def test_a_page_that_is_not_packed_as_it_says_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="and is not"):
        fetching.get(tmp_path, page("plain", "Content-Encoding: gzip"))


def test_a_packed_page_that_ends_early_is_marked(tmp_path: Path) -> None:
    text = fetching.get(tmp_path, page(gzip.compress(b"x" * 1_000)[:-9], "Content-Encoding: gzip"))
    assert text.endswith(f"{tools.CUT}: the packed data ended early]")


def _endless(peer: socket.socket, _: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        peer.sendall(b"x" * 65_536)


def test_a_body_without_end_is_cut(tmp_path: Path) -> None:
    with WebServer({"/": _endless}) as server:
        proxy = RunningProxy(tmp_path, servers={PUBLIC: server.port}, total_bytes=100_000_000)
        with proxy:
            text = fetching.outcome(fetching.fetcher(proxy.path))
    assert text.endswith(f"xxx\n{tools.CUT}: only the first {BODY_BYTES} bytes were read]")


def test_a_body_beyond_what_the_call_may_move_is_cut(tmp_path: Path) -> None:
    with WebServer({"/": _endless}) as server:
        proxy = RunningProxy(tmp_path, servers={PUBLIC: server.port}, total_bytes=200_000)
        with proxy:
            text = fetching.outcome(fetching.fetcher(proxy.path))
    assert text.endswith(f"xxx\n{tools.CUT}: the connection ended early]")
    assert len(text) < 200_000


BODIES = {
    "utf-8": ("hällo".encode(), "text/plain", "hällo"),
    "said": ("hällo".encode("latin-1"), "text/plain; charset=ISO-8859-1", "hällo"),
    "said in quotes": ("пример".encode("koi8-r"), 'text/plain; charset="KOI8-R"', "пример"),
    "a mark": (b"\xff\xfe" + "hällo".encode("utf-16-le"), "text/plain", "hällo"),
    "neither": (b"h\xe4llo", "text/plain", "hällo"),
    "meta": ('<meta charset="windows-1251">пример'.encode("cp1251"), "text/html", "пример"),
    "no character set": (b"h\xc3\xa4llo", "text/plain; charset=unicode_escape", "hällo"),
    "unknown": (b"h\xc3\xa4llo", "text/plain; charset=x-nothing", "hällo"),
    "cut inside a letter": ("hällo ä".encode()[:-1], "text/plain", "hällo "),
    "json": (b'{"a": 1}', "application/json", '{"a": 1}'),
    "a kind of json": (b'{"a": 1}', "application/problem+json", '{"a": 1}'),
    "no type, text": (b"just text", "", "just text"),
    "no type, a page": (b"  <!DOCTYPE html><p>page", "", "page"),
    "nothing": (b"", "text/plain", "(empty)"),
    "xhtml": (b"<html><body><p>page</p></body></html>", "application/xhtml+xml", "page"),
}


@pytest.mark.parametrize(("body", "kind", "text"), BODIES.values(), ids=BODIES.keys())
def test_a_body_is_read_in_its_character_set(tmp_path: Path, body: bytes, kind: str, text: str) -> None:
    assert fetching.get(tmp_path, page(body, kind=kind)).partition("\n\n")[2] == text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"%PDF-1.7", "application/pdf"),
        (b"text\0text", "text/plain"),
        (b"\xff\xfb\x90\x44", ""),
    ],
)
def test_what_is_no_text_is_described(tmp_path: Path, body: bytes, kind: str) -> None:
    assert f"\nnot text: {len(body)} bytes, sha256 " in fetching.get(tmp_path, page(body, kind=kind))


def test_what_a_server_says_of_itself_cannot_forge_lines(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 O\x1b[2JK\r\nContent-Type: text/plain; \x1b]0;x\x07\xe2\x80\xae\r\n\r\nx"
    head = fetching.get(tmp_path, answer).partition("\n\n")[0]
    assert head.count("\n") == 2
    assert head.isascii()
    assert head.replace("\n", "").isprintable()


BAD_ANSWERS = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-x\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "a thousand headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Ty",
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_an_answer_that_is_none_is_an_error_in_words_or_an_empty_page(tmp_path: Path, answer: bytes) -> None:
    with fetching.web(tmp_path, {"/": answer}) as (fetcher, _):
        outcome = fetching.outcome(fetcher)
    assert outcome.startswith("error: no proper answer") or outcome.endswith("(empty)")


@pytest.mark.parametrize(
    "body", [b"5\r\nhal", b"zz\r\nhallo", b"5\r\nhallo\r\n", b"fffffffffffffffff\r\nhallo", b"-1\r\nhallo"]
)
def test_a_chunked_body_that_breaks_off_is_marked(tmp_path: Path, body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    with fetching.web(tmp_path, {"/": answer}) as (fetcher, _):
        assert f"{tools.CUT}: the connection ended early]" in fetching.outcome(fetcher)


class _Canned:
    """A connection that says what it was given, so that many answers can be tried without a server."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def __call__(self, target: object, seconds: float) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(seconds)
        theirs.settimeout(seconds)
        try:
            theirs.sendall(self._answer)
            theirs.shutdown(socket.SHUT_WR)
        finally:
            _LEFT.append(theirs)
        return ours


_LEFT: list[socket.socket] = []


@settings(max_examples=200, deadline=None)
@given(
    head=st.lists(
        st.sampled_from(
            [
                *(
                    "HTTP/1.1 200 OK\r\n",
                    "HTTP/1.1 302 Found\r\n",
                    "Location: /x\r\n",
                    "Location: //[\r\n",
                    "\r\n",
                    "x: y",
                ),
                *("Content-Length: 3\r\n", "Content-Length: -3\r\n", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n"),
                *(
                    "Content-Type: text/html\r\n",
                    "Content-Type: text/x; charset=idna\r\n",
                    "Content-Encoding: gzip\r\n",
                ),
                "Content-Encoding: deflate\r\n",
            ]
        ),
        max_size=9,
    ),
    noise=st.binary(max_size=60),
)
def test_whatever_a_server_says_the_outcome_is_a_text_or_an_error_in_words(head: list[str], noise: bytes) -> None:
    fetcher = Fetcher(
        connect=_Canned("".join(["HTTP/1.1 200 OK\r\n", *head]).encode() + noise),
        context=authorities(),
        clock=SystemClock(),
    )
    try:
        assert fetching.outcome(fetcher, f"http://{HOST}/").startswith(("HTTP ", "error: "))
    finally:
        while _LEFT:
            _LEFT.pop().close()
