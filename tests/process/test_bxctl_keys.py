"""What keys do in bxctl chat: editing, pasting, history, Ctrl-C, leaving."""

import os
import signal
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.server import Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding
from tests.fakes import loopd
from tests.fakes.loopd import FakeLoopd, answers, ended, text
from tests.fakes.terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, PASTE_BEGIN, PASTE_END, UP
from tests.process.bxctl_process import on_terminal

PROMPT = "you> "


def echoing(request: Request) -> None:
    """Answer with the text itself, so that a test sees what was sent."""
    assert isinstance(request.message, channel.UserMessage)
    words = ascii(request.message.text)
    answers(text(f"<<{words}>>"), ended(f"<<{words}>>"))(request)


def until_cancelled(gate: threading.Event) -> Callable[[Request], None]:
    """Begin a turn that ends as cancelled once `gate` is set."""

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        request.answer(text("One, two"), final=False)
        gate.wait(30)
        request.answer(ended("One, two", ending=TurnEnding.CANCELLED, sentence="You stopped it."), final=True)

    return script


def noting_cancel(gate: threading.Event) -> Callable[[Request], None]:
    def script(request: Request) -> None:
        assert isinstance(request.message, channel.TurnCancel)
        request.answer(channel.TurnCancelNoted(session=request.message.session, turn=1), final=True)
        gate.set()

    return script


# -- typing ------------------------------------------------------------------------------------------

TYPED = {
    "a pasted text is one message": (f"{PASTE_BEGIN}one\rtwo\tx\rthree{PASTE_END}{ENTER}", "one\ntwo\tx\nthree"),
    "alt-enter begins another line": (f"one{ESCAPE}{ENTER}two{ENTER}", "one\ntwo"),
    "a backslash at the end begins another line": (f"one\\{ENTER}two{ENTER}", "one\ntwo"),
    "two backslashes are one message": (f"one\\\\{ENTER}", "one\\\\"),
    "a double slash sends a slash": (f"//help me{ENTER}", "/help me"),
    "a path is no command": (f"/etc/hosts is what?{ENTER}", "/etc/hosts is what?"),
    "other alphabets": (f"Grüße 漢字 🙂{ENTER}", "Grüße 漢字 🙂"),
    "more than a terminal line holds": ("x" * 5_000 + ENTER, "x" * 5_000),
}


@pytest.mark.parametrize(("keys", "sent"), TYPED.values(), ids=TYPED.keys())
def test_what_is_typed_is_what_is_sent(tmp_path: Path, keys: str, sent: str) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send(keys)
        screen.expect("<<.*>>.*" + PROMPT)
        assert [message.text for message in fake.of(channel.UserMessage)] == [sent]


def test_a_terminal_without_pasting_sends_the_lines_that_wait_as_one_message(tmp_path: Path) -> None:
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake,
        on_terminal(tmp_path, "chat", more={"TERM": "dumb"}) as screen,
    ):
        screen.expect(PROMPT)
        screen.send("one\ntwo\nthree\n")
        screen.expect("<<.*>>.*" + PROMPT)
        assert [message.text for message in fake.of(channel.UserMessage)] == ["one\ntwo\nthree"]


def test_bytes_that_are_no_text_are_refused_and_not_sent(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("a\udcff\udcfeb" + ENTER)
        screen.expect("not valid UTF-8; nothing was sent.*" + PROMPT)
        assert fake.of(channel.UserMessage) == []


def test_a_text_over_the_limit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send(f"{PASTE_BEGIN}{'x' * 262_145}{PASTE_END}{ENTER}")
        screen.expect("262,145 bytes, a message may have 262,144")
        assert fake.of(channel.UserMessage) == []


def test_history_comes_back_in_the_next_conversation_line_breaks_and_all(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake:
        with on_terminal(tmp_path, "chat") as screen:
            screen.expect(PROMPT)
            screen.send(f"one{ESCAPE}{ENTER}two \\ three{ENTER}")
            screen.expect(">>.*" + PROMPT)
            screen.send(CTRL_D)
            assert screen.wait() == 0
        with on_terminal(tmp_path, "chat") as screen:
            screen.expect(PROMPT)
            screen.send(UP + ENTER)
            fake.wait(channel.UserMessage, 2)
    assert [message.text for message in fake.of(channel.UserMessage)] == ["one\ntwo \\ three"] * 2
    assert (tmp_path / "bxctl-history").stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_kept_is_told_once_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "bxctl-history").mkdir()
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}), on_terminal(tmp_path, "chat") as screen:
        for word in ("one", "two"):
            screen.expect(PROMPT)
            screen.send(word + ENTER)
            screen.expect(f"<<'{word}'>>")
        screen.expect(PROMPT)
    assert screen.shown.count("what you type is not remembered") == 1


