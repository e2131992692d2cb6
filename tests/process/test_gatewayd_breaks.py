"""What broke gatewayd from outside: clocks that differ, dates that are wrong, a server that says too little."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.mattermost import Mattermost
from tests.process.test_gatewayd import Place

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bxg") as name, Mattermost() as server:
        yield Place(Path(name).resolve(), server)


def answered(place: Place, post: str) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if any(one["root_id"] == post for one in place.said()):
            return True
        time.sleep(0.02)
    return False


def say(place: Place, text: str) -> str:
    return str(place.server.say(place.alice, place.direct, text)["id"])


def in_a_gap(place: Place, text: str) -> str:
    place.server.down()
    post = say(place, text)
    place.server.up()
    return post


def test_a_strangers_post_from_the_future_leaves_the_owner_heard(place: Place) -> None:
    mallory = place.server.add_user("mallory")
    elsewhere = place.server.direct(mallory, place.bot)
    with place.loopd(), place.connected():
        place.server.say(mallory, elsewhere, "hi", at=place.server.now() + YEAR_MS)
        assert answered(place, say(place, "hear me"))


def test_a_post_from_the_future_does_not_blind_the_catching_up(place: Place) -> None:
    with place.loopd():
        with place.connected():
            place.server.say(place.alice, place.direct, "x", at=place.server.now() + YEAR_MS)
            place.until_said("Good morning.")
        post = say(place, "while it was down")
        with place.connected():
            assert answered(place, post)
            assert answered(place, say(place, "live"))


@pytest.mark.parametrize("minutes", [30, 120])
def test_a_server_whose_clock_is_behind_loses_nothing_in_a_gap(place: Place, minutes: int) -> None:
    place.server.advance(-minutes * 60_000)
    with place.loopd(), place.connected():
        assert answered(place, in_a_gap(place, "in the gap"))


def test_a_server_whose_clock_is_put_right_is_heard(place: Place) -> None:
    place.server.advance(2 * HOUR_MS)
    with place.loopd(), place.connected():
        assert answered(place, say(place, "one"))
        assert answered(place, in_a_gap(place, "in a gap"))
        place.server.advance(-2 * HOUR_MS)
        assert answered(place, say(place, "two"))
        assert answered(place, in_a_gap(place, "in another"))


def test_an_empty_list_of_users_does_not_make_it_deaf(place: Place) -> None:
    place.server.fail("POST", "/users/ids$", status=200, body="[]", times=2)  # the start's, and the first post's
    with place.loopd(), place.connected():
        assert answered(place, say(place, "one"))
        assert answered(place, say(place, "two"))


def test_what_was_written_before_the_server_was_first_there_is_heard_whatever_its_clock(place: Place) -> None:
    place.server.advance(-2 * HOUR_MS)
    place.server.down()
    with place.loopd(), place.running():
        post = say(place, "nobody is there yet")
        place.server.up()
        assert answered(place, post)
