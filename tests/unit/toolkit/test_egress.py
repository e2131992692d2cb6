"""The real proxy, with names and addresses of the test's own. Row numbers are those of docs/tested-rows.md."""

import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.egress import HOST, PUBLIC, Canary, Listener, RunningProxy
from toolkit import egressproxy, socks
from toolkit.egressorder import Verdict
from toolkit.socks import Reply

Answers = dict[str, list[tuple[str, ...]]]

HELLO = socks.greeting()
PLAIN = b"GET / HTTP/1.1\r\n\r\n"


def _echo(peer: socket.socket) -> None:
    while piece := peer.recv(65_536):
        peer.sendall(piece)


def _named(name: bytes, port: int = 443) -> bytes:
    return b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", port)


def _reply(said: bytes) -> int:
    assert said[:2] == b"\x05\x00"
    return said[3]


@pytest.fixture
def echo() -> Iterator[Listener]:
    with Listener(_echo) as listener:
        yield listener


def _verdicts(proxy: RunningProxy) -> list[Verdict]:
    """Wait for the end of the proxy and return what it recorded."""
    proxy.let_go()
    proxy.join()
    return [report.verdict for report in proxy.reports]


def test_the_granted_host_and_port_is_dialled_and_bytes_pass_both_ways(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}) as proxy:
        with proxy.connected() as client:
            client.sendall(HELLO + _named(HOST.encode()))
            answer = client.recv(2) + client.recv(10)
            client.sendall(PLAIN)
            back = client.recv(100)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        assert _verdicts(proxy) == [Verdict.DIALLED]
    assert (_reply(answer), back) == (Reply.DONE, PLAIN)
    report = proxy.reports[0]
    assert (report.host, report.port, report.address) == (HOST, 443, PUBLIC)
    assert report.passed_bytes == 2 * len(PLAIN)
    assert report.line().endswith(b'"verdict":"dialled","address":"93.184.216.34","bytes":36}\n')


def test_e10_case_and_a_trailing_dot_make_no_other_name(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}) as proxy, proxy.connected() as client:
        client.sendall(HELLO + _named(b"WWW.example.ORG."))
        assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
    assert proxy.asked == [HOST]


E7 = {
    "a NUL in the middle": b"evil.example\0.www.example.org",
    "a NUL before the granted name": b"evil.example.org\0www.example.org",
    "a NUL behind the granted name": b"www.example.org\0evil.example.org",
    "a NUL at the end": b"www.example.org\0",
    "no length": b"",
    "255 bytes": b"a" * 255,
    "254 bytes": b".".join([b"a" * 62] * 4) + b".ab",
    "high bytes": b"www.ex\xc3\xa4mple.net",
    "a lone high byte": b"www.example.org\x80",
    "a space": b"www.example.org ",
    "percent": b"www%00.example.org",
    "CR LF": b"www.example.org\r\nx",
    "two dots": b"www.example.org..",
    "a slash": b"www.example.org/",
    "a port": b"www.example.org:443",
    "a number": b"2130706433",
    "v4 as a name": b"127.0.0.1",
    "v4 in short": b"127.1",
    "v6 as a name": b"::1",
    "a star": b"*.example.org",
}


@pytest.mark.parametrize("name", E7.values(), ids=E7.keys())
def test_e7_e1_what_is_no_name_is_refused_before_any_comparison(tmp_path: Path, name: bytes) -> None:
    with RunningProxy(tmp_path) as proxy:
        assert _reply(proxy.speak(HELLO, _named(name))) == Reply.NO_NAME
        assert _verdicts(proxy) == [Verdict.NO_NAME]
    assert proxy.asked == proxy.dialled == []
    assert proxy.reports[0].host is None


def test_e7_a_length_beyond_the_frame_is_refused(tmp_path: Path) -> None:
    with RunningProxy(tmp_path) as proxy:
        with proxy.connected() as client:
            client.sendall(HELLO + b"\x05\x01\x00\x03\xff" + HOST.encode())
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b"\x05\x00"
            assert client.recv(100) == b""
        assert _verdicts(proxy) == [Verdict.MALFORMED]
    assert proxy.asked == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x05\x01\x00\x01" + bytes([93, 184, 216, 34]) + b"\x01\xbb",
        b"\x05\x01\x00\x01" + bytes([8, 8, 8, 8]) + b"\x01\xbb",
        b"\x05\x01\x00\x04" + socket.inet_pton(socket.AF_INET6, "::1") + b"\x01\xbb",
    ],
    ids=["of the granted name", "of another public one", "v6 loopback"],
)
def test_e8_an_address_is_refused(tmp_path: Path, request_bytes: bytes) -> None:
    with RunningProxy(tmp_path) as proxy:
        assert _reply(proxy.speak(HELLO, request_bytes)) == Reply.BAD_ADDRESS
        assert _verdicts(proxy) == [Verdict.ADDRESS]
    assert proxy.asked == proxy.dialled == []


