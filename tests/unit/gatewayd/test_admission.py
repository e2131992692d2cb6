"""Who may speak, where, and what their post becomes."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore.ids import MattermostId
from bxcore.settings import gatewayd as settings_file
from bxcore.timestamp import Timestamp
from gatewayd import admission
from gatewayd.admission import Ignored, Rules, Seen, Why
from gatewayd.entries import Kind, State, Taken
from gatewayd.posts import INTEGRATION_PROPS, ChannelType
from tests.fakes.clocks import BEGIN
from tests.fakes.queued import BOT, DIRECT, OTHER, OWNER, STRANGER, TOWN, account, an_id, channel, post

ROOT = an_id("root")
HOUR_MS = 3_600_000
AGENT = an_id("agent")
RULES = Rules(
    bot=BOT,
    bot_name="bot",
    users=frozenset({OWNER, AGENT}),
    approvers=frozenset({OWNER, OTHER}),
    channels=frozenset({TOWN}),
    stale_ms=HOUR_MS,
)


class Names:
    """Two users exist."""

    def existing(self, names: Collection[str]) -> frozenset[str]:
        return frozenset({"bot", "alice"}) & set(names)


def decided(
    *,
    direct: bool = True,
    own_thread: bool = False,
    person: bool = True,
    age_ms: int = 0,
    rules: Rules = RULES,
    **fields: Any,
) -> Taken | Ignored:
    fields.setdefault("channel", DIRECT if direct else TOWN)
    seen = Seen(post=post(**fields), direct=direct, own_thread=own_thread, person=person, age_ms=age_ms)
    return admission.decide(seen, rules, Names())


def taken(**fields: Any) -> Taken:
    found = decided(**fields)
    assert isinstance(found, Taken)
    return found


def why(**fields: Any) -> Why:
    found = decided(**fields)
    assert isinstance(found, Ignored)
    return found.why


def test_a_direct_message_of_an_allowed_user_is_taken_as_it_is() -> None:
    found = taken(message="Hello, **boat**.", root=ROOT)
    assert found.state is State.WAITING
    assert attrs.asdict(found.post) == {
        "id": an_id("post"), "channel": DIRECT, "thread": ROOT, "user": OWNER, "create_at": BEGIN,
        "kind": Kind.MESSAGE, "direct": True, "text": "Hello, **boat**.", "attempts": 0,
    }  # fmt: skip


def test_a_top_level_post_is_its_own_thread() -> None:
    assert taken().post.thread == an_id("post")


@pytest.mark.parametrize("name", INTEGRATION_PROPS)
@pytest.mark.parametrize("value", ["true", True, "false", "", None, 0], ids=repr)
def test_what_an_integration_posts_as_the_owner_is_not_the_owner(name: str, value: object) -> None:
    assert why(props={name: value}) is Why.INTEGRATION


def test_other_props_are_no_sign_of_an_integration() -> None:
    assert taken(props={"disable_group_highlight": True, "boxmaker": "x"}).state is State.WAITING


@pytest.mark.parametrize(
    "kind",
    [
        "system_join_channel",
        "add_bot_teams_channels",
        "me",
        "custom_x",
        "reminder",
        "slack_attachment",
        "burn_on_read",
        "?",
    ],
)
def test_a_post_of_another_type_is_nothing(kind: str) -> None:
    assert why(type=kind) is Why.TYPE


def test_our_own_post_is_nothing_even_where_we_are_on_the_list() -> None:
    rules = attrs.evolve(RULES, users=RULES.users | {BOT}, approvers=RULES.approvers | {BOT})
    assert why(user=BOT, rules=rules) is Why.OWN
    assert why(user=BOT, message="!approve 7", rules=rules) is Why.OWN


def test_a_bots_account_on_the_list_by_mistake_is_nothing() -> None:
    assert why(user=AGENT, person=False) is Why.BOT
    assert why(user=AGENT, person=False, message="!approve 7") is Why.BOT


@pytest.mark.parametrize(
    "fields", [{"delete_at": Timestamp(5)}, {"original": str(ROOT)}], ids=["deleted", "old version"]
)
def test_what_is_gone_is_nothing(fields: dict[str, Any]) -> None:
    assert why(**fields) is Why.GONE


def test_a_stranger_is_nothing() -> None:
    assert why(user=STRANGER) is Why.STRANGER
    assert why(user=STRANGER, message="!stop") is Why.STRANGER
    assert why(user=STRANGER, message="!approve 7") is Why.STRANGER
    assert why(user=STRANGER, direct=False, message="@bot hello", own_thread=True) is Why.STRANGER


def test_a_channel_that_is_not_on_the_list_is_nothing() -> None:
    assert why(direct=False, channel=an_id("elsewhere"), message="@bot hello") is Why.PLACE
    assert why(direct=False, channel=an_id("elsewhere"), message="!approve 7", own_thread=True) is Why.PLACE


def test_in_a_channel_it_listens_where_it_is_named_or_in_its_own_thread() -> None:
    assert taken(direct=False, message="@bot: hello").post.text == "hello"
    assert why(direct=False, message="hello") is Why.OTHERS
    assert taken(direct=False, message="hello", own_thread=True).post.text == "hello"
    assert taken(direct=False, message="@all hello", own_thread=True).post.text == "@all hello"
    assert why(direct=False, message="@alice hello", own_thread=True) is Why.OTHERS
    assert taken(direct=False, message="@alice and @bot", own_thread=True).post.text == "@alice and @bot"


@pytest.mark.parametrize(
    "text", ["!approve 7", "!deny 7 no", "!stop", "!status", "!help", "!dance", "!Approve 7", "!approve"]
)
def test_a_command_is_a_command(text: str) -> None:
    found = taken(message=text)
    assert (found.post.kind, found.post.text, found.state) == (Kind.COMMAND, text, State.WAITING)


def test_a_command_in_a_channel_follows_the_name_or_stands_in_our_thread() -> None:
    assert taken(direct=False, message="@bot !status").post.text == "!status"
    assert taken(direct=False, message="!approve 7", own_thread=True).post.kind is Kind.COMMAND
    assert why(direct=False, message="!approve 7") is Why.OTHERS
    assert why(direct=False, message="@alice !approve 7", own_thread=True) is Why.OTHERS


def test_two_marks_are_one_for_the_model() -> None:
    found = taken(message="!!stop is a word")
    assert (found.post.kind, found.post.text) == (Kind.MESSAGE, "!stop is a word")


def test_an_approver_who_may_not_speak_may_answer_questions_and_nothing_else() -> None:
    assert taken(user=OTHER, message="!approve 7").post.kind is Kind.COMMAND
    assert taken(user=OTHER, message="!deny 7 no", direct=False, own_thread=True).post.kind is Kind.COMMAND
    assert taken(user=OTHER, message="!Approve 7").post.kind is Kind.COMMAND
    for text in ("hello", "!stop", "!status", "!dance", "!!approve 7", ""):
        assert why(user=OTHER, message=text) is Why.STRANGER
    assert why(user=OTHER, person=False, message="!approve 7") is Why.BOT


def test_a_stranger_who_answers_a_question_where_all_can_read_it_is_told_once() -> None:
    answers = [
        taken(user=STRANGER, direct=False, own_thread=True, message="!approve 7", root=ROOT, number=number)
        for number in range(2)
    ]
    assert [found.state for found in answers] == [State.DONE, State.DONE]
    [first], [second] = (found.outgoing for found in answers)
    assert first.key == second.key
    assert (first.root, first.message) == (ROOT, admission.NOT_AN_APPROVER)
    assert why(user=STRANGER, direct=False, own_thread=True, message="!approve", root=ROOT) is Why.STRANGER
    assert why(user=STRANGER, direct=False, message="@bot !approve 7") is Why.STRANGER
    assert why(user=STRANGER, direct=False, own_thread=True, person=False, message="!approve 7") is Why.BOT


def test_files_are_counted_and_never_named() -> None:
    assert (
        taken(message="look", files=1).post.text
        == "look\n\n[This post had 1 attached file, which cannot be read here.]"
    )
    assert "3 attached files" in taken(message="look", files=3).post.text
    assert taken(message="!stop", files=3).post.text == "!stop"


@pytest.mark.parametrize(
    ("message", "files", "answer"),
    [
        ("", 2, admission.FILES_ONLY),
        (" \n", 1, admission.FILES_ONLY),
        ("", 0, admission.NOTHING_SAID),
        ("@bot:", 0, admission.NOTHING_SAID),
    ],
)
def test_a_post_that_says_nothing_is_answered_and_not_said(message: str, files: int, answer: str) -> None:
    found = taken(message=message, files=files, root=ROOT)
    assert found.state is State.DONE
    assert [(one.root, one.message) for one in found.outgoing] == [(ROOT, answer)]


def test_an_old_post_is_listed_whatever_it_says() -> None:
    for text in ("hello", "!approve 7", "!stop", ""):
        assert taken(message=text, age_ms=HOUR_MS).state is not State.OLD
        found = taken(message=text, age_ms=HOUR_MS + 1)
        assert (found.state, found.edited, found.outgoing) == (State.OLD, False, ())


def test_of_an_old_post_only_the_beginning_is_kept() -> None:
    assert len(taken(message="x" * 16_383, age_ms=HOUR_MS + 1).post.text) == admission.LISTED_CHARACTERS


def test_a_post_that_was_edited_before_it_was_seen_is_listed() -> None:
    found = taken(message="!approve 7", edit_at=Timestamp(BEGIN + 1))
    assert (found.state, found.edited) == (State.OLD, True)


def test_a_post_from_the_future_is_not_old() -> None:
    assert taken(age_ms=-HOUR_MS).state is State.WAITING


@pytest.mark.parametrize(
    ("kind", "name", "read"),
    [(ChannelType.OPEN, "town", True), (ChannelType.GROUP, "town", True), (ChannelType.PRIVATE, "other", False),
     (ChannelType.GROUP, "other", False)],
)  # fmt: skip
def test_of_channels_those_on_the_list_are_read(kind: ChannelType, name: str, read: bool) -> None:
    assert admission.is_read(channel(name, kind), RULES) is read


@pytest.mark.parametrize(("user", "read"), [(OWNER, True), (OTHER, True), (STRANGER, False), ("", False)])
def test_of_direct_channels_those_with_somebody_on_a_list_are_read(user: str, read: bool) -> None:
    direct = attrs.evolve(channel("direct", ChannelType.DIRECT), name=f"{BOT}__{user}" if user else "")
    assert admission.is_read(direct, RULES) is read


def test_the_rules_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = settings_file.GatewaydSettings(
        state=tmp_path,
        listen=settings_file.Listen(gateway=tmp_path, owner=tmp_path),
        mattermost=settings_file.Mattermost(url="https://chat.example.org"),
        loop=settings_file.Loop(socket=tmp_path),
        allow=settings_file.Allow(users=(OWNER,), channels=(TOWN,)),
    )
    rules = Rules.of(settings, account(BOT, "bot", is_bot=True))
    assert rules == Rules(
        bot=BOT,
        bot_name="bot",
        users=frozenset({OWNER}),
        approvers=frozenset({OWNER}),
        channels=frozenset({TOWN}),
        stale_ms=settings.limits.stale_ms,
    )


def test_the_text_of_an_edited_post_compares_with_the_text_that_was_taken() -> None:
    first = post(message="@bot: !!stop it", files=2)
    assert admission.text_of(first, "bot") == taken(message="@bot: !!stop it", files=2).post.text
    assert admission.text_of(attrs.evolve(first, message="@bot: !!stop"), "bot") != admission.text_of(first, "bot")


def test_ids_are_compared_whole() -> None:
    assert why(user=MattermostId(OWNER[:-1] + "1")) is Why.STRANGER
