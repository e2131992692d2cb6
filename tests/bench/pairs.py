"""Two ways of doing the same thing, measured side by side: what else the machine does meets both alike. Pure."""

from collections.abc import Callable, Sequence
from statistics import median

import attrs


@attrs.frozen(kw_only=True)
class Pair:
    """One figure of each, taken one right after the other."""

    ours: float
    other: float


def alternated(count: int, *, ours: Callable[[], float], other: Callable[[], float]) -> list[Pair]:
    """Take `count` pairs; every second one the other way round, since the second of two finds a warmer machine."""
    pairs = []
    for number in range(count):
        if number % 2:
            theirs = other()
            pairs.append(Pair(ours=ours(), other=theirs))
        else:
            mine = ours()
            pairs.append(Pair(ours=mine, other=other()))
    return pairs


def median_difference(pairs: Sequence[Pair]) -> float:
    """How much more ours is, typically."""
    return median(pair.ours - pair.other for pair in pairs)


def median_ratio(pairs: Sequence[Pair]) -> float:
    """How many times the other ours is, typically."""
    return median(pair.ours / pair.other for pair in pairs)


def median_of_other(pairs: Sequence[Pair]) -> float:
    """What ours is compared with, for an idea of the scale."""
    return median(pair.other for pair in pairs)
