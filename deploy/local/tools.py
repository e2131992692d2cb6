"""The tools of one `make chat`: their place, started where this machine can run containers, and tended.

Invariant: where no container can run there are no tools; nothing that the model asks for ever runs on the host.
"""

from deploy.local import starter, toolhost
from deploy.local.home import Home
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.toolhost import ToolHost


class Tools:
    """Use as a context manager, around everything that runs tools."""

    def __init__(self) -> None:
        self._host: ToolHost | None = None

    def __enter__(self) -> "Tools":
        return self

    def __exit__(self, *_: object) -> None:
        if self._host is not None:
            self._host.close()

    @property
    def running(self) -> bool:
        return self._host is not None

    def start(self, home: Home, progress: Progress) -> ToolHost | None:
        """Start the place, with the starter grants of a new home; None, said to the owner, where it cannot be."""
        try:
            self._host = toolhost.start(home.path, say=progress.doing)
        except Refusal as refusal:
            progress.say(f"there are no tools here, the model only talks: {refusal}")
            return None
        for note in self._host.conditions.notes:
            progress.say(note)
        progress.say(starter.summary(home, starter.prepare(home, self._host)))
        return self._host

    def tend(self, progress: Progress) -> None:
        """Start the place again if it has ended."""
        if self._host is None:
            return
        try:
            if self._host.tend():
                progress.interject("the container service had ended and is started again")
        except Refusal as refusal:
            progress.interject(f"the container service ended and does not start: {refusal}")
