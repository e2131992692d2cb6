"""gatewayd as a program, over a server that breaks at posts alone, and questions whose posts are taken away."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.client import Connection
from bxcore.deadline import SystemClock
from bxcore.ids import SessionId
from bxcore.wire.approvals import ApprovalOpen, ApprovalPosted, ApprovalReply
from tests.contract.gateway.people import until
from tests.fakes.mattermost import Mattermost
from tests.process.test_gatewayd import Place

CLOCK = SystemClock()
BROKEN = '{"id":"app.post.save.app_error","status_code":500}'


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bxg") as name, Mattermost() as server:
        yield Place(Path(name).resolve(), server)


def answers(place: Place) -> set[str]:
    """Return the posts that were answered."""
    return {post["root_id"] for post in place.said()}


def test_c8_an_answer_waits_for_a_server_that_takes_no_posts(place: Place) -> None:
    with place.loopd(), place.connected():
        place.server.fail("POST", "/api/v4/posts", status=500, body=BROKEN, times=60)
        posts = {place.server.say(place.alice, place.direct, f"q {number}")["id"] for number in range(3)}
        until(lambda: posts <= answers(place), "three answers")
        assert place.status().parked == 0


@pytest.mark.parametrize("gone", ["its post", "its thread"])
def test_a_question_that_was_deleted_is_asked_again_and_answered(place: Place, gone: str) -> None:
    now = CLOCK.now_ms()
    with place.loopd(), place.connected(), Connection(place.socket, clock=CLOCK) as connection:
        root = place.server.say(place.alice, place.direct, "Good morning")["id"]
        place.until_said("Good morning.")
        session = SessionId(f"mm-{root}")
        question = ApprovalOpen(id=9, session=session, opened=now, expires=now, parts=("May it?",), answerable=True)
        frames = connection.request(question, idle_ms=60_000)
        posted = next(frames).msg
        assert isinstance(posted, ApprovalPosted)
        place.server.delete(posted.post if gone == "its post" else root)
        until(lambda: [post for post in place.said() if is_another(post, posted)], "the question again")
        again = next(post for post in place.said() if is_another(post, posted))
        assert again["root_id"] == (root if gone == "its post" else "")
        until(lambda: place.status().questions == 1, "an open question")
        place.server.say(place.alice, place.direct, "!approve 9", root=again["root_id"] or again["id"])
        reply = next(frames).msg
        assert isinstance(reply, ApprovalReply)
        assert reply.approve


def is_another(post: Any, posted: ApprovalPosted) -> bool:
    return bool(post["message"] == "May it?" and post["id"] != posted.post)
