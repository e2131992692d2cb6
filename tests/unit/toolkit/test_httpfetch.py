"""http_fetch through the real proxy to real servers on the loopback. Rows as in docs/tested-rows.md."""

import socket
import time
from pathlib import Path

import pytest

from bxcore import tools
from bxcore.tools import HttpFetch, Method
from tests.fakes import fetching
from tests.fakes.egress import HOST, PUBLIC, Canary, Listener, RunningProxy
from tests.fakes.fetching import ROOT
from tests.fakes.web_server import Answer, WebServer, page, redirect
from toolkit import contract, egressproxy, httpfetch, order
from toolkit.leash import Leash
from toolkit.order import Misuse, ToolError
from toolkit.place import Place


def test_a_text_comes_with_its_status_address_and_type(tmp_path: Path) -> None:
    with fetching.web(tmp_path, {"/a?b=c": page("hällo\n")}) as (fetcher, server):
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
    text = fetching.get(tmp_path, page(html, kind="text/html; charset=utf-8"))
    assert text.endswith(f"\n\nTitle: T\n\n# One\n\ntwo ({ROOT}/x)")


def test_head_asks_for_the_headers_alone(tmp_path: Path) -> None:
    with fetching.web(tmp_path, {"/": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n"}) as (fetcher, server):
        text = fetcher.fetch(ROOT, Method.HEAD)
    assert text == f"HTTP 200 OK\nURL: {ROOT}/\nContent-Type: not said\n\nContent-Length: 5\nX-A: b"
    assert server.requests[0].startswith(b"HEAD / HTTP/1.1\r\n")


def test_http_without_tls_where_the_port_was_granted(tmp_path: Path) -> None:
    with fetching.web(tmp_path, {"/": page("plain")}, tls=False, port=80) as (fetcher, _):
        assert fetcher.fetch(f"http://{HOST}/", Method.GET).endswith("plain")
    (tmp_path / "8").mkdir()
    with fetching.web(tmp_path / "8", {"/": page("plain")}, tls=False, port=8080) as (fetcher, server):
        assert fetcher.fetch(f"http://{HOST}:8080/", Method.GET).endswith("plain")
        assert b"\r\nHost: www.example.org:8080\r\n" in server.requests[0]


def test_a_status_that_is_no_success_is_a_page_all_the_same(tmp_path: Path) -> None:
    assert fetching.get(tmp_path, page("no", status="404 Not Found")).startswith("HTTP 404 Not Found\n")


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
    with fetching.web(tmp_path, {"/": redirect(location)}) as (fetcher, server):
        text = fetcher.fetch(ROOT, Method.GET)
    assert text.startswith(f"HTTP 302 Found\nURL: {ROOT}/\n")
    assert f"\nRedirected to: {told}\n" in text
    assert "\nnot followed" in text
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_within_the_host_is_followed(tmp_path: Path, status: str) -> None:
    answers: dict[str, bytes | Answer] = {"/a/b": redirect("../c?d=e", status=status), "/c?d=e": page("there")}
    with fetching.web(tmp_path, answers) as (fetcher, server):
        text = fetcher.fetch(f"{ROOT}/a/b", Method.GET)
    assert text.startswith(f"HTTP 200 OK\nURL: {ROOT}/c?d=e\n")
    assert len(server.requests) == 2


def test_e14_thirty_hops_end_after_ten_and_one_call_has_room_for_them(tmp_path: Path) -> None:
    answers: dict[str, bytes | Answer] = {f"/{hop}": redirect(f"/{hop + 1}") for hop in range(30)}
    with fetching.web(tmp_path, answers) as (fetcher, server), pytest.raises(ToolError, match="more than 10 redirects"):
        fetcher.fetch(f"{ROOT}/0", Method.GET)
    assert len(server.requests) == 11 < egressproxy.CONNECTIONS


def test_a_redirect_without_a_place_is_a_page(tmp_path: Path) -> None:
    assert fetching.get(tmp_path, page("x", status="302 Found")).endswith("\n\nx")


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
    with fetching.web(tmp_path, {}) as (fetcher, server), pytest.raises(ToolError, match=words):
        fetcher.fetch(url, Method.GET)
    assert server.taken == 0


def test_e5_a_name_that_leads_to_loopback_is_refused_in_words(tmp_path: Path) -> None:
    with Canary() as canary, RunningProxy(tmp_path, answers={HOST: [("127.0.0.1",)]}, port=canary.port) as proxy:
        with pytest.raises(ToolError, match="not on the public internet"):
            fetching.fetcher(proxy.path).fetch(f"{ROOT}:{canary.port}/", Method.GET)
        assert canary.heard == 0


def test_a_name_without_an_address_is_said(tmp_path: Path) -> None:
    proxy = RunningProxy(tmp_path, answers={"x.example.org": [()]})
    with proxy, pytest.raises(ToolError, match="no address"):
        fetching.fetcher(proxy.path).fetch(ROOT, Method.GET)


def test_tls_is_checked_by_name(tmp_path: Path) -> None:
    """The server's certificate is for www.example.org; here it answers for another granted name."""
    answers: dict[str, list[tuple[str, ...]]] = {"other.example.org": [(PUBLIC,)]}
    with WebServer({"/": page("x")}) as server:
        proxy = RunningProxy(tmp_path, servers={PUBLIC: server.port}, answers=answers, host="other.example.org")
        with proxy, pytest.raises(ToolError, match="certificate was not accepted: Hostname mismatch"):
            fetching.fetcher(proxy.path).fetch("https://other.example.org/", Method.GET)
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
        assert fetching.outcome(fetching.fetcher(proxy.path)).startswith("error: no TLS with that server")


def test_the_environment_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E15, as far as this program goes: proxies of the environment are not asked."""
    with Canary() as canary:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        assert fetching.get(tmp_path, page("x")).endswith("x")
        assert canary.heard == 0


# -- E18: the proxy goes wrong ------------------------------------------------------------------


def test_e18_without_a_proxy_there_is_no_other_way(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no proper answer"):
        fetching.fetcher(tmp_path / "nobody.sock").fetch(ROOT, Method.GET)
    with pytest.raises(Misuse):
        httpfetch.run(HttpFetch(url=ROOT, method=None), Place(roots=(), proxy=None, leash=Leash(0), most_chars=1_000))


def test_e18_a_proxy_that_dies_in_the_middle_ends_the_call(tmp_path: Path) -> None:
    with WebServer({}) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:

        def die(peer: socket.socket, _: bytes) -> None:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf")
            proxy.let_go()
            proxy.join()

        server.answers["/"] = die
        outcome = fetching.outcome(fetching.fetcher(proxy.path))
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
        fetching.fetcher(path).fetch(ROOT, Method.GET)


def test_e18_a_proxy_that_never_answers_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "slow.sock"
    with Listener(_wait_for_the_end, path), pytest.raises(ToolError, match="did not come within"):
        fetching.fetcher(path, fetch_ms=300).fetch(ROOT, Method.GET)


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
        outcome = fetching.outcome(fetching.fetcher(proxy.path, fetch_ms=600))
    assert outcome.endswith(f"x\n{tools.CUT}: the time was over]")


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
