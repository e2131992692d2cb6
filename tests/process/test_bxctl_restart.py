"""bxctl chat while loopd is away, restarts, or lets go of the connection."""

import threading
from collections.abc import Callable
from pathlib import Path

from bxcore.server import Request
from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding
from bxcore.wire.control import ErrorCode, WireFault
from tests.fakes import loopd
from tests.fakes.loopd import FakeLoopd, answers, ended, text
from tests.fakes.terminal import ENTER
from tests.process.bxctl_process import on_terminal

PROMPT = "you> "
HELLO = answers(loopd.started(), text("Hello "), text("there."), ended("Hello there."))


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


def test_a_connection_that_never_lasts_is_given_up(tmp_path: Path) -> None:
    def drops(request: Request) -> None:
        request.answer(WireFault(code=ErrorCode.LAGGED, detail="too slow"), final=True)

    def follow(request: Request) -> None:
        snapshot = channel.TurnSnapshot(turn=1, state=channel.TurnState.RUNNING, step=0, reasoning="", text="")
        request.answer(snapshot, final=False)
        drops(request)

    def accept(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        drops(request)

    with (
        FakeLoopd(tmp_path, {channel.UserMessage: accept, channel.TurnFollow: follow}) as fake,
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("go" + ENTER)
        screen.expect(r"! too slow \[lagged\].*" + PROMPT)
        assert len(fake.of(channel.TurnFollow)) == 5


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
    snapshot = channel.TurnSnapshot(turn=4, state=channel.TurnState.ENDED, step=0, reasoning="", text="")
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
