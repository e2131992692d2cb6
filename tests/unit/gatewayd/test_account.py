"""A bot that is one, people who may speak, and a server that may take its time to say so."""

import threading
from pathlib import Path

import attrs
import pytest

from bxcore.deadline import SystemClock
from bxcore.settings import gatewayd as settings_file
from bxcore.settings.gatewayd import GatewaydSettings
from gatewayd import account
from gatewayd.condition import Condition, Part
from gatewayd.faults import MattermostAway, MattermostBusy, MattermostUnclear, NobodyAllowed, NotABot, TokenRefused
from gatewayd.posts import Account, ChannelType
from tests.fakes.postbox import BOT, Postbox, an_id, direct, person

CLOCK = SystemClock()
ALICE, BOB, OLD, ROBOT = person("alice"), person("bob"), person("old", delete_at=1), person("robot", is_bot=True)


@pytest.fixture
def postbox() -> Postbox:
    made = Postbox()
    made.accounts |= {one.id: one for one in (ALICE, BOB, OLD, ROBOT)}
    return made


def settings(*users: str, approvers: tuple[str, ...] = ()) -> GatewaydSettings:
    return GatewaydSettings(
        state=Path("/nowhere"),
        listen=settings_file.Listen(gateway=Path("/nowhere/g"), owner=Path("/nowhere/o")),
        mattermost=settings_file.Mattermost(url="https://chat.example.org", retry_most_ms=1),
        loop=settings_file.Loop(socket=Path("/nowhere/l")),
        allow=settings_file.Allow(users=users),
        approvals=settings_file.Approvals(users=approvers),
    )


class Checked:
    """One check, and what it told."""

    def __init__(self, postbox: Postbox, given: GatewaydSettings) -> None:
        self.condition = Condition(CLOCK)
        self.stopping = threading.Event()
        self.tried = 0
        self._postbox, self._given = postbox, given

    def run(self) -> Account | None:
        return account.check(
            self._postbox.api, self._given, self.condition, stopping=self.stopping, tried=self._was_tried
        )

    def _was_tried(self) -> None:
        self.tried += 1


def test_a_bot_whom_somebody_may_speak_to_is_returned(postbox: Postbox) -> None:
    checked = Checked(postbox, settings(ALICE.id))
    assert checked.run() == BOT
    assert checked.tried == 1
    assert postbox.opened == 0


