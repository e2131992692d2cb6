"""How far a backup is, as a bar on a terminal. One for making, checking and putting back."""

from bxctl import render
from bxctl.render import Screen

_BAR = 30


class Progress:
    """`total` bytes are to come; on anything but a terminal nothing is shown."""

    def __init__(self, screen: Screen, total: int) -> None:
        self._screen, self._total, self._done = screen, max(1, total), 0

    def add(self, size_bytes: int, more: str = "") -> None:
        """So many bytes more are done. `more` stands behind the sizes."""
        self._done += size_bytes
        if self._screen.lively:
            bar = render.progress_bar(self._done / self._total, _BAR, unicode=self._screen.unicode)
            self._screen.live(f"{bar} {render.size(self._done)} of {render.size(self._total)}{more}")
