"""How brokerd starts and ends the proxy of a call, with a fake of Podman's part. The real one: tests/container."""

import logging
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerd.containerplan import Ids, Network, Plan
from brokerd.egress import CallProxy, Egress, EgressMissing
from brokerd.runnerfaults import PodmanAway
from bxcore.deadline import Deadline, SystemClock
from bxcore.hosts import Target
from bxcore.settings import brokerd as settings
from bxcore.settings.brokerd import BrokerdSettings, EgressNetwork
from toolkit import egress as program
from toolkit import egressorder

TARGET = Target(scheme="https", host="www.example.org", port=8443)
IMAGE = "ab" * 32


class FakeService:
    """A proxy that listens, as the real one would in its container."""

    def __init__(self, podman: "FakePodman", directory: Path, said: bytes) -> None:
        self.podman, self.directory, self._said = podman, directory, said
        self.listener: socket.socket | None = None
        self.closed = 0
        self.there_when_read = False

    def start(self, stdin: bytes, deadline: Deadline) -> None:
        self.podman.orders.append(stdin)
        self.listener = program.listen(self.directory / "proxy.sock")
        if not self.podman.listens:
            (self.directory / "proxy.sock").chmod(0o600)  # bound, and not listening yet

    def read(self, *, most_bytes: int) -> bytes:
        self.there_when_read = not self.closed
        return self._said[:most_bytes]

    def close(self) -> None:
        self.closed += 1
        if self.listener is not None:
            self.listener.close()


class FakePodman:
    owner = "brokerd-test"

    def __init__(self, said: bytes = b"") -> None:
        self.plans: list[Plan] = []
        self.orders: list[bytes] = []
        self.services: list[FakeService] = []
        self.modes: list[int] = []
        self._said = said
        self.fault: Exception | None = None
        self.listens = True

    def ready(self, plan: Plan, deadline: Deadline) -> FakeService:
        if self.fault is not None:
            raise self.fault
        self.plans.append(plan)
        directory = Path(plan.mounts[0].source)
        self.modes.append(stat.S_IMODE(directory.stat().st_mode))
        self.services.append(FakeService(self, directory, self._said))
        return self.services[-1]


@pytest.fixture
def calls() -> Iterator[Path]:
    """A short place: here the host binds the socket, by its whole path."""
    with tempfile.TemporaryDirectory(prefix="bx") as place:
        yield Path(place)  # mode 0700


def _settings(calls: Path, network: EgressNetwork = EgressNetwork.SLIRP4NETNS) -> BrokerdSettings:
    podman = settings.Podman(
        socket=Path("/p.sock"), image_file=Path("/image"), calls=calls, seccomp=Path("/seccomp.json")
    )
    return BrokerdSettings(
        listen=settings.Listen(broker=Path("/b"), admin=Path("/a")),
        grants=Path("/g"),
        audit=Path("/u"),
        state=Path("/s"),
        podman=podman,
        egress=settings.Egress(network=network, total_bytes=1234),
    )


def _egress(calls: Path, podman: FakePodman, **more: EgressNetwork) -> Egress:
    return Egress(_settings(calls, **more), podman=podman)


def _started(egress: Egress, deadline: Deadline | None = None) -> CallProxy:
    proxy = egress.prepare(seq=7, target=TARGET, image=IMAGE, deadline=_deadline())
    try:
        proxy.start(deadline or _deadline())
    except BaseException:
        proxy.close()
        raise
    return proxy


def _deadline(milliseconds: int = 30_000) -> Deadline:
    return Deadline.after(SystemClock(), milliseconds=milliseconds)


def test_the_proxy_is_told_the_decided_host_and_port_and_nothing_else(calls: Path) -> None:
    podman = FakePodman()
    proxy = _started(_egress(calls, podman))
    proxy.close()
    order = egressorder.parse_order(podman.orders[0].removesuffix(b"\n"))
    assert (order.host, order.port) == ("www.example.org", 8443)
    assert (str(order.socket), order.total_bytes) == ("/egress/proxy.sock", 1234)
    assert 0 < order.deadline_ms <= 30_000


@pytest.mark.parametrize("network", EgressNetwork)
def test_the_proxy_has_the_network_and_nothing_of_the_host(calls: Path, network: EgressNetwork) -> None:
    podman = FakePodman()
    _started(_egress(calls, podman, network=network)).close()
    (plan,) = podman.plans
    assert plan.network is Network(network.value)
    assert (plan.call, plan.part, plan.image, plan.owner) == (7, "egress", IMAGE, "brokerd-test")
    assert plan.argv[-2:] == ("-m", "toolkit.egress")
    assert plan.ids is Ids.OWN
    assert [(mount.destination, mount.writable) for mount in plan.mounts] == [("/egress", True)]
    assert plan.bounds.processes >= 2 * 16 + 2  # two threads a connection, and the main one


