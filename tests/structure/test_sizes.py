"""No source file is longer than a person reads in one sitting."""

from collections.abc import Iterable
from pathlib import Path

from tests.structure import sources

CEILING = 500
SOURCE = {".py", ".nix", ".sh", ".jinja", ".toml"}
SOURCE_NAMES = {"Makefile", "run"}  # .ci/run


def too_long(paths: Iterable[Path]) -> list[str]:
    return [f"{sources.shown(path)}: {count} lines" for path in paths if (count := _lines(path)) > CEILING]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_source_file_is_over_the_ceiling() -> None:
    judged = [path for path in sources.files() if path.suffix in SOURCE or path.name in SOURCE_NAMES]
    assert len(judged) > 20
    assert too_long(judged) == []


def test_a_long_file_is_seen(tmp_path: Path) -> None:
    longest, over = tmp_path / "longest.py", tmp_path / "over.py"
    longest.write_text("x = 1\n" * CEILING)
    over.write_text("x = 1\n" * (CEILING + 1))
    assert too_long([longest, over]) == ["over.py: 501 lines"]
