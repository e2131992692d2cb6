"""The list of what nothing was done about: readable, harmless, and never longer than a post."""

import re

import pytest

from bxcore.ids import MattermostId
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp
from gatewayd import oldposts
from gatewayd.entries import Old
from tests.fakes.queued import DIRECT, TOWN, an_id, incoming

MINUTE_MS = 60_000


def old(number: int = 0, text: str = "do it", *, channel: MattermostId = DIRECT, edited: bool = False) -> Old:
    post = incoming("old", number, after_ms=number * MINUTE_MS, text=text, channel=channel)
    return Old(post=post, edited=edited)


def message(*olds: Old, count: int | None = None, limit: int = 16_383) -> str:
    places = {TOWN: "town-square"}
    listed = oldposts.a_list(olds, count=count or len(olds), channel=DIRECT, places=places, limit=limit)
    assert (listed.channel, listed.root) == (DIRECT, None)
    return listed.message


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ")]


def test_each_post_is_a_line_with_its_time_and_place() -> None:
    found = lines(
        message(old(1, "one"), old(2, "two", channel=TOWN), old(3, "three", channel=an_id("unknown"), edited=True))
    )
    assert found == [
        "- 2026-01-01 00:01 (UTC), here: one",
        "- 2026-01-01 00:02 (UTC), in town\\-square: two",
        "- 2026-01-01 00:03 (UTC), elsewhere, edited: three",
    ]


def test_it_says_what_to_do() -> None:
    assert "say again" in message(old())


def test_of_a_long_post_the_beginning_is_shown_on_one_line() -> None:
    [line] = lines(message(old(text="a\nb  c\r\n" + "x" * 400)))
    assert line.endswith(": a b c " + "x" * 74 + "…")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_post_without_text_says_so(text: str) -> None:
    assert lines(message(old(text=text)))[0].endswith(": (no text)")


@pytest.mark.parametrize(
    "text", ["@all", "![x](https://evil.example.org/q)", "https://evil.example.org", "```", "- a\n- b", "`@all`", "<b>"]
)
def test_what_somebody_wrote_does_nothing_in_it(text: str) -> None:
    found = message(old(text=text))
    assert len(lines(found)) == 1
    assert "@all" not in found
    assert "![" not in found
    assert "://" not in found
    assert "```" not in found


def test_the_newest_fifty_are_shown_and_the_rest_is_counted() -> None:
    found = message(*(old(number, f"post {number}") for number in range(50)), count=73)
    assert [re.sub(r".*: ", "", line) for line in lines(found)] == [f"post {number}" for number in range(50)]
    assert found.endswith("… and 23 older ones.")
    assert message(old(), old(1), count=3).endswith("… and one older.")


@pytest.mark.parametrize("limit", [300, 1_000, 4_000, 16_383])
@pytest.mark.parametrize("text", ["*" * 400, "word " * 80, "@" * 80, "\U0001f99e" * 80])
def test_it_is_never_longer_than_a_post(limit: int, text: str) -> None:
    found = message(*(old(number, text) for number in range(60)), count=10_000, limit=limit)
    assert len(found) <= limit
    shown = len(lines(found))
    assert shown <= oldposts.LINES
    assert f"and {10_000 - shown} older ones" in found


def test_two_lists_have_two_keys_and_the_same_list_one() -> None:
    keys = [
        oldposts.a_list(olds, count=1, channel=DIRECT, places={}, limit=4_000).key
        for olds in ([old(1)], [old(1), old(2)], [old(1)])
    ]
    assert keys[0] == keys[2] != keys[1]


def test_a_time_that_is_none_is_no_fault() -> None:
    assert oldposts.clock_time(Timestamp(MAX_TIMESTAMP * 30)) == "23:59"
    assert oldposts.clock_time(Timestamp(0)) == "00:00"
