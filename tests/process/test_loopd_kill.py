"""kill -9 of each part of the inference path, at each step of a turn and at each write of loopd."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from bxcore.errors import EXIT_CONFIG
from bxcore.wire.channel import (
    MessageAccepted,
    PromptProgress,
    StepUsage,
    TextDelta,
    ToolReturned,
    TurnEnding,
    UserMessage,
)
from tests.fakes.llama.text import call_text, pieces
from tests.fakes.llama_server import Call, Pause, Reply
from tests.process.loopd_stack import CLOCK, KILLED, OK, Answer, Stack, Talk, faults, lost, of, until
from tests.process.role import Role

BROKEN = "tests.process.broken_loopd"
PARTS = ("loopd", "inferproxy", "llama")
PATIENCE_SECONDS = 120

ECHO = Call(name="call_tool", arguments='{"name":"echo","arguments":{"text":"twice?"}}')
INSIDE_ITS_ARGUMENTS = len(pieces(call_text(ECHO.name, "\0").split("\0")[0])) + 6
READS_FOR_EVER = Reply(batch_delay=3_600)


@attrs.frozen(kw_only=True)
class Step:
    """A place in a turn. `frozen`: a path of the server that does not answer; `reached` returns at the place."""

    name: str
    reached: Callable[[Stack, Talk, Pause], object]
    replies: Callable[[Pause], list[Answer]] = lambda _: []
    frozen: str = ""


STEPS = (
    Step(name="accepted", frozen="/props", reached=lambda _, talk, __: talk.wait(MessageAccepted)),
    Step(
        name="request sent",
        frozen="/v1/chat/completions",
        reached=lambda stack, talk, _: until(lambda: stack.bodies(f'"{said(talk)}"'), "the request"),
    ),
    Step(
        name="prompt being read",
        replies=lambda _: [READS_FOR_EVER],
        reached=lambda _, talk, __: talk.wait(PromptProgress),
    ),
    Step(
        name="first text",
        replies=lambda pause: [Reply(text="One two three.", pause_after=1, pause=pause)],
        reached=lambda _, talk, __: talk.wait(TextDelta),
    ),
    Step(
        name="inside a call",
        replies=lambda pause: [Reply(calls=(ECHO,), pause_after=INSIDE_ITS_ARGUMENTS, pause=pause)],
        reached=lambda _, __, pause: pause.reached.wait(PATIENCE_SECONDS),
    ),
    Step(
        name="after the result",
        replies=lambda _: [CLOCK, READS_FOR_EVER],
        reached=lambda _, talk, __: talk.wait(ToolReturned),
    ),
    Step(name="at the end", replies=lambda _: [OK], reached=lambda _, talk, __: talk.wait(StepUsage)),
)


def said(talk: Talk) -> str:
    assert isinstance(talk.message, UserMessage)
    return talk.message.text


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    # Asked before each request whether it is still the same, so that the server can be met before the first of them.
    with Stack(tmp_path_factory.mktemp("kill"), {"infer": {"recheck_ms": 0}}) as stack:
        yield stack.start(BROKEN)


@pytest.fixture
def stack(running: Stack) -> Stack:
    """The stack of this file, all parts of it running, whatever the test before did to it."""
    running.llama.frozen_paths.clear()
    running.replies.clear()
    for part in PARTS:
        if not running.runs(part):
            running.start_again(part, BROKEN)
    return running


sessions = (f"s{number}" for number in itertools.count())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.replace(" ", "-"))
def test_a_part_killed_at_a_step_loses_nothing_and_wedges_nothing(stack: Stack, step: Step, part: str) -> None:
    session = next(sessions)
    pause = Pause()
    stack.replies.extend(step.replies(pause))
    stack.llama.frozen_paths = {step.frozen}
    first = stack.say(f"first of {session}", session=session, new=True, key="first")
    step.reached(stack, first, pause)
    stack.kill(part)
    stack.llama.frozen_paths = set()
    stack.replies.clear()
    stack.start_again(part, BROKEN)
    first.over()
    assert lost(first, stack.records(session)) == []

    again = stack.say(f"first of {session}", session=session, key="first")
    assert again.wait(MessageAccepted).duplicate
    assert again.ended().turn == 1
    assert stack.say("second", session=session, key="second").ended().ending is TurnEnding.ANSWERED
    records = stack.records(session)
    assert [record["keys"] for record in of(records, "turn_start")] == [["first"], ["second"]]
    assert faults(records) == []


@pytest.mark.parametrize("part", ["inferproxy", "llama"])
def test_a_turn_that_had_sent_nothing_yet_outlives_the_death_of_what_is_behind(stack: Stack, part: str) -> None:
    session = next(sessions)
    stack.llama.frozen_paths = {"/props"}
    before = len(stack.llama.requests)
    talk = stack.say(session=session, new=True)
    until(lambda: stack.llama.requests[before:], "the question whether it is still the same")
    stack.kill(part)
    stack.llama.frozen_paths = set()
    stack.start_again(part)
    assert talk.ended().ending is TurnEnding.ANSWERED


WRITES = ("baseline", "session_start", "message", "call", "result", "answer", "turn_end")
"""What loopd writes for the first message of a session, when the model calls one tool and then answers.

