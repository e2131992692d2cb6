"""A bot's event connection to a fake server, and what it said, in order.

Threads: the connection's own, and the test's.
"""

import queue
from types import TracebackType
from typing import Self, TypeVar

from bxcore.deadline import SystemClock
from bxcore.errors import BoxmakerError
from bxcore.ids import MattermostId
from bxcore.secrets import Secret
from bxcore.settings.gatewayd import Mattermost as Settings
from gatewayd.condition import Condition, Part
from gatewayd.events import Events, Item, Opened
from gatewayd.mattermost import Mattermost
from tests.fakes.mattermost import Mattermost as Server

T = TypeVar("T")


class Told(Condition):
    """Remembers every trouble that it was told of."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.codes: list[str] = []

    def trouble(self, part: Part, error: BoxmakerError) -> None:
        self.codes.append(error.code)
        super().trouble(part, error)


class EventPlace:
    """A server, a person in a direct channel with a bot, and the bot's event connection."""

    def __init__(self, server: Server, *, ping_ms: int = 60_000, retry_most_ms: int = 20) -> None:
        self.server = server
        self.owner = MattermostId(server.add_user("owner"))
        bot, token = server.add_bot("boxmaker")
        self.bot, self.token = MattermostId(bot), token
        self.channel = MattermostId(server.direct(self.owner, self.bot))
        self.settings = Settings(url=server.url, ping_ms=ping_ms, retry_most_ms=retry_most_ms)
        self.condition = Told()
        self.items: queue.Queue[Item] = queue.Queue()
        self.asked = 0
        self.events = Events(
            self.settings,
            Secret("mattermost-token", token),
            clock=SystemClock(),
            condition=self.condition,
            sink=self.items.put,
            api=self.api,
        )

    def api(self) -> Mattermost:
        self.asked += 1
        return Mattermost(self.settings, Secret("mattermost-token", self.token))

    def __enter__(self) -> Self:
        self.events.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.events.stop()
        assert self.events.join(60_000)

    def say(self, text: str) -> MattermostId:
        return MattermostId(self.server.say(self.owner, self.channel, text)["id"])

    def next(self) -> Item:
        return self.items.get(timeout=60)

    def until(self, kind: type[T]) -> T:
        """Return the next item of a kind; what comes before it is lost."""
        while True:
            item = self.next()
            if isinstance(item, kind):
                return item

    def opened(self) -> Opened:
        return self.until(Opened)
