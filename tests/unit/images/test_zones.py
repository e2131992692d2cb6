"""The zones of the machine, but not which one the machine is in."""

from pathlib import Path

from images import zones
from images.oci import File, Link


def test_zones_come_and_the_machines_own_choice_does_not(tmp_path: Path) -> None:
    top = tmp_path / "zoneinfo"
    for name in ("Europe/Berlin", "Etc/UTC", "posix/Europe/Berlin", "right/Europe/Berlin"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"TZif2" + name.encode())
    (top / "zone.tab").write_text("a list")
    (top / "UTC").symlink_to("Etc/UTC")
    (tmp_path / "localtime").symlink_to(top / "Europe/Berlin")
    (top / "localtime").symlink_to(tmp_path / "localtime")
    (top / "posixrules").symlink_to("../localtime")
    assert zones.entries(top) == {
        "usr/share/zoneinfo/Europe/Berlin": File(b"TZif2Europe/Berlin"),
        "usr/share/zoneinfo/Etc/UTC": File(b"TZif2Etc/UTC"),
        "usr/share/zoneinfo/UTC": Link("Etc/UTC"),
    }
