"""A poster whose rounds a test runs itself, over a server in memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from bxcore.ids import MattermostId
from gatewayd.answers import PostSize
from gatewayd.entries import Outgoing
from gatewayd.faults import MattermostAway, MattermostFault
from gatewayd.mattermost import ServerConfig
from gatewayd.outbound import Poster
from gatewayd.posts import Post
from tests.fakes.clocks import HandClock
from tests.fakes.gatequeue import Queue, outgoing, session, settings
from tests.fakes.postbox import BOT, Postbox

NEVER = 10_000
"""More tries than any test has patience for."""


def away() -> MattermostFault:
    return MattermostAway("gone", status=502)


class Server(Postbox):
    """A Postbox that also notes under which pending ids posts were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.pendings: list[str] = []
        self.most_characters = 16_383
        self.breaks_at: str | None = None
        self.closed = False

    def create_post(
        self, channel: MattermostId, message: str, *, root: MattermostId | None, props: Mapping[str, Any], pending: str
    ) -> Post:
        self.pendings.append(pending)
        if message == self.breaks_at:
            self.calls.append("create_post")
            raise MattermostAway("x", status=500, error="app.post.save.app_error")
        return super().create_post(channel, message, root=root, props=props, pending=pending)

    def close(self) -> None:
        self.closed = True

    def config(self) -> ServerConfig:
        return attrs.evolve(super().config(), max_post_characters=self.most_characters)

    def posts(self, channel: MattermostId, *, page: int, per_page: int = 200) -> tuple[Post, ...]:
        newest_first = [post for post in reversed(self.made) if post.channel == channel]
        return self._call("posts", lambda: tuple(newest_first[page * per_page : (page + 1) * per_page]))

    def messages(self) -> list[str]:
        return [post.message for post in self.made]


@attrs.define(kw_only=True)
class Scene:
    """A poster whose rounds a test runs itself."""

    home: Path
    queue: Queue
    server: Server
    clock: HandClock
    size: PostSize

    def poster(self) -> Poster:
        """Return a poster as a new process has it."""
        return Poster(
            store=self.queue.store,
            api=lambda: self.server,
            settings=settings(self.home, give_up_ms=600_000),
            bot=BOT.id,
            condition=self.queue.condition,
            clock=self.clock,
            size=self.size,
            first_pause_ms=1,
        )

    def add(self, *posts: Outgoing) -> None:
        self.queue.store.add(posts)

    def rounds(self, poster: Poster | None = None, most: int = 30) -> int:
        """Post what waits, without the pauses; return how many rounds it took."""
        poster = poster or self.poster()
        for number in range(1, most + 1):
            if poster._tried(self.server) is None:
                held_ms = poster._late.until_due_ms()
                if held_ms is None:
                    return number
                self.clock.wind(held_ms)
        return NEVER

    def parked(self) -> list[tuple[str, str]]:
        return self.queue.store._file.read("SELECT key, why FROM outgoing WHERE state = 'parked' ORDER BY n")


def answer(count: int, thread: str = "root", number: int = 1) -> list[Outgoing]:
    return [outgoing(f"{session(thread)}:{number}:{part}", f"part {part}", root=thread) for part in range(1, count + 1)]
