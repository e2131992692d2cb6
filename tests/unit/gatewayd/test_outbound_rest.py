"""The poster over HTTP, against a server with the rules of the real one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bxcore.deadline import SystemClock
from bxcore.ids import MattermostId
from bxcore.secrets import Secret
from bxcore.settings import gatewayd as settings_file
from gatewayd.answers import PostSize
from gatewayd.entries import Outgoing, session_of
from gatewayd.mattermost import Mattermost
from gatewayd.outbound import Poster
from gatewayd.typingshown import Typing
from tests.fakes import mattermost
from tests.fakes.gatequeue import Queue, settings, turn


@attrs.define(kw_only=True)
class Scene:
    """A thread that alice began, and a poster whose rounds a test runs itself."""

    home: Path
    server: mattermost.Mattermost
    queue: Queue
    bot: str
    token: str
    channel: str
    root: str
    size: PostSize

    def api(self) -> Mattermost:
        return Mattermost(settings_file.Mattermost(url=self.server.url), Secret("mattermost-token", self.token))

    def poster(self) -> Poster:
        return Poster(
            store=self.queue.store,
            api=self.api,
            settings=settings(self.home),
            bot=MattermostId(self.bot),
            condition=self.queue.condition,
            clock=self.queue.clock,
            size=self.size,
            first_pause_ms=1,
        )

    def answer(self, *texts: str, number: int = 1, root: bool = True) -> None:
        begin = f"{session_of(MattermostId(self.root))}:{number}"
        self.queue.store.add(
            [
                Outgoing(
                    key=f"{begin}:{part}",
                    channel=MattermostId(self.channel),
                    root=MattermostId(self.root) if root else None,
                    message=text,
                )
                for part, text in enumerate(texts, 1)
            ]
        )

    def rounds(self, most: int = 20) -> int:
        """Post what waits, as a new process does; return how many rounds it took."""
        poster, api = self.poster(), self.api()
        try:
            for number in range(1, most + 1):
                if poster._tried(api) is None:
                    return number
            raise AssertionError(f"not posted in {most} rounds: {self.queue.unsent()}")
        finally:
            api.close()

    def ours(self) -> list[str]:
        return [post["message"] for post in self.server.posts_of(self.channel) if post["user_id"] == self.bot]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with mattermost.Mattermost() as server:
        alice = server.add_user("alice")
        bot, token = server.add_bot("boxmaker")
        channel = server.direct(alice, bot)
        root = server.say(alice, channel, "Hello")["id"]
        queue = Queue(tmp_path, SystemClock())
        size = PostSize(16_383)
        yield Scene(
            home=tmp_path, server=server, queue=queue, bot=bot, token=token, channel=channel, root=root, size=size
        )
        queue.store.close()


def test_an_answer_arrives_in_its_thread_in_order_and_nothing_is_fetched_because_of_it(scene: Scene) -> None:
    """C9: with unsafe_links the server looks nothing up."""
    scene.answer("one http://example.com/secret", "two")
    assert scene.rounds() == 1
    assert scene.ours() == ["one http://example.com/secret", "two"]
    assert {post["root_id"] for post in scene.server.posts_of(scene.channel)[-2:]} == {scene.root}
    assert scene.server.fetches == []


@pytest.mark.parametrize("root", [True, False], ids=["in a thread", "at the top"])
@pytest.mark.parametrize("status", [0, 500, 502], ids=["cut off", "500", "502"])
def test_a_post_whose_answer_was_lost_is_not_made_twice(scene: Scene, status: int, *, root: bool) -> None:
    scene.server.fail("POST", r"/posts", status=status, after=True)
    scene.answer("one", "two", root=root)
    assert scene.rounds() == 2
    assert scene.ours() == ["one", "two"]


@pytest.mark.parametrize("root", [True, False], ids=["in a thread", "at the top"])
def test_a_proxy_that_knows_no_page_makes_no_post_twice(scene: Scene, *, root: bool) -> None:
    """Looked for while the server is being restarted, it is not found; that is no reason to make it again."""
    scene.server.fail("POST", r"/posts", status=502, after=True)
    scene.answer("one", root=root)
    with pytest.raises(AssertionError):
        scene.rounds(most=1)
    scene.server.advance(120_000)
    scene.server.fail("GET", r"/(posts/.*/thread|channels/.*/posts)", status=404, body="404 page not found")
    scene.rounds()
    assert scene.ours() == ["one"]


def test_a_kill_after_the_servers_window_finds_the_post_by_its_key(scene: Scene) -> None:
    scene.server.fail("POST", r"/posts", status=502, after=True)
    scene.answer("one")
    with pytest.raises(AssertionError):
        scene.rounds(most=1)
    scene.server.advance(120_000)
    scene.queue.again()
    assert scene.rounds() == 1
    assert scene.ours() == ["one"]


def test_a_rate_limit_delays_and_loses_nothing(scene: Scene) -> None:
    """C8."""
    scene.server.fail("POST", r"/posts", status=429, body="limit exceeded", headers={"Retry-After": "1"}, times=2)
    scene.answer("one", "two")
    assert scene.rounds() == 3
    assert scene.ours() == ["one", "two"]


def test_an_answer_into_a_deleted_thread_is_told_at_the_top_of_the_channel(scene: Scene) -> None:
    """C2."""
    scene.server.delete(scene.root)
    scene.answer("one", "two")
    assert scene.rounds() == 1
    (told,) = scene.ours()
    assert f"`bxctl sessions show {session_of(MattermostId(scene.root))}`" in told
    assert scene.queue.store.counts().parked == 2


def test_removed_from_the_channel_the_answer_is_set_aside_and_it_shows(scene: Scene) -> None:
    """C8."""
    scene.server.remove(scene.channel, scene.bot)
    scene.answer("one", "two")
    assert scene.rounds() == 1
    assert scene.queue.trouble() == "mattermost_denied"
    assert scene.queue.store.counts().parked == 2


def test_a_revoked_token_keeps_everything(scene: Scene) -> None:
    """C11."""
    scene.server.revoke(scene.token)
    scene.answer("one")
    with pytest.raises(AssertionError):
        scene.rounds(most=3)
    assert scene.queue.trouble() == "token_refused"
    assert scene.queue.store.counts().parked == 0
    scene.token = scene.server.token_for(scene.bot)
    assert scene.rounds() == 1
    assert scene.ours() == ["one"]


def test_a_server_that_takes_less_than_it_did_gets_smaller_posts(scene: Scene) -> None:
    """C7."""
    scene.server.set_config(MaxPostSize=4_000)
    text = " ".join(str(number) for number in range(2_500))
    scene.answer(text[:9_000], text[9_000:])
    assert scene.rounds() == 1
    assert max(map(len, scene.ours())) <= 4_000
    assert " ".join(scene.ours()).split() == f"{text[:9_000]} {text[9_000:]}".split()
    assert scene.queue.store.counts().parked == 0


def test_a_running_turn_is_seen_as_typing_in_its_thread_and_channel(scene: Scene) -> None:
    running = [attrs.evolve(turn(), channel=MattermostId(scene.channel), thread=MattermostId(scene.root))]
    typing = Typing(running=lambda: running, api=scene.api, clock=SystemClock())
    api = scene.api()
    typing.show(api)
    api.close()
    assert [shown.parent for shown in scene.server.typings] == [scene.root, ""]


def test_a_poster_whose_server_does_not_answer_ends_at_once(scene: Scene) -> None:
    held = threading.Event()
    begun = scene.server.fail("POST", r"/posts", wait=held)
    scene.answer("one")
    poster = scene.poster()
    poster.start()
    poster.wake()
    assert begun.wait(30)
    poster.stop()
    assert poster.join(30_000)
    held.set()