OTHERS = {
    "another host": (b"example.org", 443),
    "a host below": (b"a.www.example.org", 443),
    "a host that ends like it": (b"evilwww.example.org", 443),
    "E14 another port": (HOST.encode(), 22),
    "localhost": (b"localhost", 443),
    "port 0": (HOST.encode(), 0),
}


@pytest.mark.parametrize(("name", "port"), OTHERS.values(), ids=OTHERS.keys())
def test_e14_anything_but_the_granted_host_and_port_is_refused(tmp_path: Path, name: bytes, port: int) -> None:
    with RunningProxy(tmp_path) as proxy:
        assert _reply(proxy.speak(HELLO, _named(name, port))) == Reply.NOT_ALLOWED
        assert _verdicts(proxy)[0] in {Verdict.NOT_GRANTED, Verdict.MALFORMED}
    assert proxy.asked == proxy.dialled == []


E5 = {
    "loopback behind a public one": (PUBLIC, "127.0.0.1"),
    "loopback before a public one": ("127.0.0.1", PUBLIC),
    "loopback v6": (PUBLIC, "::1"),
    "private": ("10.0.0.1",),
    "metadata": ("169.254.169.254",),
    "E4 a tailnet": (PUBLIC, "100.64.0.1"),
    "E3 mapped": ("::ffff:127.0.0.1",),
    "link-local with a zone": ("fe80::1%eth0",),
    "the last of a thousand": (*[f"93.184.{n // 250}.{n % 250}" for n in range(999)], "192.168.1.1"),
}


@pytest.mark.parametrize("addresses", E5.values(), ids=E5.keys())
def test_e5_one_bad_answer_spoils_all(tmp_path: Path, addresses: tuple[str, ...]) -> None:
    with Canary() as canary:
        answers = {HOST: [addresses]}
        with RunningProxy(tmp_path, answers=answers, port=canary.port) as proxy:
            assert _reply(proxy.speak(HELLO, _named(HOST.encode(), canary.port))) == Reply.NOT_PUBLIC
            assert _verdicts(proxy) == [Verdict.NOT_PUBLIC]
        assert proxy.dialled == []
        assert canary.heard == 0


@pytest.mark.parametrize("answers", [{HOST: [()]}, {"other.example.org": [(PUBLIC,)]}], ids=["none", "no such name"])
def test_e5_a_name_without_addresses_is_refused(tmp_path: Path, answers: Answers) -> None:
    with RunningProxy(tmp_path, answers=answers) as proxy:
        assert _reply(proxy.speak(HELLO, _named(HOST.encode()))) == Reply.UNREACHABLE
        assert _verdicts(proxy) == [Verdict.NO_ADDRESS]
    assert proxy.dialled == []


def test_e5_only_so_many_of_a_thousand_addresses_are_tried(tmp_path: Path) -> None:
    with Listener(_echo) as gone:
        port = gone.port  # nobody listens there any more once it is closed
    addresses = tuple(f"93.184.1.{number}" for number in range(100))
    with RunningProxy(tmp_path, answers={HOST: [addresses]}, servers=dict.fromkeys(addresses, port)) as proxy:
        assert _reply(proxy.speak(HELLO, _named(HOST.encode()))) == Reply.UNREACHABLE
        assert _verdicts(proxy) == [Verdict.UNREACHABLE]
    assert proxy.dialled == list(addresses[: egressproxy.ADDRESSES])


def test_the_second_address_is_tried_where_the_first_is_away(tmp_path: Path, echo: Listener) -> None:
    with Listener(_echo) as gone:
        port = gone.port
    addresses = ("93.184.1.1", PUBLIC)
    servers = {"93.184.1.1": port, PUBLIC: echo.port}
    with RunningProxy(tmp_path, answers={HOST: [addresses]}, servers=servers) as proxy, proxy.connected() as client:
        client.sendall(HELLO + _named(HOST.encode()))
        assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
    assert proxy.reports[0].address == PUBLIC


