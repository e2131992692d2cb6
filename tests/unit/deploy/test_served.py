"""Only what llama.cpp's server says of itself becomes an expectation."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest

from deploy.local import served
from deploy.local.served import NotLlama
from tests.fakes.llama_server import FakeLlama

PROPS = {
    "default_generation_settings": {"n_ctx": 4096},
    "total_slots": 2,
    "model_alias": "m",
    "model_path": "/a/m.gguf",
}


def props(**changes: object) -> bytes:
    return json.dumps({**PROPS, **changes}).encode()


def test_context_slots_and_name_are_read() -> None:
    found = served.parse(props())
    assert (found.n_ctx, found.slots, found.model) == (4096, 2, "m")


def test_without_an_alias_the_file_names_the_model() -> None:
    assert served.parse(props(model_alias="")).model == "m.gguf"


def test_a_name_cannot_drive_the_terminal() -> None:
    assert served.parse(props(model_alias="\x1b[2J")).model.isprintable()


BAD = {
    "not JSON": b"<html>",
    "a list": b"[]",
    "nothing known": b"{}",
    "settings of another kind": props(default_generation_settings=[]),
    "a router": props(default_generation_settings={"n_ctx": 0}),
    "no slots": props(total_slots=0),
    "a truth": props(total_slots=True),
    "a text": props(total_slots="2"),
    "not UTF-8": b"\xff",
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("untrusted", BAD.values(), ids=BAD.keys())
def test_anything_else_is_not_llama(untrusted: bytes) -> None:
    with pytest.raises(NotLlama):
        served.parse(untrusted)


def test_a_server_is_asked_over_the_socket(tmp_path: Path) -> None:
    with FakeLlama(tmp_path / "a.sock", n_ctx=512, slots=3, model="fake"):
        found = served.ask(tmp_path / "a.sock")
    assert (found.n_ctx, found.slots, found.model) == (512, 3, "fake")


def test_a_server_that_loads_is_told_apart_from_one_that_is_away(tmp_path: Path) -> None:
    with FakeLlama(tmp_path / "a.sock") as server:
        server.loading = True
        with pytest.raises(served.Loading):
            served.ask(tmp_path / "a.sock")
    with pytest.raises(served.Away):
        served.ask(tmp_path / "nobody.sock")


def test_a_connection_that_closes_at_once_is_no_answer(tmp_path: Path) -> None:
    """What inferproxy does where its upstream cannot be reached."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "a.sock"))
        listening.listen()

        def close_the_first() -> None:
            listening.accept()[0].close()

        closer = threading.Thread(target=close_the_first)
        closer.start()
        with pytest.raises(served.Away):
            served.ask(tmp_path / "a.sock")
        closer.join()


@contextmanager
def answering(path: Path, blocks: Iterator[bytes]) -> Iterator[None]:
    """Send these to the first one who asks, until that one has had enough."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            with listening.accept()[0] as connection:
                try:
                    for block in blocks:
                        connection.sendall(block)
                except OSError:
                    pass  # it hung up

        sender = threading.Thread(target=answer)
        sender.start()
        yield
        sender.join()


OK = b"HTTP/1.1 200 OK\r\n"
SPACES = b" " * 65_536
ENDLESS = {
    "of a length that nobody has room for": (OK + b"Content-Length: 1000000000000\r\n\r\n", SPACES),
    "without a length": (OK + b"\r\n", SPACES),
    "in pieces": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + SPACES + b"\r\n"),
    "in one piece": (OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffff\r\n", SPACES),
    "of answers before the answer": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize(("head", "block"), ENDLESS.values(), ids=ENDLESS.keys())
def test_an_answer_without_an_end_is_refused(tmp_path: Path, head: bytes, block: bytes) -> None:
    with (
        answering(tmp_path / "a.sock", chain([head], repeat(block))),
        pytest.raises(NotLlama, match="longer than 1048576 bytes"),
    ):
        served.ask(tmp_path / "a.sock")


def test_one_answer_has_one_deadline_however_often_something_comes(tmp_path: Path) -> None:
    said = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield OK
        while not said.wait(0.01):
            yield b"X"

    with answering(tmp_path / "a.sock", slowly()):
        with pytest.raises(served.Away, match="TimeoutError"):
            served.ask(tmp_path / "a.sock", seconds=0.2)
        said.set()


@pytest.mark.parametrize(
    "head", [b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", b"Content-Length: -5\r\n\r\n", b"\0\r\n\r\n"]
)
def test_what_is_not_http_is_refused_in_words(tmp_path: Path, head: bytes) -> None:
    with answering(tmp_path / "a.sock", iter([OK + head])), pytest.raises((served.Away, NotLlama)):
        served.ask(tmp_path / "a.sock")


def test_a_long_name_is_cut() -> None:
    assert len(served.parse(props(model_alias="m" * 100_000)).model) == 200
