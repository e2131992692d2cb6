"""http_fetch set up as in its container: the proxy in front of it, a web server behind that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bxcore.deadline import SystemClock
from bxcore.tools import Method
from tests.fakes.egress import HOST, PUBLIC, RunningProxy
from tests.fakes.web_server import Answer, WebServer, authorities
from toolkit import socksclient
from toolkit.httpfetch import Fetcher
from toolkit.order import ToolError

ROOT = f"https://{HOST}"


def fetcher(proxy: str | Path, fetch_ms: int = 60_000) -> Fetcher:
    return Fetcher(
        connect=lambda target, seconds: socksclient.connect(str(proxy), target, seconds),
        context=authorities(),
        clock=SystemClock(),
        fetch_ms=fetch_ms,
    )


@contextmanager
def web(
    directory: Path, answers: dict[str, bytes | Answer], *, tls: bool = True, port: int = 443
) -> Iterator[tuple[Fetcher, WebServer]]:
    with (
        WebServer(answers, tls=tls) as server,
        RunningProxy(directory, servers={PUBLIC: server.port}, port=port) as proxy,
    ):
        yield fetcher(proxy.path), server


def get(directory: Path, answer: bytes | Answer) -> str:
    with web(directory, {"/": answer}) as (ready, _):
        return ready.fetch(f"{ROOT}/", Method.GET)


def outcome(ready: Fetcher, url: str = ROOT) -> str:
    """Return what the model is told, page or error."""
    try:
        return ready.fetch(url, Method.GET)
    except ToolError as error:
        return f"error: {error}"
