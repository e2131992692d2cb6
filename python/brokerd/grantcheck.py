"""Which grants never decide anything: run out, shut out, or always outweighed by others. Pure.

A finding is certain for every call, session and moment from now on: it says never only where no call
can be thought of for which the grant decides. What it does not find may still be of no use.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from brokerd import labels, weighing
from bxcore import paths, timestamp
from bxcore.grants import SUFFIX, Grant, GrantSet, Mode
from bxcore.hosts import HostRule
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import FindingLevel, GrantFinding
from bxcore.wire.tools import DataClass

Place: TypeAlias = str | HostRule
"""One path or one host of a grant."""

_ORDER = (Mode.DENY, Mode.ASK, Mode.AUTO)
_LABELS_COUNT = "its labels still count"


def check(grants: GrantSet, now: Timestamp) -> tuple[GrantFinding, ...]:
    """Return what is to be said about the grants, in the order of their ids."""
    found = [finding for same_tool in grants.by_tool.values() for finding in _Tool(same_tool, now).findings()]
    return tuple(sorted(found, key=lambda finding: finding.file))


class _Tool:
    """The grants of one tool, by the places that they name."""

    def __init__(self, grants: Iterable[Grant], now: Timestamp) -> None:
        self._grants = tuple(grants)
        self._now = now
        self._holders = self._index()
        allowing = [grant for grant in self._grants if grant.mode is not Mode.DENY and self._can_apply(grant)]
        self._allowed = {place for grant in allowing for place in places(grant)}
        self._holding_allowed = {holder for place in self._allowed for holder in at_or_above(place)}

    def findings(self) -> Iterator[GrantFinding]:
        for grant in self._grants:
            if finding := self._finding(grant):
                level, text = finding
                yield GrantFinding(file=f"{grant.id}{SUFFIX}", line=0, level=level, text=text)

    def _finding(self, grant: Grant) -> tuple[FindingLevel, str] | None:
        if grant.expires is not None and weighing.is_expired(grant, self._now):
            when = timestamp.to_text(grant.expires)
            return FindingLevel.WARNING, f"it ran out at {when} and decides nothing; {_LABELS_COUNT}"
        if not self._can_apply(grant):
            return FindingLevel.WARNING, (
                f"its max_taint is public, and every session starts at private: it never applies; {_LABELS_COUNT}"
            )
        if outweighing := self._outweighing(grant):
            names = " and ".join(sorted({f"{it.id} ({it.mode.value})" for it in outweighing}))
            if grant.mode is Mode.DENY:
                return FindingLevel.NOTE, f"all that it denies is denied by {names} as well"
            return FindingLevel.WARNING, f"it never decides, because of {names}; {_LABELS_COUNT}"
        if grant.mode is Mode.DENY and not any(map(self._is_allowed, places(grant))):
            return FindingLevel.NOTE, "no grant allows anything that it denies"
        return None

    def _can_apply(self, grant: Grant) -> bool:
        """Whether there can be a session and a moment to come for which the grant applies."""
        return not weighing.is_expired(grant, self._now) and grant.max_taint is not DataClass.PUBLIC

    def _outweighing(self, grant: Grant) -> list[Grant]:
        """Return for each place of the grant one that always comes before it there; nothing if one place has none."""
        found = []
        for place in places(grant):
            first = next((other for other, held in self._over(place) if _outweighs(other, held, grant, place)), None)
            if first is None:
                return []
            found.append(first)
        return found

    def _over(self, place: Place) -> Iterator[tuple[Grant, Place]]:
        for held in at_or_above(place):
            for other in self._holders.get(held, ()):
                yield other, held

    def _is_allowed(self, place: Place) -> bool:
        """Whether a grant allows something at, above or below `place`."""
        return place in self._holding_allowed or not self._allowed.isdisjoint(at_or_above(place))

    def _index(self) -> Mapping[Place, list[Grant]]:
        holders: dict[Place, list[Grant]] = {}
        for grant in self._grants:
            if self._can_apply(grant):
                for place in places(grant):
                    holders.setdefault(place, []).append(grant)
        return holders


def places(grant: Grant) -> tuple[Place, ...]:
    """Return what the grant names: paths or hosts."""
    return (*grant.paths, *grant.hosts)


def at_or_above(place: Place) -> Iterator[Place]:
    """Return every place that covers all that `place` covers, itself first."""
    yield place
    if isinstance(place, str):
        parts = paths.parts(place)
        yield from ("/" + "/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        return
    names = place.host.split(".")
    yield from (
        HostRule(host=".".join(names[first:]), wildcard=True, port=place.port) for first in range(1, len(names))
    )


def _outweighs(other: Grant, held: Place, grant: Grant, place: Place) -> bool:
    """Whether `other`, by its place `held` at or above `place`, comes before `grant` in all that `place` covers."""
    if other.id == grant.id or not _lasts_as_long(other, grant):
        return False
    if other.mode is not grant.mode:
        stricter = _ORDER.index(other.mode) < _ORDER.index(grant.mode)
        return stricter and _as_high(other, grant)
    if grant.mode is Mode.DENY and held != place:
        return True
    # The longer path comes first, so a wider one of the same mode does not; hosts all count the same.
    same_depth = held == place or isinstance(place, HostRule)
    return same_depth and other.id < grant.id and _as_high(other, grant)


def _lasts_as_long(other: Grant, grant: Grant) -> bool:
    return other.expires is None or (grant.expires is not None and other.expires >= grant.expires)


def _as_high(other: Grant, grant: Grant) -> bool:
    return other.max_taint in labels.limits_for(grant.max_taint)
