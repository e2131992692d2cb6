"""What inferproxy adds: throughput of a large body and time of a small request, over a connection without it."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench import pairs, report, stack
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable

SMALL_BYTES = 512
WARM_UP = 10
LIMIT_MS = 1
LEAST_SHARE = 0.5

# The rate at which loopd may connect is a protection, and not what is measured here.
LIMITS = "accept_burst = 10_000\naccept_per_second = 10_000\n"

Connect = Callable[[], socket.socket]


def measure(sizes: Sizes) -> list[Measure]:
    with (
        stack.home() as home,
        stack.program("tests.bench.byte_server") as url,
        stack.inferproxy(home, url, limits=LIMITS),
    ):
        through, direct = _unix(home.infer_socket), _tcp(url)
        added = _added_latency(sizes, through, direct)
        large = _large(sizes, through, direct)
    return [
        report.at_least(
            "inferproxy: throughput of a large body, over direct TCP", pairs.median_ratio(large), "x", LEAST_SHARE
        ),
        report.to_read("throughput of direct TCP", pairs.median_of_other(large), "MB/s"),
        report.at_most("inferproxy: added time of a small request", pairs.median_difference(added), "ms", LIMIT_MS),
        report.to_read("time of a small direct request", pairs.median_of_other(added), "ms"),
    ]


def _added_latency(sizes: Sizes, through: Connect, direct: Connect) -> list[pairs.Pair]:
    def timed(connect: Connect) -> float:
        return _fetch(connect, SMALL_BYTES) * 1000

    for connect in (through, direct) * WARM_UP:
        timed(connect)
    return pairs.alternated(sizes.proxy_pairs, ours=lambda: timed(through), other=lambda: timed(direct))


def _large(sizes: Sizes, through: Connect, direct: Connect) -> list[pairs.Pair]:
    def rate(connect: Connect) -> float:
        return sizes.proxy_bytes / _fetch(connect, sizes.proxy_bytes) / 1e6

    say(f"{sizes.proxy_rounds} pairs of {sizes.proxy_bytes >> 20} MiB")
    return pairs.alternated(sizes.proxy_rounds, ours=lambda: rate(through), other=lambda: rate(direct))


def _fetch(connect: Connect, size: int) -> float:
    """Return the seconds from connecting until the last byte is there."""
    buffer, left, began = bytearray(1 << 18), size, time.perf_counter()
    with connect() as connection:
        connection.sendall(f"{size}\n".encode())
        while left:
            count = connection.recv_into(buffer)
            if not count:
                raise Unmeasurable("the body was cut off")
            left -= count
    return time.perf_counter() - began


def _unix(path: Path) -> Connect:
    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        return connection

    return connect


def _tcp(url: str) -> Connect:
    where = urlsplit(url)
    return lambda: socket.create_connection((where.hostname or "", where.port or 0))
