"""The table of what each place can do: as it is measured, and as docs/threat-model.md has it.

Pure, but for reading that page.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from bxcore.wiring import Wiring

PAGE = Path(__file__).resolve().parents[3] / "docs" / "threat-model.md"
SECTION = "## What each place can do, measured"

Table = Mapping[tuple[str, str], frozenset[str]]
"""(in the place of, thing) -> all that can be done with it there."""

_ROW = re.compile(r"^\| (?P<place>[^|]+) \| (?P<thing>[^|]+) \| (?P<whats>[^|]+) \|$", re.MULTILINE)


def table(place: str, rows: Iterable[tuple[str, str]], wiring: Wiring) -> Table:
    """Return the rows of one place. That a directory which everybody may list can be listed is no row."""
    everybodys = {directory.path for directory in wiring.directories if directory.mode.endswith("5")}
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for thing, what in rows:
        if not (what == "lists" and thing.removeprefix("container: ") in everybodys):
            found[(place, thing)].add(what)
    return {key: frozenset(whats) for key, whats in found.items()}


def documented(page: Path = PAGE) -> Table:
    """Return the page's table."""
    _, _, section = page.read_text(encoding="utf-8").partition(SECTION)
    rows = [
        [cell.replace("`", "") for cell in found.groups()] for found in _ROW.finditer(section.partition("\n## ")[0])
    ]
    return {(place, thing): frozenset(whats.split(", ")) for place, thing, whats in rows[1:]}


def beyond(found: Table, allowed: Table) -> list[str]:
    """Return what is found and not allowed, a line each."""
    lines = []
    for (place, thing), whats in sorted(found.items()):
        more = whats - allowed.get((place, thing), frozenset())
        lines += [f"{place}: {thing}: {what}" for what in sorted(more)]
    return lines


def without_users(found: Table) -> Table:
    """Leave out what means something only where each role has a user of its own."""
    kept = {key: whats - {"lists"} for key, whats in found.items() if not key[1].startswith("container: ")}
    return {key: whats for key, whats in kept.items() if whats}


def written(found: Table) -> str:
    """Return the table as the page has it."""
    lines = ["| in the place of | reaches | and there |", "|---|---|---|"]
    for (place, thing), whats in sorted(found.items()):
        lines.append(f"| `{place}` | `{thing}` | {', '.join(sorted(whats))} |")
    return "\n".join(lines) + "\n"