def test_the_directory_is_reached_by_its_name_alone_and_the_tool_may_not_write_there(calls: Path) -> None:
    podman = FakePodman()
    egress = _egress(calls, podman)
    first = _started(egress)
    second = _started(egress)
    assert podman.modes == [0o1733, 0o1733]
    names = {Path(proxy.mount.source).name for proxy in (first, second)}
    assert len(names) == 2
    assert all(name.startswith("7-") and len(name) == 34 for name in names)
    found = Path(first.mount.source).stat()
    assert (first.mount.device, first.mount.inode) == (found.st_dev, found.st_ino)
    assert (first.mount.destination, first.mount.writable) == ("/egress", False)
    first.close()
    second.close()


def test_when_the_call_ends_the_proxy_is_read_ended_and_its_directory_gone(
    calls: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = (
        b'{"host":"www.example.org","port":8443,"verdict":"dialled","address":"93.184.216.34","bytes":36}\n'
        b'{"host":null,"port":null,"verdict":"no_name","address":null,"bytes":0}\n'
    )
    podman = FakePodman(said)
    proxy = _started(_egress(calls, podman))
    assert list(calls.iterdir())
    with caplog.at_level(logging.INFO):
        proxy.close()
    assert podman.services[0].there_when_read
    assert podman.services[0].closed == 1
    assert not list(calls.iterdir())
    assert [record.getMessage() for record in caplog.records] == [
        "egress seq=7 host=www.example.org port=8443 verdict=dialled address=93.184.216.34 bytes=36",
        "egress seq=7 host=- port=- verdict=no_name address=- bytes=0",
    ]


@pytest.mark.parametrize(
    "said",
    [
        b"hello\n",
        b"{}\n",
        b'{"host":[],"port":1,"verdict":"x","address":null,"bytes":0}\n',
        b"\xff\xff\n",
        b"[" * 9_999,
    ],
)
def test_a_proxy_that_says_nonsense_is_ended_all_the_same(
    calls: Path, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    podman = FakePodman(said)
    proxy = _started(_egress(calls, podman))
    proxy.close()
    assert podman.services[0].closed == 1
    assert "said what it must not" in caplog.text
    assert not list(calls.iterdir())


def test_e18_without_podman_there_is_no_proxy_and_nothing_is_left(calls: Path) -> None:
    podman = FakePodman()
    podman.fault = PodmanAway("away")
    with pytest.raises(PodmanAway):
        _started(_egress(calls, podman))
    assert not list(calls.iterdir())


def test_e18_a_proxy_that_does_not_come_up_is_ended_and_the_call_refused(calls: Path) -> None:
    podman = FakePodman()
    podman.listens = False
    with pytest.raises(EgressMissing, match="in time"):
        _started(_egress(calls, podman), _deadline(200))
    assert podman.services[0].closed == 1
    assert not list(calls.iterdir())


def test_a_directory_that_is_not_there_refuses_the_call(calls: Path) -> None:
    podman = FakePodman()
    with pytest.raises(EgressMissing, match="cannot be looked at"):
        _started(_egress(calls / "gone", podman))
    assert podman.plans == []


@pytest.mark.parametrize("mode", [0o711, 0o701, 0o755, 0o777, 0o1777])
def test_a_directory_of_calls_that_others_may_enter_refuses_the_call(calls: Path, mode: int) -> None:
    """The name of a proxy's directory is no secret: whoever gets there finds a socket that anybody may use."""
    podman = FakePodman()
    calls.chmod(mode)
    with pytest.raises(EgressMissing, match="open to others"):
        _started(_egress(calls, podman))
    assert podman.plans == []
    assert not list(calls.iterdir())
    calls.chmod(0o2750)  # as deploy/local makes it, with the tool user's group
    _started(_egress(calls, podman)).close()


def test_a_proxy_is_ready_before_it_starts_and_does_nothing_till_then(calls: Path) -> None:
    podman = FakePodman()
    proxy = _egress(calls, podman).prepare(seq=7, target=TARGET, image=IMAGE, deadline=_deadline())
    assert (podman.plans, podman.orders) == ([proxy.plan], [])
    assert not (Path(proxy.mount.source) / "proxy.sock").exists()
    proxy.close()
    assert podman.services[0].closed == 1
    assert not list(calls.iterdir())


def test_the_sweep_takes_what_an_earlier_brokerd_left_and_nothing_else(calls: Path) -> None:
    egress = _egress(calls, FakePodman())
    proxy = _started(egress)
    left = calls / f"3-{'0' * 32}"
    left.mkdir()
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(left / "proxy.sock"))
    outside = calls / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (left / "link").symlink_to(outside)
    (calls / "notes-of-the-owner").mkdir()
    assert egress.sweep() == 1
    assert not left.exists()
    assert (outside / "kept").exists()
    assert (calls / "notes-of-the-owner").is_dir()
    assert Path(proxy.mount.source).is_dir()
    proxy.close()
    assert egress.sweep() == 0
    assert _egress(calls / "gone", FakePodman()).sweep() == 0
