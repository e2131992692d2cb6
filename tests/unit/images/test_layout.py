"""The image's own places: all that it has lies in them, and brokerd refuses mounts there."""

from pathlib import PurePosixPath

from brokerd import mounts
from images import layout, table


def within(path: str, place: str) -> bool:
    return PurePosixPath(path).is_relative_to(place)


def test_everything_in_the_image_lies_in_a_place_of_its_own() -> None:
    image = table.image(table.TOOLS)
    files = [
        *layout.links(image), *layout.MOUNT_POINTS, *layout.MOUNT_FILES, *layout.texts(image),
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


def test_brokerd_can_be_given_every_folder_that_tools_can() -> None:
    image = table.image("brokerd")
    assert not image.time_zones
    assert [path for path in layout.links(image) if not any(within(f"/{path}", place) for place in layout.OWN)] == []


def test_a_role_has_no_shell_to_be_named_in_passwd() -> None:
    for image in table.roles().values():
        assert "/bin/sh" not in "".join(layout.texts(image).values())
        assert f"{layout.PROGRAMS}/python" not in layout.links(image)
