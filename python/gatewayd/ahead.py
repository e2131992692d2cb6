"""Commands that go ahead of what was written before them: while the server makes us wait, `!stop` would stop nothing.

What a command is for is running already, or is asked already; so it is decided upon when it came, as far as that takes
no request. Messages keep their order: what was written before a `!stop` and is met after it was stopped by it. Threads:
one, inbound's.
"""

from collections import deque
from collections.abc import Collection
from typing import NoReturn

from bxcore.ids import MattermostId
from gatewayd import addressing, commands
from gatewayd.commands import Stop
from gatewayd.entries import Incoming
from gatewayd.faults import MattermostAway
from gatewayd.posts import Post

_STOPS_MOST = 256


class Unasked:
    """addressing.Names, where the server must not be asked now."""

    def existing(self, _: Collection[str]) -> NoReturn:
        raise MattermostAway("who exists is not asked during a pause")


class Ahead:
    """The stops that went ahead and were not met again in their turn."""

    def __init__(self, bot_name: str) -> None:
        self._bot_name = bot_name
        self._stops: deque[Incoming] = deque(maxlen=_STOPS_MOST)

    def is_command(self, post: Post) -> bool:
        return self._parsed(post.message) is not None

    def went(self, command: Incoming) -> None:
        """It was accepted before its turn."""
        if isinstance(self._parsed(command.text), Stop):
            self._stops.append(command)

    def met(self, posts: Collection[MattermostId]) -> None:
        """Their turn is over: whatever was written before a stop among them was met as well."""
        for stop in [stop for stop in self._stops if stop.id in posts]:
            self._stops.remove(stop)

    def stopped(self, message: Incoming) -> bool:
        """Say whether it was written before a stop that went ahead of it, and is stopped by it."""
        return any(message.create_at <= stop.create_at and _reaches(stop, message) for stop in self._stops)

    def _parsed(self, text: str) -> commands.Command | None:
        return commands.parse(addressing.strip_mention(text, self._bot_name))


def _reaches(stop: Incoming, message: Incoming) -> bool:
    """As Store.drop: the whole of a direct channel from its top level, else the thread."""
    return stop.channel == message.channel if stop.first and stop.direct else stop.thread == message.thread
