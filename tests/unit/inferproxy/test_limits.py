from hypothesis import given
from hypothesis import strategies as st

from inferproxy.limits import TokenBucket


def test_a_burst_passes_without_waiting() -> None:
    bucket = TokenBucket(burst=32, per_second=16, now_ms=0)
    assert [bucket.take(0) for _ in range(32)] == [0] * 32


def test_beyond_the_burst_each_waits_for_its_token() -> None:
    bucket = TokenBucket(burst=1, per_second=16, now_ms=0)
    bucket.take(0)
    assert bucket.take(0) == 62.5
    assert bucket.take(63) == 62.0


def test_a_long_rest_gives_back_no_more_than_the_burst() -> None:
    bucket = TokenBucket(burst=2, per_second=16, now_ms=0)
    assert [bucket.take(1_000_000) > 0 for _ in range(3)] == [False, False, True]


def test_a_clock_that_stands_still_gains_nothing() -> None:
    bucket = TokenBucket(burst=1, per_second=1000, now_ms=500)
    assert [bucket.take(500), bucket.take(400)] == [0, 1]


@given(
    burst=st.integers(1, 50),
    per_second=st.integers(1, 1000),
    gaps_ms=st.lists(st.integers(0, 500), min_size=1, max_size=200),
)
def test_no_stretch_of_time_lets_more_through_than_burst_and_rate(
    burst: int, per_second: int, gaps_ms: list[int]
) -> None:
    bucket = TokenBucket(burst=burst, per_second=per_second, now_ms=0)
    now_ms, passed = 0.0, []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        now_ms += bucket.take(int(now_ms)) + 1  # the caller waits, and whole milliseconds round down
        passed.append(now_ms)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            allowed = burst + (passed[last] - passed[first]) * per_second / 1000
            assert last - first + 1 <= allowed + 1