def test_keys_typed_during_a_turn_wait_unseen_for_the_next_prompt(tmp_path: Path) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        request.answer(text("One"), final=False)
        gate.wait(30)
        loopd.send(request, (text(" two."), ended("One two.")))

    with FakeLoopd(tmp_path, {channel.UserMessage: script}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("count" + ENTER)
        screen.expect("One")
        assert not screen.modes() & (termios.ECHO | termios.ICANON)
        screen.send(f"{PASTE_BEGIN}and\rthen{PASTE_END}{ENTER}")
        gate.set()
        screen.expect(r" two\.\r\n.*and")
        second = fake.wait(channel.UserMessage, 2)
    assert second.text == "and\nthen"
    assert "One two." in screen.shown


# -- Ctrl-C and leaving --------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_turn_and_the_conversation_goes_on(tmp_path: Path) -> None:
    gate = threading.Event()
    scripts = {channel.UserMessage: until_cancelled(gate), channel.TurnCancel: noting_cancel(gate)}
    with FakeLoopd(tmp_path, scripts) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("count" + ENTER)
        screen.expect("One, two")
        screen.send(CTRL_C)
        screen.expect(r"You stopped it\. \[cancelled\].*" + PROMPT)
        session = fake.wait(channel.UserMessage).session
        assert fake.wait(channel.TurnCancel) == channel.TurnCancel(session=session, turn=1)


def test_ctrl_c_keeps_what_was_typed_before_it(tmp_path: Path) -> None:
    gate = threading.Event()
    scripts = {channel.UserMessage: until_cancelled(gate), channel.TurnCancel: noting_cancel(gate)}
    with FakeLoopd(tmp_path, scripts) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("count" + ENTER)
        screen.expect("One, two")
        screen.send("do this instead" + ENTER + CTRL_C)
        assert fake.wait(channel.UserMessage, 2).text == "do this instead"


def test_what_was_typed_before_leaving_does_not_reach_the_shell(tmp_path: Path) -> None:
    never = threading.Event()
    scripts = {channel.UserMessage: until_cancelled(never), channel.TurnCancel: noting_cancel(threading.Event())}
    with FakeLoopd(tmp_path, scripts), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("count" + ENTER)
        screen.expect("One, two")
        screen.send("rm notes" + ENTER + CTRL_C)
        screen.expect("Ctrl-C again leaves")
        screen.send(CTRL_C)
        assert screen.wait() == 0
        assert screen.unread_bytes() == 0
        never.set()


def test_a_second_ctrl_c_leaves_after_the_cancel_was_sent(tmp_path: Path) -> None:
    never = threading.Event()
    scripts = {channel.UserMessage: until_cancelled(never), channel.TurnCancel: noting_cancel(threading.Event())}
    with FakeLoopd(tmp_path, scripts) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("count" + ENTER)
        screen.expect("One, two")
        screen.send(CTRL_C)
        screen.expect("Ctrl-C again leaves")
        screen.send(CTRL_C)
        screen.expect(r"To go on: \S*bxctl")
        assert screen.wait() == 0
        assert len(fake.of(channel.TurnCancel)) == 1
        never.set()


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("not this")
        screen.expect("not this")
        screen.send(CTRL_C)
        screen.expect("Ctrl-C again leaves.*" + PROMPT)
        screen.send("this" + ENTER)
        screen.expect("<<'this'>>.*" + PROMPT)
        screen.send(CTRL_C)
        screen.expect("Ctrl-C again leaves.*" + PROMPT)
        screen.send(CTRL_C)
        assert screen.wait() == 0
        assert [message.text for message in fake.of(channel.UserMessage)] == ["this"]


@pytest.mark.parametrize("during_a_turn", [False, True], ids=["at the prompt", "during a turn"])
def test_a_terminated_chat_gives_the_terminal_its_modes_back(tmp_path: Path, during_a_turn: bool) -> None:
    never = threading.Event()
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: until_cancelled(never)}),
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        if during_a_turn:
            screen.send("count" + ENTER)
            screen.expect("One, two")
        assert screen.modes() != screen.first_modes
        screen.signal(signal.SIGTERM)
        assert screen.wait() == 143
        assert screen.modes() == screen.first_modes
        never.set()


