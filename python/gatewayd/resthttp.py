"""One request to the server and its answer, with `requests`, over a Line.

The adapter is called without a Session, which would keep cookies (a cookie would count more than the token), follow
the environment's proxies and netrc, and read the whole body of a redirect before it says that there is one. One
connection is kept between requests. Threads: one asks; any may `close`, which ends a request that is under way.
Invariant (INV-11): the token is in the head of a request and in nothing else.
"""

import re
import threading
from collections.abc import Mapping
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any

import attrs
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from bxcore.deadline import Clock, Deadline
from bxcore.secrets import Secret, SecretRefused
from bxcore.settings.gatewayd import Mattermost
from gatewayd.faults import MattermostAway, MattermostFault, MattermostUnclear
from gatewayd.line import Endpoint, Line

MOST_BYTES = 64 * 1_048_576
"""The longest answer that is read: an account's channels come in one piece."""

AGENT = "boxmaker-gatewayd"
_HEAD_ROOM = 262_144
_IDLE_MS = 30_000  # the server's own limit is a minute; one end must be the first, and it should be ours
_TOKEN = re.compile(r"[!-~]+")


@attrs.frozen(kw_only=True)
class Answer:
    """`headers` has lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def authorization(token: Secret) -> str:
    """Return the value of the header. Raises SecretRefused for what no header could hold: HTTP libraries quote it."""
    value = token.reveal()
    if not _TOKEN.fullmatch(value):
        raise SecretRefused(f"secret {token.name}: expected letters, digits and signs of ASCII alone, without blanks")
    return f"Bearer {value}"


class RestHttp:
    """A way to ask the server. Raises ConfigError where the token or ca_file is unfit."""

    def __init__(self, settings: Mattermost, token: Secret, clock: Clock) -> None:
        authorization(token)
        self._settings, self._token, self._clock = settings, token, clock
        self._endpoint = Endpoint.of(settings)
        self._lock = threading.Lock()  # around the three that follow
        self._asking = self._closed = False
        self._line: Line | None = None
        self._deadline = Deadline.after(clock, milliseconds=0)
        self._used = self._deadline
        self._pool = _Pool(self._endpoint, self._dial)
        self._adapter = _Adapter(self._pool)

    def ask(self, method: str, target: str, body: bytes | None = None) -> Answer:
        """Return what the server says, whatever its status. `target` is a path below /api/v4.

        Raises MattermostAway where it could not be reached or did not answer in time, MattermostUnclear where what
        it says is not HTTP or too long.
        """
        again = self._begin()
        try:
            return self._once(method, target, body)
        except MattermostAway:
            # The server may end a kept connection at the moment at which it is used.
            if not again or method != "GET" or self._closed:
                raise
            return self._once(method, target, body)
        finally:
            self._end()

    def close(self) -> None:
        """End it: no request will be answered any more. Any thread, twice too."""
        with self._lock:
            self._closed = True
            if self._line is not None:
                self._line.hang_up()
            if not self._asking:
                self._adapter.close()

    def _begin(self) -> bool:
        """Say whether the connection is a kept one."""
        with self._lock:
            if self._closed:
                raise MattermostAway("the connection was ended on this side")
            self._asking = True
        if self._line is not None and self._used.passed():
            self._hang_up()
        return self._line is not None

    def _end(self) -> None:
        self._used = Deadline.after(self._clock, milliseconds=_IDLE_MS)
        with self._lock:
            self._asking = False
            if self._closed:
                self._adapter.close()

    def _once(self, method: str, target: str, body: bytes | None) -> Answer:
        self._deadline = Deadline.after(self._clock, milliseconds=self._settings.reply_ms)
        if self._line is not None:
            self._line.deadline, self._line.room = self._deadline, MOST_BYTES + _HEAD_ROOM
        try:
            return self._exchange(method, target, body)
        except (requests.RequestException, HTTPError, HTTPException, ValueError, ArithmeticError) as error:
            fault = _fault(error)
        except BaseException:
            self._hang_up()
            raise
        self._hang_up()
        raise fault  # out here, since what requests raises holds the request, and with it the token

    def _exchange(self, method: str, target: str, body: bytes | None) -> Answer:
        url = f"{self._settings.url}/api/v4{target}"
        request = requests.Request(method, url, headers=self._headers(body), data=body).prepare()
        response = self._adapter.send(request, stream=True, timeout=None)  # the line keeps the time
        try:
            headers = {name.lower(): value for name, value in response.headers.items()}
            whole = b"".join(response.raw.stream(65_536, decode_content=False))
            return Answer(status=response.status_code, headers=headers, body=whole)
        finally:
            response.close()

    def _headers(self, body: bytes | None) -> Mapping[str, str]:
        headers = {
            "Host": self._endpoint.authority,
            "Authorization": authorization(self._token),
            "Accept-Encoding": "identity",  # a small answer could unpack to a huge one
            "User-Agent": AGENT,
        }
        return headers if body is None else {**headers, "Content-Type": "application/json"}

    def _dial(self) -> Line:
        deadline = self._deadline.sooner(milliseconds=self._settings.connect_ms)
        line = Line(self._endpoint, deadline, room=MOST_BYTES + _HEAD_ROOM)
        with self._lock:
            self._line = line
            if self._closed:
                line.hang_up()
        try:
            line.open()
        except BaseException:
            line.close()
            raise
        line.deadline = self._deadline
        return line

    def _hang_up(self) -> None:
        """Nothing more is to come of the connection, however much of an answer is still under way."""
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.hang_up()
            line.close()


class _Connection(HTTPConnection):
    """urllib3's connection over a Line: TLS is the line's matter."""

    def __init__(self, endpoint: Endpoint, dial: Any) -> None:
        super().__init__(endpoint.host, endpoint.port)
        self._dial = dial

    def connect(self) -> None:
        self.sock = self._dial()

    @property
    def is_connected(self) -> bool:
        # Closed by us, its descriptor is -1, and urllib3 would ask the kernel about that.
        return self.sock is not None and self.sock.fileno() >= 0 and super().is_connected


class _Pool(HTTPConnectionPool):
    """A "pool" of one connection at a time."""

    def __init__(self, endpoint: Endpoint, dial: Any) -> None:
        super().__init__(endpoint.host, endpoint.port, maxsize=1)
        self._endpoint, self._dial = endpoint, dial

    def _new_conn(self) -> HTTPConnection:
        return _Connection(self._endpoint, self._dial)


class _Adapter(HTTPAdapter):
    """Leaves neither where to dial nor whom to trust to requests: its own trust is certifi's file."""

    def __init__(self, pool: HTTPConnectionPool) -> None:
        super().__init__()
        self._one_pool = pool

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        return self._one_pool

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Nothing: gatewayd.trust has seen to it, and this would look for certifi's file."""

    def close(self) -> None:
        self._one_pool.close()
        super().close()


def _fault(fault: BaseException) -> MattermostFault:
    """Judge what the libraries raise. The innermost cause alone is named: its text may hold what the peer said."""
    inner = fault
    while inner.args and isinstance(inner.args[-1], BaseException):
        inner = inner.args[-1]
    name = type(inner).__name__
    if isinstance(inner, RemoteDisconnected | IncompleteRead):
        return MattermostAway(f"the server ended the connection within its answer ({name})")
    # What the socket itself had to say came as a MattermostFault; the rest is about HTTP, or a number that was none.
    return MattermostUnclear(f"the server's answer is not HTTP ({name})")
