"""Whom a text names: against a CommonMark parser and the fake server's words; and commands of any text."""

from collections.abc import Collection

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gatewayd import addressing, commands
from gatewayd.commands import Approve, Deny
from tests.fakes.mattermostparts import rules

USERS = frozenset({"bot", "alice", "bot.two", "under_score", "bot-", "x"})


class Existing:
    def existing(self, names: Collection[str]) -> frozenset[str]:
        return USERS & set(names)


WORDS = st.sampled_from(
    ["@bot", "@Bot.", "@bot...", "@bot-", "@bot.two", "@bottle", "@alice", "@ALICE:", "@all", "@under_score_", "@x._-",
     "me@bot", "word", "`", "``", "`@bot`", "\n", "\n\n", "\n```\n", "\n~~~\n", "\n    ", "\n   ", "!", "(@bot)",
     "\n> ", "**@bot**"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=14).map(" ".join)


def shown(text: str) -> str:
    """Return what a reader sees of a text outside of code, by a parser that is not ours."""
    blocks = (block.children or [] for block in MarkdownIt("commonmark").parse(text) if block.type == "inline")
    return "\n\n".join(" ".join("".join(map(_plain, tokens)).split()) for tokens in blocks)


def _plain(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n"
    return " " if token.type == "code_inline" else token.content.replace("`", "'")


@given(TEXTS)
@example("``  ` @bot `")
@example("` \n\n @bot `")
@example("> ```\n> @bot\n@bot")
def test_it_is_named_where_the_server_says_so(text: str) -> None:
    named = rules.mentions(shown(text), dict.fromkeys(USERS)).names
    names = Existing()
    assert addressing.for_us(text, bot="bot", direct=False, own_thread=False, names=names) == ("bot" in named)
    expected = "bot" in named or not named
    assert addressing.for_us(text, bot="bot", direct=False, own_thread=True, names=names) == expected


@given(st.text(max_size=200), st.sampled_from(["bot", "b.t", "a_b-c"]))
def test_stripping_takes_from_the_front_and_changes_nothing_else(text: str, bot: str) -> None:
    assert text.endswith(addressing.strip_mention(text, bot))
    for between in (" ", ": ", ", ", "\n", "  \n\n"):
        assert addressing.strip_mention(f"@{bot}{between}x{text}", bot) == f"x{text}"
    assert addressing.strip_mention(f"x{text}", bot) == f"x{text}"


@given(st.text(max_size=60))
def test_a_yes_has_one_spelling(text: str) -> None:
    command = commands.parse(text)
    if isinstance(command, Approve):
        assert text.rstrip(" \t\r\n") == f"!approve {command.id}"
    if isinstance(command, Deny):
        assert text.startswith(f"!deny {command.id}")


@given(st.text(max_size=40), st.sampled_from(["!approve 7", "!deny 7 x", "!stop", "!help"]), st.booleans())
def test_what_begins_with_the_mark_never_reaches_the_model(text: str, command: str, behind: bool) -> None:
    assert commands.parse(command + text if behind else "!" + text.lstrip("!")) is not None
