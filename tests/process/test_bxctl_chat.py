"""bxctl chat on a real terminal, against a loopd that says what the test wrote."""

import re
import threading
import unicodedata
from pathlib import Path

from bxcore.server import Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding
from bxcore.wire.control import ErrorCode
from tests.fakes import loopd
from tests.fakes.loopd import FakeLoopd, answers, ended, text, thought
from tests.fakes.terminal import CTRL_D, ENTER
from tests.process.bxctl_process import on_terminal

PROMPT = "you> "
HELLO = answers(loopd.started(), text("Hello "), text("there."), ended("Hello there."))


def test_an_answer_streams_in_and_the_session_is_named_at_the_end(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect("tiny, 8,192 tokens of context.*This is a new session.*" + PROMPT)
        screen.send("Good morning" + ENTER)
        screen.expect("Hello there.\r\n.*read 20 tokens, 100 from the cache; wrote 7; 1.2 s.*" + PROMPT)
        screen.send(CTRL_D)
        message = fake.wait(channel.UserMessage)
        screen.expect(rf"To go on: \S*bxctl --home {tmp_path} chat --session {message.session}")
        assert screen.wait() == 0
    assert message.text == "Good morning"
    assert message.new


def test_the_second_message_continues_the_session_of_the_first(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake, on_terminal(tmp_path, "chat") as screen:
        for line in ("one", "two"):
            screen.expect(PROMPT)
            screen.send(line + ENTER)
            screen.expect("there.")
        first, second = fake.wait(channel.UserMessage), fake.wait(channel.UserMessage, 2)
    assert second.session == first.session
    assert (first.new, second.new) == (True, False)
    assert first.key != second.key


def test_a_named_session_shows_its_last_exchange_and_its_ending_after_the_banner(tmp_path: Path) -> None:
    records = loopd.replies(
        loopd.record(1, '{"type":"user","content":"the old question"}'),
        loopd.record(2, '{"type":"turn_start","turn":1}'),
        loopd.record(3, '{"type":"assistant","content":"half an answer"}'),
        loopd.record(4, '{"type":"turn_end","ending":"interrupted","sentence":"It was stopped.","detail":null}'),
        channel.SessionShowEnd(lines=4),
    )
    with (
        FakeLoopd(tmp_path, {channel.SessionShow: records}),
        on_terminal(tmp_path, "chat", "--session", "old", more={"NO_COLOR": "1"}) as screen,
    ):
        screen.expect(
            r"8,192 tokens of context.*This is session old\.\r\nlast time:\r\n"
            r"you> the old question\r\nhalf an answer\r\n! It was stopped\. \[interrupted\]\r\n.*" + PROMPT
        )


def test_new_begins_another_session_and_session_goes_back(tmp_path: Path) -> None:
    records = loopd.replies(
        loopd.record(1, '{"type":"user","content":"the old question"}'),
        loopd.record(2, '{"type":"turn_start","turn":1}'),
        loopd.record(3, '{"type":"assistant","content":"the old answer"}'),
        loopd.record(4, '{"type":"turn_end","ending":"answered","sentence":null,"detail":null}'),
        channel.SessionShowEnd(lines=4),
    )
    scripts = {channel.UserMessage: HELLO, channel.SessionShow: records}
    with FakeLoopd(tmp_path, scripts) as fake, on_terminal(tmp_path, "chat") as screen:
        for line, seen in (("one", "there."), ("/new", "next message begins a new session"), ("two", "there.")):
            screen.expect(PROMPT)
            screen.send(line + ENTER)
            screen.expect(seen)
        first, second = fake.wait(channel.UserMessage), fake.wait(channel.UserMessage, 2)
        screen.send(f"/session {first.session}{ENTER}")
        screen.expect(f"This is session {first.session}.*last time:.*you> the old question\r\nthe old answer\r\n")
        screen.send("three" + ENTER)
        third = fake.wait(channel.UserMessage, 3)
    assert second.new
    assert second.session != first.session
    assert (third.session, third.new) == (first.session, False)


def test_thinking_is_dim_and_marked_and_can_be_switched_off(tmp_path: Path) -> None:
    script = answers(thought("Let me\n"), thought("see."), text("\n\nFour."), ended("\n\nFour."))
    with FakeLoopd(tmp_path, {channel.UserMessage: script}):
        with on_terminal(tmp_path, "chat") as screen:
            screen.expect(PROMPT)
            screen.send("2+2" + ENTER)
            screen.expect(r"\x1b\[2m~ Let me\x1b\[0m\x1b\[2m\r\n~ see\.\x1b\[0m\r\nFour\.\r\n")
        with on_terminal(tmp_path, "chat", "--no-reasoning", "--no-usage") as screen:
            screen.expect(PROMPT)
            screen.send("2+2" + ENTER)
            screen.expect("Four.*" + PROMPT)
    assert "Let me" not in screen.shown
    assert "from the cache" not in screen.shown


def test_no_color_leaves_no_escape_sequence_in_the_answer(tmp_path: Path) -> None:
    script = answers(loopd.progress(1), thought("Hm."), text("Four."), ended("Four."))
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: script}),
        on_terminal(tmp_path, "chat", more={"NO_COLOR": "1"}) as screen,
    ):
        screen.expect(PROMPT)
        screen.send("2+2" + ENTER)
        screen.expect("~ Hm.\r\nFour.\r\n  read 20 tokens")
    assert "\x1b[2m" not in screen.shown


