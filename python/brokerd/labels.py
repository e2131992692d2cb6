"""The order of the data classes, and what two labels come to together. Pure.

Labels only ever join: there is no function here that makes one lower.
"""

from collections.abc import Iterable

from brokerd.call import Labels
from bxcore.wire.tools import RISING, DataClass


def limits_for(taint: DataClass) -> tuple[DataClass, ...]:
    """Return every `max_taint` that a session at `taint` does not exceed."""
    return RISING[RISING.index(taint) :]


def highest(classes: Iterable[DataClass]) -> DataClass:
    """Return the most secret of the classes, public where there is none."""
    present = list(classes)
    return next((data_class for data_class in reversed(RISING) if data_class in present), DataClass.PUBLIC)


def joined(first: Labels, second: Labels) -> Labels:
    """Return the stricter of both: the higher class, and untrusted where either is."""
    return Labels(
        data_class=highest((first.data_class, second.data_class)), untrusted=first.untrusted or second.untrusted
    )