def test_typing_between_two_ctrl_c_clears_the_line_and_does_not_leave(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send(CTRL_C)
        screen.expect("Ctrl-C again leaves.*" + PROMPT)
        screen.send("not this")
        screen.expect("not this")
        screen.send(CTRL_C)
        screen.expect("Ctrl-C again leaves.*" + PROMPT)
        screen.send("this" + ENTER)
        screen.expect("<<'this'>>.*" + PROMPT)
        assert [message.text for message in fake.of(channel.UserMessage)] == ["this"]


def test_text_that_still_comes_after_ctrl_c_is_not_shown(tmp_path: Path) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        request.answer(text("One, two"), final=False)
        gate.wait(30)
        end = ended("One, two, three", ending=TurnEnding.CANCELLED, sentence="You stopped it.")
        loopd.send(request, (text(", three"), end))

    scripts = {channel.UserMessage: script, channel.TurnCancel: noting_cancel(gate)}
    with FakeLoopd(tmp_path, scripts), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("count" + ENTER)
        screen.expect("One, two")
        screen.send(CTRL_C)
        screen.expect(r"You stopped it\. \[cancelled\].*" + PROMPT)
    assert "three" not in screen.shown


def test_a_pipe_in_place_of_the_history_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bxctl-history")
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}), on_terminal(tmp_path, "chat") as screen:
        screen.expect("what you type is not remembered.*not a regular.*file.*" + PROMPT)
        screen.send("one" + ENTER)
        screen.expect("<<'one'>>.*" + PROMPT)


def test_zeros_at_the_end_of_the_history_harm_nothing(tmp_path: Path) -> None:
    (tmp_path / "bxctl-history").write_bytes(b"before\n" + bytes(64))
    with FakeLoopd(tmp_path, {channel.UserMessage: echoing}), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send(UP + ENTER)
        screen.expect("<<'before'>>.*" + PROMPT)


# -- locales ----------------------------------------------------------------------------------------------------------

LOCALES = {
    "C": {"LC_ALL": "C"},
    "POSIX": {"LC_ALL": "POSIX"},
    "one that is not installed": {"LC_ALL": "xx_YY.UTF-8"},
    "ASCII and nothing else": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {},
}


@pytest.mark.parametrize("more", LOCALES.values(), ids=LOCALES.keys())
def test_no_locale_lets_what_is_typed_end_the_conversation(tmp_path: Path, more: dict[str, str]) -> None:
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: echoing}) as fake,
        on_terminal(tmp_path, "chat", more=more) as screen,
    ):
        screen.expect(PROMPT)
        screen.send("Grüße, 東京" + ENTER)
        screen.expect(PROMPT)  # sent, or told why not
        screen.send("go on" + ENTER)
        screen.expect(r"<<'go on'>>.*" + PROMPT)
        screen.send(CTRL_D)
        assert screen.wait() == 0
    if "PYTHONUTF8" not in more:
        assert [message.text for message in fake.of(channel.UserMessage)] == ["Grüße, 東京", "go on"]
