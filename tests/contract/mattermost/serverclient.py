"""What the tests of the fake ask it with: requests and websocket-client, with nothing of gatewayd in between."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
import websocket

from tests.fakes.mattermost import Mattermost

API = "/api/v4"
AUTHORITY = Path(__file__).resolve().parents[2] / "fixtures" / "tls" / "ca.pem"


class Caller(requests.Session):
    """A session that names paths below /api/v4, holds a token and keeps no cookies of its own accord."""

    def __init__(self, server: Mattermost, token: str = "") -> None:
        super().__init__()
        self.trust_env = False
        self._server = server
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> requests.Response:
        url = f"{self._server.url}{API}{path}"
        return self.request(method, url, json=body, timeout=30, allow_redirects=False, **more)

    def done(self, method: str, path: str, body: object = None) -> Any:
        answer = self.ask(method, path, body)
        assert answer.ok, answer.text
        return answer.json()

    def refused(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Return the status of a refusal and the server's name for it."""
        answer = self.ask(method, path, body)
        assert not answer.ok, answer.text
        said = answer.json()
        assert said["status_code"] == answer.status_code
        return answer.status_code, said["id"]


class Socket:
    """An event connection."""

    def __init__(self, server: Mattermost, token: str = "", *, query: str = "", **headers: str) -> None:
        lines = [f"Authorization: Bearer {token}"] if token else []
        lines += [f"{name}: {value}" for name, value in headers.items() if name != "Origin"]
        url = f"{server.url.replace('http', 'ws', 1)}{API}/websocket{query}"
        origin = headers.get("Origin")
        self.raw = websocket.create_connection(
            url,
            header=lines,
            timeout=30,
            suppress_origin=origin is None,
            origin=origin,
            http_no_proxy=["127.0.0.1", "localhost"],
            sslopt={"ca_certs": str(AUTHORITY)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.raw.shutdown()  # type: ignore[no-untyped-call]

    def next(self) -> Any:
        """Return the next message. Raises where the connection ends first."""
        return json.loads(self.raw.recv())

    def events(self, count: int) -> list[Any]:
        return [self.next() for _ in range(count)]

    def ask(self, action: str, seq: int = 1, **data: object) -> Any:
        self.raw.send(json.dumps({"action": action, "seq": seq, "data": data}))
        return self.next()

    def end(self) -> str:
        """Return how the connection ends: "closed" with a goodbye, "cut" without one."""
        while True:
            try:
                code, _ = self.raw.recv_data(control_frame=True)
            except (websocket.WebSocketConnectionClosedException, ConnectionError):
                return "cut"
            if code == websocket.ABNF.OPCODE_CLOSE:
                return "closed"


def posted(events: list[Any]) -> Iterator[str]:
    """Yield the texts of posted events."""
    for event in events:
        yield json.loads(event["data"]["post"])["message"]
