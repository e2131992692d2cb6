"""How an image store is opened and filled, by what Podman answers. The real one is in tests/container."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from deploy.local import imagestore, podmanconf
from deploy.local.podman import Podman
from deploy.local.refusal import Refusal
from deploy.local.toolimage import Image
from deploy.local.toolplace import Place
from deploy.local.tooluser import ToolUser

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)
NEW = "a" * 64
OLD = "b" * 64

Answer = tuple[int, str, str]


class ScriptedPodman(Podman[Place]):
    """A Podman whose answers the test writes, and which remembers what it was asked."""

    def __init__(self, place: Place, answer: Callable[[tuple[str, ...]], Answer]) -> None:
        super().__init__(place, podmanconf.Machine(runtime="runc", unified=False, bus=None))
        self._answer = answer
        self.asked: list[tuple[str, ...]] = []

    def run(self, *arguments: str, stdin: BinaryIO | None = None) -> "subprocess.CompletedProcess[str]":
        self.asked.append(arguments)
        code, said, complained = self._answer(arguments)
        return subprocess.CompletedProcess(arguments, code, said, complained)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(path=tmp_path / "tools", user=MYSELF)
    made.prepare()
    return made


def drivers(place: Place, *working: str) -> ScriptedPodman:
    """Return a Podman that works with these storage drivers alone."""

    def answer(_: tuple[str, ...]) -> Answer:
        asked = (place.settings / "storage.conf").read_text().split('driver = "')[1].split('"')[0]
        return (0, "", "") if asked in working else (125, "", "warning\nError: no overlay here\n")

    return ScriptedPodman(place, answer)


def test_overlay_is_taken_where_it_works(place: Place) -> None:
    assert imagestore.opened(drivers(place, "overlay", "vfs")) == "overlay"


def test_vfs_is_taken_where_nothing_else_works(place: Place) -> None:
    assert imagestore.opened(drivers(place, "vfs")) == "vfs"
    assert 'driver = "vfs"' in (place.settings / "storage.conf").read_text()


def test_where_neither_works_podmans_reason_is_said(place: Place) -> None:
    with pytest.raises(Refusal, match="Error: no overlay here"):
        imagestore.opened(drivers(place))


def test_a_store_that_does_not_open_is_set_aside_once(place: Place) -> None:
    (place.storage / "overlay").mkdir()
    with pytest.raises(Refusal):
        imagestore.opened(drivers(place))
    assert not (place.storage / "overlay").exists()
    assert len(list(place.storage.glob("overlay.damaged-*"))) == 1


def store(place: Place, *images: str, loads_as: str = NEW) -> ScriptedPodman:
    """Return a Podman with a store that holds these images."""
    held = set(images)

    def answer(arguments: tuple[str, ...]) -> Answer:
        match arguments:
            case ("load", *_):
                held.add(loads_as)
            case ("images", *_):
                return (0, "\n".join(f"sha256:{identity}" for identity in sorted(held)), "")
            case ("rmi", "--force", *identities):
                held.difference_update(each.removeprefix("sha256:") for each in identities)
        return (0, "", "")

    return ScriptedPodman(place, answer)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    archive = tmp_path / "image.tar"
    archive.touch()
    return Image(identity=NEW, archive=archive)


def hold(tools: ScriptedPodman, image: Image) -> None:
    imagestore.hold(tools, [image], say=lambda _: None, what="the image")


def verbs(tools: ScriptedPodman) -> list[str]:
    return [arguments[0] for arguments in tools.asked]


def test_an_image_that_is_there_is_not_loaded_again(place: Place, image: Image) -> None:
    tools = store(place, NEW)
    hold(tools, image)
    assert "load" not in verbs(tools)


def test_a_new_image_takes_the_place_of_the_older(place: Place, image: Image) -> None:
    tools = store(place, OLD)
    hold(tools, image)
    assert ("rmi", "--force", f"sha256:{OLD}") in tools.asked


def test_an_image_that_comes_out_as_another_is_not_named(place: Place, image: Image) -> None:
    with pytest.raises(Refusal, match="another ID"):
        hold(store(place, loads_as=OLD), image)
