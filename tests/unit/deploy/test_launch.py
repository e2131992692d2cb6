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


def test_an_unknown_option_is_said_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        launch._options(["--sya", "x"])
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


SLIPS = {
    "two models": (["--upstream", "http://host:1", "--model", __file__], "UPSTREAM names a server that has its model"),
    "no such file": (["--model", "nothing.gguf"], "MODEL=nothing.gguf: there is no such file"),
    "a directory": (["--model", "."], "MODEL=. is a directory; name one .gguf file in it"),
    "a break of nothing": (["--accept-break", "--no-tools"], "--accept-break is for brokerd, which --no-tools leaves"),
    "no scheme": (["--upstream", "127.0.0.1:8080"], "UPSTREAM=127.0.0.1:8080: write http://127.0.0.1:8080, without"),
}


@pytest.mark.parametrize(("argv", "said"), SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_one_sentence_and_nothing_starts(
    tmp_path: Path, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert launch.main([*argv, "--home", str(home)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"make chat: {said}")
    assert not home.exists()


def test_a_model_is_found_from_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    assert launch._options(["--model", "m.gguf"]).model == tmp_path / "m.gguf"


def test_leaving_names_the_server_again() -> None:
    argv = launch._options(["--upstream", "http://host:1"]).conversation
    assert argv[argv.index("--come-back") + 1] == "make chat UPSTREAM=http://host:1 SESSION={session}"
