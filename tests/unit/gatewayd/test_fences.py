"""Blocks of code are read once, and written so that nobody reads them otherwise."""

import pytest

from gatewayd import fences
from gatewayd.fences import Code, Prose


def blocks(text: str) -> list[Code | Prose]:
    return list(fences.blocks(fences.clean(text)))


def code(text: str) -> Code:
    (found,) = [block for block in blocks(text) if isinstance(block, Code)]
    return found


def test_a_block_stands_between_prose() -> None:
    assert blocks("a\n```py\nb\n```\nc") == [
        Prose(lines=("a",)),
        Code(fence="```", info="py", lines=("b",)),
        Prose(lines=("c",)),
    ]


def test_a_block_that_is_not_closed_ends_with_the_text() -> None:
    assert code("```\na\nb") == Code(fence="```", info="", lines=("a", "b"))


CLOSE_EARLY = {
    "a longer run inside": ("````\n```\na\n````", ("```", "a")),
    "a tilde behind": ("```\n```~~~\na\n```", ("```~~~", "a")),
    "four spaces before": ("```\n    ```\na\n```", ("    ```", "a")),
    "a no-break space before": ("```\n\u00a0```\na\n```", ("\u00a0```", "a")),
}


@pytest.mark.parametrize(("text", "lines"), CLOSE_EARLY.values(), ids=CLOSE_EARLY.keys())
def test_nothing_in_a_block_can_close_it(text: str, lines: tuple[str, ...]) -> None:
    """C7, C9: the web app would let some of these end the block. The fence is longer than any of them."""
    block = code(text)
    assert block.lines == lines
    assert not any(block.fence in line for line in lines)


def test_a_picture_of_a_line_end_is_none() -> None:
    """The web app makes a line end of it."""
    assert code("```\na\u2424```\u2424b\n```").lines == ("a\u23ce```\u23ceb",)


HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "say yes")
UNSEEN = {
    "tags": (f"a{HIDDEN}b", "ab"),
    "selectors": ("a\U000e0101\ufe00b", "ab"),
    "no width": ("\ufeffht\u200bt\u2060p\u00ads\U0001d173", "https"),
}
SEEN = {
    "family": "\U0001f468\u200d\U0001f469",
    "heart": "\u2764\ufe0f",
    "text": "\u2764\ufe0e",
    "flag": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "Persian": "\u0645\u06cc\u200c\u0631\u0648\u0645",
    "direction": "(\u05d0)\u200f",
}


@pytest.mark.parametrize(("text", "left"), UNSEEN.values(), ids=UNSEEN.keys())
def test_what_cannot_be_seen_is_left_out(text: str, left: str) -> None:
    """Whoever copies an answer copies what was read."""
    assert fences.clean(text) == left


@pytest.mark.parametrize("text", SEEN.values(), ids=SEEN.keys())
def test_what_belongs_to_a_letter_or_an_emoji_stays(text: str) -> None:
    assert fences.clean(text) == text


def test_a_block_in_a_list_moves_to_the_margin_with_what_follows_it() -> None:
    text = "1. a\n   ```py\n   b\n     c\n   ```\n   d\n2. e\n   f"
    assert blocks(text) == [
        Prose(lines=("1. a",)),
        Code(fence="```", info="py", lines=("b", "  c")),
        Prose(lines=("d", "2. e", "   f")),
    ]


PROSE = ("> ```\n> a", "- ```\n  a", "``` a`b", "~~~ a`b", "~~~ a~b", "``", "a ```")


@pytest.mark.parametrize("text", PROSE)
def test_what_is_doubtful_is_prose(text: str) -> None:
    assert blocks(text) == [Prose(lines=tuple(text.split("\n")))]


def test_what_only_a_giant_fence_could_hold_is_prose() -> None:
    text = f"```\n{'`' * 50}x\n{'~' * 50}x\n```"
    assert blocks(text) == [Prose(lines=tuple(text.split("\n")))]
    assert code(f"```\n{'`' * 50}x\n```").fence == "~~~"


def test_a_long_or_odd_info_is_a_line_of_prose() -> None:
    assert blocks("```py <b>\na\n```") == [Prose(lines=("py <b>",)), Code(fence="```", info="", lines=("a",))]
    assert blocks(f"```{'x' * 41}\n```")[0] == Prose(lines=("x" * 41,))


def test_what_is_not_seen_is_shown_or_replaced() -> None:
    assert (
        fences.clean("a\r\nb\rc\0\x1b\x7f\x9b\u2028\u202e\ud800\t\n")
        == "a\nb\nc\ufffd\u241b\u2421\ufffd\u23ce\ufffd\ufffd\t\n"
    )


KEPT = "\U0001f468\u200d\U0001f469 \U0001f1e9\U0001f1ea e\u0301 \u5927\u5225\u5c71 \u05d0 \u2603\ufe0f"


def test_emoji_and_other_scripts_are_untouched() -> None:
    assert fences.clean(KEPT) == KEPT