"message" is two records in one write: the user's, and the start of its turn.
"""


def first_message(stack: Stack, session: str) -> Talk:
    stack.replies.extend([CLOCK, OK])
    return stack.say(f"first of {session}", session=session, new=True, key="first").over()


def break_at(stack: Stack, how: str, write: int) -> None:
    (stack.home.etc / "break").write_text(f"{how} {write}")


@pytest.mark.parametrize("how", ["torn", "durable"])
@pytest.mark.parametrize("write", range(1, len(WRITES) + 1), ids=WRITES)
def test_loopd_killed_at_a_write_loses_nothing_that_it_acknowledged(stack: Stack, write: int, how: str) -> None:
    session = next(sessions)
    break_at(stack, how, write)
    first = first_message(stack, session)
    assert first.code == "peer_gone"
    assert stack.ended_by_itself()[0] == KILLED
    stack.replies.clear()
    stack.start_again("loopd", BROKEN)
    if first.of(MessageAccepted):
        assert lost(first, stack.records(session)) == []
        assert write > WRITES.index("message") + 1

    again = stack.say(f"first of {session}", session=session, new=True, key="first")
    interrupted = write > WRITES.index("message") + (how == "torn")
    finished = (write, how) == (len(WRITES), "durable")
    expected = TurnEnding.INTERRUPTED if interrupted and not finished else TurnEnding.ANSWERED
    assert again.ended().ending is expected
    assert stack.say("second", session=session, key="second").ended().ending is TurnEnding.ANSWERED
    records = stack.records(session)
    assert [record["keys"] for record in of(records, "turn_start")] == [["first"], ["second"]]
    assert faults(records) == []


def test_these_are_all_the_writes_that_a_first_message_needs(stack: Stack) -> None:
    break_at(stack, "torn", len(WRITES) + 1)
    talk = first_message(stack, next(sessions))
    assert talk.ended().ending is TurnEnding.ANSWERED
    # The next one is the broken one: it says that the order was taken, and that nothing was written meanwhile.
    assert stack.say(session=next(sessions), new=True).over().code == "peer_gone"
    assert stack.ended_by_itself()[0] == KILLED


@pytest.mark.parametrize("how", ["torn", "durable"])
def test_a_call_that_loopd_died_over_is_answered_as_lost_and_is_not_run_again(stack: Stack, how: str) -> None:
    session = next(sessions)
    break_at(stack, how, WRITES.index("call") + 1 + (how == "torn"))  # once after the call, once in its result
    first_message(stack, session)
    stack.ended_by_itself()
    stack.start_again("loopd", BROKEN)
    seen: list[Any] = stack.say("second", session=session).over().events
    assert not [event for event in seen if isinstance(event, ToolReturned)]
    (result,) = of(stack.records(session), "tool_result")
    assert not result["ok"]
    assert result["content"].startswith("lost")
    assert "not known" in result["content"]
    assert result["content"].encode() in stack.bodies(f"first of {session}")[-1]


def test_loopd_comes_up_after_each_of_twenty_kills(stack: Stack) -> None:
    session = next(sessions)
    talks = [stack.say("0", session=session, new=True)]
    for number in range(1, 21):
        talks[-1].wait(MessageAccepted)
        stack.kill("loopd")
        stack.start_again("loopd")
        talks.append(stack.say(str(number), session=session))
    assert talks[-1].ended().ending is TurnEnding.ANSWERED
    records = stack.records(session)
    assert [lost(talk, records) for talk in talks] == [[]] * len(talks)
    assert faults(records) == []


def test_inferproxy_comes_up_after_each_of_twenty_kills(stack: Stack) -> None:
    for _ in range(20):
        stack.kill("inferproxy")
        stack.start_again("inferproxy")
    assert stack.say(session=next(sessions), new=True).ended().ending is TurnEnding.ANSWERED


@pytest.mark.parametrize("name", ["loopd", "inferproxy"])
def test_a_second_one_beside_the_first_is_refused(stack: Stack, name: str) -> None:
    with Role(name, "--config", str(stack.home.etc / f"{name}.toml"), home=stack.home.log) as second:
        assert second.exit_code() == EXIT_CONFIG
        assert "already_running" in second.log()
    assert stack.say(session=next(sessions), new=True).ended().ending is TurnEnding.ANSWERED
