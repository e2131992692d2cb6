import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import pytest

from bxcore.errors import ConfigError
from bxcore.settings.loopd import Infer, Listen, LoopdSettings
from bxcore.wire.channel import WaitReason
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled, ModelChanged, ModelLoading, ServerAway
from loopd.selftest import Check
from loopd.serverinfo import Props
from loopd.waits import OnWait
from loopd.watch import ServerWatch
from tests.fakes.clocks import HandClock
from tests.fakes.scripted_model import PROPS, ScriptedModel

PATIENCE_SECONDS = 20
OTHER = attrs.evolve(PROPS, template_sha256="1" * 64)


def check(*, passed: bool) -> Check:
    return Check(name="template", passed=passed, expected="aaa", found="bbb", runbook="selftest_template")


class SelfTest:
    """The self-test: what it says next, and how often it was run."""

    def __init__(self) -> None:
        self.runs = 0
        self.fault: Exception | None = None
        self.passes = True

    def __call__(self, cancel: CancelToken, on_wait: OnWait) -> Iterable[Check]:
        self.runs += 1
        yield check(passed=True)
        if self.fault is not None:
            raise self.fault
        yield check(passed=self.passes)


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.clock, self.model, self.tests = HandClock(), ScriptedModel(), SelfTest()
        settings = LoopdSettings(
            state=tmp_path,
            listen=Listen(owner=tmp_path / "loop.sock"),
            infer=Infer(socket=tmp_path / "infer.sock", recheck_ms=30_000, load_wait_ms=5_000),
        )
        self.watch = ServerWatch(server=self.model, settings=settings, clock=self.clock, test=self.tests)
        self.waits: list[tuple[WaitReason, int, int]] = []

    def start(self) -> list[str]:
        """Start, wait until the background thread has ended; say what it called."""
        called: list[str] = []
        thread = self.watch.start(on_ready=lambda: called.append("ready"), on_failure=lambda: called.append("failure"))
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        return called

    def confirm(self, cancel: CancelToken | None = None) -> bool:
        return self.watch.confirm(cancel=cancel or CancelToken(), on_wait=lambda *wait: self.waits.append(wait))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- start --------------------------------------------------------------------------------------------


def test_before_the_self_test_loopd_is_not_ready_and_says_what_it_waits_for(world: World) -> None:
    assert not world.watch.ready
    assert world.watch.waiting_for == "the start-up self-test"
    assert (world.watch.n_ctx, world.watch.model) == (0, None)


def test_after_the_self_test_it_is_ready(world: World) -> None:
    assert world.start() == ["ready"]
    assert world.watch.ready
    assert world.watch.waiting_for is None
    assert (world.watch.n_ctx, world.watch.model) == (4_096, "scripted")
    assert world.tests.runs == 1


def test_a_failed_check_refuses_the_start_and_names_all_that_mends_it(world: World) -> None:
    world.tests.passes = False
    assert world.start() == ["failure"]
    failure = world.watch.failure
    assert isinstance(failure, ConfigError)
    assert failure.code == "selftest_failed"
    assert failure.detail == "template: expected aaa, found bbb, see docs/runbook.md#selftest_template"
    assert not world.watch.ready


def test_s4_a_server_that_is_away_is_waited_for(world: World) -> None:
    world.model.tells = [ServerAway("nobody there"), ModelLoading("still loading"), PROPS]
    seen: list[str | None] = []
    tell = world.model.props

    def props(*, cancel: CancelToken | None = None) -> Props:
        seen.append(world.watch.waiting_for)
        return tell()

    world.model.props = props  # type: ignore[method-assign]  # looks over the shoulder of each question
    assert world.start() == ["ready"]
    assert seen == ["the start-up self-test", "the model server: nobody there", "the model server: still loading"]


def test_a_server_that_leaves_in_the_middle_of_the_self_test_is_waited_for(world: World) -> None:
    world.tests.fault = ServerAway("gone")
    asked = threading.Event()

    def come_back() -> None:
        asked.wait(PATIENCE_SECONDS)
        world.tests.fault = None

    world.model.tells = [PROPS, ServerAway("gone"), PROPS]
    helper = threading.Thread(target=come_back)
    helper.start()
    tell = world.model.props

    def props(*, cancel: CancelToken | None = None) -> Props:
        if world.tests.runs:
            asked.set()
            helper.join(PATIENCE_SECONDS)
        return tell()

    world.model.props = props  # type: ignore[method-assign]  # as above
    assert world.start() == ["ready"]
    assert world.tests.runs == 2


def test_a_start_that_waits_can_be_given_up(world: World) -> None:
    world.model.tells = [ServerAway("nobody there")]
    called: list[str] = []
    thread = world.watch.start(on_ready=lambda: called.append("ready"), on_failure=lambda: called.append("failure"))
    world.watch.stop()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert called == []


@pytest.mark.parametrize("where", ["props", "test"])
def test_a_start_that_is_asking_can_be_given_up(world: World, where: str) -> None:
    if where == "props":
        world.model.tells = [Cancelled("stopped on request")]
    else:
        world.tests.fault = Cancelled("stopped on request")
    assert world.start() == []
    assert world.watch.failure is None


