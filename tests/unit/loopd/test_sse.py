"""Bytes cut anywhere -> the payloads of events, within bounds (M6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopd import sse
from loopd.modelfaults import ServerProtocol
from loopd.sse import EventReader


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)), st.data())
def test_events_survive_any_cutting_of_the_stream(payloads: list[str], data: st.DataObject) -> None:
    raw = b"".join(f": ping\n\ndata: {payload}\n\n".encode() for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    pieces = [raw[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    reader = EventReader()
    found = [payload for piece in pieces for payload in reader.feed(piece)]
    assert found == [payload.encode() for payload in payloads]


FORMS = {
    "as llama-server writes it": b"data: {}\n\n",
    "without the space": b"data:{}\n\n",
    "with carriage returns": b"data: {}\r\n\r\n",
    "with other fields": b"event: chunk\nid: 7\nretry: 5\ndata: {}\n\n",
    "after pings": b":\n\n: ping\n\n\n\ndata: {}\n\n",
}


@pytest.mark.parametrize("raw", FORMS.values(), ids=FORMS.keys())
def test_an_event_may_be_written_as(raw: bytes) -> None:
    assert EventReader().feed(raw) == [b"{}"]


def test_data_lines_of_one_event_belong_together() -> None:
    assert EventReader().feed(b'data: {"a":\r\ndata: 1}\r\n\r\n') == [b'{"a":\n1}']


def test_an_event_without_its_blank_line_is_not_an_event_yet() -> None:
    reader = EventReader()
    assert reader.feed(b"data: {}\n") == []
    assert reader.feed(b"\n") == [b"{}"]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE", 1_000)
    reader = EventReader()
    with pytest.raises(ServerProtocol, match="line"):
        [reader.feed(b"data: " + b"x" * 300) for _ in range(4)]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_LINE", 1_000)
    reader = EventReader()
    with pytest.raises(ServerProtocol, match="event"):
        [reader.feed(b"data: " + b"x" * 300 + b"\n") for _ in range(4)]


def test_m6_a_stream_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_STREAM", 1_000)
    reader = EventReader()
    with pytest.raises(ServerProtocol, match="longer"):
        [reader.feed(b"data: {}\n\n") for _ in range(200)]
