"""INV-11: the token is in no log line, exception, representation or state, however the connection fails."""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxcore import logs
from bxcore.deadline import SystemClock
from bxcore.errors import BoxmakerError
from bxcore.ids import MattermostId
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import Mattermost as Settings
from gatewayd import mattermost
from gatewayd.events import Events
from tests.fakes.eventplace import EventPlace, Told
from tests.fakes.mattermost import Mattermost as Server
from tests.fakes.web_server import WebServer, page

CANARY = "canary0canary0canary0canary"
ME = "/api/v4/users/me"


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Also what the libraries would say, which in production is held back."""
    caplog.set_level(logging.DEBUG)
    yield
    assert CANARY not in caplog.text


def shown(error: BaseException) -> str:
    """Everything that a log or a console could make of an exception, and of what caused it."""
    seen = [*traceback.format_exception(error), logs.trace(error)]
    inner: BaseException | None = error
    while inner is not None:
        seen += [str(inner), repr(inner), repr(vars(inner)), repr(inner.args)]
        inner = inner.__cause__ or inner.__context__
    return "".join(seen)


def fails(url: str, *, ca_file: Path | None = None, token: str = CANARY, ms: int = 200) -> str:
    settings = Settings(url=url, ca_file=ca_file, connect_ms=ms, reply_ms=ms)
    with pytest.raises(BoxmakerError) as caught:
        _ask(settings, token)
    return shown(caught.value)


def _ask(settings: Settings, token: str) -> None:
    api = mattermost.Mattermost(settings, Secret("mattermost-token", token))
    try:
        api.me()
    finally:
        api.close()
        assert CANARY not in repr([api, vars(api), vars(api._http), vars(api._http._adapter)])


ANSWERS: dict[str, bytes] = {
    "401": page(f"no: {CANARY}", f"X-Echo: {CANARY}", status="401 No"),
    "a page of somebody else": page(f"<html>Bearer {CANARY}</html>", status="502 Bad Gateway"),
    "a success that is none": page(f'{{"id": "{CANARY}"}}'),
    "an error named so": page(f'{{"id": "{CANARY}"}}', status="400 Bad Request"),
    "a redirect": page("", f"Location: http://127.0.0.1:1/{CANARY}", status="302 Found"),
    "a status line": f"HTTP/1.1 {CANARY}\r\n\r\n".encode(),
    "another protocol": f"{CANARY}\r\n".encode(),
    "a header without end": f"HTTP/1.1 200 OK\r\n{CANARY}: {'x' * 100_000}".encode(),
    "a length of words": f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{CANARY}\r\n".encode(),
    "nothing": b"",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_no_answer_makes_rest_show_it(answer: bytes) -> None:
    """Not even an answer that repeats it: whoever answers may be a debugging proxy."""
    with WebServer({ME: answer}, tls=False) as server:
        assert CANARY not in fails(f"http://127.0.0.1:{server.port}")


def test_no_failure_to_connect_shows_it(tmp_path: Path) -> None:
    with WebServer({}) as server:
        assert CANARY not in fails(f"https://127.0.0.1:{server.port}")
        assert CANARY not in fails(f"https://127.0.0.1:{server.port}", ca_file=tmp_path / "missing")
        assert CANARY not in fails(f"http://127.0.0.1:{server.port}")
    assert CANARY not in fails("http://127.0.0.1:1")


@pytest.mark.parametrize("bad", ["\n", "\r\nX: y", " ", "\u20ac", "\x00"])
def test_a_token_that_no_header_can_hold_does_not_show_it(bad: str) -> None:
    assert CANARY not in fails("http://127.0.0.1:1", token=f"{CANARY}{bad}{CANARY}")


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_no_answer_makes_the_event_stream_show_it(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    with WebServer({"/api/v4/websocket": answer, ME: answer}, tls=False) as server:
        settings = Settings(url=f"http://127.0.0.1:{server.port}", retry_most_ms=10)
        secret = Secret("mattermost-token", CANARY)
        events = Events(
            settings,
            secret,
            clock=SystemClock(),
            condition=told,
            sink=lambda _: None,
            api=lambda: mattermost.Mattermost(settings, secret),
        )
        events.start()
        while not told.codes:
            threading.Event().wait(0.002)
        events.stop()
        assert events.join(60_000)
    assert CANARY not in repr([told.worst(), vars(told), vars(events)])
    assert CANARY not in "".join(capsys.readouterr())


STEPS: dict[str, Callable[[EventPlace], None]] = {
    "dropped": lambda place: place.server.drop_sockets(),
    "restarted": lambda place: place.server.restart(),
    "revoked": lambda place: place.server.revoke(place.token),
    "disabled": lambda place: place.server.disable(place.bot),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_no_end_of_a_stream_shows_it(step: Callable[[EventPlace], None], caplog: pytest.LogCaptureFixture) -> None:
    with Server() as server, EventPlace(server, ping_ms=30) as place:
        place.opened()
        step(place)
        while not place.condition.codes:
            threading.Event().wait(0.002)
        assert place.token not in repr([place.condition.worst(), vars(place.events), vars(place.condition)])
    assert place.token not in caplog.text


def test_no_refusal_of_a_real_server_shows_it() -> None:
    with Server() as server:
        bot, token = server.add_bot("boxmaker")
        api = mattermost.Mattermost(Settings(url=server.url), Secret("mattermost-token", token))
        server.revoke(token)
        with pytest.raises(BoxmakerError) as caught:
            api.create_post(MattermostId(bot), "x", root=None, props={}, pending="p")
        api.close()
        assert token not in shown(caught.value)
