"""S1: brokerd is killed at each step of a call, and nothing happens twice, is lost, or is left behind.

The steps are those of the container service, which kills brokerd before it answers one; and those that the log
shows. What is counted as an effect is a tool's container that was started.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator

import pytest

from brokerd import callstate
from brokerd.callstate import CallState
from bxcore.auditlog import Answered, Decided, Ended, RunEnding
from bxcore.client import PeerAway, PeerLeft
from bxcore.wire import admin, state
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.tools import DenyReason, ToolDenied, ToolRequest, ToolResult
from tests.fakes import callstory
from tests.process.brokerd_stack import LONG_MS, Stack, kill, stack
from tests.process.role import Role


@pytest.fixture
def rig() -> Iterator[Stack]:
    with stack() as made:
        yield made


def killed_during(rig: Stack, request: ToolRequest, at: Callable[[Role], None], *, asks: bool) -> None:
    """Send the call, say yes where it asks, and have brokerd killed meanwhile."""
    with rig.brokerd() as role:
        at(role)
        with contextlib.suppress(PeerLeft, PeerAway), rig.dial() as connection:
            answers = connection.request(request, idle_ms=LONG_MS)
            first = next(answers)
            if asks and not first.final:
                rig.yes(first.msg.approval)  # type: ignore[attr-defined]
                next(answers)
        role.process.wait()
        assert role.process.returncode == -signal.SIGKILL


def check_after_restart(rig: Stack, request: ToolRequest) -> CallState:
    """Start again. The call has its end, no container is left, it does not run again, and another does."""
    rig.podman.on("create", lambda _: False)
    started = len(rig.started)
    assert started <= 1
    with rig.brokerd():
        assert rig.left() == 0
        records = rig.records()
        [decided] = [one for one in records if isinstance(one, Decided)]
        mine = [one for one in records if decided.seq in {one.seq, getattr(one, "decision", None)}]
        after = callstory.state_after(mine)
        assert callstate.last(after)
        again = rig.ask(request)
        assert isinstance(again, ToolDenied)
        assert again.reason is DenyReason.INVALID_ARGUMENTS
        assert len(rig.started) == started
        rig.grant()
        assert isinstance(rig.ask(rig.request(session="other")), ToolResult)
    return after


def at_step(rig: Stack, step: str) -> Callable[[Role], None]:
    """Kill brokerd when it asks the container service for `step`, before that has been done."""

    def arm(role: Role) -> None:
        def act(_: object) -> bool:
            rig.podman.on(step, lambda _: False)
            kill(role)
            role.process.wait()
            return False

        rig.podman.on(step, act)

    return arm


STEPS = {
    "create": {CallState.ENDED},
    "init": {CallState.ENDED},
    "inspect": {CallState.ENDED},
    "attach": {CallState.ENDED},
    "start": {CallState.UNKNOWN},
    "remove": {CallState.ENDED, CallState.UNKNOWN},
}


@pytest.mark.parametrize("asks", [False, True], ids=["auto", "ask"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_of_its_container_a_call_ends_once(rig: Stack, step: str, asks: bool) -> None:
    rig.grant(mode="ask" if asks else "auto")
    request = rig.request()
    killed_during(rig, request, at_step(rig, step), asks=asks)
    after = check_after_restart(rig, request)
    assert after in STEPS[step]
    if step != "remove":
        assert len(rig.started) == (1 if step == "start" else 0) + 1  # and the other call


@pytest.mark.parametrize("asks", [False, True], ids=["auto", "ask"])
def test_killed_while_the_tool_runs_the_call_is_unknown_and_said_so_once(rig: Stack, asks: bool) -> None:
    rig.grant(mode="ask" if asks else "auto", more='result_class = "secret"')
    request, whole = rig.request(), rig.tool

    def when_it_runs(role: Role) -> None:
        rig.tool = ["/bin/sh", "-c", f"kill -9 {role.process.pid}; exec sleep 1000"]

    killed_during(rig, request, when_it_runs, asks=asks)
    assert rig.left() == 1
    rig.tool = whole
    with rig.brokerd() as role:
        assert rig.left() == 0
        report = rig.status()
        assert report.detail == "at the last start: calls may or may not have taken effect (1)"
        assert "effect is not known seq=1 code=call_unknown" in role.log()
        [seen] = rig.tell(state.SessionStateAsk(session=request.session))
        assert seen.taint.value == "secret"
        [ended] = [one for one in rig.records() if isinstance(one, Ended)]
        assert ended.ending is RunEnding.UNKNOWN
    with rig.brokerd() as role:
        assert rig.status().detail is None
        assert "call_unknown" not in role.log()
    assert len(rig.started) == 1


def test_killed_with_an_open_question_it_is_void_and_said_once_to_each_side(rig: Stack) -> None:
    """G16, S11, neighbour 10."""
    rig.grant(mode="ask")
    request = rig.request()
    with rig.brokerd() as role, rig.question(request) as (pending, answers):
        shown = rig.tell(admin.ApprovalShow(id=pending.approval))[-1]
        kill(role)
        with pytest.raises(PeerLeft):
            next(answers)
    yes = admin.ApprovalAnswer(id=pending.approval, approve=True, canonical=shown.canonical, reason=None)
    with rig.brokerd() as role:
        assert rig.status().detail == f"at the last start: open questions became void ({pending.approval})"
        assert f"question is void since a restart id={pending.approval}" in role.log()
        [outcome] = rig.tell(yes)
        assert outcome.ending is ApprovalEnding.NOT_PENDING
        [answered] = [one for one in rig.records() if isinstance(one, Answered)]
        assert answered.ending is ApprovalEnding.VOID
        with rig.question() as (asked_again, _):
            assert asked_again.approval != pending.approval
        assert role.terminate() == 0
    with rig.brokerd():
        assert rig.status().detail is None
    assert rig.started == []


def test_twenty_kills_in_a_row_and_each_call_has_its_record(rig: Stack) -> None:
    """S1, neighbours 39 and 42."""
    rig.grant()
    for number in range(1, 21):
        with rig.brokerd() as role:
            assert isinstance(rig.ask(rig.request(number=number)), ToolResult)
            kill(role)
            role.process.wait()
    with rig.brokerd():
        assert len([one for one in rig.records() if isinstance(one, Ended)]) == 20
        assert rig.left() == 0
