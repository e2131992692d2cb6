import json
from pathlib import Path

import pytest

from tests.bench import report, suite
from tests.bench.report import Measure
from tests.bench.sizes import QUICK, Sizes, Unmeasurable

GOOD, BAD = report.exactly("good", 0, "", 0), report.exactly("bad", 1, "", 0)


def good(_: Sizes) -> list[Measure]:
    return [GOOD]


def bad(_: Sizes) -> list[Measure]:
    return [BAD]


def mute(_: Sizes) -> list[Measure]:
    raise Unmeasurable("the model says nothing")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "bench.json"


def test_a_whole_run_prints_the_table_and_keeps_the_list(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main([], groups={"good": good}, kept=kept) == 0
    assert capsys.readouterr().out == report.table([GOOD]) + "\n"
    assert [row["name"] for row in json.loads(kept.read_text())] == ["good"]


@pytest.mark.parametrize("arguments", [["good"], ["--quick"]])
def test_a_part_of_a_run_keeps_nothing(kept: Path, arguments: list[str]) -> None:
    assert suite.main(arguments, groups={"good": good, "bad": good}, kept=kept) == 0
    assert not kept.exists()


def test_only_the_groups_that_are_named_are_run(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["good"], groups={"bad": bad, "good": good}, kept=kept) == 0
    assert capsys.readouterr().out == report.table([GOOD]) + "\n"


def test_a_row_that_does_not_hold_fails_the_run(kept: Path) -> None:
    assert suite.main([], groups={"bad": bad, "good": good}, kept=kept) == 1


def test_a_figure_that_could_not_be_taken_fails_the_run_and_leaves_the_others(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.main([], groups={"mute": mute, "good": good}, kept=kept) == 1
    said = capsys.readouterr()
    assert said.out == report.table([GOOD]) + "\n"
    assert "mute: NOT MEASURED: the model says nothing" in said.err


def test_a_group_that_does_not_exist_is_refused(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["goood"], groups={"good": good}, kept=kept)
    assert "no group goood; there are good" in capsys.readouterr().err


def test_the_quick_sizes_are_smaller() -> None:
    assert QUICK.turns < Sizes().turns
