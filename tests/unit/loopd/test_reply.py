"""One reply while it comes in: above all the cap on thinking."""

from pathlib import Path
from typing import Any

import pytest

from bxcore.sessionrecords import ThinkingCap
from bxcore.settings.loopd import Limits
from bxcore.wire.channel import ReasoningDelta, TurnEnding, TurnNotice
from loopd.modelfaults import Cancelled, ServerAway, ServerRefused
from loopd.stream import Reasoning, Text
from tests.fakes.loop import Loop, Said
from tests.fakes.scripted_model import calls, counters, finished, thoughts

CAPPED = Limits(thinking_tokens=20, thinking_slack_tokens=5)


def of(said: Said, kind: type) -> list[Any]:
    return [event for event in said.events if isinstance(event, kind)]


def test_thinking_beyond_the_cap_is_told_to_end_once(tmp_path: Path) -> None:
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.expect([counters(identity="chatcmpl-7"), *thoughts(22)[:], Text(text="Fine."), finished()])
    said = loop.say("?")
    assert loop.model.orders == ["chatcmpl-1"]
    assert [notice.code for notice in of(said, TurnNotice)] == ["thinking_cap"]
    (cap,) = [record for record in loop.records() if isinstance(record, ThinkingCap)]
    assert cap.ended
    assert 20 <= cap.tokens <= 21
    assert (said.ended.ending, said.ended.text) == (TurnEnding.ANSWERED, "Fine.")
    loop.close()


def test_thinking_under_the_cap_is_left_alone(tmp_path: Path) -> None:
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.expect([*thoughts(19), Text(text="Fine."), finished()])
    assert loop.say("?").ended.text == "Fine."
    assert loop.model.orders == []
    loop.close()


def test_the_cap_is_one_request_and_counts_anew_in_the_next(tmp_path: Path) -> None:
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.expect([*thoughts(15), *calls(("clock", "{}"))[1:]], [*thoughts(15), Text(text="Fine."), finished()])
    assert loop.say("?").ended.text == "Fine."
    assert loop.model.orders == []
    loop.close()


def test_tokens_are_counted_and_not_deltas(tmp_path: Path) -> None:
    """A server may send several tokens in one event."""
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.expect(
        [Reasoning(text="many words"), counters(output=40), Reasoning(text="more"), Text(text="Fine."), finished()]
    )
    loop.say("?")
    assert len(loop.model.orders) == 1
    loop.close()


def test_thinking_that_does_not_end_when_told_ends_the_turn_and_frees_the_slot(tmp_path: Path) -> None:
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.expect(thoughts(1_000))
    said = loop.say("?")
    assert said.ended.ending is TurnEnding.ONLY_THINKING
    assert len(of(said, ReasoningDelta)) == 20 + 5 + 1  # told at the cap; the slack is let pass; one too many
    assert loop.model.left_early == 1
    loop.close()


def test_only_a_reply_that_came_to_its_end_vouches_for_its_server(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.model.expect(calls(("clock", "{}")), [Text(text="Half"), ServerAway("gone")])
    loop.say("?")
    assert len(loop.model.bodies) == 2
    assert loop.watch.replies == 1
    loop.close()


def test_a_cancel_is_heard_while_the_order_is_on_its_way(tmp_path: Path) -> None:
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.takes_orders = Cancelled("stopped on request")
    loop.model.expect([*thoughts(22), Text(text="Fine."), finished()])
    assert loop.say("?").ended.ending is TurnEnding.CANCELLED
    loop.close()


@pytest.mark.parametrize(
    "takes",
    [False, ServerRefused("HTTP 404: File Not Found", status=404), ServerAway("no room")],
    ids=["not armed", "no such endpoint", "away"],
)
def test_a_server_that_does_not_take_the_order_may_still_end_by_itself(tmp_path: Path, takes: bool | Exception) -> None:
    loop = Loop(tmp_path, limits=CAPPED)
    loop.model.takes_orders = takes
    loop.model.expect([*thoughts(22), Text(text="Fine."), finished()])
    said = loop.say("?")
    assert (said.ended.ending, said.ended.text) == (TurnEnding.ANSWERED, "Fine.")
    (cap,) = [record for record in loop.records() if isinstance(record, ThinkingCap)]
    assert not cap.ended
    loop.close()
