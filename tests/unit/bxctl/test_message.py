"""What may be sent, and to which session."""

import re

import pytest

from bxcore import ids
from bxcore.wire.channel import MAX_TEXT_BYTES
from bxctl import message
from bxctl.message import Unsendable
from tests.fakes.clocks import HandClock

REFUSED = {
    "empty": ("", "no text"),
    "blank": (" \n\t\u3000", "no text"),
    "half a character": ("a\udc80", "not valid UTF-8"),
    "too long": ("x" * (MAX_TEXT_BYTES + 1), "262,145 bytes, a message may have 262,144"),
    "too long in bytes only": ("ü" * (MAX_TEXT_BYTES // 2 + 1), "262,146 bytes"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_text_that_loopd_could_not_take_is_refused(text: str, words: str) -> None:
    with pytest.raises(Unsendable, match=words):
        message.checked(text)


def test_the_longest_text_passes_unchanged() -> None:
    text = "ü" * (MAX_TEXT_BYTES // 2)
    assert message.checked(text) is text


def test_bytes_that_are_no_text_are_refused_with_their_place() -> None:
    with pytest.raises(Unsendable, match="byte 3 of 4"):
        message.decoded(b"ab\xc0\x80")


def test_a_new_session_is_named_by_its_moment() -> None:
    name = message.new_session(HandClock())
    assert re.fullmatch(r"20260101-000000-[0-9a-f]{4}", name)
    assert ids.session_id(name) == name


@pytest.mark.parametrize("name", ["", "-x", "../x", "A", "a" * 65, "a\n"])
def test_what_cannot_name_a_session_is_refused(name: str) -> None:
    with pytest.raises(Unsendable, match="not a session id"):
        message.session(name)
