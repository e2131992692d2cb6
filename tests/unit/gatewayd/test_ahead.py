"""A command does not wait for what was missed; messages keep their order; a stop stops what was written before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gatewayd import inbound
from gatewayd.ahead import Ahead, Unasked
from gatewayd.entries import Incoming, Kind, State
from gatewayd.eventqueue import EventQueue
from gatewayd.faults import MattermostAway
from gatewayd.items import Posted
from gatewayd.posts import ChannelType
from tests.fakes.inboundplace import GAP, Place, until
from tests.fakes.mattermost import Mattermost as Server
from tests.fakes.queued import DIRECT, TOWN, an_id, incoming

FOR_EVER = 1_000_000


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    """A place whose owner was heard before."""
    with Server() as server:
        place = Place(server, tmp_path)
        place.start()
        place.put(GAP, place.say("before"))
        place.handled()
        place.store.settle(place.store.waiting()[0].id, State.DONE)
        yield place
        place.close()


def put_off(place: Place, path: str = "/users/me/channels") -> None:
    """The server answers nothing of that path, until it is `clear_faults`."""
    place.server.fail("*", path, status=429, headers={"Retry-After": "60"}, times=FOR_EVER)


# -- against a server that makes us wait -----------------------------------------------------------


@pytest.mark.parametrize("command", ["!stop", "!approve 7", "!deny 7 no", "!status", "!what"])
def test_a_command_does_not_wait_for_a_catching_up_that_is_put_off(here: Place, command: str) -> None:
    put_off(here)
    here.put(GAP, here.say("a message waits"), here.say(command))
    until(lambda: here.texts() == [command])
    here.server.clear_faults()
    here.handled()
    assert here.texts() == (["a message waits", command] if command != "!stop" else [command])


def test_a_stop_reaches_what_was_written_before_it_and_nothing_else(here: Place) -> None:
    put_off(here)
    root, elsewhere = here.say("@bot here", channel=here.town), here.say("@bot elsewhere", channel=here.town)
    missed = here.say("missed")
    stop = here.say("@bot !stop", channel=here.town, root=root.id)
    here.put(GAP, root, elsewhere, stop, here.say("and on", channel=here.town, root=elsewhere.id))
    here.put(here.say("@bot again", channel=here.town, root=root.id))
    until(here.texts)
    here.server.clear_faults()
    here.handled()
    assert here.texts() == ["elsewhere", "missed", "@bot !stop".removeprefix("@bot "), "and on", "again"]
    assert here.store.known(root.id) is State.DONE
    assert here.store.known(missed.id) is State.WAITING


def test_a_command_among_posts_that_are_being_decided_upon_does_not_wait_for_a_name(here: Place) -> None:
    put_off(here, "/users/usernames")
    asked = here.say("@alice, @bot.x?", channel=here.town)
    here.put(asked, here.say("!stop"))
    until(lambda: here.texts() == ["!stop"])
    here.server.clear_faults()
    here.handled()
    assert here.texts() == ["!stop"]


def test_after_a_stop_was_met_in_its_turn_it_stops_nothing_more(here: Place) -> None:
    put_off(here)
    stop = here.say("!stop")
    here.put(GAP, stop)
    until(here.texts)
    here.server.clear_faults()
    here.handled()
    early = here.say("of a server whose clock is behind", at=stop.create_at - 5)
    here.put(early)
    here.handled()
    assert here.texts() == ["of a server whose clock is behind", "!stop"]


def test_who_is_not_known_yet_has_to_wait(here: Place) -> None:
    here.stop()
    here.start()
    put_off(here)
    here.put(GAP, here.say("!stop"))
    until(lambda: here.condition.worst() is not None)
    assert here.texts() == []
    here.server.clear_faults()
    here.handled()
    assert here.texts() == ["!stop"]


def test_a_fault_of_ours_leaves_a_command_for_its_turn(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(inbound.Inbound, "_accept_ahead", broken)
    put_off(here)
    here.put(GAP, here.say("!stop"))
    until(lambda: here.condition.worst() is not None)
    here.server.clear_faults()
    here.handled()
    assert here.texts() == ["!stop"]


# -- alone -----------------------------------------------------------------------------------------


def stop_of(name: str, **more: object) -> Incoming:
    return incoming(name, text="!stop", kind=Kind.COMMAND, **more)  # type: ignore[arg-type]


def test_from_the_top_level_of_a_direct_channel_a_stop_reaches_all_of_it() -> None:
    ahead = Ahead("bot")
    ahead.went(stop_of("stop", after_ms=5, channel=DIRECT))
    assert ahead.stopped(incoming("a", after_ms=5, channel=DIRECT, thread=an_id("b")))
    assert not ahead.stopped(incoming("a", after_ms=6, channel=DIRECT))
    assert not ahead.stopped(incoming("a", after_ms=5, channel=TOWN))
    ahead.met([an_id("other"), an_id("stop")])
    assert not ahead.stopped(incoming("a", after_ms=5, channel=DIRECT))


def test_no_other_command_stops_anything() -> None:
    ahead = Ahead("bot")
    ahead.went(incoming("a", text="!status", kind=Kind.COMMAND, after_ms=5))
    assert not ahead.stopped(incoming("b"))


def test_nobody_is_asked_who_exists() -> None:
    with pytest.raises(MattermostAway):
        Unasked().existing(["alice"])


def test_each_item_is_glanced_at_once_and_stays(here: Place) -> None:
    queue = EventQueue()
    one, two, three = (Posted(post=here.say(text), channel_type=ChannelType.DIRECT) for text in "123")
    queue.put(one)
    assert queue.glance(0) == (one,)
    queue.put(two)
    assert (queue.glance(0), queue.glance(0)) == ((two,), ())
    assert queue.take(0) == (False, (one, two))
    queue.put(three)
    assert queue.glance(0) == (three,)
    queue.end()
    assert queue.glance(60_000) == ()
