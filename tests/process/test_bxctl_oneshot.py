"""bxctl chat with pipes: one message, one answer, an exit code that says how it went."""

import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from bxcore.server import Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding
from bxcore.wire.control import ErrorCode
from tests.fakes import loopd
from tests.fakes.loopd import FakeLoopd, answers, ended, text, thought
from tests.fakes.terminal import CTRL_C
from tests.process.bxctl_process import argv, environ, on_terminal, run

HELLO = answers(
    loopd.started("k"),
    thought("Hm."),
    loopd.called("clock", "{}"),
    loopd.returned("clock", "noon"),
    text("Hello ", step=2),
    text("there.", step=2),
    ended("Hello there."),
)


def test_the_answer_and_nothing_else_is_on_standard_output(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake:
        done = run(tmp_path, "chat", "--say", "Good morning")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello there.\n", b"")
    message = fake.wait(channel.UserMessage)
    assert (message.text, message.new) == ("Good morning", True)
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", message.session)


def test_the_whole_standard_input_is_one_message(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake:
        done = run(tmp_path, "chat", stdin="one\n\ntwo ü\n".encode())
    assert (done.returncode, done.stdout) == (0, b"Hello there.\n")
    assert fake.wait(channel.UserMessage).text == "one\n\ntwo ü\n"


def test_verbose_tells_the_rest_on_standard_error(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}):
        done = run(tmp_path, "chat", "--verbose", "--say", "hi")
    assert done.stdout == b"Hello there.\n"
    told = done.stderr.decode()
    assert told.splitlines()[:2] == ["~ Hm.", "· clock {} → 4 B"]
    assert "\x1b" not in told


def test_a_session_is_continued_when_it_is_named(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake:
        assert run(tmp_path, "chat", "--session", "20261130-102600-beef", "--say", "hi").returncode == 0
    message = fake.wait(channel.UserMessage)
    assert (message.session, message.new) == ("20261130-102600-beef", False)


def test_a_pipe_gets_the_text_as_the_model_wrote_it(tmp_path: Path) -> None:
    words = "\x1b[31mred\u202e\x9b\n漢"
    with FakeLoopd(tmp_path, {channel.UserMessage: answers(text(words), ended(words))}):
        done = run(tmp_path, "chat", "--say", "hi", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.stdout == (words + "\n").encode()


UNSENDABLE = {
    "empty": (b"", "there is no text"),
    "blank": (b" \n\t\n", "there is no text"),
    "not UTF-8": (b"abc\xff\xfe", "not valid UTF-8 (byte 4 of 5); nothing was sent"),
    "too long": (b"x" * 262_145, "more than 262,144 bytes, the most that a message may have; nothing was sent"),
    "too long in its frame": (b"\x01" * 200_000, "the text becomes 1,200,002 bytes, a frame holds 1,047,552"),
}


@pytest.mark.parametrize(("stdin", "words"), UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_what_cannot_be_sent_is_refused_with_words(tmp_path: Path, stdin: bytes, words: str) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake:
        done = run(tmp_path, "chat", stdin=stdin)
        assert fake.asked == []
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr.decode()
    assert "[unsendable]" in done.stderr.decode()


def test_an_input_without_end_is_refused(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}), Path("/dev/zero").open("rb") as zeros:
        done = subprocess.run(
            argv(tmp_path, "chat"), stdin=zeros, capture_output=True, env=environ(), timeout=60, check=False
        )
    assert (done.returncode, done.stdout) == (2, b"")
    assert "the input has more than 262,144 bytes" in done.stderr.decode()


def test_the_longest_message_is_sent(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake:
        assert run(tmp_path, "chat", stdin=b"x" * 262_144).returncode == 0
    assert len(fake.wait(channel.UserMessage).text) == 262_144


def test_a_session_id_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path, "chat", "--session", "../etc", "--say", "hi")
    assert done.returncode == 2
    assert "not a session id" in done.stderr.decode()


ENDINGS = {
    TurnEnding.LENGTH: 1,
    TurnEnding.EMPTY: 1,
    TurnEnding.SERVER_LOST: 1,
    TurnEnding.INTERRUPTED: 1,
    TurnEnding.CANCELLED: 130,
}


@pytest.mark.parametrize(("ending", "code"), ENDINGS.items(), ids=lambda value: getattr(value, "value", value))
def test_an_ending_that_is_no_answer_gives_its_sentence_and_code(tmp_path: Path, ending: TurnEnding, code: int) -> None:
    script = answers(text("Half"), ended("Half", ending=ending, sentence="It ended\x1b early."))
    with FakeLoopd(tmp_path, {channel.UserMessage: script}):
        done = run(tmp_path, "chat", "--say", "hi")
    assert (done.returncode, done.stdout) == (code, b"Half\n")
    assert done.stderr.decode() == f"! It ended\\u{{001B}} early. [{ending.value}]\n"


def test_a_refusal_has_its_code(tmp_path: Path) -> None:
    scripts = {channel.UserMessage: loopd.refuses(ErrorCode.NO_SESSION, "there is no session of that name")}
    with FakeLoopd(tmp_path, scripts):
        done = run(tmp_path, "chat", "--session", "nobody", "--say", "hi")
    assert (done.returncode, done.stdout) == (4, b"")
    assert done.stderr.decode() == "bxctl: there is no session of that name [no_session]\n"


def test_nobody_listening_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    done = run(tmp_path, "chat", "--wait", "1", "--say", "hi")
    assert (done.returncode, done.stdout) == (3, b"")
    told = done.stderr.decode()
    socket = tmp_path / "run" / "loop-owner" / "loop.sock"
    assert told.startswith(f"waiting for loopd: nothing listens on {socket}")
    assert told.endswith(f"bxctl: gave up waiting for loopd: nothing listens on {socket} [loopd_away]\n")


@pytest.mark.parametrize("arguments", [["chat", "--say", "hi"], ["sessions", "list"]], ids=" ".join)
def test_a_home_that_does_not_exist_is_said_at_once(tmp_path: Path, arguments: list[str]) -> None:
    home = tmp_path / "nowhere"
    done = run(home, *arguments)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == f"bxctl: there is no directory {home}; is --home right? [home_missing]\n"


def test_nobody_listening_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "sessions", "list")
    socket = tmp_path / "run" / "loop-owner" / "loop.sock"
    assert done.returncode == 3
    assert done.stderr.decode() == f"bxctl: loopd is not running: nothing listens on {socket} [peer_away]\n"


def test_a_loopd_that_does_not_get_ready_is_given_up_with_its_reason(tmp_path: Path) -> None:
    never = loopd.replies(loopd.ready("the model server"))
    with FakeLoopd(tmp_path, {channel.LoopStatus: never}):
        done = run(tmp_path, "chat", "--wait", "0", "--say", "hi")
    assert done.returncode == 3
    assert "gave up waiting for loopd: the model server [loopd_away]" in done.stderr.decode()


def test_json_is_every_event_as_it_was_on_the_wire_in_ascii(tmp_path: Path) -> None:
    events = (
        loopd.progress(5),
        thought("ü\u202e"),
        text("Hello."),
        loopd.notice("cache_loss", "lost"),
        ended("Hello."),
    )
    with FakeLoopd(tmp_path, {channel.UserMessage: answers(*events)}) as fake:
        done = run(tmp_path, "chat", "--json", "--say", "hi")
    message = fake.wait(channel.UserMessage)
    assert done.stdout.isascii()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {
        "kind": "message_accepted",
        "session": message.session,
        "key": message.key,
        "turn": 1,
        "queued": False,
        "duplicate": False,
    }
    assert [line["kind"] for line in lines[1:]] == [
        "prompt_progress",
        "reasoning_delta",
        "text_delta",
        "turn_notice",
        "turn_ended",
    ]
    assert lines[2] == {"kind": "reasoning_delta", "turn": 1, "step": 1, "text": "ü\u202e"}
    assert lines[-1]["ending"] == "answered"
    assert (done.returncode, done.stderr) == (0, b"")


def test_json_shows_a_refusal_too(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: loopd.refuses(ErrorCode.TOO_BUSY, "try again")}):
        done = run(tmp_path, "chat", "--json", "--say", "hi")
    assert done.returncode == 4
    assert json.loads(done.stdout) == {"kind": "error", "code": "too_busy", "detail": "try again"}


def test_a_reader_that_goes_away_ends_bxctl_quietly(tmp_path: Path) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        gate.wait(30)
        answers(text("x" * 500_000), ended("x" * 500_000))(request)

    with FakeLoopd(tmp_path, {channel.UserMessage: script}) as fake:
        read_end, write_end = os.pipe()
        process = subprocess.Popen(
            argv(tmp_path, "chat", "--say", "hi"),
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=environ(),
        )
        os.close(write_end)
        fake.wait(channel.UserMessage)
        os.close(read_end)
        gate.set()
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (141, b"")


@pytest.mark.parametrize("arguments", [["chat", "--say", "hi"], ["chat", "--json", "--say", "hi"]], ids=" ".join)
def test_an_output_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, arguments: list[str]) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}), Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            argv(tmp_path, *arguments), stdout=full, stderr=subprocess.PIPE, env=environ(), timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"bxctl: cannot go on: No space left on device\n")


