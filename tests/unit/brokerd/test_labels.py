"""Labels join upwards and never come down."""

import itertools

import pytest

from brokerd import labels
from brokerd.call import FRESH, UNREADABLE, Labels
from bxcore.wire.tools import DataClass

ALL = [Labels(data_class=data_class, untrusted=flag) for data_class in DataClass for flag in (False, True)]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(ALL, ALL)))
def test_what_is_joined_is_at_least_as_strict_as_both(first: Labels, second: Labels) -> None:
    both = labels.joined(first, second)
    assert both == labels.joined(second, first)
    for one in (first, second):
        assert labels.joined(both, one) == both
        assert both.data_class in labels.limits_for(one.data_class)
        assert both.untrusted or not one.untrusted
    assert both in {first, second} or both == Labels(data_class=both.data_class, untrusted=True)


def test_the_classes_rise_from_public_to_secret() -> None:
    assert labels.limits_for(DataClass.PUBLIC) == (DataClass.PUBLIC, DataClass.PRIVATE, DataClass.SECRET)
    assert labels.limits_for(DataClass.PRIVATE) == (DataClass.PRIVATE, DataClass.SECRET)
    assert labels.limits_for(DataClass.SECRET) == (DataClass.SECRET,)


def test_the_highest_of_none_is_public() -> None:
    assert labels.highest([]) is DataClass.PUBLIC
    assert labels.highest([DataClass.PRIVATE, DataClass.SECRET, DataClass.PUBLIC]) is DataClass.SECRET


def test_nothing_is_stricter_than_a_state_that_cannot_be_read() -> None:
    assert all(labels.joined(UNREADABLE, it) == UNREADABLE for it in ALL)
    assert labels.joined(FRESH, Labels(data_class=DataClass.PUBLIC, untrusted=False)) == FRESH
