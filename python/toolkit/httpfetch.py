"""http_fetch: one page of one host, as text. TLS ends here, in the tool's container, against the image's authorities.

A redirect within the same scheme, host and port is followed; any other is told to the model, which may ask for it
as a call of its own: so each host is decided by itself. No cookies, no login, no proxies of the environment.
Bounded: the whole time, the bytes of a body before and after unpacking, the headers (by http.client).
"""

import contextlib
import hashlib
import http.client
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import urljoin

import attrs

from bxcore import hosts, tools
from bxcore.deadline import Clock, Deadline, SystemClock
from bxcore.hosts import BadHost, Target, Url
from bxcore.tools import HttpFetch, Method
from toolkit import socksclient, webcharset
from toolkit.order import Misuse, ToolError
from toolkit.place import Place

FETCH_MS = 50_000
"""Ours, inside the container's own limit, so that the model is told in words."""
BODY_BYTES = 2_000_000
REDIRECTS = 10
_PIECE = 65_536
_MOST_HEADER = 1_000
_REDIRECTED = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "User-Agent": "boxmaker",
    "Accept": "text/html, text/plain, application/json, */*;q=0.5",
    "Accept-Encoding": "identity",
    "Connection": "close",
}
_TEXTS = frozenset(
    f"application/{name}"
    for name in (
        *("javascript", "ecmascript", "json", "ld+json", "rss+xml", "sql", "toml", "x-ndjson", "x-sh", "xml", "yaml"),
        *("x-javascript", "x-yaml", "graphql", "x-httpd-php", "x-tex", "x-www-form-urlencoded"),
    )
)
_PAGES = frozenset({"text/html", "application/xhtml+xml"})

Connect = Callable[[Target, float], socket.socket]
"""A connection to a host within so many seconds. Raises ToolError or OSError."""


@attrs.frozen(kw_only=True)
class Response:
    """What came back. `cut` says why the body is not whole, None where it is; `encoding` is one that we cannot undo."""

    url: Url
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: str | None
    encoding: str | None

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


def run(arguments: HttpFetch, place: Place) -> str:
    """Fetch the page and return what the model reads of it. Raises ToolError."""
    proxy = place.proxy
    if proxy is None:
        raise Misuse("http_fetch without a proxy")
    fetcher = Fetcher(
        connect=lambda target, seconds: socksclient.connect(proxy, target, seconds),
        context=ssl.create_default_context(),
        clock=SystemClock(),
    )
    return fetcher.fetch(arguments.url, arguments.method or Method.GET)


class Fetcher:
    """Fetches pages. The connection, the authorities and the clock are handed in."""

    def __init__(self, *, connect: Connect, context: ssl.SSLContext, clock: Clock, fetch_ms: int = FETCH_MS) -> None:
        self._connect, self._context, self._clock, self._fetch_ms = connect, context, clock, fetch_ms

    def fetch(self, address: str, method: Method) -> str:
        """Return the page in words: status, address, type, then the text. Raises ToolError."""
        deadline = Deadline.after(self._clock, milliseconds=self._fetch_ms)
        url = _parsed(address)
        for _ in range(REDIRECTS + 1):
            response = self._ask(url, method, deadline)
            location = response.header("location") if response.status in _REDIRECTED else None
            if location is None:
                return described(response, method)
            following = _same_place(url, location)
            if following is None:
                return _redirected(response, location)
            url = following
        raise ToolError(f"more than {REDIRECTS} redirects")

    def _ask(self, url: Url, method: Method, deadline: Deadline) -> Response:
        try:
            return self._exchange(url, method, deadline)
        except ssl.SSLCertVerificationError as error:
            raise ToolError(f"the server's certificate was not accepted: {_clean(error.verify_message)}") from None
        except ssl.SSLEOFError:
            raise ToolError("no proper answer from that server (it ended the connection)") from None
        except ssl.SSLError as error:
            raise ToolError(f"no TLS with that server: {_clean(error.reason or 'it ended the connection')}") from None
        except TimeoutError:
            raise ToolError(_too_slow(self._fetch_ms)) from None
        except (http.client.HTTPException, OSError, ValueError) as error:
            if deadline.passed():
                raise ToolError(_too_slow(self._fetch_ms)) from None
            raise ToolError(f"no proper answer from that server ({type(error).__name__})") from None

    def _exchange(self, url: Url, method: Method, deadline: Deadline) -> Response:
        with contextlib.ExitStack() as open_things:
            plain = open_things.enter_context(self._connect(url.target, _seconds(deadline)))
            open_things.enter_context(_ended_in_time(plain, deadline))
            connection = plain
            if url.target.scheme == "https":
                # An end without TLS's own word for it may be a cut, so it must not pass for the end of the page.
                connection = self._context.wrap_socket(
                    plain, server_hostname=url.target.host, suppress_ragged_eofs=False
                )
                open_things.enter_context(connection)
            client = http.client.HTTPConnection(url.target.host, url.target.port)
            client.auto_open = 0  # it never dials by itself
            client.sock = connection
            open_things.callback(client.close)
            _send(client, url, method)
            with client.getresponse() as answer:
                return _received(url, answer, _body(answer, deadline) if method is Method.GET else (b"", None))


def _parsed(address: str) -> Url:
    try:
        return hosts.parse_url(address)
    except BadHost as error:
        raise ToolError(str(error)) from None


def _seconds(deadline: Deadline) -> float:
    if deadline.passed():
        raise TimeoutError
    return deadline.remaining_ms() / 1000


def _too_slow(fetch_ms: int) -> str:
    return f"the page did not come within {fetch_ms // 1000} s"


