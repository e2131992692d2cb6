"""http_fetch as it is run: a tool without network, its proxy in a container beside it, canaries on the host.

The proxies have the network "host" here, so that they could reach the host's loopback, where the canaries are: a
machine that runs tests seldom has /dev/net/tun for a network of their own.
"""

import contextlib
import logging
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from brokerd import policy, probe
from brokerd.call import FRESH
from brokerd.containerplan import Plan
from brokerd.containers import Podman, Service
from brokerd.egress import Egress
from brokerd.runner import Ran, Runner, protected_by
from bxcore import hosts
from bxcore.deadline import Deadline, SystemClock
from bxcore.grants import GrantSet
from bxcore.settings import brokerd as settings
from bxcore.settings.brokerd import BrokerdSettings, EgressNetwork
from bxcore.timestamp import Timestamp
from deploy.local.toolhost import ToolHost
from tests.fakes import calls, plans
from tests.fakes.egress import Canary
from tests.fakes.web_server import WebServer, page

CLOCK = SystemClock()
OWNER = "fetch-test"


class StubbedPodman(Podman):
    """Podman, where the proxy's container gets a resolver and a dialler of the test's own, as Python text.

    A stub runs inside the proxy's container, in front of the proxy's own program.
    """

    stub: str | None = None

    def ready(self, plan: Plan, deadline: Deadline) -> Service:
        if self.stub is not None:
            plan = attrs.evolve(plan, argv=(*probe.PYTHON, "-c", self.stub))
        return super().ready(plan, deadline)


def _stub(addresses: tuple[str, ...], port: int | None = None) -> str:
    """Return a proxy for which every name has these addresses; with `port`, they all lead to that local port."""
    dial = f"dialling.dial = lambda a, p, s: socket.create_connection(('127.0.0.1', {port}), s)" if port else ""
    return (
        "import socket, sys\n"
        "from toolkit import dialling, egress\n"
        f"dialling.resolve = lambda h, p: {addresses!r}\n{dial}\n"
        "sys.exit(egress.main())\n"
    )


def _settings(host: ToolHost, place: Path) -> BrokerdSettings:
    return BrokerdSettings(
        listen=settings.Listen(broker=place / "broker" / "b.sock", admin=place / "admin" / "a.sock"),
        grants=place / "grants",
        audit=place / "audit",
        state=place / "state",
        podman=settings.Podman(
            socket=host.api_socket, image_file=host.image_id_file, calls=host.calls_dir, seccomp=host.seccomp_path
        ),
        egress=settings.Egress(network=EgressNetwork.HOST),
    )


@attrs.frozen
class House:
    """brokerd's hands, without brokerd."""

    podman: StubbedPodman
    egress: Egress
    runner: Runner
    host: ToolHost

    def fetch(self, url: str) -> Ran:
        """Run a decided http_fetch."""
        target = hosts.target(url)
        rule = hosts.rule(target.authority)
        grants = GrantSet(grants=(calls.grant(tool="http_fetch", hosts=(rule,)),))
        call = calls.call("http_fetch", path=None, url=url)
        decision = policy.decide(grants, call, FRESH, Timestamp(1))
        assert isinstance(decision, policy.Decision)
        return self.runner.run(decision, seq=11, started=lambda image, plan: None, cancelled=lambda: False)

    def said(self, url: str) -> str:
        return self.fetch(url).exited.stdout.decode()


@pytest.fixture(scope="module")
def lasting(tool_host: ToolHost) -> Iterator[House]:
    """One runner for all the tests here: it proves the walls of its image once, which takes a while."""
    with tempfile.TemporaryDirectory(prefix="bx") as directory:
        place = Path(directory)
        for name in ("broker", "admin", "grants", "audit", "state"):
            (place / name).mkdir()
        chosen = _settings(tool_host, place)
        podman = StubbedPodman(tool_host.api_socket, clock=CLOCK, owner=OWNER)
        egress = Egress(chosen, podman=podman)
        protected = protected_by(chosen, config=place / "brokerd.toml")
        runner = Runner(chosen, podman=podman, egress=egress, clock=CLOCK, protected=protected)
        yield House(podman, egress, runner, tool_host)


