"""What is written of a request: whole, unless it is longer than any call can be."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerd import entries
from brokerd.reading import recorded_call
from bxcore import auditlog
from bxcore.auditlog import Decided
from bxcore.tools import MAX_ARGUMENT_BYTES, TOOLS
from bxcore.wire.tools import DenyReason, ToolDenied
from tests.fakes.brokered import Brokered

SHORT = '{"path":"/data/a"}'


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    made.grant()
    yield made
    made.close()


def left_out(text: str) -> str:
    content = text.encode()
    return f"left out: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"


def recorded(brokered: Brokered, text: str, tool: str = "read_file") -> Decided:
    brokered.ask(brokered.request(tool, text=text))
    [decided] = [record for record in brokered.records() if isinstance(record, Decided)]
    return decided


def padded(size_bytes: int) -> str:
    return SHORT + " " * (size_bytes - len(SHORT))


def test_the_longest_arguments_that_a_tool_takes_are_recorded_whole(brokered: Brokered) -> None:
    text = padded(MAX_ARGUMENT_BYTES)
    decided = recorded(brokered, text)
    assert decided.arguments == text
    assert recorded_call(decided) is not None


@pytest.mark.parametrize("text", [padded(MAX_ARGUMENT_BYTES + 1), "é" * (MAX_ARGUMENT_BYTES // 2 + 1), "\0" * 900_000])
def test_longer_ones_are_denied_and_recorded_by_size_and_hash(brokered: Brokered, text: str) -> None:
    """A frame holds a megabyte, and each control character takes six bytes in the log."""
    decided = recorded(brokered, text)
    assert decided.reason is DenyReason.INVALID_ARGUMENTS
    assert (decided.arguments, decided.canonical, decided.path) == (left_out(text), None, None)
    assert recorded_call(decided) is None
    assert len(auditlog.encode(decided)) < 1_000


def test_also_where_something_else_is_wrong_first(brokered: Brokered) -> None:
    brokered.grant("bad", mode="maybe")
    decided = recorded(brokered, padded(1_000_000))
    assert decided.reason is DenyReason.GRANTS_INVALID
    assert decided.arguments == left_out(padded(1_000_000))


def test_a_name_that_no_tool_has_room_for_is_recorded_by_size_and_hash(brokered: Brokered) -> None:
    name = "x" * 1_000_000
    decided = recorded(brokered, SHORT, tool=name)
    assert (decided.reason, decided.tool) == (DenyReason.UNKNOWN_TOOL, left_out(name))
    assert all(len(known) <= entries.LONGEST_TOOL_BYTES for known in TOOLS)


def test_nobody_can_send_what_stands_for_something_longer(brokered: Brokered) -> None:
    forged = left_out(padded(1_000_000))
    assert isinstance(brokered.ask(brokered.request(text=forged)), ToolDenied)
    [decided] = brokered.records()
    assert isinstance(decided, Decided)
    assert decided.arguments == left_out(forged)
