"""http_fetch through the real proxy to real servers on the loopback. Rows as in docs/tested-rows.md."""

import gzip
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bxcore import tools
from bxcore.deadline import SystemClock
from bxcore.tools import HttpFetch, Method
from tests.fakes.egress import HOST, PUBLIC, Canary, Listener, RunningProxy
from tests.fakes.web_server import Answer, WebServer, authorities, page, redirect
from toolkit import contract, egressproxy, httpfetch, order, socksclient
from toolkit.httpfetch import BODY_BYTES, Fetcher
from toolkit.leash import Leash
from toolkit.order import Misuse, ToolError
from toolkit.place import Place

ROOT = f"https://{HOST}"


def _fetcher(proxy: str | Path, fetch_ms: int = 60_000) -> Fetcher:
    return Fetcher(
        connect=lambda target, seconds: socksclient.connect(str(proxy), target, seconds),
        context=authorities(),
        clock=SystemClock(),
        fetch_ms=fetch_ms,
    )


@contextmanager
def _web(
    directory: Path, answers: dict[str, bytes | Answer], *, tls: bool = True, port: int = 443
) -> Iterator[tuple[Fetcher, WebServer]]:
    with (
        WebServer(answers, tls=tls) as server,
        RunningProxy(directory, servers={PUBLIC: server.port}, port=port) as proxy,
    ):
        yield _fetcher(proxy.path), server


def _get(directory: Path, answer: bytes | Answer) -> str:
    with _web(directory, {"/": answer}) as (fetcher, _):
        return fetcher.fetch(f"{ROOT}/", Method.GET)


def _outcome(fetcher: Fetcher, url: str = ROOT) -> str:
    """Return what the model is told, page or error."""
    try:
        return fetcher.fetch(url, Method.GET)
    except ToolError as error:
        return f"error: {error}"


def test_a_text_comes_with_its_status_address_and_type(tmp_path: Path) -> None:
    with _web(tmp_path, {"/a?b=c": page("hällo\n")}) as (fetcher, server):
        text = fetcher.fetch("HTTPS://WWW.Example.org:443/a?b=c#part", Method.GET)
    assert text == f"HTTP 200 OK\nURL: {ROOT}/a?b=c\nContent-Type: text/plain\n\nhällo\n"
    (request,) = server.requests
    assert request == (
        b"GET /a?b=c HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: boxmaker\r\n"
        b"Accept: text/html, text/plain, application/json, */*;q=0.5\r\n"
        b"Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
    )


def test_a_page_of_html_is_read(tmp_path: Path) -> None:
    html = '<title>T</title><script>no</script><h1>One</h1><a href="/x">two</a>'
    text = _get(tmp_path, page(html, kind="text/html; charset=utf-8"))
    assert text.endswith(f"\n\nTitle: T\n\n# One\n\ntwo ({ROOT}/x)")


