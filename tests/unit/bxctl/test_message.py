"""What may be sent, and to which session."""

import io
import re

import pytest

from bxcore import envelope, ids
from bxcore.envelope import Envelope
from bxcore.frame import MAX_FRAME
from bxcore.wire import channel
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


class Endless(io.RawIOBase):
    """Gives zeros for ever, and counts them."""

    given_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stub wants a Buffer
        self.given_bytes += len(buffer)
        return len(buffer)


def test_an_input_without_end_is_read_no_further_than_the_limit() -> None:
    source = Endless()
    with pytest.raises(Unsendable, match="more than 262,144 bytes"):
        message.read(io.BufferedReader(source))
    assert source.given_bytes <= 2 * MAX_TEXT_BYTES


def frame_of(text: str) -> bytes:
    """The largest frame that a user_message with `text` can have."""
    said = channel.UserMessage(session=ids.session_id("s" * 64), new=False, key=ids.new_message_key(), text=text)
    return envelope.encode(Envelope(id=ids.MAX_SAFE_INTEGER, final=True, msg=said))


def test_a_text_that_only_its_spelling_makes_too_long_is_refused_with_the_numbers() -> None:
    text = "\x01" * 200_000
    assert len(frame_of(text)) > MAX_FRAME
    with pytest.raises(Unsendable, match=r"becomes 1,200,002 bytes, a frame holds 1,047,552"):
        message.checked(text)


def test_the_longest_text_that_passes_fits_into_a_frame() -> None:
    text = "\x01" * ((message.MAX_SPELLED_BYTES - 2) // 6)
    assert message.checked(text) is text
    assert len(frame_of(text)) <= MAX_FRAME


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