def test_our_own_texts_break_at_spaces(tmp_path: Path) -> None:
    with (
        FakeLoopd(tmp_path, {}),
        on_terminal(tmp_path, "chat", columns=50, more={"NO_COLOR": "1"}) as screen,
    ):
        screen.expect(PROMPT)
        screen.send("/help" + ENTER)
        shown = screen.expect(r"/help\r\n(.*)you> ")[1]
    lines = shown.split("\r\n")
    assert "  //text           send a message that begins" in lines
    assert "                   with a slash" in lines
    assert "  Enter sends. Alt-Enter, or \\ at the end of a" in lines
    assert "  line, begins another line. A pasted text is one" in lines


def test_a_tool_call_is_one_line_with_the_size_of_its_result(tmp_path: Path) -> None:
    script = answers(
        loopd.called("clock", '{"zone":"UTC"}'),
        loopd.returned("clock", "x" * 64),
        text("Noon.", step=2),
        ended("Noon."),
    )
    with FakeLoopd(tmp_path, {channel.UserMessage: script}), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("time?" + ENTER)
        screen.expect(r'· clock \{"zone":"UTC"\}\x1b\[0m\x1b\[2m → 64 B\r\n.*Noon\.\r\n')


def test_a_notice_and_an_ending_are_said_in_words_with_their_code(tmp_path: Path) -> None:
    script = answers(
        loopd.notice("cache_loss", "The cache was lost."),
        ended("", ending=TurnEnding.EMPTY, sentence="The model said nothing."),
    )
    with FakeLoopd(tmp_path, {channel.UserMessage: script}), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("hm" + ENTER)
        screen.expect(r"! The cache was lost\. \[cache_loss\].*! The model said nothing\. \[empty\]")


def test_a_refusal_is_told_and_the_conversation_goes_on(tmp_path: Path) -> None:
    scripts = {channel.UserMessage: loopd.refuses(ErrorCode.STATE_UNWRITABLE, "the disk is full")}
    with FakeLoopd(tmp_path, scripts), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("hm" + ENTER)
        screen.expect(r"! the disk is full \[state_unwritable\].*" + PROMPT)


def test_a_long_prompt_shows_a_bar_that_follows_the_window(tmp_path: Path) -> None:
    gate, wide = threading.Event(), threading.Event()

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        request.answer(loopd.progress(600, total=1_100, cached=100), final=False)
        wide.wait(30)
        request.answer(loopd.progress(850, total=1_100, cached=100), final=False)
        gate.wait(30)
        loopd.send(request, (text("Read."), ended("Read.")))

    with (
        FakeLoopd(tmp_path, {channel.UserMessage: script}),
        on_terminal(tmp_path, "chat", columns=100) as screen,
    ):
        screen.expect(PROMPT)
        screen.send("long" + ENTER)
        screen.expect("reading  50% █{12}░{12} of 1,000 tokens")
        screen.resize(rows=24, columns=36)
        wide.set()
        # The narrower window has wrapped the old bar: it is wiped from its first row on.
        screen.expect(r"\r\x1b\[K\x1b\[A.*reading  75% █{9}░{3} of 1")
        gate.set()
        # The bar is wiped before the answer takes its place.
        screen.expect(r"\r\x1b\[KRead\.")


def test_waiting_is_said_with_its_reason(tmp_path: Path) -> None:
    gate = threading.Event()

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        waiting = channel.TurnWaiting(turn=1, reason=channel.WaitReason.SLOT_BUSY, waited_ms=4_000, limit_ms=600_000)
        request.answer(waiting, final=False)
        gate.wait(30)
        loopd.send(request, (text("Now."), ended("Now.")))

    with FakeLoopd(tmp_path, {channel.UserMessage: script}), on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("hm" + ENTER)
        screen.expect(r"waits for the model, which answers somebody else \(4\.")
        gate.set()
        screen.expect("Now.")


# -- what a model may not do to the terminal -----------------------------------------------------------


def test_no_code_point_of_the_model_steers_the_terminal(tmp_path: Path) -> None:
    hidden = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp")]
    hidden = [character for character in hidden if character not in "\n\t"]
    # Cut inside the sequences: each code point comes in a delta of its own, and in runs.
    attack = ["\x1b", "]0;title\x07", "\x1b[", "2J", "\x9b", "31m", *hidden, "".join(hidden), "end"]
    script = answers(*map(thought, attack), *map(text, attack), ended("".join(attack)))
    with FakeLoopd(tmp_path, {channel.UserMessage: script}), on_terminal(tmp_path, "chat", "--no-usage") as screen:
        screen.expect(PROMPT)
        screen.send("go" + ENTER)
        # From where the line editor let go of the terminal to where it takes it again.
        came = screen.expect(r"\x1b\[\?2004l\r?(.*end.*end)\r\n\r\n\x1b\[\?2004l")[1]
        screen.expect(PROMPT)
    ours = re.compile(r"\r\n|\r?\x1b\[K|\x1b\[(?:0m|2m|\?2004h)")
    assert {ascii(character) for character in ours.sub("", came) if character in hidden} == set()
    assert all(f"\\u{{{ord(character):04X}}}" in came for character in hidden)
