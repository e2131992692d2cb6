"""A post that the server breaks at keeps its own thread waiting, and nothing else; it is set aside at its time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gatewayd import heldback, outbound
from gatewayd.answers import PostSize
from tests.fakes.clocks import HandClock
from tests.fakes.gatequeue import Queue, outgoing
from tests.fakes.postbox import an_id
from tests.fakes.posterplace import NEVER, Scene, Server, answer, away

ROUNDS = 30
"""More tries than there were ever enough of to set a post aside."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    clock = HandClock()
    scene = Scene(home=tmp_path, queue=Queue(tmp_path, clock), server=Server(), clock=clock, size=PostSize(16_383))
    yield scene
    scene.queue.store.close()


def test_a_server_that_is_away_for_long_sets_nothing_aside(scene: Scene) -> None:
    scene.add(*answer(1))
    scene.server.raises["create_post"] = [away() for _ in range(ROUNDS)]
    scene.server.raises["me"] = [away() for _ in range(ROUNDS)]
    assert scene.rounds(most=ROUNDS + 1) == ROUNDS + 1
    assert scene.server.messages() == ["part 1"]


def test_a_server_that_breaks_at_every_post_sets_nothing_aside_before_its_time(scene: Scene) -> None:
    """C8: it answers anything else."""
    threads = [f"t{number}x" for number in range(5)]
    scene.add(*[post for thread in threads for post in answer(2, thread)])
    scene.server.raises["create_post"] = [away() for _ in range(ROUNDS)]
    assert scene.rounds(most=2 * ROUNDS) != NEVER
    assert scene.parked() == []
    assert sorted((post.root, post.message) for post in scene.server.made) == [
        (an_id(thread), f"part {part}") for thread in threads for part in (1, 2)
    ]
    for thread in threads:
        assert [post.message for post in scene.server.made if post.root == an_id(thread)] == ["part 1", "part 2"]


def test_a_post_that_the_server_breaks_at_waits_its_time_and_only_its_thread_with_it(scene: Scene) -> None:
    scene.server.breaks_at = "part 1"
    scene.add(*answer(2), outgoing("other", "another thread's", root="other"), outgoing("top", "at the top", root=None))
    poster = scene.poster()
    assert scene.rounds(poster, most=ROUNDS) == NEVER
    assert scene.server.messages() == ["another thread's", "at the top"]
    assert scene.queue.trouble() == "mattermost_away"
    assert scene.parked() == []
    scene.add(outgoing("new", "a new one", root="other"))
    assert poster._tried(scene.server) is None
    assert scene.server.messages()[2:] == ["a new one"]
    assert scene.queue.trouble() == "mattermost_away"
    scene.clock.wind(600_001)
    assert scene.rounds(poster) != NEVER
    assert scene.parked() == [(post.key, "answer_too_old") for post in answer(2)]


def test_a_post_that_the_server_broke_at_is_made_once_it_does_not(scene: Scene) -> None:
    scene.server.breaks_at = "part 1"
    scene.add(*answer(2), outgoing("other", "another thread's", root="other"))
    poster = scene.poster()
    assert scene.rounds(poster, most=ROUNDS) == NEVER
    scene.server.breaks_at = None
    assert scene.rounds(poster) != NEVER
    assert scene.server.messages() == ["another thread's", "part 1", "part 2"]
    assert scene.queue.trouble() is None


def test_of_many_posts_that_the_server_breaks_at_few_are_tried_at_once_and_none_keeps_what_is_behind(
    scene: Scene,
) -> None:
    scene.server.breaks_at = "part 1"
    for number in range(100):
        scene.add(*answer(1, f"t{number}x"))
    scene.add(outgoing("last", "the last one", root="last"))
    poster = scene.poster()
    for _ in range(heldback.FAILURES * 100 + 1):
        before = scene.server.calls.count("create_post")
        poster._tried(scene.server)
        # Twice in the one round in which a post was made.
        most = outbound.HELD_AT_ONCE * (2 if scene.server.made else 1)
        assert scene.server.calls.count("create_post") - before <= most
        scene.clock.wind(20)  # which is the longest pause
    assert scene.server.messages() == ["the last one"]
