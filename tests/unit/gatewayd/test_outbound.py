"""Each post is made once and in order, whatever the server does meanwhile; what it never takes is told."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from gatewayd.answers import PostSize
from gatewayd.faults import (
    MattermostAway,
    MattermostBusy,
    MattermostDenied,
    MattermostFault,
    MattermostRefused,
    MattermostUnclear,
    TokenRefused,
)
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.gatequeue import CHANNEL, Queue, full_once, outgoing, session
from tests.fakes.postbox import an_id
from tests.fakes.posterplace import NEVER, Scene, Server, answer, away

PATIENCE_MS = 30_000


def root_gone() -> MattermostFault:
    return MattermostRefused("no", status=400, error="api.post.create_post.root_id.app_error")


def too_long() -> MattermostFault:
    return MattermostRefused("no", status=400, error="model.post.is_valid.message_length.app_error")


def denied(error: str = "api.context.permissions.app_error") -> MattermostFault:
    return MattermostDenied("no", status=403, error=error)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    clock = HandClock()
    scene = Scene(home=tmp_path, queue=Queue(tmp_path, clock), server=Server(), clock=clock, size=PostSize(16_383))
    yield scene
    scene.queue.store.close()


def test_posts_are_made_in_order_in_their_threads_with_their_keys(scene: Scene) -> None:
    scene.add(*answer(3), outgoing("top", "a note", root=None))
    assert scene.rounds() == 1
    assert scene.server.messages() == ["part 1", "part 2", "part 3", "a note"]
    first, *_, last = scene.server.made
    assert (first.root, first.channel) == (an_id("root"), CHANNEL)
    assert first.props == {"unsafe_links": "true", "boxmaker": f"{session('root')}:1:1"}
    assert last.root is None
    assert scene.queue.unsent() == []
    assert scene.server.calls == ["create_post"] * 4  # nothing is looked up that was never tried


WAITS: dict[str, Callable[[], MattermostFault]] = {
    "502": away,
    "500, the first one still runs": lambda: MattermostAway(
        "x", status=500, error="api.post.deduplicate_create_post.pending"
    ),
    "no connection": lambda: MattermostAway("refused"),
    "429": lambda: MattermostBusy("slowly", status=429, retry_ms=1),
    "401": lambda: TokenRefused("revoked", status=401),
    "a proxy's page": lambda: MattermostUnclear("html", status=200),
}


@pytest.mark.parametrize("fault", WAITS.values(), ids=WAITS.keys())
@pytest.mark.parametrize("lost", [False, True], ids=["before it had an effect", "after it had its effect"])
def test_while_the_server_does_not_work_everything_waits_in_order_and_nothing_is_doubled(
    scene: Scene, fault: Callable[[], MattermostFault], lost: bool
) -> None:
    """C8."""
    (scene.server.loses if lost else scene.server.raises)["create_post"] = [fault() for _ in range(1 if lost else 4)]
    scene.add(*answer(3), outgoing("note", "after it"))
    poster = scene.poster()
    assert poster._tried(scene.server) is not None
    assert scene.queue.trouble() == fault().code
    assert scene.rounds(poster) != NEVER
    assert scene.server.messages() == ["part 1", "part 2", "part 3", "after it"]
    assert scene.queue.trouble() is None
    assert scene.parked() == []


def test_a_try_again_in_the_same_process_has_the_same_pending_id_and_each_post_its_own(scene: Scene) -> None:
    scene.server.raises["create_post"] = [away(), away()]
    scene.add(*answer(2))
    assert scene.rounds() == 3
    one, again, and_again, other = scene.server.pendings
    assert one == again == and_again != other


def test_a_pause_is_as_long_as_the_server_asks_for_and_a_revoked_token_waits_longest(scene: Scene) -> None:
    scene.server.raises["create_post"] = [
        MattermostBusy("slowly", status=429, retry_ms=7_000),
        TokenRefused("revoked", status=401),
        away(),
    ]
    scene.add(*answer(1))
    poster = scene.poster()
    assert [poster._tried(scene.server) for _ in range(2)] == [7_000, 20]
    pause_ms = poster._tried(scene.server)
    assert pause_ms is not None
    assert 1 <= pause_ms <= 20


@pytest.mark.parametrize("root", ["root", None], ids=["in a thread", "at the top of a channel"])
@pytest.mark.parametrize("made", [True, False], ids=["it was made", "it was not made"])
def test_after_a_kill_a_post_that_was_tried_is_looked_for_before_it_is_made(
    scene: Scene, root: str | None, made: bool
) -> None:
    scene.add(outgoing("key", "words", root=root))
    (scene.server.loses if made else scene.server.raises)["create_post"] = [away()]
    with pytest.raises(MattermostAway):
        scene.poster().post_all(scene.server)
    scene.queue.again()
    assert scene.rounds() == 1
    assert scene.server.messages() == ["words"]


def test_another_ones_post_that_carries_our_key_is_not_taken_for_ours(scene: Scene) -> None:
    scene.add(outgoing("key", "words"))
    scene.server.raises["create_post"] = [away()]
    assert scene.poster()._tried(scene.server) is not None
    made = scene.server._create(CHANNEL, "forged", an_id("root"), {"boxmaker": "key"})
    scene.server.made = [attrs.evolve(made, user=an_id("somebody"))]
    assert scene.rounds() == 1
    assert scene.server.messages() == ["forged", "words"]


def test_a_top_level_post_is_looked_for_as_far_back_as_it_may_be_and_no_further(scene: Scene) -> None:
    scene.add(outgoing("key", "words", root=None))
    scene.server.loses["create_post"] = [away()]
    scene.server._now = BEGIN - 700_000
    for _ in range(300):
        scene.server._create(CHANNEL, "older", None, {})
    scene.server._now = int(BEGIN)
    assert scene.poster()._tried(scene.server) is not None
    for _ in range(450):
        scene.server._create(CHANNEL, "newer", None, {})
    assert scene.rounds() == 1
    assert scene.server.calls.count("posts") == 3
    assert scene.server.messages().count("words") == 1
    scene.server.calls.clear()
    scene.add(outgoing("other", "not there", root=None))
    scene.server.raises["create_post"] = [away()]
    poster = scene.poster()
    assert poster._tried(scene.server) is not None
    assert scene.rounds(poster) == 1
    assert scene.server.calls.count("posts") == 3


def test_removed_from_the_channel_the_rest_of_that_answer_is_set_aside_and_the_next_one_is_posted(scene: Scene) -> None:
    scene.add(*answer(3), *answer(1, "other"))
    scene.server.raises["create_post"] = [denied()]
    poster = scene.poster()
    poster.post_all(scene.server)
    assert scene.parked() == [(post.key, "mattermost_denied") for post in answer(3)]
    assert scene.server.messages() == ["part 1"]
    assert scene.server.made[0].root == an_id("other")
    assert scene.queue.store.counts().parked == 3
    assert scene.queue.unsent() == []


def test_what_was_refused_shows_until_a_post_is_made(scene: Scene) -> None:
    scene.add(*answer(1))
    scene.server.raises["create_post"] = [denied()]
    assert scene.rounds() == 1
    assert scene.queue.trouble() == "mattermost_denied"
    scene.add(*answer(1, "other"))
    assert scene.rounds() == 1
    assert scene.queue.trouble() is None


def test_a_disk_that_was_full_is_no_trouble_once_it_is_written_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.add(*answer(1))
    monkeypatch.setattr(scene.queue.store, "trying", full_once(scene.queue.store.trying))
    assert scene.rounds(most=1) == NEVER
    assert scene.queue.trouble() == "state_unwritable"
    assert scene.rounds() == 1
    assert scene.queue.trouble() is None


def test_a_refusal_in_nobodys_name_is_a_proxys_while_the_server_does_not_answer(scene: Scene) -> None:
    """A proxy whose server is being restarted says 404 to everything."""
    scene.add(*answer(2))
    scene.server.raises["create_post"] = [MattermostDenied("page not found", status=404)]
    scene.server.raises["me"] = [MattermostUnclear("page not found", status=404)]
    assert scene.rounds() == 2
    assert scene.server.messages() == ["part 1", "part 2"]


def test_a_refusal_in_nobodys_name_counts_where_the_server_answers(scene: Scene) -> None:
    scene.add(*answer(2))
    scene.server.raises["create_post"] = [MattermostRefused("no", status=400)]
    assert scene.rounds() == 1
    assert [why for _, why in scene.parked()] == ["mattermost_refused"] * 2


def test_an_answer_whose_thread_was_deleted_is_set_aside_and_one_sentence_at_the_top_says_so(scene: Scene) -> None:
    """C2."""
    scene.add(*answer(3), outgoing("note", "after it", root="other"))
    scene.server.raises["create_post"] = [root_gone()]
    assert scene.rounds() == 1
    assert scene.parked() == [(post.key, "thread_deleted") for post in answer(3)]
    after, told = scene.server.made
    assert after.message == "after it"
    assert told.root is None
    assert told.channel == CHANNEL
    assert f"`bxctl sessions show {session('root')}`" in told.message
    assert scene.queue.trouble() is None


def test_a_thread_that_is_deleted_between_two_parts_is_told_as_well(scene: Scene) -> None:
    scene.add(*answer(3))
    scene.server.loses["create_post"] = [away()]
    poster = scene.poster()
    assert poster._tried(scene.server) is not None
    scene.server.gone.add(an_id("root"))
    scene.server.raises["create_post"] = [root_gone()]
    assert scene.rounds(poster) == 1
    assert len(scene.parked()) == 3
    assert scene.server.made[-1].root is None


def test_a_note_into_a_deleted_thread_is_nobodys_any_more(scene: Scene) -> None:
    scene.add(outgoing("edited:x", "a note"))
    scene.server.raises["create_post"] = [root_gone()]
    assert scene.rounds() == 1
    assert scene.parked() == [("edited:x", "thread_deleted")]
    assert scene.server.made == []


def test_what_could_not_be_posted_for_too_long_is_set_aside(scene: Scene) -> None:
    scene.add(*answer(2))
    scene.server.raises["create_post"] = [away()]
    poster = scene.poster()
    assert poster._tried(scene.server) is not None
    scene.clock.wind(600_001)
    scene.server.raises["thread"] = [away()]
    assert scene.rounds(poster) == 1
    assert [why for _, why in scene.parked()] == ["answer_too_old"] * 2
    assert scene.server.made == []


def test_what_was_posted_before_the_outage_is_not_set_aside(scene: Scene) -> None:
    scene.add(*answer(1))
    scene.server.loses["create_post"] = [away()]
    poster = scene.poster()
    assert poster._tried(scene.server) is not None
    scene.clock.wind(600_001)
    assert scene.rounds(poster) == 1
    assert scene.parked() == []
    assert scene.queue.unsent() == []


def test_a_smaller_limit_than_we_knew_is_learned_and_the_rest_of_the_answer_split_again(scene: Scene) -> None:
    texts = ["a" * 9_000, "b" * 9_000]
    keys = [f"{session('root')}:1:{number}" for number in (1, 2)]
    scene.add(*[outgoing(key, text) for key, text in zip(keys, texts, strict=True)], *answer(1, "other"))
    scene.server.most_characters = 4_000
    scene.server.raises["create_post"] = [too_long()]
    assert scene.rounds() == 1
    assert scene.size.characters == 4_000
    in_thread = [post for post in scene.server.made if post.root == an_id("root")]
    assert max(len(post.message) for post in in_thread) <= 4_000
    assert "".join(post.message for post in in_thread) == "".join(texts)
    assert len({post.props["boxmaker"] for post in in_thread}) == len(in_thread)
    assert scene.parked() == []
    scene.queue.store.answered(session("root"), 1, [outgoing(keys[0], "again")])
    assert scene.queue.unsent() == []


TOO_LARGE: dict[str, Callable[[], MattermostFault]] = {
    "too long by a limit that we kept": too_long,
    "413": lambda: MattermostRefused("x", status=413),
}


@pytest.mark.parametrize("fault", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_no_split_makes_smaller_is_set_aside(scene: Scene, fault: Callable[[], MattermostFault]) -> None:
    scene.add(*answer(2), *answer(1, "other"))
    scene.server.raises["create_post"] = [fault()]
    assert scene.rounds() == 1
    assert [why for _, why in scene.parked()] == ["mattermost_refused"] * 2
    assert [post.root for post in scene.server.made] == [an_id("other")]


def test_a_server_that_keeps_another_text_than_was_sent_is_reported_in_sizes(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.add(*answer(1))
    made = scene.server._create
    scene.server._create = lambda channel, message, root, props: made(channel, "shorter", root, props)  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        assert scene.rounds() == 1
    (record,) = [record.getMessage() for record in caplog.records]
    assert "sent=6 kept=7 code=answer_altered" in record
    assert "shorter" not in record


@pytest.mark.parametrize("killed_at", range(8))
def test_a_kill_at_any_step_leaves_each_post_made_once(scene: Scene, killed_at: int) -> None:
    class Killed(BaseException):
        pass

    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == killed_at + 1:
            raise Killed

    scene.add(*answer(2))
    store, create = scene.queue.store, scene.server.create_post
    trying, sent = store.trying, store.sent

    def around(act: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*args: Any, **named: Any) -> Any:
            step()
            done = act(*args, **named)
            step()
            return done

        return killing

    store.trying, store.sent = around(trying), around(sent)  # type: ignore[method-assign]
    scene.server.create_post = around(create)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        scene.poster().post_all(scene.server)
    scene.queue.again()
    scene.server.create_post = create  # type: ignore[method-assign]
    assert scene.rounds() == 1
    assert scene.server.messages() == ["part 1", "part 2"]


def test_a_poster_posts_when_it_is_woken_and_ends_when_it_is_told_to(scene: Scene) -> None:
    poster = scene.poster()
    poster.start()
    scene.add(*answer(2))
    poster.wake()
    scene.server.until(lambda: len(scene.server.made) == 2)
    poster.stop()
    assert poster.join(PATIENCE_MS)
    assert scene.server.closed


def test_a_poster_that_backs_off_ends_when_it_is_told_to(scene: Scene) -> None:
    scene.server.raises["create_post"] = [MattermostBusy("slowly", status=429, retry_ms=PATIENCE_MS)] * 9
    scene.add(*answer(1))
    poster = scene.poster()
    poster.start()
    scene.server.until(lambda: "create_post" in scene.server.calls)
    poster.stop()
    assert poster.join(PATIENCE_MS)
