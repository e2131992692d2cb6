from collections import Counter
from pathlib import Path

import pytest

from brokerd import policy
from brokerd.call import FRESH
from brokerd.grantset import GrantFiles
from bxcore.deadline import SystemClock
from bxcore.grants import GrantSet, Mode
from bxcore.timestamp import Timestamp
from tests.bench import manygrants
from tests.fakes import calls

COUNT = 60


@pytest.fixture
def grants(tmp_path: Path) -> GrantSet:
    manygrants.write(tmp_path / "grants", COUNT, granted=Path("/srv/shown"))
    return GrantFiles(tmp_path / "grants", clock=SystemClock()).current()


def outcome(grants: GrantSet, path: str) -> str:
    call = calls.call(text=manygrants.request(1, path).arguments)
    return type(policy.decide(grants, call, FRESH, Timestamp(0))).__name__


def test_all_of_them_can_be_read_and_speak_of_the_tool_that_is_called(grants: GrantSet) -> None:
    assert len(grants.by_tool[manygrants.TOOL]) == len(grants.grants) == COUNT
    assert {grant.mode for grant in grants.grants} == set(Mode)


def test_the_calls_are_of_every_kind(grants: GrantSet) -> None:
    paths = [manygrants.path(number, grants=COUNT) for number in range(1, COUNT * 5 // 4 + 1)]
    assert len(set(paths)) == len(paths)
    found = Counter(outcome(grants, path) for path in paths)
    # A third of the grants denies, and a fifth of the paths is in no grant, nor is the one that is given away.
    assert found == {"Decision": 20, "Ask": 20, "Denial": 35}


def test_one_folder_may_be_read_and_another_path_never(grants: GrantSet) -> None:
    assert outcome(grants, "/srv/shown/notes.txt") == "Decision"
    assert outcome(grants, manygrants.unknown_path(7)) == "Denial"