def test_ctrl_c_cancels_and_is_told_by_the_exit_code(tmp_path: Path) -> None:
    gate = threading.Event()

    def count(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        request.answer(text("One, two"), final=False)
        gate.wait(30)
        request.answer(ended("One, two", ending=TurnEnding.CANCELLED, sentence="Stopped."), final=True)

    def cancel(request: Request) -> None:
        assert isinstance(request.message, channel.TurnCancel)
        request.answer(channel.TurnCancelNoted(session=request.message.session, turn=1), final=True)
        gate.set()

    scripts = {channel.UserMessage: count, channel.TurnCancel: cancel}
    with FakeLoopd(tmp_path, scripts), on_terminal(tmp_path, "chat", "--say", "count") as screen:
        screen.expect("One, two")
        screen.send(CTRL_C)
        screen.expect(r"Stopped\. \[cancelled\]")
        assert screen.wait() == 130


def test_a_ctrl_c_before_the_message_is_accepted_cancels_once_it_is(tmp_path: Path) -> None:
    pressed, gate = threading.Event(), threading.Event()

    def slow(request: Request) -> None:
        pressed.wait(30)
        request.answer(loopd.accepted(request), final=False)
        gate.wait(30)
        request.answer(ended("", ending=TurnEnding.CANCELLED, sentence="Stopped."), final=True)

    def cancel(request: Request) -> None:
        assert isinstance(request.message, channel.TurnCancel)
        request.answer(channel.TurnCancelNoted(session=request.message.session, turn=1), final=True)
        gate.set()

    scripts = {channel.UserMessage: slow, channel.TurnCancel: cancel}
    with FakeLoopd(tmp_path, scripts) as fake, on_terminal(tmp_path, "chat", "--say", "count") as screen:
        fake.wait(channel.UserMessage)
        screen.send(CTRL_C)
        screen.expect("cancelling")
        assert fake.of(channel.TurnCancel) == []
        pressed.set()
        screen.expect(r"Stopped\.")
        assert screen.wait() == 130


def test_a_terminated_bxctl_says_so_by_its_exit_code(tmp_path: Path) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        gate.wait(30)

    with FakeLoopd(tmp_path, {channel.UserMessage: script}) as fake:
        process = subprocess.Popen(
            argv(tmp_path, "chat", "--say", "hi"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environ()
        )
        fake.wait(channel.UserMessage)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        gate.set()
    assert (process.returncode, out) == (143, b"")
