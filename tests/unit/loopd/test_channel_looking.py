"""What loop.sock shows: status, sessions, their lines, their cache, the self-test."""

import threading
from pathlib import Path

import pytest

from bxcore.wire import channel as wire
from loopd import channel as channel_module
from loopd.cancel import CancelToken
from loopd.modelfaults import ServerAway
from loopd.selftest import Check
from loopd.waits import OnWait
from tests.fakes.loop import PATIENCE_SECONDS, Loop
from tests.fakes.scripted_model import answer, calls, finished
from tests.fakes.served import IDLE_MS, S, Served, kinds, said

# -- before loopd is ready ----------------------------------------------------------------------------


def test_before_it_is_ready_loopd_says_what_it_waits_for_and_shows_what_it_has(directory: Path, tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.say("Hi", key="k1")
    served = Served(directory, loop, ready=False)
    refused = served.refused(said("More", key="k2", new=False))
    assert (refused.code, refused.detail) == ("not_ready", "loopd is waiting for the start-up self-test")
    (status,) = served.ask(wire.LoopStatus())
    assert (status.ready, status.waiting_for, status.model) == (False, "the start-up self-test", None)
    assert served.ask(wire.TurnFollow(session=S, turn=1))[-1].text == "ok"
    assert kinds(served.ask(wire.SessionList(limit=9))) == ["session_summary", "session_list_end"]
    served.close()


def test_ready_is_told_with_what_is_served(served: Served) -> None:
    (status,) = served.ask(wire.LoopStatus())
    assert status == wire.LoopStatusReport(
        ready=True,
        waiting_for=None,
        running_turns=0,
        open_sessions=0,
        model="scripted",
        n_ctx=4_096,
        main_slot=0,
        background_slot=1,
    )


# -- looking ------------------------------------------------------------------------------------------


def test_sessions_are_listed_newest_first_with_their_number(served: Served) -> None:
    for number in range(3):
        served.say(f"Opening {number}", session=f"s{number}")
    messages = served.ask(wire.SessionList(limit=2))
    assert kinds(messages) == ["session_summary"] * 2 + ["session_list_end"]
    assert messages[-1].total == 3


def test_a_session_is_shown_line_by_line(served: Served) -> None:
    served.say("Hi" + "x" * 200_000)
    messages = served.ask(wire.SessionShow(session=S))
    lines = served.loop.log().read_text().splitlines()
    assert messages[-1] == wire.SessionShowEnd(lines=len(lines))
    assert "".join(record.text for record in messages[:-1] if record.line == 2) == lines[1]


def test_the_cache_report_adds_up(served: Served) -> None:
    served.loop.model.expect(
        [*calls(("clock", "{}"))[:-1], finished("tool_calls", prompt=50, cached=10)],
        answer("ok", end=finished(prompt=80, cached=54)),
    )
    served.say("Hi")
    *rows, total = served.ask(wire.CacheReport(session=S))
    assert [(row.step, row.prompt, row.cached, row.read) for row in rows] == [(1, 50, 10, 40), (2, 80, 54, 26)]
    assert (total.rows, total.prompt, total.cached, total.read, total.reread, total.lost) == (2, 130, 64, 66, 0, 0)


def test_the_self_test_tells_each_check(served: Served) -> None:
    served.checks = [
        Check(name="slots", passed=True, expected="2", found="2", runbook="selftest_slots"),
        Check(name="template", passed=False, expected="a", found="b", runbook="selftest_template"),
    ]
    first, second, end = served.ask(wire.SelfTest())
    assert (first.name, first.passed) == ("slots", True)
    assert (second.expected, second.found, second.runbook) == ("a", "b", "selftest_template")
    assert end == wire.SelfTestEnd(passed=1, failed=1)


def test_a_self_test_of_a_server_that_is_away_is_an_answer(served: Served) -> None:
    def away(_cancel: CancelToken, _on_wait: OnWait) -> list[Check]:
        raise ServerAway("nobody serves infer.sock; is inferproxy running?")

    served.watch._test = away
    check, end = served.ask(wire.SelfTest())
    assert (check.passed, check.runbook) == (False, "server_away")
    assert "is inferproxy running?" in check.found
    assert end == wire.SelfTestEnd(passed=0, failed=1)


def test_a_self_test_whose_clients_have_all_left_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_LOOK_SECONDS", 0.01)
    began, ended = threading.Semaphore(0), threading.Event()

    def endless(cancel: CancelToken, _on_wait: OnWait) -> list[Check]:
        began.release()
        try:
            while True:
                cancel.check()
        finally:
            ended.set()

    served.watch._test = endless
    with served.dial() as connection, served.dial() as other:
        connection.request(wire.SelfTest(), idle_ms=IDLE_MS)
        other.request(wire.SelfTest(), idle_ms=IDLE_MS)
        assert began.acquire(timeout=PATIENCE_SECONDS)
    assert ended.wait(PATIENCE_SECONDS)
    served.watch._test = lambda _cancel, _on_wait: []
    assert served.ask(wire.SelfTest()) == [wire.SelfTestEnd(passed=0, failed=0)]
