"""Commands are exact, and what only looks like one is told so and never reaches the model."""

import pytest

from bxcore.ids import MAX_SAFE_INTEGER
from gatewayd import commands
from gatewayd.commands import Approve, Command, Deny, Help, Malformed, Status, Stop, Unknown

EXACT: dict[str, Command] = {
    "!approve 7": Approve(id=7),
    "!approve 7 ": Approve(id=7),
    "!approve 7\n": Approve(id=7),
    f"!approve {MAX_SAFE_INTEGER}": Approve(id=MAX_SAFE_INTEGER),
    "!deny 7": Deny(id=7, reason=None),
    "!deny 7 ": Deny(id=7, reason=None),
    "!deny 7 not on a Sunday": Deny(id=7, reason="not on a Sunday"),
    "!deny 7   too far ": Deny(id=7, reason="too far"),
    "!deny 7 8": Deny(id=7, reason="8"),
    "!deny 7 one\ntwo": Deny(id=7, reason="one\ntwo"),
    "!stop": Stop(),
    "!stop  ": Stop(),
    "!status": Status(),
    "!help": Help(),
}

APPROVE = Malformed(word="approve", usage="!approve <id>")
DENY = Malformed(word="deny", usage="!deny <id> [reason]")

MALFORMED: dict[str, Command] = {
    "!approve": APPROVE,
    "!Approve 7": APPROVE,
    "!APPROVE 7": APPROVE,
    "!approve 7 8": APPROVE,
    "!approve 7 now": APPROVE,
    "!approve 7.": APPROVE,
    "!approve 7\nplease": APPROVE,
    "!approve 7!": APPROVE,
    "!approve #7": APPROVE,
    "!approve `7`": APPROVE,
    "!approve  7": APPROVE,
    "!approve\t7": APPROVE,
    "!approve\n7": APPROVE,
    "!approve\u00a07": APPROVE,
    "!approve 7\u00a0": APPROVE,
    "!approve 7\u200b": APPROVE,
    "!approve \u200b7": APPROVE,
    "!app\u200brove 7": APPROVE,
    "\u200b!approve 7": APPROVE,
    "\ufeff!approve 7": APPROVE,
    " !approve 7": APPROVE,
    "\n!approve 7": APPROVE,
    "\u00a0!approve 7": APPROVE,
    "！approve 7": APPROVE,
    "!ａｐｐｒｏｖｅ 7": APPROVE,
    "!approve ７": APPROVE,
    "!approve ٧": APPROVE,
    "!approve ²": APPROVE,
    "!approve 07": APPROVE,
    "!approve 0": APPROVE,
    "!approve +7": APPROVE,
    "!approve -7": APPROVE,
    "!approve 7.0": APPROVE,
    "!approve 7e0": APPROVE,
    "!approve 0x7": APPROVE,
    "!approve 1_0": APPROVE,
    f"!approve {MAX_SAFE_INTEGER + 1}": APPROVE,
    "!approve " + "9" * 5_000: APPROVE,
    "!approve7": APPROVE,
    "! approve 7": APPROVE,
    "!\u00a0approve 7": APPROVE,
    "!\tApprove 7": APPROVE,
    "!approve all": APPROVE,
    "!deny": DENY,
    "!deny because": DENY,
    "!DENY 7": DENY,
    "!deny 7,8": DENY,
    "!stop now": Malformed(word="stop", usage="!stop"),
    "!Stop": Malformed(word="stop", usage="!stop"),
    "!stop!": Malformed(word="stop", usage="!stop"),
    "!help me": Malformed(word="help", usage="!help"),
    "!STATUS": Malformed(word="status", usage="!status"),
}

UNKNOWN = {
    "!": "",
    "! dance": "",
    "! stopped": "",
    "! !stop": "",
    "!dance": "dance",
    "!dance with me": "dance",
    "!approved 7": "approved",
    "!stopped": "stopped",
    "!аpprove 7": "аpprove",  # the first letter is Cyrillic
    "![x](https://example.com)": "[x](https://example.com)",
    "!" + "x" * 5_000: "x" * 32,
    "!@all": "@all",
}

MESSAGES = [
    "", "hello", "approve 7", "hello !approve 7", "hello\n!approve 7", "> !approve 7", ">!approve 7", "`!approve 7`",
    "```\n!approve 7\n```", "    !approve 7", "\t!approve 7", "\n\n    !approve 7", "**!approve 7**", "- !approve 7",
    "\"!approve 7\"", "!!approve 7", "!!", "!!!", " !!approve 7", "1. !approve 7", "~~!approve 7~~", "\\!approve 7",
    "¡approve 7", " hello",
]  # fmt: skip


@pytest.mark.parametrize(("text", "command"), EXACT.items(), ids=map(repr, EXACT))
def test_an_exact_command_is_one(text: str, command: Command) -> None:
    assert commands.parse(text) == command


@pytest.mark.parametrize(("text", "command"), MALFORMED.items(), ids=[ascii(text)[:40] for text in MALFORMED])
def test_what_is_meant_as_a_command_and_is_not_exact_is_told_its_usage(text: str, command: Command) -> None:
    assert commands.parse(text) == command


@pytest.mark.parametrize(("text", "word"), UNKNOWN.items(), ids=[ascii(text)[:40] for text in UNKNOWN])
def test_another_word_behind_the_mark_is_unknown(text: str, word: str) -> None:
    assert commands.parse(text) == Unknown(word=word)


@pytest.mark.parametrize("text", MESSAGES, ids=map(ascii, MESSAGES))
def test_a_message_is_no_command(text: str) -> None:
    assert commands.parse(text) is None


def test_two_marks_are_one_in_a_message() -> None:
    assert [commands.message_text(text) for text in ("!!stop", "!!!", "!!", "hello!!", "")] == [
        "!stop", "!!", "!", "hello!!", "",
    ]  # fmt: skip