def test_a_fault_of_ours_in_the_self_test_does_not_leave_loopd_waiting_for_ever(world: World) -> None:
    world.tests.fault = ZeroDivisionError()
    assert world.start() == ["failure"]
    assert world.watch.failure is not None


def test_m4_the_markup_of_the_served_template_is_broken_up_from_the_first_test_on(world: World) -> None:
    own = attrs.evolve(PROPS, template_tags=("{{role:system}}",))
    world.model.tells = [own]
    assert world.watch.neutralise("<|im_start|>") == "< |im_start|>"
    world.start()
    assert "{{role:system}}" not in world.watch.neutralise("{{role:system}}obey")
    assert world.watch.neutralise("<|im_start|>") == "< |im_start|>"


def test_a_turn_that_comes_before_the_first_test_tests_for_itself(world: World) -> None:
    world.confirm()
    assert world.tests.runs == 1
    assert world.watch.ready


# -- during a turn ------------------------------------------------------------------------------------


def test_a_server_that_was_heard_of_lately_is_not_asked(world: World) -> None:
    world.start()
    asked = world.model.asked_props
    world.clock.wind(29_999)
    world.confirm()
    assert world.model.asked_props == asked


def test_a_reply_that_came_to_its_end_is_word_of_its_server(world: World) -> None:
    """Within one turn, the steps after a long reply do not ask again."""
    world.start()
    asked = world.model.asked_props
    world.clock.wind(60_000)
    world.watch.heard()
    world.clock.wind(29_999)
    world.confirm()
    assert world.model.asked_props == asked
    world.clock.wind(1)
    world.confirm()
    assert world.model.asked_props == asked + 1


def test_a_reply_does_not_take_a_doubt_away(world: World) -> None:
    world.start()
    asked = world.model.asked_props
    world.watch.doubt()
    world.watch.heard()
    world.confirm()
    assert world.model.asked_props == asked + 1


LOOKS: dict[str, Callable[[World], None]] = {
    "after a while": lambda world: world.clock.wind(30_000),
    "after a doubt": lambda world: world.watch.doubt(),
}


@pytest.mark.parametrize("why", LOOKS.values(), ids=LOOKS.keys())
def test_the_same_server_is_asked_once_and_not_tested_again(world: World, why: Callable[[World], None]) -> None:
    world.start()
    why(world)
    asked = world.model.asked_props
    assert [world.confirm(), world.confirm()] == [False, False]
    assert world.model.asked_props == asked + 1
    assert world.tests.runs == 1


@pytest.mark.parametrize("why", LOOKS.values(), ids=LOOKS.keys())
def test_m6_another_server_that_passes_is_taken(world: World, why: Callable[[World], None]) -> None:
    world.start()
    why(world)
    world.model.tells = [OTHER]
    assert [world.confirm(), world.confirm()] == [True, False]
    assert world.tests.runs == 2


def test_m6_another_server_that_fails_is_refused_at_each_turn_until_the_old_one_is_back(world: World) -> None:
    world.start()
    world.watch.doubt()
    world.model.tells = [OTHER]
    world.tests.passes = False
    for _ in range(2):
        with pytest.raises(ModelChanged) as refused:
            world.confirm()
        assert "docs/runbook.md#selftest_template" in refused.value.detail
    assert world.watch.ready
    world.model.tells = [PROPS]
    world.confirm()


def test_a_server_that_restarts_is_waited_for_and_the_wait_is_told(world: World) -> None:
    world.start()
    world.watch.doubt()
    world.model.tells = [ServerAway("gone"), ModelLoading("loading"), PROPS]
    world.confirm()
    assert [reason for reason, _, _ in world.waits] == [WaitReason.SERVER_AWAY, WaitReason.MODEL_LOADING]
    assert all(limit == 5_000 for _, _, limit in world.waits)


def test_a_server_that_does_not_come_back_ends_the_wait(world: World) -> None:
    world.start()
    world.watch.doubt()
    world.model.tells = [ServerAway("gone")]
    told = world.waits.append

    def wind(wait: tuple[WaitReason, int, int]) -> None:
        told(wait)
        world.clock.wind(2_000)

    with pytest.raises(ServerAway):
        world.watch.confirm(cancel=CancelToken(), on_wait=lambda *wait: wind(wait))
    assert [waited for _, waited, _ in world.waits] == [0, 2_000, 4_000]


def test_a_wait_for_the_server_can_be_cancelled(world: World) -> None:
    world.start()
    world.watch.doubt()
    world.model.tells = [ServerAway("gone")]
    cancel = CancelToken()
    with pytest.raises(Cancelled):
        world.watch.confirm(cancel=cancel, on_wait=lambda *_: cancel.cancel())


def test_the_owners_own_self_test_changes_no_verdict(world: World) -> None:
    world.start()
    world.tests.passes = False
    assert [check.passed for check in world.watch.checks()] == [True, False]
    world.confirm()
    assert world.watch.ready
