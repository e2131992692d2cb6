"""bxctl is told how the way to Mattermost is, and never a token or what was said."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore.errors import BadMessage
from bxcore.ids import MattermostId
from bxcore.settings import gatewayd as settings_file
from bxcore.wire.gateway import (
    GatewayAccount,
    GatewayPost,
    GatewayPostMade,
    GatewayStatus,
    GatewayStatusReport,
    GatewayWhoami,
)
from gatewayd.condition import Condition, Part
from gatewayd.entries import Incoming, Kind, Outgoing, State, session_of
from gatewayd.faults import MattermostAway, UsersUnfit
from gatewayd.owner import MOST_CHARACTERS, Owner
from gatewayd.posts import Account
from gatewayd.store import Store
from tests.fakes.clocks import BEGIN, HandClock
from tests.fakes.postbox import BOT, Postbox, an_id, direct, person

ALICE, BOB = person("alice"), person("bob")


class Asked:
    """A request, as a handler sees it."""

    def __init__(self, message: object) -> None:
        self.message = message
        self.answers: list[tuple[object, bool]] = []

    def answer(self, message: object, *, final: bool) -> None:
        self.answers.append((message, final))


class Place:
    def __init__(self, home: Path, store: Store) -> None:
        self.store = store
        self.postbox = Postbox()
        self.postbox.accounts |= {ALICE.id: ALICE, BOB.id: BOB}
        self.condition = Condition(HandClock())
        self.bot: Account | None = BOT
        settings = settings_file.GatewaydSettings(
            state=home,
            listen=settings_file.Listen(gateway=home / "g", owner=home / "o"),
            mattermost=settings_file.Mattermost(url="https://chat.example.org"),
            loop=settings_file.Loop(socket=home / "l"),
            allow=settings_file.Allow(users=(ALICE.id, an_id("gone"))),
            approvals=settings_file.Approvals(users=(BOB.id,)),
        )
        self.owner = Owner(
            settings=settings,
            store=store,
            condition=self.condition,
            api=self.postbox.api,
            bot=lambda: self.bot,
            questions=lambda: 3,
        )

    def ask(self, message: object) -> Any:
        asked = Asked(message)
        self.owner.handlers()[type(message)](asked)  # type: ignore[arg-type]  # as much of a Request as is used
        [(answer, final)] = asked.answers
        assert final
        assert self.postbox.opened == 0
        return answer


def incoming(name: str) -> Incoming:
    post, channel = an_id(name), direct(BOT.id, ALICE.id).id
    return Incoming(
        id=post,
        channel=channel,
        thread=post,
        user=ALICE.id,
        create_at=BEGIN,
        kind=Kind.MESSAGE,
        direct=True,
        text="secret words",
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with closing(Store.open(tmp_path, HandClock())) as store:
        yield Place(tmp_path, store)


def test_how_things_are_is_said_without_asking_the_server(place: Place) -> None:
    place.store.accept([incoming("one"), incoming("two"), incoming("three")])
    place.store.asked(an_id("two"), session_of(an_id("two")), 1)
    place.store.settle(an_id("three"), State.PARKED)
    place.store.add([Outgoing(key="k", channel=an_id("c"), root=None, message="m")])
    place.condition.connection(up=True, server_version="11.6.0")
    place.condition.trouble(Part.LOOP, MattermostAway("loopd is away"))
    assert place.ask(GatewayStatus()) == GatewayStatusReport(
        connected=True,
        since=BEGIN,
        code="mattermost_away",
        detail="loopd is away",
        server="https://chat.example.org",
        server_version="11.6.0",
        bot="boxmaker",
        waiting=1,
        asked=1,
        outgoing=1,
        parked=1,
        listed=0,
        questions=3,
    )
    assert place.postbox.calls == []


def test_what_was_missed_and_is_still_to_be_read_is_told(place: Place) -> None:
    place.condition.connection(up=True, missed=True)
    report = place.ask(GatewayStatus())
    assert (report.connected, report.code, report.detail) == (False, None, "what was missed is being read")
    place.condition.reading(missed=False)
    report = place.ask(GatewayStatus())
    assert (report.connected, report.code, report.detail) == (True, None, None)


def test_before_the_server_has_said_who_the_bot_is_it_has_no_name(place: Place) -> None:
    place.bot = None
    report = place.ask(GatewayStatus())
    assert (report.bot, report.code, report.connected) == (None, None, False)


def test_who_the_bot_is_is_asked_now_with_who_may_speak_and_who_cannot(place: Place) -> None:
    place.postbox.channel_list = [direct(BOT.id, ALICE.id)]
    assert place.ask(GatewayWhoami()) == GatewayAccount(
        server="https://chat.example.org",
        server_version="11.6.0",
        id=BOT.id,
        username="boxmaker",
        is_bot=True,
        max_post_characters=16_383,
        allowed=("alice",),
        approvers=("bob",),
        unfit=(an_id("gone"),),
        channels=1,
        channels_allowed=0,
        channels_absent=(),
    )


def test_channels_in_which_the_bot_is_not_are_named(place: Place) -> None:
    lobby, attic = an_id("lobby"), an_id("attic")
    place.owner = attrs.evolve(
        place.owner,
        settings=attrs.evolve(
            place.owner.settings, allow=settings_file.Allow(users=(ALICE.id,), channels=(lobby, attic))
        ),
    )
    place.postbox.channel_list = [direct(BOT.id, ALICE.id), attrs.evolve(direct(BOT.id, BOB.id), id=lobby)]
    found = place.ask(GatewayWhoami())
    assert (found.channels, found.channels_allowed, found.channels_absent) == (2, 1, (attic,))


def test_a_post_goes_to_the_first_user_and_is_made_harmless(place: Place) -> None:
    made = place.ask(GatewayPost(text="Hello ![x](https://evil.example.com/?q) @all"))
    [post] = place.postbox.made
    assert made == GatewayPostMade(post=post.id, to="alice")
    assert post.channel == direct(BOT.id, ALICE.id).id
    assert post.root is None
    assert "![" not in post.message
    assert "@all" not in post.message
    assert post.props["unsafe_links"] == "true"
    assert str(post.props["boxmaker"]).startswith("owner:")


@pytest.mark.parametrize("text", ["", " \n", "x" * (MOST_CHARACTERS + 1)], ids=["nothing", "blank", "too long"])
def test_a_text_that_cannot_be_one_post_is_refused(place: Place, text: str) -> None:
    with pytest.raises(BadMessage, match="text: expected 1 to 4000 characters"):
        place.ask(GatewayPost(text=text))
    assert place.postbox.calls == []


@pytest.mark.parametrize(
    ("message", "call"), [(GatewayWhoami(), "me"), (GatewayPost(text="x"), "create_post")], ids=["whoami", "post"]
)
def test_a_server_that_is_away_is_an_error_and_the_connection_is_given_back(
    place: Place, message: object, call: str
) -> None:
    place.postbox.raises[call] = [MattermostAway("no connection")]
    with pytest.raises(MattermostAway):
        place.ask(message)
    assert place.postbox.opened == 0


def test_a_post_goes_to_the_first_user_who_can_be_written_to(place: Place) -> None:
    old = person("old", delete_at=1)
    place.postbox.accounts[old.id] = old
    allow = settings_file.Allow(users=(an_id("nobody"), old.id, BOB.id))
    place.owner = attrs.evolve(place.owner, settings=attrs.evolve(place.owner.settings, allow=allow))
    assert place.ask(GatewayPost(text="x")).to == "bob"


def test_where_nobody_of_the_settings_can_be_written_to_nothing_is_posted(place: Place) -> None:
    del place.postbox.accounts[MattermostId(ALICE.id)]
    with pytest.raises(UsersUnfit, match=r"^nobody may speak: .*\[mattermost_users_unfit\]$"):
        place.ask(GatewayPost(text="x"))
    assert place.postbox.made == []
    assert place.postbox.opened == 0
