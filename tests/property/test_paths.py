"""Paths over generated text: what passes has one spelling, and below is what the components say."""

import posixpath
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import paths
from bxcore.paths import BadPath

COMPONENTS = st.sampled_from(
    ["a", "b", "ab", "a-", "A", ".", "..", "...", "", " ", "\u00e9", "e\u0301", "\uff0f", "a:b"]
)
PATH_LIKE = st.lists(COMPONENTS, max_size=5).map(lambda parts: "/" + "/".join(parts))
CHECKED = st.lists(st.sampled_from(["a", "b", "ab", "A", "\u00e9", "e\u0301"]), max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)
ANY_TEXT = st.text(st.characters(), max_size=40)


@given(PATH_LIKE | ANY_TEXT | ANY_TEXT.map(lambda text: f"/{text}"))
def test_what_passes_is_absolute_short_and_printable_on_one_line(text: str) -> None:
    try:
        checked = paths.check(text)
    except BadPath:
        return
    assert checked == text
    assert posixpath.isabs(text)
    assert posixpath.normpath(text) == text  # nothing that a resolver without links would take away
    assert len(text.encode()) <= paths.MAX_BYTES
    assert "/" + "/".join(paths.parts(text)) == text
    assert text.splitlines() == [text]
    assert "\0" not in text


@given(st.binary(max_size=40))
def test_a_name_on_the_disk_that_is_no_utf8_is_never_asked_for(raw: bytes) -> None:
    text = "/" + raw.decode("utf-8", "surrogateescape")
    try:
        raw.decode()
    except UnicodeDecodeError:
        with pytest.raises(BadPath):
            paths.check(text)


@given(CHECKED, CHECKED)
def test_below_is_a_prefix_of_components(path: str, root: str) -> None:
    theirs = PurePosixPath(path).is_relative_to(PurePosixPath(root))
    assert paths.below(path, root) == theirs
    assert paths.below(path, root) == (paths.parts(path)[: len(paths.parts(root))] == paths.parts(root))


@given(CHECKED, CHECKED)
def test_two_spellings_are_two_paths(one: str, other: str) -> None:
    assert (paths.below(one, other) and paths.below(other, one)) == (one.encode() == other.encode())
