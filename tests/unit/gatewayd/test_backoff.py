"""Pauses grow, stay within their bounds, and never end."""

from hypothesis import given
from hypothesis import strategies as st

from gatewayd.backoff import Backoff

MOST_MS = 60_000


def pauses(count: int, *, random: float) -> list[int]:
    backoff = Backoff(1_000, MOST_MS, lambda: random)
    return [backoff.next_ms() for _ in range(count)]


def test_pauses_double_up_to_the_longest() -> None:
    assert pauses(8, random=0.0) == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, MOST_MS, MOST_MS]


def test_chance_takes_away_half_at_most() -> None:
    assert pauses(3, random=0.5) == [750, 1_500, 3_000]


def test_after_a_success_the_next_pause_is_a_first_one() -> None:
    backoff = Backoff(1_000, MOST_MS, lambda: 0.0)
    assert [backoff.next_ms() for _ in range(4)][-1] == 8_000
    backoff.reset()
    assert backoff.next_ms() == 1_000


@given(st.integers(1, 10**8), st.integers(1, 10**8), st.floats(0, 1, exclude_max=True), st.integers(1, 100))
def test_no_pause_is_ever_too_short_or_too_long(first_ms: int, most_ms: int, chance: float, count: int) -> None:
    """Also where the owner's longest pause is shorter than the usual first one."""
    backoff = Backoff(first_ms, most_ms, lambda: chance)
    for _ in range(count):
        assert max(1, min(first_ms, most_ms) // 2) <= backoff.next_ms() <= most_ms
