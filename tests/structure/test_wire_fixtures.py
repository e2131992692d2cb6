"""The fixture files are the wire specification: one for each message kind, and no other."""

from collections.abc import Iterable

from bxcore.wire.kinds import KINDS
from tests.structure import sources

FIXTURES = sources.ROOT / "tests" / "fixtures" / "wire"


def unpaired(names: Iterable[str]) -> list[str]:
    """Return the kinds without a file and the files without a kind. A name begins with its kind."""
    fixed = {name.split(".")[0] for name in names}
    return sorted(fixed ^ set(KINDS))


def test_every_kind_has_its_fixture_and_every_fixture_its_kind() -> None:
    assert unpaired(path.name for path in FIXTURES.iterdir()) == []


def test_a_missing_and_a_stray_fixture_are_seen() -> None:
    names = [f"{kind}.json" for kind in KINDS if kind != "error"]
    assert unpaired([*names, "stray.json"]) == ["error", "stray"]
