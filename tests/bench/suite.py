"""Runs the groups that were asked for, one after the other, prints the table, keeps the figures.

Writes: .state/bench.json, after a whole run and not after a part of one: its rows belong together.
Exit codes: 0 where every row holds, else 1. Specified in docs/bench.md.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.bench import (
    appliance,
    audit,
    baseline,
    calls,
    decisions,
    events,
    footprint,
    gateway,
    latency,
    opening,
    proxy,
    report,
    reread,
    startup,
)
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import BIG, QUICK, Sizes, Unmeasurable

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".state" / "bench.json"

LIMIT_SECONDS = 1_800
"""The whole takes five minutes on an idle machine with two cores. Longer than this, and something hangs."""

Groups = Mapping[str, Callable[[Sizes], list[Measure]]]

GROUPS: Groups = {
    "reread": reread.measure,
    "latency": latency.measure,
    "events": events.measure,
    "proxy": proxy.measure,
    "startup": startup.measure,
    "opening": opening.measure,
    "footprint": footprint.measure,
    "baseline": baseline.measure,
    "audit": audit.measure,
    "calls": calls.measure,
    "decisions": decisions.measure,
    "gateway": gateway.measure,
    "appliance": appliance.measure,
}


def main(argv: Sequence[str], *, groups: Groups = GROUPS, kept: Path = KEPT) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description="How far from the limit? See docs/bench.md.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes: does the bench work? Figures mean little")
    size.add_argument("--big", action="store_true", help="the sizes that take gigabytes of disk, where there are any")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"default all: {', '.join(groups)}")
    given = parser.parse_args(argv)
    if unknown := [name for name in given.groups if name not in groups]:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(groups)}")
    _warn_of_load()
    chosen = {name: groups[name] for name in given.groups or groups}
    with _limited():
        rows, whole = _measured(chosen, QUICK if given.quick else BIG if given.big else Sizes())
    print(report.table(rows))
    if not given.groups and not given.quick and not given.big:
        kept.write_text(report.to_json(rows), encoding="utf-8")
        say(f"kept in {kept}")
    return 0 if whole and all(row.holds for row in rows) else 1


def _measured(groups: Groups, sizes: Sizes) -> tuple[list[Measure], bool]:
    """Return the rows, and whether none is missing."""
    rows, whole = [], True
    for name, measure in groups.items():
        began = time.monotonic()
        say(name)
        try:
            rows += measure(sizes)
        except Unmeasurable as why:
            say(f"{name}: NOT MEASURED: {why}")
            whole = False
        say(f"{name}: {time.monotonic() - began:.0f} s")
    return rows, whole


@contextmanager
def _limited() -> Iterator[None]:
    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(f"the bench was ended after {LIMIT_SECONDS} s: something hangs")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _warn_of_load() -> None:
    load = os.getloadavg()[0]
    if load > 1:
        print(
            f"bench: this machine is busy (load {load:.1f}); figures of time will be worse than they are",
            file=sys.stderr,
        )
