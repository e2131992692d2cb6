"""A gatewayd.inbound over a store of its own and a fake server; a test puts the items of the event stream by hand."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bxcore.deadline import SystemClock
from bxcore.ids import MattermostId, SessionId
from bxcore.secrets import Secret
from bxcore.settings import gatewayd as settings_file
from bxcore.timestamp import Timestamp
from gatewayd import mattermost, posts
from gatewayd.condition import Condition
from gatewayd.entries import Kind
from gatewayd.inbound import Inbound
from gatewayd.items import Deleted, Opened, Posted
from gatewayd.posts import Account, ChannelType, Post
from gatewayd.store import Store
from tests.fakes.mattermost import Mattermost as Server
from tests.fakes.queued import incoming
from tests.fakes.queued import post as a_post

GAP = Opened(resumed=False, version="11.6.0")
HOUR_MS = 3_600_000


class Turns:
    """Notes what is cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[SessionId] = []

    def cancel(self, session: SessionId) -> bool:
        self.cancelled.append(session)
        return True


class Place:
    """A server, its people, and an Inbound over a store of its own; items are put by hand."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server, self.directory = server, directory
        self.owner, self.other = MattermostId(server.add_user("owner")), MattermostId(server.add_user("alice"))
        bot, self.token = server.add_bot("bot")
        self.bot = MattermostId(bot)
        self.direct = MattermostId(server.direct(self.owner, self.bot))
        self.town = MattermostId(server.add_channel("O", [self.owner, self.other, self.bot], name="town"))
        self.clock, self.condition, self.turns = SystemClock(), Condition(SystemClock()), Turns()
        self.users: tuple[str, ...] = (self.owner,)
        self.limits = settings_file.Limits()
        self.woken = threading.Semaphore(0)
        self.store = Store.open(directory, self.clock)
        self.store.server_time(Timestamp(server.now()))  # as if connected before: `say` moves the server's clock
        self.inbound: Inbound | None = None
        self.barriers = 0
        self.deleted: list[MattermostId] = []

    def start(self) -> Inbound:
        self.inbound = Inbound(
            store=self.store,
            api=lambda: mattermost.Mattermost(self.settings.mattermost, Secret("mattermost-token", self.token)),
            settings=self.settings,
            account=Account(id=self.bot, username="bot", is_bot=True, delete_at=Timestamp(0)),
            condition=self.condition,
            clock=self.clock,
            on_accepted=self.woken.release,
            turns=self.turns,
            on_deleted=self.deleted.append,
        )
        self.inbound.start()
        return self.inbound

    @property
    def settings(self) -> settings_file.GatewaydSettings:
        return settings_file.GatewaydSettings(
            state=self.directory,
            listen=settings_file.Listen(gateway=self.directory, owner=self.directory),
            mattermost=settings_file.Mattermost(url=self.server.url, retry_most_ms=5),
            loop=settings_file.Loop(socket=self.directory),
            allow=settings_file.Allow(users=self.users, channels=(self.town,)),
            limits=self.limits,
        )

    def stop(self) -> None:
        if self.inbound is not None:
            self.inbound.stop()
            assert self.inbound.join(30_000)
        self.inbound = None

    def close(self) -> None:
        self.stop()
        self.store.close()

    def say(self, text: str = "hello", **more: Any) -> Post:
        """Say something as the owner in the direct channel; the event of it is not put."""
        more.setdefault("user", self.owner)
        more.setdefault("channel", self.direct)
        self.server.advance(1)
        return posts.post(self.server.say(more.pop("user"), more.pop("channel"), text, **more))

    def now(self, id_: str) -> Post:
        return posts.post(self.server.post(id_))

    def put(self, *items: Any) -> None:
        assert self.inbound is not None
        for item in items:
            self.inbound.put(Posted(post=item, channel_type=self.kind(item)) if isinstance(item, Post) else item)

    def kind(self, post: Post) -> ChannelType:
        return ChannelType.DIRECT if post.channel == self.direct else ChannelType.OPEN

    def handled(self) -> None:
        """Return when everything was handled that was put before: the end of a turn comes out behind it."""
        self.barriers += 1
        post = incoming("barrier", self.barriers, kind=Kind.COMMAND)
        self.store.accept([post])
        self.store.asked(post.id, post.session, 1)
        self.put(Deleted(post=a_post("barrier", self.barriers)))
        until(lambda: post.session in self.turns.cancelled)
        self.turns.cancelled.remove(post.session)
        self.store.answered(post.session, 1, [])

    def texts(self) -> list[str]:
        return [post.text for post in self.store.waiting(100_000)]

    def said(self) -> list[str]:
        return [unsent.outgoing.message for unsent in self.store.unsent(1_000)]


def until(true: Callable[[], object]) -> None:
    """Wait for something that another thread does; a test that hangs is ended by pytest-timeout."""
    pause = threading.Event()
    while not true():
        pause.wait(0.002)
