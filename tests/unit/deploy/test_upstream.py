"""What is typed as UPSTREAM= is an address, or is answered with one."""

from pathlib import Path

import pytest

from deploy.local import upstream
from deploy.local.refusal import Refusal

GOOD = ["http://127.0.0.1:8080", "http://box", "http://[::1]:8080/", "unix:/run/model.sock"]


@pytest.mark.parametrize("address", GOOD)
def test_an_address_is_taken(address: str) -> None:
    upstream.check(address)


INSTEAD = {
    "127.0.0.1:8080": "write http://127.0.0.1:8080,",
    "localhost:8080/v1": "write http://localhost:8080,",
    "box": "write http://box,",
    "http://localhost:1/v1": "write http://localhost:1,",
    "http://localhost:1?key=x": "write http://localhost:1,",
    "https://model.example.com": "and write http://127.0.0.1:8080",
    "/run/model.sock": "write unix:/run/model.sock",
}


@pytest.mark.parametrize(("address", "advice"), INSTEAD.items())
def test_a_slip_is_answered_with_what_to_write(address: str, advice: str) -> None:
    with pytest.raises(Refusal) as refusal:
        upstream.check(address)
    assert str(refusal.value).startswith(f"UPSTREAM={address}: ")
    assert advice in str(refusal.value)


def test_a_relative_socket_is_found_from_where_the_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refusal, match=f"write unix:{tmp_path}/model.sock"):
        upstream.check("unix:model.sock")


@pytest.mark.parametrize(
    "address", ["http://", "ftp://box", "http://me@box:1", "http://box:port", "http://[::1", "\x1b[2J"]
)
def test_anything_else_is_told_the_two_forms(address: str) -> None:
    with pytest.raises(Refusal) as refusal:
        upstream.check(address)
    assert "http://" in str(refusal.value)
    assert str(refusal.value).isprintable()


def test_the_reason_is_the_last_one_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "inferproxy.log"
    line = "level=warning role=inferproxy at=2026-01-01T00:00:00.000Z upstream away reason={} code=upstream_away\n"
    log.write_text(line.format('"timed out"') + line.format('"Connection refused"') + "level=info stopped left=0\n")
    assert upstream.away(log) == "Connection refused"
    log.write_text(line.format("refused"))
    assert upstream.away(log) == "refused"


def test_without_a_reason_in_the_log_there_is_none(tmp_path: Path) -> None:
    assert upstream.away(tmp_path / "inferproxy.log") is None
