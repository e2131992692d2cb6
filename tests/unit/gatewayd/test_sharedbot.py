"""Another Boxmaker with the same bot is noticed by its posts, and nothing of our own is taken for one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bxcore.timestamp import DAY_MS, Timestamp
from gatewayd.condition import Condition
from gatewayd.posts import KEY_PROP, Post
from gatewayd.sharedbot import BEGUN_MS, WELL_MS, SharedBot
from gatewayd.store import Store
from tests.fakes.clocks import HandClock
from tests.fakes.queued import BOT, an_id, outgoing, post

KEY = "mm-root:1:1"


class Scene:
    def __init__(self, directory: Path) -> None:
        self.clock = HandClock()
        self.store = Store.open(directory, self.clock)
        self.condition = Condition(self.clock)
        self.bot = SharedBot(self.store, self.condition, self.clock)
        self.clock.wind(DAY_MS)

    def met(self, key: str | None = KEY, name: str = "answer", **fields: Any) -> str | None:
        """Meet a post of the bot; return what is wrong then."""
        fields.setdefault("create_at", self.clock.now_ms())
        self.bot.seen(self.post(key, name, **fields))
        worst = self.condition.worst()
        return worst.code if worst else None

    def post(self, key: str | None, name: str, **fields: Any) -> Post:
        return post(name, user=BOT, props={} if key is None else {KEY_PROP: key}, **fields)

    def made(self, name: str = "answer") -> None:
        self.store.add([outgoing(KEY)])
        self.store.sent(self.store.unsent()[0].number, an_id(name))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.store.close()


def test_a_post_with_a_key_of_ours_that_this_queue_never_made_is_told(scene: Scene) -> None:
    assert scene.met() == "bot_shared"


def test_the_same_answer_made_a_second_time_by_another_is_told(scene: Scene) -> None:
    scene.made()
    assert scene.met(name="second") == "bot_shared"


def test_what_the_queue_made_is_ours(scene: Scene) -> None:
    scene.made()
    assert scene.met() is None


def test_what_is_being_made_is_ours_whatever_its_id(scene: Scene) -> None:
    scene.store.add([outgoing(KEY)])
    scene.store.trying(scene.store.unsent()[0].number)
    assert scene.met() is None


def test_what_was_set_aside_after_it_was_tried_is_ours(scene: Scene) -> None:
    scene.store.add([outgoing(KEY)])
    scene.store.park([scene.store.unsent()[0].number], "mattermost_denied")
    assert scene.met() is None


@pytest.mark.parametrize("key", [None, "", "question:17:00ff", "question:17:00ff:2", "owner:00ff"])
def test_what_is_not_made_from_the_queue_is_not_judged(scene: Scene, key: str | None) -> None:
    assert scene.met(key) is None


@pytest.mark.parametrize("after_ms", [-DAY_MS, -1, 0, BEGUN_MS - 1])
def test_posts_from_before_the_queue_began_and_a_little_after_are_not_judged(scene: Scene, after_ms: int) -> None:
    """A queue that was lost, or put aside, had made them; and the server's clock may be ahead."""
    assert scene.met(create_at=Timestamp(scene.store.began() + after_ms)) is None


def test_what_the_queue_may_have_forgotten_is_not_judged(scene: Scene) -> None:
    posted = scene.clock.now_ms()
    scene.clock.wind(20 * DAY_MS)
    assert scene.met(create_at=posted) is None


def test_it_is_taken_back_when_none_has_come_for_long_enough(scene: Scene) -> None:
    scene.met()
    scene.clock.wind(WELL_MS - 1)
    scene.met(name="again")
    scene.clock.wind(WELL_MS - 1)
    scene.bot.look()
    assert scene.condition.worst() is not None
    scene.clock.wind(1)
    scene.bot.look()
    assert scene.condition.worst() is None