FAULTS = {
    "away": MattermostAway("no connection"),
    "busy": MattermostBusy("slow", status=429, retry_ms=1),
    "c11, the token was revoked": TokenRefused("no", status=401),
    "a page of a proxy": MattermostUnclear("html"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_server_that_does_not_say_is_asked_again_and_the_first_try_is_told(
    postbox: Postbox, fault: Exception
) -> None:
    postbox.raises["me"] = [fault] * 3
    checked = Checked(postbox, settings(ALICE.id))
    seen: list[str | None] = []

    def tried() -> None:
        worst = checked.condition.worst()
        seen.append(None if worst is None else worst.code)

    found = account.check(postbox.api, settings(ALICE.id), checked.condition, stopping=checked.stopping, tried=tried)
    assert found == BOT
    assert seen == [fault.code]  # type: ignore[attr-defined]  # each is one of ours
    assert postbox.calls.count("me") == 4
    assert checked.condition.worst() is None


def test_stopped_while_the_server_is_away_there_is_no_account(postbox: Postbox) -> None:
    postbox.raises["me"] = [MattermostAway("no connection")] * 1_000_000
    checked = Checked(postbox, settings(ALICE.id))
    found: list[Account | None] = []
    thread = threading.Thread(target=lambda: found.append(checked.run()))
    thread.start()
    postbox.until(lambda: postbox.calls.count("me") > 2)
    checked.stopping.set()
    thread.join()
    assert found == [None]
    assert postbox.opened == 0


def test_a_persons_token_is_refused(postbox: Postbox) -> None:
    postbox.account = ALICE
    with pytest.raises(NotABot, match="that of a person"):
        Checked(postbox, settings(ALICE.id)).run()


# -- nobody may speak -----------------------------------------------------------------------------


def test_where_nobody_may_speak_the_people_whom_the_bot_knows_are_named_with_their_ids(postbox: Postbox) -> None:
    postbox.channel_list = [direct(BOT.id, one.id) for one in (ALICE, BOB, OLD, ROBOT)]
    postbox.channel_list.append(attrs.evolve(postbox.channel_list[0], type=ChannelType.GROUP))
    with pytest.raises(NobodyAllowed) as raised:
        Checked(postbox, settings()).run()
    first, *lines = raised.value.detail.splitlines()
    assert first.endswith("These have a direct channel with the bot:")
    assert "allow.users of gatewayd.toml, with make chat into MATTERMOST_USERS=" in first, (
        "both places where it is written"
    )
    assert lines == [f"alice = {ALICE.id}", f"bob = {BOB.id}"]


def test_at_most_twenty_are_named(postbox: Postbox) -> None:
    people = [person(f"p{number}x") for number in range(40)]
    postbox.accounts |= {one.id: one for one in people}
    postbox.channel_list = [direct(BOT.id, one.id) for one in people]
    with pytest.raises(NobodyAllowed) as raised:
        Checked(postbox, settings()).run()
    assert len(raised.value.detail.splitlines()) == 21


@pytest.mark.parametrize("call", ["me", "channels", "users"])
def test_a_server_that_is_away_names_nobody_and_the_start_ends_all_the_same(postbox: Postbox, call: str) -> None:
    postbox.channel_list = [direct(BOT.id, ALICE.id)]
    postbox.raises[call] = [MattermostAway("no connection")]
    with pytest.raises(NobodyAllowed) as raised:
        Checked(postbox, settings()).run()
    assert len(raised.value.detail.splitlines()) == 1


STRANGE = ["", "__", f"{BOT.id}__", f"{BOT.id}__{BOT.id}", f"{BOT.id}__short", "a__b__c", f"{ALICE.id}__{BOB.id}"]


@pytest.mark.parametrize("name", STRANGE)
def test_a_channel_whose_name_says_no_other_names_nobody(postbox: Postbox, name: str) -> None:
    postbox.channel_list = [attrs.evolve(direct(BOT.id, ALICE.id), name=name)]
    with pytest.raises(NobodyAllowed) as raised:
        Checked(postbox, settings()).run()
    assert len(raised.value.detail.splitlines()) == 1


# -- somebody who cannot --------------------------------------------------------------------------


def test_users_of_the_settings_who_can_speak_to_nobody_are_told_and_do_not_end_the_start(
    postbox: Postbox, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = an_id("nobody")
    assert Checked(postbox, settings(ALICE.id, OLD.id, ROBOT.id, approvers=(nobody,))).run() == BOT
    warned = [record.getMessage() for record in caplog.records if "mattermost_users_unfit" in record.getMessage()]
    assert len(warned) == 3
    assert all(any(user in line for line in warned) for user in (OLD.id, ROBOT.id, nobody))


def test_who_is_unfit_and_why() -> None:
    found = account.unfit([ALICE, OLD, ROBOT], [ALICE.id, OLD.id, ROBOT.id, BOB.id])
    assert found == {OLD.id: "it was deactivated", ROBOT.id: "it is a bot", BOB.id: "nobody has this id"}


def test_a_server_that_does_not_look_users_up_does_not_end_the_start(postbox: Postbox) -> None:
    postbox.raises["users"] = [MattermostAway("no connection")]
    assert Checked(postbox, settings(ALICE.id)).run() == BOT


def test_a_trouble_of_another_part_is_not_taken_back(postbox: Postbox) -> None:
    checked = Checked(postbox, settings(ALICE.id))
    checked.condition.trouble(Part.LOOP, MattermostAway("loopd is away"))
    checked.run()
    assert checked.condition.worst() is not None