def test_e6_a_name_that_turns_to_loopback_between_two_questions_reaches_nothing(tmp_path: Path, echo: Listener) -> None:
    """Neighbours 16: each connection asks once, judges that answer and dials out of it."""
    with Canary() as canary:
        answers: Answers = {HOST: [(PUBLIC,), ("127.0.0.1",)]}
        servers = {PUBLIC: echo.port}
        with RunningProxy(tmp_path, answers=answers, servers=servers, port=canary.port) as proxy:
            with proxy.connected() as client:
                client.sendall(HELLO + _named(HOST.encode(), canary.port))
                assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
            assert len(proxy.asked) == 1
            assert _reply(proxy.speak(HELLO, _named(HOST.encode(), canary.port))) == Reply.NOT_PUBLIC
            assert sorted(verdict.value for verdict in _verdicts(proxy)) == ["dialled", "not_public"]
        assert proxy.dialled == [PUBLIC]
        assert canary.heard == 0


def test_s14_every_dial_is_decided_by_itself_whatever_came_before(tmp_path: Path, echo: Listener) -> None:
    """A relay inside the container may speak to the proxy in turns with the tool: each request stands alone."""
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}) as proxy:
        with proxy.connected() as client:
            client.sendall(HELLO + _named(HOST.encode()))
            assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
            # A second request inside the opened connection is data for the granted host, nothing more.
            client.sendall(HELLO + _named(b"evil.example.org"))
            assert client.recv(100).startswith(HELLO)
            assert _reply(proxy.speak(HELLO, _named(b"evil.example.org"))) == Reply.NOT_ALLOWED
        assert sorted(verdict.value for verdict in _verdicts(proxy)) == ["dialled", "not_granted"]
    assert proxy.dialled == [PUBLIC]


MALFORMED = {
    "SOCKS4": b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00",
    "HTTP": b"CONNECT www.example.org:443 HTTP/1.1\r\n\r\n",
    "no methods": b"\x05\x00",
    "only a login": b"\x05\x01\x02",
    "BIND": HELLO + b"\x05\x02\x00\x03\x0fwww.example.org\x01\xbb",
    "UDP": HELLO + b"\x05\x03\x00\x03\x0fwww.example.org\x01\xbb",
    "another version in the request": HELLO + b"\x04\x01\x00\x03\x0fwww.example.org\x01\xbb",
    "reserved byte": HELLO + b"\x05\x01\x01\x03\x0fwww.example.org\x01\xbb",
    "unknown kind": HELLO + b"\x05\x01\x00\x02\x0fwww.example.org\x01\xbb",
}


@pytest.mark.parametrize("said", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_request_of_our_client_is_refused(tmp_path: Path, said: bytes) -> None:
    with RunningProxy(tmp_path) as proxy:
        proxy.speak(said)
        assert _verdicts(proxy) == [Verdict.MALFORMED]
    assert proxy.asked == proxy.dialled == []


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("egress")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    name=st.one_of(
        st.binary(min_size=1, max_size=60),
        st.sampled_from([b"", b"evil.example.org\0.", b"evil.example.org\0", b"a.", b"WWW.", b"\xc0\x80"]).map(
            lambda start: start + HOST.encode()
        ),
        st.sampled_from([HOST.encode(), HOST.upper().encode(), HOST.encode() + b"."]),
    )
)
def test_s13_the_name_that_is_compared_is_the_name_that_is_resolved_and_dialled(name: bytes, lasting: Path) -> None:
    """Neighbours 13: matcher and resolver never see two hosts."""
    with Listener(_echo) as echo:
        directory = lasting / os.urandom(8).hex()
        directory.mkdir()
        answers: Answers = {HOST: [(PUBLIC,)], "evil.example.org": [("93.184.216.99",)]}
        with RunningProxy(directory, answers=answers, servers={PUBLIC: echo.port}) as proxy:
            with proxy.connected() as client:
                client.sendall(HELLO + _named(name))
                assert client.recv(2) == b"\x05\x00"
                granted = client.recv(10)[1] == Reply.DONE
            proxy.let_go()
            proxy.join()
    plain = name.decode("latin-1").lower().removesuffix(".")
    assert granted == (plain == HOST)
    assert set(proxy.asked) <= {HOST}
    assert proxy.dialled == ([PUBLIC] if granted else [])


def test_e18_only_so_many_connections_are_taken_and_the_rest_is_recorded_once(tmp_path: Path) -> None:
    with RunningProxy(tmp_path) as proxy:
        clients = [proxy.connected() for _ in range(egressproxy.CONNECTIONS)]
        refused = 0
        for _ in range(500):
            try:
                with proxy.connected() as client:
                    refused += client.recv(1) == b""
            except (ConnectionError, FileNotFoundError):
                refused += 1
        for client in clients:
            client.close()
        verdicts = _verdicts(proxy)
    assert refused == 500
    assert verdicts.count(Verdict.TOO_MANY) == 1
    assert len(verdicts) == egressproxy.CONNECTIONS + 1


