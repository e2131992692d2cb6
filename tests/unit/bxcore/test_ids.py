from collections.abc import Callable

import pytest

from bxcore import ids

PARSERS: dict[str, Callable[[object], object]] = {
    "session": ids.session_id,
    "key": ids.message_key,
    "call": ids.call_id,
    "hash": ids.hash32,
}

GOOD: list[tuple[str, object]] = [
    ("session", "a"),
    ("session", "2026-09-17"),
    ("session", "0" * 64),
    ("key", "-_aZ9"),
    ("key", "x" * 64),
    ("call", 1),
    ("call", 2**53 - 1),
    ("hash", "0123456789abcdef" * 4),
]

BAD: list[tuple[str, object]] = [
    ("session", ""),
    ("session", "-a"),
    ("session", "A"),
    ("session", "a_b"),
    ("session", "a/b"),
    ("session", ".."),
    ("session", "a\n"),
    ("session", "a\0"),
    ("session", "é"),
    ("session", "１"),
    ("session", "a" * 65),
    ("session", b"a"),
    ("session", None),
    ("key", ""),
    ("key", "a b"),
    ("key", "a\n"),
    ("key", "x" * 65),
    ("key", 1),
    ("call", 0),
    ("call", -1),
    ("call", 2**53),
    ("call", True),
    ("call", 1.0),
    ("call", "1"),
    ("hash", "A" * 64),
    ("hash", "0" * 63),
    ("hash", "0" * 65),
    ("hash", "0" * 63 + "\n"),
    ("hash", "٠" * 64),
]


@pytest.mark.parametrize(("kind", "value"), GOOD, ids=repr)
def test_a_parser_returns_what_is_right(kind: str, value: object) -> None:
    assert PARSERS[kind](value) == value


@pytest.mark.parametrize(("kind", "value"), BAD, ids=repr)
def test_a_parser_refuses_the_rest_without_quoting_it(kind: str, value: object) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        PARSERS[kind](value)
    assert str(value) not in str(caught.value) or len(str(value)) < 3


def test_new_keys_are_keys_and_differ() -> None:
    made = {ids.new_message_key() for _ in range(100)}
    assert len(made) == 100
    assert {ids.message_key(key) for key in made} == made
