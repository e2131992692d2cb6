"""The image's own places: all that it has lies in them, and brokerd refuses mounts there."""

from pathlib import PurePosixPath

from brokerd import mounts
from images import layout


def within(path: str, place: str) -> bool:
    return PurePosixPath(path).is_relative_to(place)


def test_everything_in_the_image_lies_in_a_place_of_its_own() -> None:
    files = [
        *layout.LINKS, *layout.MOUNT_POINTS, *layout.MOUNT_FILES, *layout.TEXTS,
        layout.SCRATCH, layout.PROGRAMS, layout.LIBRARY, layout.CA_BUNDLE,
    ]  # fmt: skip
    assert [path for path in files if not any(within(f"/{path}", place) for place in layout.OWN)] == []


def test_no_place_lies_in_another() -> None:
    nested = [(a, b) for a in layout.OWN for b in layout.OWN if a != b and within(a, b)]
    assert nested == []


def test_brokerd_refuses_mounts_at_exactly_these() -> None:
    assert set(layout.OWN) <= set(mounts.IMAGE_PLACES)


def test_folders_of_the_owner_can_be_granted() -> None:
    for path in ("/etc/nixos", "/usr/share/doc", "/home/me", "/root/notes", "/srv", "/var/log", "/nix/store", "/opt"):
        assert not any(within(path, place) or within(place, path) for place in layout.OWN), path
