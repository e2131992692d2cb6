"""gatewayd as a program, over a server that breaks at posts alone, and questions whose posts are taken away."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.gateway.people import until
from tests.fakes.mattermost import Mattermost
from tests.process.test_gatewayd import Place

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
