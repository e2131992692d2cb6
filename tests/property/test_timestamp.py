from hypothesis import given
from hypothesis import strategies as st

from bxcore import timestamp
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp


@given(st.integers(0, MAX_TIMESTAMP))
def test_a_time_survives_its_text_and_texts_sort_like_times(number: int) -> None:
    text = timestamp.to_text(Timestamp(number))
    assert timestamp.from_text(text) == number
    assert len(text) == 24
    if number < MAX_TIMESTAMP:
        assert text < timestamp.to_text(Timestamp(number + 1))


@given(st.text(alphabet="0123456789-:.TZ+ ", max_size=26))
def test_any_text_is_refused_or_is_the_form_of_its_own_time(text: str) -> None:
    try:
        when = timestamp.from_text(text)
    except ValueError:
        return
    assert timestamp.to_text(when) == text