def test_head_asks_for_the_headers_alone(tmp_path: Path) -> None:
    with _web(tmp_path, {"/": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n"}) as (fetcher, server):
        text = fetcher.fetch(ROOT, Method.HEAD)
    assert text == f"HTTP 200 OK\nURL: {ROOT}/\nContent-Type: not said\n\nContent-Length: 5\nX-A: b"
    assert server.requests[0].startswith(b"HEAD / HTTP/1.1\r\n")


def test_http_without_tls_where_the_port_was_granted(tmp_path: Path) -> None:
    with _web(tmp_path, {"/": page("plain")}, tls=False, port=80) as (fetcher, _):
        assert fetcher.fetch(f"http://{HOST}/", Method.GET).endswith("plain")
    (tmp_path / "8").mkdir()
    with _web(tmp_path / "8", {"/": page("plain")}, tls=False, port=8080) as (fetcher, server):
        assert fetcher.fetch(f"http://{HOST}:8080/", Method.GET).endswith("plain")
        assert b"\r\nHost: www.example.org:8080\r\n" in server.requests[0]


def test_a_status_that_is_no_success_is_a_page_all_the_same(tmp_path: Path) -> None:
    assert _get(tmp_path, page("no", status="404 Not Found")).startswith("HTTP 404 Not Found\n")


# -- redirects: E14 -----------------------------------------------------------------------------

ELSEWHERE = {
    "metadata": ("http://169.254.169.254/latest/", "http://169.254.169.254/latest/"),
    "another host": ("https://evil.example.org/?a=b", "https://evil.example.org/?a=b"),
    "another host without scheme": ("//evil.example.org/x", "https://evil.example.org/x"),
    "the same host on port 22": (f"{ROOT}:22/", f"{ROOT}:22/"),
    "the same host without TLS": (f"http://{HOST}/", f"http://{HOST}/"),
    "file": ("file:///etc/passwd", "file:///etc/passwd"),
    "javascript": ("javascript:alert(1)", "javascript:alert(1)"),
    "data": ("data:text/html,x", "data:text/html,x"),
    "a user": (f"https://{HOST}@evil.example.org/", f"https://{HOST}@evil.example.org/"),
    "a backslash": (f"https://{HOST}\\@evil.example.org/", f"https://{HOST}\\@evil.example.org/"),
    "loopback in v6": ("http://[::1]/", "http://[::1]/"),
    "no address at all": ("http://[", "http://["),
    "localhost": ("https://localhost/", "https://localhost/"),
    "letters beyond ASCII": ("https://\xe4.example.org/", "https://\\xe4.example.org/"),
}


@pytest.mark.parametrize(("location", "told"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_e14_a_redirect_to_elsewhere_is_told_and_not_followed(tmp_path: Path, location: str, told: str) -> None:
    with _web(tmp_path, {"/": redirect(location)}) as (fetcher, server):
        text = fetcher.fetch(ROOT, Method.GET)
    assert text.startswith(f"HTTP 302 Found\nURL: {ROOT}/\n")
    assert f"\nRedirected to: {told}\n" in text
    assert "\nnot followed" in text
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_within_the_host_is_followed(tmp_path: Path, status: str) -> None:
    answers: dict[str, bytes | Answer] = {"/a/b": redirect("../c?d=e", status=status), "/c?d=e": page("there")}
    with _web(tmp_path, answers) as (fetcher, server):
        text = fetcher.fetch(f"{ROOT}/a/b", Method.GET)
    assert text.startswith(f"HTTP 200 OK\nURL: {ROOT}/c?d=e\n")
    assert len(server.requests) == 2


def test_e14_thirty_hops_end_after_ten_and_one_call_has_room_for_them(tmp_path: Path) -> None:
    answers: dict[str, bytes | Answer] = {f"/{hop}": redirect(f"/{hop + 1}") for hop in range(30)}
    with _web(tmp_path, answers) as (fetcher, server), pytest.raises(ToolError, match="more than 10 redirects"):
        fetcher.fetch(f"{ROOT}/0", Method.GET)
    assert len(server.requests) == 11 < egressproxy.CONNECTIONS


def test_a_redirect_without_a_place_is_a_page(tmp_path: Path) -> None:
    assert _get(tmp_path, page("x", status="302 Found")).endswith("\n\nx")


# -- who may be reached -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    {
        "https://evil.example.org/": "not what was granted",
        f"{ROOT}:8443/": "not what was granted",
        "https://localhost/": "not what was granted",
        "https://127.0.0.1/": "expected a host name",
        "https://me@www.example.org/": "names no user",
        "file:///etc/passwd": "starts with https://",
    }.items(),
)
def test_what_is_not_granted_is_refused_by_the_proxy_or_before(tmp_path: Path, url: str, words: str) -> None:
    with _web(tmp_path, {}) as (fetcher, server), pytest.raises(ToolError, match=words):
        fetcher.fetch(url, Method.GET)
    assert server.taken == 0


def test_e5_a_name_that_leads_to_loopback_is_refused_in_words(tmp_path: Path) -> None:
    with Canary() as canary, RunningProxy(tmp_path, answers={HOST: [("127.0.0.1",)]}, port=canary.port) as proxy:
        with pytest.raises(ToolError, match="not on the public internet"):
            _fetcher(proxy.path).fetch(f"{ROOT}:{canary.port}/", Method.GET)
        assert canary.heard == 0


def test_a_name_without_an_address_is_said(tmp_path: Path) -> None:
    proxy = RunningProxy(tmp_path, answers={"x.example.org": [()]})
    with proxy, pytest.raises(ToolError, match="no address"):
        _fetcher(proxy.path).fetch(ROOT, Method.GET)


def test_tls_is_checked_by_name(tmp_path: Path) -> None:
    """The server's certificate is for www.example.org; here it answers for another granted name."""
    answers: dict[str, list[tuple[str, ...]]] = {"other.example.org": [(PUBLIC,)]}
    with WebServer({"/": page("x")}) as server:
        proxy = RunningProxy(tmp_path, servers={PUBLIC: server.port}, answers=answers, host="other.example.org")
        with proxy, pytest.raises(ToolError, match="certificate was not accepted: Hostname mismatch"):
            _fetcher(proxy.path).fetch("https://other.example.org/", Method.GET)
    assert server.requests == []


def test_tls_is_checked_against_the_given_authorities(tmp_path: Path) -> None:
    with WebServer({"/": page("x")}) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:
        place = Place(roots=(), proxy=str(proxy.path), leash=Leash(0), most_chars=1_000)
        with pytest.raises(ToolError, match="certificate was not accepted"):
            httpfetch.run(HttpFetch(url=ROOT, method=None), place)  # the machine's own: they do not know ours
    assert server.requests == []


def test_a_server_without_tls_is_said(tmp_path: Path) -> None:
    def plain(peer: socket.socket) -> None:
        peer.recv(1)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with Listener(plain) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:
        assert _outcome(_fetcher(proxy.path)).startswith("error: no TLS with that server")


def test_the_environment_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E15, as far as this program goes: proxies of the environment are not asked."""
    with Canary() as canary:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        assert _get(tmp_path, page("x")).endswith("x")
        assert canary.heard == 0


# -- E18: the proxy goes wrong ------------------------------------------------------------------


def test_e18_without_a_proxy_there_is_no_other_way(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no proper answer"):
        _fetcher(tmp_path / "nobody.sock").fetch(ROOT, Method.GET)
    with pytest.raises(Misuse):
        httpfetch.run(HttpFetch(url=ROOT, method=None), Place(roots=(), proxy=None, leash=Leash(0), most_chars=1_000))


def test_e18_a_proxy_that_dies_in_the_middle_ends_the_call(tmp_path: Path) -> None:
    with WebServer({}) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:

        def die(peer: socket.socket, _: bytes) -> None:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf")
            proxy.let_go()
            proxy.join()

        server.answers["/"] = die
        outcome = _outcome(_fetcher(proxy.path))
    # As far as it came: the answer may not have reached us before the end did.
    assert outcome.startswith("error: ") or outcome.endswith(f"half\n{tools.CUT}: the connection ended early]")


ODD_PROXIES = {
    "says nothing": [],
    "wants a login": [b"\x05\x02"],
    "is another version": [b"\x04\x00"],
    "answers half": [b"\x05\x00", b"\x05\x00\x00"],
    "answers nonsense": [b"\x05\x00", b"HTTP/1.1 200"],
    "answers a code of its own": [b"\x05\x00", b"\x05\x77\x00\x01" + bytes(6)],
    "refuses": [b"\x05\x00", b"\x05\x02\x00\x01" + bytes(6)],
    "fails": [b"\x05\x00", b"\x05\x01\x00\x01" + bytes(6)],
}


@pytest.mark.parametrize("said", ODD_PROXIES.values(), ids=ODD_PROXIES.keys())
def test_e18_a_proxy_that_makes_no_sense_is_an_error_in_words(tmp_path: Path, said: list[bytes]) -> None:
    def odd(peer: socket.socket) -> None:
        for piece in said:
            peer.recv(300)
            peer.sendall(piece)

    path = tmp_path / "odd.sock"
    with Listener(odd, path), pytest.raises(ToolError):
        _fetcher(path).fetch(ROOT, Method.GET)


def test_e18_a_proxy_that_never_answers_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "slow.sock"
    with Listener(_wait_for_the_end, path), pytest.raises(ToolError, match="did not come within"):
        _fetcher(path, fetch_ms=300).fetch(ROOT, Method.GET)


def _wait_for_the_end(peer: socket.socket) -> None:
    while peer.recv(4_096):
        pass


def _trickle(peer: socket.socket, _: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        peer.sendall(b"x")
        time.sleep(0.02)


def test_a_server_that_trickles_is_given_up_as_a_whole(tmp_path: Path) -> None:
    """Each read succeeds in time: only a limit on all of them together ends it."""
    with WebServer({"/": _trickle}) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:
        outcome = _outcome(_fetcher(proxy.path, fetch_ms=600))
    assert outcome.endswith(f"x\n{tools.CUT}: the time was over]")


# -- bodies -------------------------------------------------------------------------------------


def _packed(data: bytes, window: int) -> bytes:
    packer = zlib.compressobj(wbits=window)
    return packer.compress(data) + packer.flush()


ENCODINGS = {
    "gzip": gzip.compress(b"packed text"),
    "x-gzip": gzip.compress(b"packed text"),
    "deflate": _packed(b"packed text", zlib.MAX_WBITS),
    "Deflate": _packed(b"packed text", -zlib.MAX_WBITS),
    "identity": b"packed text",
}


@pytest.mark.parametrize(("encoding", "body"), ENCODINGS.items())
def test_a_packed_page_is_unpacked_though_it_was_not_asked_for(tmp_path: Path, encoding: str, body: bytes) -> None:
    assert _get(tmp_path, page(body, f"Content-Encoding: {encoding}")).endswith("\n\npacked text")


def test_a_packed_page_that_unpacks_to_a_gigabyte_is_cut(tmp_path: Path) -> None:
    bomb = _packed(bytes(200_000_000).replace(b"\0", b"x"), zlib.MAX_WBITS | 16)
    text = _get(tmp_path, page(bomb, "Content-Encoding: gzip"))
    assert text.endswith(f"xxx\n{tools.CUT}: only the first {BODY_BYTES} bytes were unpacked]")
    assert len(text) < BODY_BYTES + 500


def test_a_page_packed_twice_or_in_an_unknown_way_is_described(tmp_path: Path) -> None:
    for number, encoding in enumerate(("gzip, gzip", "br", "zstd")):
        (tmp_path / str(number)).mkdir()
        text = _get(tmp_path / str(number), page(b"abc", f"Content-Encoding: {encoding}"))
        assert f"not text, packed as {encoding}: 3 bytes, sha256 ba7816bf" in text


def test_a_page_that_is_not_packed_as_it_says_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="and is not"):
        _get(tmp_path, page("plain", "Content-Encoding: gzip"))


def test_a_packed_page_that_ends_early_is_marked(tmp_path: Path) -> None:
    text = _get(tmp_path, page(gzip.compress(b"x" * 1_000)[:-9], "Content-Encoding: gzip"))
    assert text.endswith(f"{tools.CUT}: the packed data ended early]")


def _endless(peer: socket.socket, _: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        peer.sendall(b"x" * 65_536)


def test_a_body_without_end_is_cut(tmp_path: Path) -> None:
    with WebServer({"/": _endless}) as server:
        proxy = RunningProxy(tmp_path, servers={PUBLIC: server.port}, total_bytes=100_000_000)
        with proxy:
            text = _fetcher(proxy.path).fetch(ROOT, Method.GET)
    assert text.endswith(f"xxx\n{tools.CUT}: only the first {BODY_BYTES} bytes were read]")


def test_a_body_beyond_what_the_call_may_move_is_cut(tmp_path: Path) -> None:
    with WebServer({"/": _endless}) as server:
        proxy = RunningProxy(tmp_path, servers={PUBLIC: server.port}, total_bytes=200_000)
        with proxy:
            text = _fetcher(proxy.path).fetch(ROOT, Method.GET)
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
    assert _get(tmp_path, page(body, kind=kind)).partition("\n\n")[2] == text


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
    assert f"\nnot text: {len(body)} bytes, sha256 " in _get(tmp_path, page(body, kind=kind))


def test_what_a_server_says_of_itself_cannot_forge_lines(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 O\x1b[2JK\r\nContent-Type: text/plain; \x1b]0;x\x07\xe2\x80\xae\r\n\r\nx"
    head = _get(tmp_path, answer).partition("\n\n")[0]
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
    with _web(tmp_path, {"/": answer}) as (fetcher, _):
        outcome = _outcome(fetcher)
    assert outcome.startswith("error: no proper answer") or outcome.endswith("(empty)")


@pytest.mark.parametrize(
    "body", [b"5\r\nhal", b"zz\r\nhallo", b"5\r\nhallo\r\n", b"fffffffffffffffff\r\nhallo", b"-1\r\nhallo"]
)
def test_a_chunked_body_that_breaks_off_is_marked(tmp_path: Path, body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    with _web(tmp_path, {"/": answer}) as (fetcher, _):
        assert f"{tools.CUT}: the connection ended early]" in _outcome(fetcher)


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
        assert _outcome(fetcher, f"http://{HOST}/").startswith(("HTTP ", "error: "))
    finally:
        while _LEFT:
            _LEFT.pop().close()


def test_the_tool_is_found_under_its_name_and_says_its_error_as_the_others_do(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    line = (
        b'{"tool":"http_fetch","arguments":{"url":"https://www.example.org/"},"mounts":[],"proxy":"/nobody/proxy.sock"}'
    )
    asked = order.read(line)
    place = Place(roots=(), proxy=asked.proxy, leash=Leash(0), most_chars=1_000)
    assert contract.carry_out(asked, place) == contract.OWN_ERROR
    assert capfdbinary.readouterr().out.startswith(b"error: no proper answer from that server")
