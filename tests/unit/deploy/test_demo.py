"""The demo begins anew, and only where a demo was before."""

from pathlib import Path

import pytest

from deploy.local import demo
from deploy.local.home import Home
from deploy.local.refusal import Refusal


def test_a_home_that_no_demo_made_loses_nothing(tmp_path: Path) -> None:
    audit = tmp_path / "audit" / "2026-11-30.jsonl"
    audit.parent.mkdir()
    audit.write_text("a record\n")
    with pytest.raises(Refusal, match="no demo made it"):
        demo._take(Home(tmp_path))
    assert audit.read_text() == "a record\n"


def test_a_second_demo_takes_nothing_from_the_one_that_runs(tmp_path: Path) -> None:
    home = Home(tmp_path / "demo")
    with demo._take(home):
        (home.audit / "2026-11-30.jsonl").write_text("a record\n")
        with pytest.raises(Refusal, match="another make demo"):
            demo._take(home)
        assert (home.audit / "2026-11-30.jsonl").exists()


def test_the_next_demo_begins_anew_and_keeps_the_containers_storage(tmp_path: Path) -> None:
    home = Home(tmp_path / "demo")
    demo._take(home).close()
    (home.audit / "2026-11-30.jsonl").write_text("a record\n")
    (home.path / "tools").mkdir()
    demo._take(home).close()
    assert list(home.audit.iterdir()) == []
    assert (home.path / "tools").is_dir()
