"""A passing line on a terminal, plain lines elsewhere, and no harm where nobody reads."""

import io

import pytest

from deploy.local.progress import Progress


class Screen(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_elsewhere_each_new_thing_is_a_line_once() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for what in ("loading", "loading", "self-test", "self-test"):
        progress.doing(what)
    progress.say("done")
    assert stream.getvalue() == "make chat: loading\nmake chat: self-test\nmake chat: done\n"


def test_on_a_terminal_the_line_is_written_over_and_taken_away() -> None:
    stream = Screen()
    progress = Progress(stream)
    progress.doing("loading")
    progress.doing("self-test")
    progress.clear()
    progress.clear()
    assert stream.getvalue() == "\r\x1b[Kmake chat: loading…\r\x1b[Kmake chat: self-test…\r\x1b[K"


def test_a_passing_line_never_wraps() -> None:
    stream = Screen()
    Progress(stream).doing("x" * 1_000)
    assert len(stream.getvalue().removeprefix("\r\x1b[K")) < 1_000


def test_a_reader_that_has_gone_is_no_fault() -> None:
    progress = Progress(Closed())
    progress.doing("loading")
    progress.say("done")


def test_a_line_in_between_leaves_what_another_program_wrote() -> None:
    stream = Screen()
    Progress(stream).interject("model ended")
    assert stream.getvalue() == "\r\nmake chat: model ended\n"


def test_on_a_terminal_lines_break_at_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Screen()
    progress = Progress(stream)
    text = "tools run as somebody: a container that is broken out of would be you\n  /a/path/that/is/wider/than/it/all"
    progress.say(text)
    lines = stream.getvalue().splitlines()
    assert max(len(line) for line in lines[:-1]) < 30
    assert " ".join(stream.getvalue().split()) == " ".join(f"make chat: {text}".split())


def test_elsewhere_a_line_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    Progress(stream).say("word " * 20)
    assert len(stream.getvalue().splitlines()) == 1


def test_the_demo_speaks_as_itself() -> None:
    stream = io.StringIO()
    progress = Progress(stream, speaker="make demo")
    progress.doing("loading")
    progress.say("done")
    assert stream.getvalue() == "make demo: loading\nmake demo: done\n"
