"""bxctl chat on a real terminal, against a loopd that says what the test wrote."""

import re
import signal
import termios
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.server import Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding
from bxcore.wire.control import ErrorCode
from tests.fakes import loopd
from tests.fakes.loopd import FakeLoopd, answers, ended, text, thought
from tests.fakes.terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, PASTE_BEGIN, PASTE_END, UP
from tests.process.bxctl_process import on_terminal

PROMPT = "you> "
HELLO = answers(loopd.started(), text("Hello "), text("there."), ended("Hello there."))


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


# -- talking -----------------------------------------------------------------------------------------


def test_an_answer_streams_in_and_the_session_is_named_at_the_end(tmp_path: Path) -> None:
    with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as fake, on_terminal(tmp_path, "chat") as screen:
        screen.expect("tiny, 8,192 tokens of context.*This is a new session.*" + PROMPT)
        screen.send("Good morning" + ENTER)
        screen.expect("Hello there.\r\n.*read 20 tokens, 100 from the cache; wrote 7; 1.2 s.*" + PROMPT)
        screen.send(CTRL_D)
        message = fake.wait(channel.UserMessage)
        screen.expect(f"To go on: bxctl --home {tmp_path} chat --session {message.session}")
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


def test_new_begins_another_session_and_session_goes_back(tmp_path: Path) -> None:
    records = loopd.replies(
        loopd.record(1, '{"type":"user","content":"the old question"}'),
        loopd.record(2, '{"type":"assistant","content":"the old answer"}'),
        channel.SessionShowEnd(lines=2),
    )
    scripts = {channel.UserMessage: HELLO, channel.SessionShow: records}
    with FakeLoopd(tmp_path, scripts) as fake, on_terminal(tmp_path, "chat") as screen:
        for line, seen in (("one", "there."), ("/new", "next message begins a new session"), ("two", "there.")):
            screen.expect(PROMPT)
            screen.send(line + ENTER)
            screen.expect(seen)
        first, second = fake.wait(channel.UserMessage), fake.wait(channel.UserMessage, 2)
        screen.send(f"/session {first.session}{ENTER}")
        screen.expect("you> the old question\r\nthe old answer\r\n")
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
        screen.expect("reading  75% █{9}░{3} of 1")
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
        screen.expect(r"the model's slot is busy with another request, at most 10 min 0 s \(4\.")
        gate.set()
        screen.expect("Now.")


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
        assert fake.wait(channel.TurnCancel).session == fake.wait(channel.UserMessage).session


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
        screen.expect("To go on: bxctl")
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
        came = screen.expect(r"\x1b\[\?2004l\r?(.*end.*end)\r\n\x1b\[\?2004l")[1]
        screen.expect(PROMPT)
    ours = re.compile(r"\r\n|\r?\x1b\[K|\x1b\[(?:0m|2m|\?2004h)")
    assert {ascii(character) for character in ours.sub("", came) if character in hidden} == set()
    assert all(f"\\u{{{ord(character):04X}}}" in came for character in hidden)


# -- loopd away ----------------------------------------------------------------------------------------


def test_a_loopd_that_is_not_ready_is_waited_for_with_its_reason(tmp_path: Path) -> None:
    states = iter([loopd.ready("the model server"), loopd.ready("the model server"), loopd.ready()])

    def status(request: Request) -> None:
        request.answer(next(states), final=True)

    scripts = {channel.LoopStatus: status, channel.UserMessage: HELLO}
    with FakeLoopd(tmp_path, scripts), on_terminal(tmp_path, "chat") as screen:
        screen.expect("waiting for loopd: the model server.*" + PROMPT)


def cut_after(events: Callable[[Request], list[object]], hold: threading.Event) -> loopd.Script:
    """Send some events, then hold still until the server that stops cuts the connection."""

    def script(request: Request) -> None:
        for event in events(request):
            request.answer(event, final=False)
        hold.wait(30)

    return script


def test_a_message_that_was_not_accepted_is_sent_again_with_its_key(tmp_path: Path) -> None:
    hold = threading.Event()
    with on_terminal(tmp_path, "chat") as screen:
        with FakeLoopd(tmp_path, {channel.UserMessage: cut_after(lambda _: [], hold)}) as first:
            screen.expect(PROMPT)
            screen.send("go" + ENTER)
            sent = first.wait(channel.UserMessage)
        with FakeLoopd(tmp_path, {channel.UserMessage: HELLO}) as second:
            screen.expect("Hello there.*" + PROMPT)
            assert second.of(channel.UserMessage) == [sent]
    hold.set()


def test_a_session_that_the_lost_sending_made_is_continued(tmp_path: Path) -> None:
    hold = threading.Event()

    def exists_by_now(request: Request) -> None:
        assert isinstance(request.message, channel.UserMessage)
        script = loopd.refuses(ErrorCode.SESSION_EXISTS, "it exists") if request.message.new else HELLO
        script(request)

    with on_terminal(tmp_path, "chat") as screen:
        with FakeLoopd(tmp_path, {channel.UserMessage: cut_after(lambda _: [], hold)}) as first:
            screen.expect(PROMPT)
            screen.send("go" + ENTER)
            sent = first.wait(channel.UserMessage)
        with FakeLoopd(tmp_path, {channel.UserMessage: exists_by_now}) as second:
            screen.expect("Hello there.*" + PROMPT)
            again = second.wait(channel.UserMessage, 2)
    hold.set()
    assert (again.session, again.key, again.new) == (sent.session, sent.key, False)


def test_a_turn_is_followed_to_its_end_after_loopd_restarts(tmp_path: Path) -> None:
    hold = threading.Event()
    cut = cut_after(lambda request: [loopd.accepted(request, turn=4), text("Half an", turn=4)], hold)
    snapshot = channel.TurnSnapshot(turn=4, state=channel.TurnState.ENDED, reasoning="", text="")
    follow = loopd.replies(
        snapshot, ended("Half an", turn=4, ending=TurnEnding.INTERRUPTED, sentence="loopd was restarted.")
    )
    with on_terminal(tmp_path, "chat") as screen:
        with FakeLoopd(tmp_path, {channel.UserMessage: cut}) as first:
            screen.expect(PROMPT)
            screen.send("go" + ENTER)
            screen.expect("Half an")
            message = first.wait(channel.UserMessage)
        screen.expect("connection to loopd was lost")
        with FakeLoopd(tmp_path, {channel.TurnFollow: follow, channel.UserMessage: HELLO}) as second:
            screen.expect(r"! loopd was restarted\. \[interrupted\].*" + PROMPT)
            assert second.wait(channel.TurnFollow) == channel.TurnFollow(session=message.session, turn=4)
            assert second.of(channel.UserMessage) == []
    hold.set()
    assert screen.shown.count("Half an") == 1
