"""What `bxctl doctor` says of a restore or a backup that was cut short."""

from pathlib import Path

from bxctl import leftovers


def test_where_nothing_was_cut_short_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    assert list(leftovers.unfinished(tmp_path / "home", tmp_path / "none")) == []


def test_what_was_cut_short_is_named(tmp_path: Path) -> None:
    home, etc = tmp_path / "home", tmp_path / "etc"
    for path in (home / ".restore-unfinished", etc / ".restore-unfinished", home / ".b 1.unfinished"):
        path.mkdir(parents=True)
    found = list(leftovers.unfinished(home, etc))
    assert [(one.passed, one.runbook) for one in found] == [
        (False, "backup_unfinished"),
        (False, "restore_unfinished"),
        (False, "restore_unfinished"),
    ]
    assert found[0].command == f"rm -r '{home}/.b 1.unfinished'"


def test_one_directory_for_both_is_told_once(tmp_path: Path) -> None:
    (tmp_path / ".restore-unfinished").mkdir()
    assert len(list(leftovers.unfinished(tmp_path, tmp_path))) == 1