@pytest.fixture
def house(lasting: House) -> Iterator[House]:
    lasting.podman.stub = None
    yield lasting
    lasting.podman.sweep()


def test_e5_a_name_of_the_machine_itself_is_refused_and_nobody_hears_of_it(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with Canary() as canary, caplog.at_level(logging.INFO):
        said = house.said(f"https://localhost:{canary.port}/")
        assert canary.heard == 0
    assert said.startswith("error: the egress proxy refused: the name leads to an address that is not on the public")
    assert f"egress seq=11 host=localhost port={canary.port} verdict=not_public address=- bytes=0" in caplog.text
    assert _left(house) == []


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.216.34", "127.0.0.1"), ("::ffff:127.0.0.1",)])
def test_e5_e6_a_name_that_leads_to_loopback_is_refused_and_the_canary_silent(
    house: House, addresses: tuple[str, ...]
) -> None:
    house.podman.stub = _stub(addresses)
    with Canary() as canary:
        assert "not on the public internet" in house.said(f"https://www.example.org:{canary.port}/")
        assert canary.heard == 0


def test_a_page_comes_through_both_containers(house: House, caplog: pytest.LogCaptureFixture) -> None:
    html = page("<h1>Hello</h1><p>from <b>outside</b>", kind="text/html")
    with WebServer({"/": html}, tls=False) as server, caplog.at_level(logging.INFO):
        house.podman.stub = _stub(("93.184.216.34",), server.port)
        said = house.said("http://www.example.org:8080/")
    assert said.endswith("\n\n# Hello\n\nfrom outside")
    assert "host=www.example.org port=8080 verdict=dialled address=93.184.216.34 bytes=" in caplog.text
    assert _left(house) == []


def test_tls_ends_in_the_tool_against_the_authorities_of_the_image(house: House) -> None:
    with WebServer({"/": page("x")}) as server:
        house.podman.stub = _stub(("93.184.216.34",), server.port)
        assert "certificate was not accepted" in house.said("https://www.example.org/")
        assert server.requests == []
        assert server.taken == 1


def test_e18_a_proxy_that_dies_takes_the_call_with_it_and_nothing_else(house: House) -> None:
    arrived = threading.Event()

    def hold(peer: socket.socket, _: bytes) -> None:
        arrived.set()
        peer.recv(1)

    with WebServer({"/": hold}, tls=False) as server:
        house.podman.stub = _stub(("93.184.216.34",), server.port)
        said: list[str] = []
        caller = threading.Thread(target=lambda: said.append(house.said("http://www.example.org:8080/")))
        caller.start()
        assert arrived.wait(60)
        proxies = house.host.podman("ps", "-q", "--filter", "label=boxmaker.part=egress", "--filter", _LABEL).split()
        house.host.podman("kill", "--signal=KILL", *proxies)
        caller.join()
    assert said[0].startswith("error: no proper answer")
    assert _left(house) == []


_LABEL = f"label=boxmaker.owner={OWNER}"


def _left(house: House) -> list[str]:
    """Return the containers and directories that calls have left behind."""
    containers = house.host.podman("ps", "--all", "--quiet", "--filter", _LABEL).split()
    return [*containers, *(path.name for path in house.host.calls_dir.iterdir() if path.name.startswith("11-"))]


class Ears:
    """Everything on the host that a tool could try to reach: TCP, UDP, and a socket without a file."""

    def __init__(self, held: contextlib.ExitStack) -> None:
        self.tcp = held.enter_context(Canary())
        self._udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        self.udp_port: int = self._udp.getsockname()[1]
        self._abstract = held.enter_context(socket.socket(socket.AF_UNIX))
        self.abstract = f"boxmaker-canary-{time.monotonic_ns()}"
        self._abstract.bind(f"\0{self.abstract}")
        self._abstract.listen()

    @property
    def heard(self) -> list[str]:
        self._udp.setblocking(False)
        self._abstract.setblocking(False)
        found = ["tcp"] * self.tcp.heard
        with contextlib.suppress(BlockingIOError):
            self._udp.recvfrom(100)
            found.append("udp")
        with contextlib.suppress(BlockingIOError):
            self._abstract.accept()[0].close()
            found.append("abstract")
        return found


# Runs in a tool's container, with the proxy's socket mounted as for http_fetch. One line for each way out.
PROBES = """
import os, socket, sys
tcp, udp, abstract = sys.argv[1:]
def attempt(name, act):
    try:
        act()
    except (OSError, ValueError) as error:
        print(name, "refused")
    else:
        print(name, "DONE")
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        s.connect(address)
def send(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x" * 30, address)
def socks(request):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect("/egress/proxy.sock")
        s.sendall(b"\\x05\\x01\\x00" + request)
        said = b""
        while len(said) < 12:
            piece = s.recv(12 - len(said))
            if not piece:
                raise OSError("closed")
            said += piece
        if said[3] != 0:
            raise OSError("refused")
def named(name, port):
    return b"\\x05\\x01\\x00\\x03" + bytes([len(name)]) + name + port.to_bytes(2, "big")
attempt("tcp to the host", lambda: connect(socket.AF_INET, ("127.0.0.1", int(tcp))))
attempt("tcp to the internet", lambda: connect(socket.AF_INET, ("93.184.216.34", 443)))
attempt("tcp v6", lambda: connect(socket.AF_INET6, ("2606:4700::1111", 443)))
attempt("udp to the internet", lambda: send(("93.184.216.34", 53)))
attempt("metadata", lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
attempt("a look-up", lambda: socket.getaddrinfo("www.example.org", 443))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.sendto(b"\\x08", ("93.184.216.34", 0))
attempt("ping", ping)
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW, 0))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("abstract socket", lambda: connect(socket.AF_UNIX, "\\0" + abstract))
attempt("podman", lambda: connect(socket.AF_UNIX, "/run/podman.sock"))
attempt("podman of a user", lambda: connect(socket.AF_UNIX, "/run/user/1000/podman/podman.sock"))
attempt("another socket in the proxy's place", lambda: socket.socket(socket.AF_UNIX).bind("/egress/other.sock"))
attempt("taking the proxy's socket away", lambda: os.unlink("/egress/proxy.sock"))
loopback = b"\\x05\\x01\\x00\\x01\\x7f\\x00\\x00\\x01" + int(tcp).to_bytes(2, "big")
attempt("proxy to the host by address", lambda: socks(loopback))
attempt("proxy to the host by name", lambda: socks(named(b"localhost", int(tcp))))
attempt("proxy to another host", lambda: socks(named(b"evil.example.org", 443)))
attempt("proxy to another port", lambda: socks(named(b"www.example.org", int(tcp))))
attempt("proxy by a NUL", lambda: socks(named(b"localhost\\0www.example.org", 443)))
# A relay inside the container: whoever asks through it is asking the proxy all the same.
def relayed():
    ours, theirs = socket.socketpair()
    theirs.close(); ours.close()
    socks(named(b"evil.example.org", 443))
attempt("proxy through a relay", relayed)
send(("127.0.0.1", int(udp)))
print("end")
"""


def test_e15_there_is_no_way_out_of_a_tool_but_its_proxy(house: House) -> None:
    house.podman.stub = _stub(("127.0.0.1",))
    target = hosts.target("https://www.example.org/")
    with contextlib.ExitStack() as held:
        ears = Ears(held)
        deadline = Deadline.after(CLOCK, milliseconds=60_000)
        image = house.host.image_id
        prepared = house.egress.prepare(seq=11, target=target, image=image, deadline=deadline)
        proxy = held.enter_context(contextlib.closing(prepared))
        proxy.start(deadline)
        plan = attrs.evolve(
            plans.PLAN,
            owner=OWNER,
            call=11,
            image=image,
            seccomp=str(house.host.seccomp_path),
            argv=(*probe.PYTHON, "-c", PROBES, str(ears.tcp.port), str(ears.udp_port), ears.abstract),
            mounts=(proxy.mount,),
        )
        exited = house.podman.run(plan, plans.work(ms=60_000), lambda: None)
        lines = exited.stdout.decode().splitlines()
        assert ears.heard == []
    assert lines[-1] == "end"
    assert [line for line in lines[:-1] if not line.endswith(" refused")] == []
    assert len(lines) == 23
