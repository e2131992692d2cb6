"""What a row of the bench says, and its two forms: a table to read and a list to keep. Pure."""

import json
from collections.abc import Sequence

import attrs


@attrs.frozen(kw_only=True)
class Measure:
    """One figure. `target` is None where a figure is there to be read and nothing is asked of it."""

    name: str
    value: float
    unit: str
    target: str | None
    holds: bool


def exactly(name: str, value: float, unit: str, wanted: float) -> Measure:
    return Measure(name=name, value=value, unit=unit, target=f"= {shown(wanted)}", holds=value == wanted)


def at_most(name: str, value: float, unit: str, limit: float) -> Measure:
    return Measure(name=name, value=value, unit=unit, target=f"<= {shown(limit)}", holds=value <= limit)


def at_least(name: str, value: float, unit: str, limit: float) -> Measure:
    return Measure(name=name, value=value, unit=unit, target=f">= {shown(limit)}", holds=value >= limit)


def below(name: str, value: float, unit: str, limit: float) -> Measure:
    return Measure(name=name, value=value, unit=unit, target=f"< {shown(limit)}", holds=value < limit)


def to_read(name: str, value: float, unit: str) -> Measure:
    """A figure that explains another one."""
    return Measure(name=name, value=value, unit=unit, target=None, holds=True)


def table(rows: Sequence[Measure]) -> str:
    """Return the rows as a Markdown table, which is readable as it is and is what the README shows."""
    cells = [("measure", "value", "target", "holds")]
    for row in rows:
        verdict = "" if row.target is None else "yes" if row.holds else "**no**"
        cells.append((row.name, f"{shown(row.value)} {row.unit}".strip(), row.target or "", verdict))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def to_json(rows: Sequence[Measure]) -> str:
    """Return the rows as a JSON list, for programs."""
    kept = [{**attrs.asdict(row), "value": _rounded(row.value)} for row in rows]
    return json.dumps(kept, ensure_ascii=False, indent=2) + "\n"


def shown(value: float) -> str:
    """Three figures are more than most of these rows can be repeated to."""
    return str(value) if isinstance(value, int) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")
