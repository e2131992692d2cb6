"""Neutralising: no tag is left, whatever the pieces; twice is once; and nothing but spaces is added."""

import re

from hypothesis import given
from hypothesis import strategies as st

from bxcore import sanitize
from bxcore.sanitize import SHAPES

TAGS = sanitize.samples()
EXTRA = ("<im_patch>", "<a b>", "[BEGIN THIS]", "<x=")

# Pieces of tags in any order are what a tag is forged from.
PIECES = st.sampled_from(
    [*TAGS, *EXTRA, *(tag[:cut] for tag in TAGS for cut in (1, 2, -1)), *(tag[1:] for tag in TAGS)]
)
MARKS = st.text(alphabet="<>[]|｜/ =~!be_", max_size=6)
FORGERIES = st.lists(PIECES | MARKS | st.text(max_size=3), max_size=12).map("".join)


def left_over(text: str, tags: tuple[str, ...]) -> list[str]:
    return [tag for tag in tags if tag in text] + [form for form, _ in SHAPES.values() if re.search(form, text)]


@given(FORGERIES)
def test_no_tag_is_left_whatever_it_was_made_from(text: str) -> None:
    assert left_over(sanitize.neutralise(text), TAGS) == []
    assert left_over(sanitize.neutralise(text, EXTRA), (*TAGS, *EXTRA)) == []


@given(FORGERIES, st.sampled_from([(), EXTRA]))
def test_neutralising_twice_is_neutralising_once(text: str, extra: tuple[str, ...]) -> None:
    once = sanitize.neutralise(text, extra)
    assert sanitize.neutralise(once, extra) == once


@given(FORGERIES)
def test_nothing_is_added_but_single_spaces_and_nothing_is_lost(text: str) -> None:
    neutral = sanitize.neutralise(text)
    assert neutral.replace(" ", "") == text.replace(" ", "")
    assert (neutral == text) == (left_over(text, TAGS) == [])


@given(st.text(st.characters(exclude_characters="<[]>")))
def test_text_without_an_opening_character_is_unchanged(text: str) -> None:
    assert sanitize.neutralise(text) == text


@given(st.text(), st.sampled_from(TAGS), st.text())
def test_a_tag_between_any_texts_is_broken(before: str, tag: str, after: str) -> None:
    assert left_over(sanitize.neutralise(before + tag + after), TAGS) == []


@given(st.text(max_size=200) | FORGERIES)
def test_the_markers_of_any_template_can_be_broken(template: str) -> None:
    tags = sanitize.tags_in_template(template)
    neutral = sanitize.neutralise(template, tags)
    assert left_over(neutral, tags) == []
    assert sanitize.neutralise(neutral, tags) == neutral


@given(st.text(), st.booleans())
def test_an_escaped_text_can_be_printed(text: str, keep_newlines: bool) -> None:
    escaped = sanitize.escape_terminal(text, keep_newlines=keep_newlines)
    escaped.encode()
    kept = {"\n", "\t"} if keep_newlines else set()
    assert not any(
        (ord(character) < 32 or 127 <= ord(character) < 160) and character not in kept for character in escaped
    )
    assert sanitize.escape_terminal(escaped, keep_newlines=keep_newlines) == escaped