@contextlib.contextmanager
def _ended_in_time(connection: socket.socket, deadline: Deadline) -> Iterator[None]:
    """Shut the connection when the time is over. A timeout per read would let a server trickle for ever."""
    # A descriptor of its own: the TLS layer takes the first one over, and must not be touched from another thread.
    with connection.dup() as handle:

        def end() -> None:
            try:
                handle.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended by itself

        timer = threading.Timer(_seconds(deadline), end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _send(client: http.client.HTTPConnection, url: Url, method: Method) -> None:
    target = url.target
    default = hosts.PORTS[target.scheme] == target.port
    client.putrequest(method.value, url.resource, skip_host=True, skip_accept_encoding=True)
    client.putheader("Host", target.host if default else target.authority)
    for name, value in _HEADERS.items():
        client.putheader(name, value)
    client.endheaders()


def _received(url: Url, answer: http.client.HTTPResponse, came: tuple[bytes, str | None]) -> Response:
    encoding = (answer.headers.get("Content-Encoding") or "identity").strip().lower()
    body, cut = came
    encoding_left = None
    if body and encoding in {"gzip", "x-gzip", "deflate"}:
        body, cut = _unpacked(body, encoding, cut)
    elif encoding not in {"", "identity"}:
        encoding_left = encoding
    return Response(
        url=url,
        status=answer.status,
        reason=answer.reason,
        headers=tuple(answer.headers.items()),
        body=body,
        cut=cut,
        encoding=encoding_left,
    )


def _body(answer: http.client.HTTPResponse, deadline: Deadline) -> tuple[bytes, str | None]:
    """Return what came of the body, and why it is not whole."""
    found, early = bytearray(), False
    try:
        while len(found) <= BODY_BYTES and (piece := answer.read1(_PIECE)):
            found += piece
    except (http.client.HTTPException, OSError):
        early = True
    body = bytes(found[:BODY_BYTES])
    if len(found) > BODY_BYTES:
        return body, f"only the first {BODY_BYTES} bytes were read"
    # A body whose length nobody said ends with the connection, also where it was we who ended that.
    if deadline.passed():
        return body, "the time was over"
    return body, "the connection ended early" if early or answer.length else None


def _unpacked(packed: bytes, encoding: str, cut: str | None) -> tuple[bytes, str | None]:
    """Undo gzip or deflate, up to the size of a body and not a byte further."""
    # Servers that say deflate send it with and without the header of zlib.
    windows = (-zlib.MAX_WBITS, zlib.MAX_WBITS) if encoding == "deflate" else (zlib.MAX_WBITS | 16,)
    for window in windows:
        unpacker = zlib.decompressobj(window)
        try:
            found = unpacker.decompress(packed, BODY_BYTES)
        except zlib.error:
            continue
        if unpacker.unconsumed_tail:
            return found, f"only the first {BODY_BYTES} bytes were unpacked"
        return found, cut or (None if unpacker.eof else "the packed data ended early")
    raise ToolError(f"the page is said to be {encoding}, and is not")


def _same_place(url: Url, location: str) -> Url | None:
    """Return where a redirect leads, if that is the same scheme, host and port; None for every other."""
    try:
        following = hosts.parse_url(urljoin(str(url), location))
    except ValueError:
        return None
    return following if following.target == url.target else None


def _redirected(response: Response, location: str) -> str:
    try:
        absolute = urljoin(str(response.url), location)
    except ValueError:
        absolute = location
    return (
        f"{_head(response)}\nRedirected to: {_clean(absolute)}\n\n"
        "not followed; fetch that address as a call of its own if it is needed"
    )


def described(response: Response, method: Method) -> str:
    """Return what the model reads of a response."""
    if method is Method.HEAD:
        lines = (f"{_clean(name)}: {_clean(value)}" for name, value in response.headers)
        return "\n".join([_head(response), "", *lines])
    parts = [_head(response), "", _content(response)]
    if response.cut:
        parts.append(f"{tools.CUT}: {response.cut}]")
    return "\n".join(parts)


def _head(response: Response) -> str:
    status = f"HTTP {response.status} {_clean(response.reason)}".rstrip()
    return f"{status}\nURL: {response.url}\nContent-Type: {_clean(response.header('content-type') or 'not said')}"


def _content(response: Response) -> str:
    said = (response.header("content-type") or "").lower()
    kind = said.partition(";")[0].strip()
    if not response.body:
        return "(empty)"
    if response.encoding is None and (not kind or _is_text(kind)):
        text = webcharset.decoded(response.body, said, sure=bool(kind))
        if text is not None:
            return _page(text, response.url) if kind in _PAGES or (not kind and _looks_like_html(text)) else text
    digest = hashlib.sha256(response.body).hexdigest()
    whole = "" if response.cut is None else " of what was read"
    packed = f", packed as {_clean(response.encoding)}" if response.encoding else ""
    return f"not text{packed}: {len(response.body)} bytes, sha256{whole} {digest}"


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _TEXTS or kind in _PAGES or kind.endswith(("+json", "+xml"))


def _looks_like_html(text: str) -> bool:
    return text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))


def _page(html: str, url: Url) -> str:
    from toolkit import webtext  # only pages need it, and it takes longer to load than all the rest

    return webtext.readable(html, str(url))


def _clean(untrusted: str) -> str:
    """Return a line of the server's as one line of printable ASCII, cut where it is long."""
    shown = "".join(char if " " <= char <= "~" else f"\\x{ord(char):02x}" for char in untrusted[: _MOST_HEADER + 1])
    return shown if len(shown) <= _MOST_HEADER else f"{shown[:_MOST_HEADER]}..."
