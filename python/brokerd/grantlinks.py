"""Grants that name a path which leads elsewhere. Calls are judged by where they lead, so such a grant fits none.

One that allows then grants nothing, which is worth a warning. One that denies does not deny what it was written
for, which is a fault: brokerd.grantset asks at every full look, since a link can appear while no grant changes.
Reads: the links of the host (brokerd.links); a disk that does not answer holds up who asks. Threads: any.
"""

from collections.abc import Iterable, Iterator

from brokerd import links
from brokerd.links import Led
from bxcore import grants
from bxcore.grants import SUFFIX, Grant, GrantFault, GrantSet, Mode
from bxcore.wire.admin import FindingLevel, GrantFinding

_LONGEST_SHOWN = 400


def faults(found: Iterable[Grant]) -> tuple[GrantFault, ...]:
    """Return a fault for each path of a deny grant that leads elsewhere."""
    return tuple(
        GrantFault(
            file=f"{grant.id}{SUFFIX}",
            line=0,
            text=f"constraints.paths[{index}]: leads to {_shown(led.real)}; name that place",
        )
        for grant in found
        if grant.mode is Mode.DENY
        for index, path, led in _followed(grant)
        if led.real != path
    )


def findings(found: GrantSet) -> tuple[GrantFinding, ...]:
    """Return what to say of grants that are no fault: those that allow, and those that cannot be looked at."""
    return tuple(
        GrantFinding(file=f"{grant.id}{SUFFIX}", line=0, level=FindingLevel.WARNING, text=text)
        for grant in found.grants
        for text in _warnings(grant)
    )


def _warnings(grant: Grant) -> Iterator[str]:
    for index, path, led in _followed(grant):
        key = f"constraints.paths[{index}]"
        if grant.mode is not Mode.DENY:
            if led.real != path:
                yield f"{key}: leads to {_shown(led.real)}; it fits no call until you name that place"
        elif led.unseen is not None:
            yield (
                f"{key}: brokerd cannot look at {_shown(led.unseen)}, so a link in it would not be seen; "
                "only calls that lead to this very path are denied"
            )


def _followed(grant: Grant) -> Iterator[tuple[int, str, Led]]:
    for index, path in enumerate(grant.paths):
        yield index, path, links.follow(path)


def _shown(path: str) -> str:
    text = grants.shown(path)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
