"""Whom a text names, by the rules of the facts, and our name taken off its front."""

from collections.abc import Collection

import pytest

from gatewayd import addressing
from gatewayd.faults import MattermostAway


class Existing:
    """These users exist. `asked` is what was looked up."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self.asked: list[str] = []

    def existing(self, names: Collection[str]) -> frozenset[str]:
        self.asked.extend(names)
        return self.names & set(names)


USERS = Existing("bot", "alice", "bot.two", "claw", "claw.dia", "under_score", "dot.", "bot:elsewhere")


def for_us(text: str, *, own_thread: bool = False, bot: str = "bot") -> bool:
    return addressing.for_us(text, bot=bot, direct=False, own_thread=own_thread, names=USERS)


NAMED = {
    "at the front": "@bot hello",
    "in the middle": "hello @bot there",
    "at the end of a sentence": "are you there, @bot?",
    "before a full stop": "I ask @bot.",
    "before an ellipsis": "well, @bot...",
    "before a hyphen": "@bot-",
    "before an underscore": "@bot_",
    "before a colon": "@bot: hello",
    "before a colon without a blank": "@bot:hello",
    "before a comma": "@bot, hello",
    "upper case": "@BOT hello",
    "mixed case": "@BoT",
    "in brackets": "(@bot)",
    "in bold": "**@bot**",
    "behind a slash": "alice/@bot",
    "behind a letter that is none of a name": "日本@bot",
    "on a later line": "first\nsecond @bot",
    "in a quotation": "> @bot said so",
    "escaped": r"\@bot hello",
    "with others": "@alice and @bot",
    "after code": "`x` @bot",
    "between two spans": "`x` @bot `y`",
    "behind a backtick that opens nothing": "a ` b @bot",
    "runs of different length": "``a` @bot",
    "after a closed block": "```\nx\n```\n@bot",
    "behind a fence of another kind": "~~~\n```\n~~~\n@bot",
    "an indented line of a paragraph": "text\n    @bot",
    "after a quoted block": "> ```\n> x\n@bot",
    "three blanks are no code": "   @bot",
    "an escaped backtick": r"\`@bot`",
}

NOT_NAMED = {
    "without the sign": "bot, hello",
    "another": "@alice",
    "a longer name that exists": "@bot.two",
    "a longer name that does not": "@bottle",
    "our name and a dot before more": "@bot.three",
    "our name and a hyphen before more": "@bot-three",
    "a mail address": "write to me@bot",
    "behind a dot": ".@bot",
    "behind an underscore": "_@bot",
    "of another server": "@bot:elsewhere",
    "with a blank": "@ bot",
    "full-width sign": "＠bot",
    "full-width letters": "@ｂｏｔ",
    "a zero-width space inside": "@b\u200bot",
    "a zero-width space behind the sign": "@\u200bbot",
    "in a span": "`@bot`",
    "in a longer span": "`` @bot ` ``",
    "in a block": "```\n@bot\n```",
    "in a block with a word": "```text\n@bot\n```",
    "in a block that is never closed": "```\n@bot",
    "in a block of tildes": "~~~\n@bot\n~~~",
    "in a block whose end is too short": "````\n```\n@bot\n````",
    "in an indented block": "    @bot",
    "in an indented block after a paragraph": "text\n\n    @bot",
    "in a block of tabs": "\t@bot",
    "in a quoted block": "> ```\n> @bot\n> ```",
    "in a span over two lines": "`a\n@bot`",
    "everybody": "@all @channel @here",
    "nothing": "",
    "the sign alone": "@",
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_the_bot_is_named(text: str) -> None:
    assert for_us(text)


@pytest.mark.parametrize("text", NOT_NAMED.values(), ids=NOT_NAMED.keys())
def test_the_bot_is_not_named(text: str) -> None:
    assert not for_us(text)


def test_in_a_direct_channel_everything_is_for_us() -> None:
    assert addressing.for_us("@alice", bot="bot", direct=True, own_thread=False, names=Existing("alice"))


@pytest.mark.parametrize(
    "text", ["hello", "", "@all @channel @here!", "@ALL", "@all.", "@nobodyatall", "me@alice", "`@alice`", "@"]
)
def test_in_our_own_thread_what_names_nobody_is_for_us(text: str) -> None:
    assert for_us(text, own_thread=True)
    assert not for_us(text)


@pytest.mark.parametrize(
    "text", ["@alice what do you think?", "ask @Alice.", "@claw.dia", "@bot.two", "@bot:elsewhere"]
)
def test_in_our_own_thread_what_names_another_is_not_for_us(text: str) -> None:
    assert not for_us(text, own_thread=True)


def test_in_our_own_thread_what_names_us_too_is_for_us() -> None:
    assert for_us("@alice @bot", own_thread=True)


def test_a_bot_does_not_answer_to_a_name_that_only_begins_like_its_own() -> None:
    assert not for_us("@clawdia hi", bot="claw")
    assert not for_us("@claw.dia hi", bot="claw")
    assert for_us("@claw. hi", bot="claw")


def test_a_name_may_end_in_a_dot() -> None:
    assert not for_us("@dot. hi", bot="dot")
    assert for_us("@dot. hi", bot="dot.")
    assert for_us("@dot.. hi", bot="dot.")


def test_an_escaped_letter_of_a_name_is_that_letter() -> None:
    assert for_us(r"@under\_score", bot="under_score")


def test_the_bots_own_name_is_not_looked_up() -> None:
    asked = Existing()
    assert addressing.for_us("@bot @alice", bot="bot", direct=False, own_thread=True, names=asked)
    assert asked.asked == []


def test_mentions_are_longest_first_once_each_and_lower_case() -> None:
    assert addressing.mentions("@Bob.-: @bob.-: x@y @all") == (("bob.-:", "bob.-", "bob.", "bob"),)
    assert addressing.mentions("@a:b.c") == (("a:b.c", "a"),)


def test_a_run_that_is_longer_than_any_name_is_looked_up_as_far_as_names_go() -> None:
    [candidates] = addressing.mentions("@a" + "." * 16_000)
    assert (len(candidates), max(map(len, candidates)), candidates[-1]) == (64, 64, "a")
    assert addressing.mentions("@" + "a" * 16_000) == ()


def test_a_storm_of_names_is_looked_up_in_part() -> None:
    asked = Existing()
    text = " ".join(f"@user{number}" for number in range(3_000))
    assert addressing.for_us(text, bot="bot", direct=False, own_thread=True, names=asked)
    assert len(asked.asked) == 500


def test_who_cannot_be_asked_is_not_decided_upon() -> None:
    class Away:
        def existing(self, names: Collection[str]) -> frozenset[str]:
            raise MattermostAway("away")

    with pytest.raises(MattermostAway):
        addressing.for_us("@alice", bot="bot", direct=False, own_thread=True, names=Away())


@pytest.mark.parametrize(
    "text", ["`" * 16_000, "`a``b" * 4_000, "@" * 16_000, "> " * 8_000, "\\`" * 8_000, "~~~\n" * 4_000]
)
def test_the_longest_post_of_one_sign_is_read(text: str) -> None:
    assert not for_us(text)


STRIPPED = {
    "@bot hello": "hello",
    "@bot: hello": "hello",
    "@bot, hello": "hello",
    "@Bot hello": "hello",
    "@bot   hello": "hello",
    "@bot\thello": "hello",
    "@bot\nhello": "hello",
    "@bot\r\n\r\nhello": "hello",
    "@bot:hello": "hello",
    "  @bot hello": "hello",
    "@bot": "",
    "@bot:": "",
    "@bot. hello": ". hello",
    "@bot\n\n    code": "    code",
    "@bot\n> quoted": "> quoted",
    "@bot @bot hello": "@bot hello",
    "@bot !stop": "!stop",
    "@bot: !approve 7": "!approve 7",
    "@bot\n    !approve 7": "    !approve 7",
    "hello @bot": "hello @bot",
    "@bot.two hello": "@bot.two hello",
    "@bottle hello": "@bottle hello",
    "@alice @bot hello": "@alice @bot hello",
    "bot: hello": "bot: hello",
    "": "",
    "> @bot hello": "> @bot hello",
    "`@bot` hello": "`@bot` hello",
}


@pytest.mark.parametrize(("text", "left"), STRIPPED.items(), ids=map(repr, STRIPPED))
def test_the_leading_name_is_stripped(text: str, left: str) -> None:
    assert addressing.strip_mention(text, "bot") == left


def test_a_name_with_a_dot_is_stripped_whole() -> None:
    assert addressing.strip_mention("@claw.dia: hi", "claw.dia") == "hi"
    assert addressing.strip_mention("@claw.dia hi", "claw") == "@claw.dia hi"
