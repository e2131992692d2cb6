from loopd.pace import GATHER_MS, Pace
from tests.fakes.clocks import HandClock


class Stream:
    """Text that comes when a test says so; each pause takes the time that it should."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.pauses = 0
        self.pace = Pace(self.clock, self._pause)

    def text_after(self, *gaps_ms: int) -> int:
        """Return how many pauses were made."""
        before = self.pauses
        for gap_ms in gaps_ms:
            self.clock.wind(gap_ms)
            self.pace.after_text()
        return self.pauses - before

    def _pause(self, seconds: float) -> None:
        self.pauses += 1
        self.clock.wind(round(seconds * 1000))


def test_the_first_text_never_waits() -> None:
    assert Stream().text_after(5) == 0


def test_text_that_comes_quickly_is_left_to_gather() -> None:
    stream = Stream()
    stream.text_after(0)
    assert stream.text_after(5) == 1


def test_what_has_gathered_is_taken_without_another_pause() -> None:
    stream = Stream()
    stream.text_after(0, 5)
    assert stream.text_after(0, 0, 0, 1, 0) == 0


def test_a_fast_stream_goes_on_gathering() -> None:
    stream = Stream()
    stream.text_after(0)
    assert stream.text_after(5, 0, 0, 0, 5, 0, 0, 0, 5) == 3


def test_a_slow_stream_is_read_as_it_comes() -> None:
    assert Stream().text_after(*[GATHER_MS] * 10) == 0


def test_text_in_one_burst_never_waits() -> None:
    assert Stream().text_after(*[0] * 1_000) == 0
