"""A text stream that says it is a terminal, and keeps what was written."""

import io


class FakeTerminal(io.StringIO):
    """80 columns wide, since it has no descriptor to ask."""

    encoding = "utf-8"

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal
