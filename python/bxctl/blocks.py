"""The two things a turn draws: a block of model text, and the line that says what is waited for.

A block shows text as it streams in. The status line is redrawn in place, or told now and then
where nothing can be redrawn.
"""

from bxcore.deadline import Clock
from bxcore.wire import channel
from bxcore.wire.channel import WaitReason
from bxctl import render
from bxctl.render import Ink, Screen

BAR_AFTER_MS = 300
"""A prompt that is read faster than this needs no bar."""

_REPEAT_PLAIN_MS = 10_000
"""Where nothing can be redrawn, the same kind of waiting is told again after this long."""

_SHORT_MS = 1_000
"""A shorter wait is not counted out."""

_NEAR_LIMIT_MS = 120_000
"""A limit that is further away is nobody's concern yet."""

_BAR_WIDTH = 24

QUEUED = "waits for the turn before it"
WAITING = {
    WaitReason.OTHER_TURN: "waits for another conversation",
    WaitReason.SLOT_BUSY: "waits for the model, which answers somebody else",
    WaitReason.MODEL_LOADING: "waits for the model to load",
    WaitReason.SERVER_AWAY: "waits for the model server, which does not answer",
}


class Block:
    """A run of model text on a screen. Leading and trailing line breaks are not shown."""

    def __init__(self, screen: Screen, *, first: str = "", each: str = "", ink: Ink | None = None) -> None:
        self._screen = screen
        self._first, self._each = first, each
        self._inks = (ink,) if ink else ()
        self._open = False
        self._held = ""  # line breaks that are shown once more text follows them

    def add(self, untrusted: str) -> None:
        """Show more of the text."""
        text = self._held + untrusted
        if not self._open:
            text = text.lstrip("\n")
        shown = text.rstrip("\n")
        self._held = text[len(shown) :]
        if not shown:
            return
        if not self._open:
            self._screen.fresh_line()
        lines = self._screen.foreign(shown).replace("\n", f"\n{self._each}")
        self._screen.write(("" if self._open else self._first) + lines, *self._inks)
        self._open = True

    def end(self) -> None:
        """The text is over; what comes next starts on a line of its own."""
        if self._open:
            self._screen.fresh_line()
        self._open, self._held = False, ""


class Status:
    """The line that says what a turn waits for. Redrawn in place, or told once where that is impossible."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._progress: channel.PromptProgress | None = None
        self._words = ""
        self._since_ms = 0
        self._limit_ms = 0  # of the whole wait; 0 where there is none
        self._told = ""
        self._told_ms = 0

    def reading(self, event: channel.PromptProgress) -> None:
        """The server has read more of the prompt."""
        if self._progress is None or (self._progress.turn, self._progress.step) != (event.turn, event.step):
            self.clear()
            self._since_ms = self._clock.monotonic_ms()
        self._progress = event
        self.redraw()

    def waiting(self, event: channel.TurnWaiting) -> None:
        """The turn waits; the event says how long already."""
        self._progress = None
        self._since_ms = self._clock.monotonic_ms() - event.waited_ms
        self._words, self._limit_ms = WAITING[event.reason], event.limit_ms
        self.redraw()

    def say(self, words: str) -> None:
        """Wait for something that no event times."""
        if words != self._words:
            self.clear()
            self._words, self._since_ms = words, self._clock.monotonic_ms()
        self.redraw()

    def redraw(self) -> None:
        """Draw the line as it is now."""
        elapsed_ms = self._clock.monotonic_ms() - self._since_ms
        if self._progress is not None:
            if elapsed_ms >= BAR_AFTER_MS and self._progress.processed < self._progress.total:
                self._draw(progress_line(self._progress, elapsed_ms, self._screen), topic="reading")
        elif self._words:
            self._draw(self._words + self._times(elapsed_ms), topic=self._words)

    def clear(self) -> None:
        """There is nothing to wait for any more."""
        self._screen.erase()
        self._progress, self._words, self._limit_ms = None, "", 0

    def _times(self, elapsed_ms: int) -> str:
        words = f" ({render.seconds(elapsed_ms)})" if elapsed_ms >= _SHORT_MS else ""
        left_ms = self._limit_ms - elapsed_ms
        return f"{words}, gives up in {render.seconds(left_ms)}" if 0 < left_ms <= _NEAR_LIMIT_MS else words

    def _draw(self, line: str, *, topic: str) -> None:
        if self._screen.lively:
            self._screen.live(line)
            return
        now_ms = self._clock.monotonic_ms()
        if topic != self._told or now_ms - self._told_ms >= _REPEAT_PLAIN_MS:
            self._told, self._told_ms = topic, now_ms
            self._screen.line(line)


def progress_line(event: channel.PromptProgress, elapsed_ms: int, screen: Screen) -> str:
    """Return the line that shows how much of the prompt has been read; what was cached does not count."""
    to_read, done = event.total - event.cached, event.processed - event.cached
    share = min(max(done / to_read, 0.0), 1.0) if to_read > 0 else 1.0
    bar = ""
    if screen.lively:
        bar = render.progress_bar(share, min(_BAR_WIDTH, screen.width() // 3), unicode=screen.unicode) + " "
    left = ""
    if share >= 0.05 and elapsed_ms >= 1_000:
        left = f", about {render.seconds(round(elapsed_ms * (1 - share) / share))} left"
    return f"reading {share:4.0%} {bar}of {render.count(to_read)} tokens ({render.seconds(elapsed_ms)}{left})"
