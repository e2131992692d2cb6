"""A module is named after its noun or its step, never after its rank."""

from collections.abc import Iterable
from pathlib import Path

from tests.structure import sources

RANKS = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc", "shared"}


def ranked(paths: Iterable[Path]) -> list[str]:
    return [sources.shown(path) for path in paths if RANKS & {path.stem, path.parent.name}]


def test_no_module_is_named_after_its_rank() -> None:
    assert ranked(path for path in sources.files() if path.suffix == ".py") == []


def test_a_ranked_name_is_seen() -> None:
    bad = [Path("x/utils.py"), Path("base/frame.py"), Path("x/commonplace.py")]
    assert ranked(bad) == ["utils.py", "frame.py"]
