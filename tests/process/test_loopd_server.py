"""loopd while the model server is late, ill, killed, or replaced by another."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.errors import EXIT_CONFIG
from bxcore.wire.channel import (
    LoopStatus,
    TextDelta,
    ToolCalled,
    TurnEnding,
    TurnWaiting,
    WaitReason,
)
from tests.fakes.llama_server import Call, Pause, Refusal, Reply, Vanish
from tests.process.loopd_stack import OK, Settings, Stack, Talk, faults, of, until

OTHER_TEMPLATE = "{{- '<|start|>' + role + text + '<|end|>' }}"
ALWAYS_ASKS: Settings = {"infer": {"recheck_ms": 0}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("server")) as stack:
        yield stack.start()


@pytest.fixture
def stack(running: Stack) -> Stack:
    """A stack that has just answered something, so that it trusts its server."""
    running.replies.clear()
    if not running.runs("llama"):
        running.start_again("llama")
    assert running.say(session=next(sessions), new=True).ended().ending is TurnEnding.ANSWERED
    return running


sessions = (f"s{number}" for number in itertools.count())


def goes_on(stack: Stack, session: str) -> None:
    """The session is not wedged: what is said next is answered, and its log is in order."""
    assert stack.say("next", session=session).ended().ending is TurnEnding.ANSWERED
    assert faults(stack.records(session)) == []


def waits(talk: Talk, reason: WaitReason) -> None:
    until(lambda: any(waiting.reason is reason for waiting in talk.of(TurnWaiting)), reason.value)


# -- before it is ready ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(["llama", "inferproxy", "loopd"])), ids="-".join)
def test_the_parts_may_be_started_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    with Stack(tmp_path) as stack:
        for part in order:
            match part:
                case "llama":
                    stack.llama.start()
                case "inferproxy":
                    stack.start_proxy()
                case _:
                    stack.start_loopd()
                    until(stack.home.loop_socket.exists, "the socket")
                    if part != order[-1]:
                        until(lambda: "the model server" in (stack.status().waiting_for or ""), "the reason")
        stack.loopd.wait_ready()
        assert stack.say(new=True).ended().ending is TurnEnding.ANSWERED


def test_until_the_server_comes_loopd_says_what_it_waits_for_and_takes_no_message(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.start_proxy()
        stack.start_loopd()
        until(stack.home.loop_socket.exists, "the socket")
        until(lambda: "the model server" in (stack.status().waiting_for or ""), "the reason")
        refused = stack.say(new=True, key="early").over()
        assert refused.code == "not_ready"
        assert "loopd is waiting for the model server" in str(refused.fault)
        assert not stack.log_file().exists()
        stack.llama.loading = True
        stack.llama.start()
        until(lambda: "loading" in (stack.status().waiting_for or ""), "the other reason")
        stack.llama.loading = False
        stack.loopd.wait_ready()
        assert (stack.status().ready, stack.status().waiting_for) == (True, None)
        assert stack.say(new=True, key="early").ended().ending is TurnEnding.ANSWERED


WRONG: dict[str, tuple[Settings, str]] = {
    "context": ({"expect": {"n_ctx": 4_096}}, "context: expected 4096 tokens in each slot, found 65536 tokens"),
    "slots": ({"expect": {"slots": 3}}, "slots: expected 3 slots"),
    "template": ({"expect": {"template_sha256": "0" * 64}}, f"template: expected {'0' * 64}, found "),
}


@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_server_that_is_not_what_is_configured_stops_loopd_and_the_check_is_named(
    tmp_path: Path, settings: Settings, words: str
) -> None:
    with Stack(tmp_path, settings) as stack:
        stack.llama.start()
        stack.start_proxy()
        stack.start_loopd()
        code, said = stack.ended_by_itself()
        assert code == EXIT_CONFIG
        assert words in said
        assert "docs/runbook.md#selftest_" in said
        assert "Traceback" not in said


def test_a_model_that_calls_no_tool_stops_loopd(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.self_test = Reply(text="It is noon.")
        stack.llama.start()
        stack.start_proxy()
        stack.start_loopd()
        code, said = stack.ended_by_itself()
        assert code == EXIT_CONFIG
        assert "tool call: expected one call, clock {}, found no call but 11 characters of text" in said


# -- away, back again, another one -----------------------------------------------------------------


def test_a_server_that_restarts_between_two_turns_is_waited_for(stack: Stack) -> None:
    session = next(sessions)
    assert stack.say("one", session=session, new=True).ended().ending is TurnEnding.ANSWERED
    stack.kill("llama")
    talk = stack.say("two", session=session)
    waits(talk, WaitReason.SERVER_AWAY)
    stack.llama.start()
    assert talk.ended().ending is TurnEnding.ANSWERED
    goes_on(stack, session)


def test_a_server_that_dies_in_the_middle_ends_the_turn_and_is_waited_for_by_the_next(stack: Stack) -> None:
    session, pause = next(sessions), Pause()
    stack.replies.append(Reply(text="One two three.", pause_after=2, pause=pause))
    talk = stack.say(session=session, new=True)
    talk.wait(TextDelta, 2)
    stack.kill("llama")
    end = talk.ended()
    assert (end.ending, end.text) == (TurnEnding.SERVER_LOST, "One two")
    assert end.sentence
    second = stack.say("two", session=session)
    waits(second, WaitReason.SERVER_AWAY)
    stack.llama.start()
    assert second.ended().ending is TurnEnding.ANSWERED
    goes_on(stack, session)


def test_a_server_that_loads_its_model_again_is_waited_for(stack: Stack) -> None:
    session = next(sessions)
    stack.llama.loading = True
    talk = stack.say(session=session, new=True)
    waits(talk, WaitReason.MODEL_LOADING)
    stack.llama.loading = False
    assert talk.ended().ending is TurnEnding.ANSWERED
    goes_on(stack, session)


def swap(stack: Stack, *, template: str = OTHER_TEMPLATE) -> None:
    stack.kill("llama")
    stack.llama.template = template
    stack.llama.start()


@pytest.fixture
def pinned(tmp_path: Path) -> Iterator[Stack]:
    """A stack whose configuration names the template."""
    with Stack(tmp_path) as stack:
        stack.settings = {**ALWAYS_ASKS, "expect": {"template_sha256": stack.template_hash()}}
        yield stack.start()


def test_nothing_of_a_conversation_is_sent_to_a_server_with_another_template(pinned: Stack) -> None:
    assert pinned.say("one", new=True).ended().ending is TurnEnding.ANSWERED
    original = pinned.llama.template
    swap(pinned)
    sent = len(pinned.bodies())
    end = pinned.say("two").ended()
    assert end.ending is TurnEnding.MODEL_CHANGED
    assert end.sentence is not None
    assert "template" in end.sentence
    assert pinned.say("three").ended().ending is TurnEnding.MODEL_CHANGED
    assert len(pinned.bodies()) == sent
    swap(pinned, template=original)
    goes_on(pinned, "s")


@pytest.mark.parametrize("ill", ["away", "loading"])
def test_a_server_that_is_replaced_while_a_turn_waits_for_it_is_sent_nothing_either(tmp_path: Path, ill: str) -> None:
    with Stack(tmp_path) as stack:
        stack.settings = {"expect": {"template_sha256": stack.template_hash()}}
        stack.start()
        assert stack.say("one", new=True).ended().ending is TurnEnding.ANSWERED
        if ill == "away":
            stack.kill("llama")
        else:
            stack.llama.loading = True
        talk = stack.say("two")
        waits(talk, WaitReason.SERVER_AWAY if ill == "away" else WaitReason.MODEL_LOADING)
        # One that is loading was sent the request, when it was still the server that had been tested.
        sent = len(stack.bodies())
        swap(stack)
        stack.llama.loading = False
        assert talk.ended().ending is TurnEnding.MODEL_CHANGED
        assert len(stack.bodies()) == sent


def test_without_a_pinned_template_the_new_server_is_tested_and_the_conversation_goes_on(tmp_path: Path) -> None:
    with Stack(tmp_path, ALWAYS_ASKS) as stack:
        stack.start()
        assert stack.say("one", new=True).ended().ending is TurnEnding.ANSWERED
        tests = stack.self_tests()
        swap(stack)
        assert stack.say("two").ended().ending is TurnEnding.ANSWERED
        assert stack.self_tests() == 2 * tests
        goes_on(stack, "s")
        assert stack.self_tests() == 2 * tests


def test_a_new_server_that_fails_the_self_test_is_not_used(tmp_path: Path) -> None:
    with Stack(tmp_path, ALWAYS_ASKS) as stack:
        stack.start()
        assert stack.say("one", new=True).ended().ending is TurnEnding.ANSWERED
        sent = len(stack.bodies())
        stack.self_test = Reply(text="It is noon.")
        swap(stack)
        end = stack.say("two").ended()
        assert end.ending is TurnEnding.MODEL_CHANGED
        assert "tool call" in (end.sentence or "")
        assert len(stack.bodies()) == sent


# -- what a server may answer instead ----------------------------------------------------------------

CALL = Call(name="call_tool", arguments='{"name":"echo","arguments":{"text":"half"}}')

WHOLE_CALL = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a",'
    b'"function":{"name":"clock","arguments":"{}"}}]}}]}\n\n'
)

ILL = {
    "500": (Refusal(status=500, message="out of memory"), "server_refused", "out of memory"),
    "400": (Refusal(status=400, message="bad role"), "server_refused", "bad role"),
    "context full": (
        Refusal(status=400, message="exceeds the available context size", type="exceed_context_size_error"),
        "context_full",
        "new session",
    ),
    "closed in the text": (Reply(text="One two.", vanish_after=1), "server_lost", "lost"),
    "closed in a call": (Reply(calls=(CALL,), vanish_after=20), "server_lost", "lost"),
    "closed after a whole call": (
        Reply(raw=(WHOLE_CALL,)),
        "server_lost",
        "lost",
    ),
    "an error in the text": (
        Reply(text="One two.", error_after=1, error={"code": 500, "message": "boom", "type": "server_error"}),
        "server_lost",
        "lost",
    ),
    "an error in a call": (
        Reply(calls=(CALL,), error_after=20, error={"code": 500, "message": "boom", "type": "server_error"}),
        "server_lost",
        "lost",
    ),
    "no JSON": (Reply(raw=(b"data: {oops\n\n", b"data: [DONE]\n\n")), "server_protocol", "answered"),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "ending", "words"), ILL.values(), ids=ILL.keys())
def test_a_fault_of_the_server_ends_the_turn_in_words_and_runs_no_half_call(
    stack: Stack, answer: Reply | Refusal, ending: str, words: str
) -> None:
    session = next(sessions)
    stack.replies.append(answer)
    talk = stack.say("breaks it", session=session, new=True)
    end = talk.ended()
    assert end.ending.value == ending
    assert words in (end.sentence or "")
    assert talk.of(ToolCalled) == []
    goes_on(stack, session)
    assert of(stack.records(session), "tool_result") == []
    dropped = ending in ("server_refused", "context_full")  # it would be refused for ever
    assert (b"breaks it" in stack.bodies()[-1]) is not dropped


@pytest.mark.parametrize("status", [403, 429, 502, 503])
def test_a_refusal_that_is_not_about_the_message_wedges_nothing(stack: Stack, status: int) -> None:
    session = next(sessions)
    stack.replies.append(Refusal(status=status, body=b"<html>A page of something in between</html>"))
    end = stack.say(session=session, new=True).ended()
    assert end.ending is TurnEnding.ANSWERED or end.sentence
    goes_on(stack, session)


def test_a_connection_that_breaks_before_an_answer_is_tried_again(stack: Stack) -> None:
    session = next(sessions)
    stack.replies.extend([Vanish(), OK])
    talk = stack.say(session=session, new=True)
    assert talk.ended().ending is TurnEnding.ANSWERED
    assert [waiting.reason for waiting in talk.of(TurnWaiting)] == [WaitReason.SERVER_AWAY]
    goes_on(stack, session)


def test_a_silent_server_ends_the_turn(tmp_path: Path) -> None:
    with Stack(tmp_path, {"infer": {"liveness_ms": 400}}) as stack:
        stack.start()
        stack.replies.append(Reply(text="One two.", silent_after=1))
        end = stack.say(new=True).ended()
        assert (end.ending, end.text) == (TurnEnding.SERVER_SILENT, "One")
        goes_on(stack, "s")


def test_status_is_told_while_the_server_says_nothing(stack: Stack) -> None:
    stack.llama.frozen = True
    talk = stack.say(session=next(sessions), new=True)
    assert stack.talk(LoopStatus()).over().fault is None
    stack.llama.frozen = False
    stack.kill("llama")
    stack.llama.start()
    assert talk.ended().ending in (TurnEnding.ANSWERED, TurnEnding.SERVER_LOST)
