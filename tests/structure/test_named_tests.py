"""A page that names a test names one that exists."""

import re
from pathlib import Path

from tests.structure import sources

NAMED = re.compile(r"`(tests/[\w/.*-]+)`")


def missing(page: str, root: Path) -> list[str]:
    """Return what the page names below tests/ and nobody has."""
    return [name for name in NAMED.findall(page) if not list(root.glob(name))]


def test_every_test_that_a_page_names_exists() -> None:
    pages = sorted(sources.DOCS.glob("*.md"))
    assert pages
    assert [
        (page.name, missing(page.read_text(encoding="utf-8"), sources.ROOT))
        for page in pages
        if missing(page.read_text(encoding="utf-8"), sources.ROOT)
    ] == []


def test_a_test_that_nobody_wrote_is_seen(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_here.py").touch()
    assert missing("`tests/test_here.py`, `tests/test_*.py`, `tests/test_gone.py`", tmp_path) == ["tests/test_gone.py"]
