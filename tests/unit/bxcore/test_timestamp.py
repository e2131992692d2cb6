import pytest

from bxcore import timestamp
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp

PAIRS = [
    (0, "1970-01-01T00:00:00.000Z"),
    (1, "1970-01-01T00:00:00.001Z"),
    (999, "1970-01-01T00:00:00.999Z"),
    (951_782_400_000, "2000-02-29T00:00:00.000Z"),
    (1_789_632_300_000, "2026-09-17T08:05:00.000Z"),
    (MAX_TIMESTAMP, "9999-12-31T23:59:59.999Z"),
]

BAD: dict[str, object] = {
    "no milliseconds": "2026-09-17T08:05:00Z",
    "microseconds": "2026-09-17T08:05:00.000000Z",
    "offset": "2026-09-17T08:05:00.000+00:00",
    "no zone": "2026-09-17T08:05:00.000",
    "small z": "2026-09-17T08:05:00.000z",
    "small t": "2026-09-17t08:05:00.000Z",
    "space": "2026-09-17 08:05:00.000Z",
    "date only": "2026-09-17",
    "30 February": "2026-02-30T00:00:00.000Z",
    "29 February of another year": "2026-02-29T00:00:00.000Z",
    "month 13": "2026-13-01T00:00:00.000Z",
    "hour 24": "2026-09-17T24:00:00.000Z",
    "leap second": "2016-12-31T23:59:60.000Z",
    "before 1970": "1969-12-31T23:59:59.999Z",
    "year zero": "0000-01-01T00:00:00.000Z",
    "five digits": "10000-01-01T00:00:00.000Z",
    "newline after": "2026-09-17T08:05:00.000Z\n",
    "other digits": "２０２６-09-17T08:05:00.000Z",
    "number": 0,
    "nothing": None,
    "empty": "",
}


@pytest.mark.parametrize(("number", "text"), PAIRS, ids=[text for _, text in PAIRS])
def test_a_time_has_one_text_form(number: int, text: str) -> None:
    assert timestamp.to_text(Timestamp(number)) == text
    assert timestamp.from_text(text) == number


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_no_other_form_is_read(text: object) -> None:
    with pytest.raises(ValueError, match=r"time|day|month|hour|second|year"):
        timestamp.from_text(text)


@pytest.mark.parametrize("number", [-1, MAX_TIMESTAMP + 1])
def test_a_time_outside_the_calendar_has_no_text(number: int) -> None:
    with pytest.raises(ValueError, match="1970 to 9999"):
        timestamp.to_text(Timestamp(number))
