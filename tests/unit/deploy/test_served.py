"""Only what llama.cpp's server says of itself becomes an expectation."""

import json
import socket
import threading
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