def test_the_cap_on_connections_does_not_end_those_that_are_open(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}) as proxy, proxy.connected() as first:
        first.sendall(HELLO + _named(HOST.encode()))
        assert _reply(first.recv(2) + first.recv(10)) == Reply.DONE
        for _ in range(egressproxy.CONNECTIONS + 1):
            try:
                proxy.connected().close()
            except ConnectionError:
                break
        first.sendall(PLAIN)
        assert first.recv(100) == PLAIN


def test_more_bytes_than_the_call_may_move_end_its_connections(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}, total_bytes=100_000) as proxy:
        with proxy.connected() as client:
            client.sendall(HELLO + _named(HOST.encode()))
            assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
            got = _pump(client, b"x" * 1_000)
        assert _verdicts(proxy) == [Verdict.BYTE_LIMIT]
    assert proxy.reports[0].passed_bytes <= 100_000
    assert got <= 100_000


def _pump(client: socket.socket, piece: bytes) -> int:
    """Send and receive in turns until the other end has had enough; return how many bytes came back."""
    got = 0
    try:
        for _ in range(10_000):
            client.sendall(piece)
            back = client.recv(len(piece))
            if not back:
                return got
            got += len(back)
    except OSError:
        return got
    raise AssertionError("it never ended")


def test_the_budget_is_one_for_all_connections_of_the_call(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}, total_bytes=1_000) as proxy:
        for _ in range(6):
            with proxy.connected() as client:
                client.sendall(HELLO + _named(HOST.encode()))
                assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
                client.sendall(b"x" * 100)
                client.recv(100)
        verdicts = _verdicts(proxy)
    assert verdicts.count(Verdict.BYTE_LIMIT) >= 1
    assert sum(report.passed_bytes for report in proxy.reports) <= 1_000


def test_a_client_that_leaves_ends_its_connection_though_the_server_holds_on(tmp_path: Path) -> None:
    over = threading.Event()

    def hold(peer: socket.socket) -> None:
        while peer.recv(100):
            pass
        over.wait(60)

    with Listener(hold) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:
        with proxy.connected() as client:
            client.sendall(HELLO + _named(HOST.encode()))
            assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
            client.sendall(PLAIN)
        for worker in proxy.proxy._workers:
            worker.join(30)
        over.set()
        assert [report.verdict for report in proxy.reports] == [Verdict.DIALLED]


def test_when_the_leash_ends_every_connection_ends(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}) as proxy, proxy.connected() as client:
        client.sendall(HELLO + _named(HOST.encode()))
        assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
        proxy.let_go()
        proxy.join()
        assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            proxy.connected()
    assert [report.verdict for report in proxy.reports] == [Verdict.DIALLED]


def test_when_the_time_is_over_the_proxy_ends_by_itself(tmp_path: Path, echo: Listener) -> None:
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}, deadline_ms=300) as proxy, proxy.connected() as client:
        client.sendall(HELLO)
        proxy.join()
        assert client.recv(2) == b"\x05\x00"
        assert client.recv(1) == b""
    assert [report.verdict for report in proxy.reports] == [Verdict.MALFORMED]


def _tls_hello(name: str | None) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


E16 = {
    "another name": _tls_hello("evil.example.org"),
    "no name": _tls_hello(None),
    "half a hello": _tls_hello(HOST)[:40],
    "no hello": b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
}


@pytest.mark.parametrize("start", E16.values(), ids=E16.keys())
def test_e16_tls_for_another_name_reaches_nobody(tmp_path: Path, start: bytes) -> None:
    heard: list[bytes] = []

    def listen(peer: socket.socket) -> None:
        heard.append(peer.recv(1))

    with Listener(listen) as server, RunningProxy(tmp_path, servers={PUBLIC: server.port}) as proxy:
        with proxy.connected() as client:
            client.sendall(HELLO + _named(HOST.encode()))
            assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
            client.sendall(start)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
        assert _verdicts(proxy) == [Verdict.OTHER_NAME]
    assert b"".join(heard) == b""
    assert proxy.reports[0].passed_bytes == 0


def test_e16_tls_for_the_granted_name_passes_however_it_is_cut(tmp_path: Path, echo: Listener) -> None:
    hello = _tls_hello(HOST)
    with RunningProxy(tmp_path, servers={PUBLIC: echo.port}) as proxy, proxy.connected() as client:
        client.sendall(HELLO + _named(HOST.encode()))
        assert _reply(client.recv(2) + client.recv(10)) == Reply.DONE
        for at in range(0, len(hello), 50):
            client.sendall(hello[at : at + 50])
        back = b""
        while len(back) < len(hello):
            back += client.recv(4_096)
    assert back == hello
