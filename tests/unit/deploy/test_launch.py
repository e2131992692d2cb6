"""What can be typed after `make chat`."""

from pathlib import Path

import pytest

from deploy.local import launch, plan


def chat(*argv: str) -> tuple[str, ...]:
    return launch._options(argv).chat


def test_what_follows_the_dashes_goes_to_bxctl() -> None:
    assert chat("--upstream", "http://host:1", "--", "--session", "a", "--json") == ("--session", "a", "--json")


def test_a_message_may_look_like_an_option() -> None:
    assert chat("--say=--help", "--", "--verbose") == ("--say=--help", "--verbose")


def test_an_empty_message_is_still_a_message() -> None:
    assert chat("--say", "") == ("--say=",)


def test_the_home_is_the_checkouts() -> None:
    assert launch._options([]).home.path == plan.ROOT / ".state"


BAD = {
    "two models": ["--upstream", "http://host:1", "--model", __file__],
    "no such file": ["--model", "nothing.gguf"],
    "an unknown option": ["--sya", "x"],
}


@pytest.mark.parametrize("argv", BAD.values(), ids=BAD.keys())
def test_a_slip_is_said_before_anything_starts(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        launch._options(argv)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_model_is_found_from_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    assert launch._options(["--model", "m.gguf"]).model == tmp_path / "m.gguf"
