"""How an image store is opened and filled, by what Podman answers. The real one is in tests/container."""

import os
from pathlib import Path

import pytest

from deploy.local import imagestore
from deploy.local.refusal import Refusal
from deploy.local.toolimage import Image
from deploy.local.toolplace import Place
from deploy.local.tooluser import ToolUser
from tests.fakes.scripted_podman import Answer, ScriptedPodman

MYSELF = ToolUser(name="me", uid=os.geteuid(), gid=os.getegid(), own=False)
NEW = "a" * 64
OLD = "b" * 64


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


class Store:
    """What a store holds, and which images no container can be made of."""

    def __init__(self, place: Place, *images: str, loads_as: str = NEW) -> None:
        self.held = set(images)
        self.hollow: set[str] = set()
        self.unreadable = False
        self.loads_as = loads_as
        self.podman = ScriptedPodman(place, self._answer)
        self._directory = place.storage / "overlay"
        self._directory.mkdir()

    def _answer(self, arguments: tuple[str, ...]) -> Answer:
        if not self._directory.exists():  # put aside: Podman begins another one
            self._directory.mkdir()
            self.held, self.hollow, self.unreadable = set(), set(), False
        match arguments:
            case ("load", *_):
                self.held.add(self.loads_as)
            case ("images", *_):
                if self.unreadable:
                    return (125, "", "Error: layer not known")
                return (0, "\n".join(f"sha256:{identity}" for identity in sorted(self.held)), "")
            case ("rmi", "--force", *identities):
                self.held.difference_update(each.removeprefix("sha256:") for each in identities)
            case ("create", _, identity, *_) if identity.removeprefix("sha256:") in self.hollow:
                return (125, "", "Error: diff: no such file or directory")
        return (0, "", "")

    @property
    def verbs(self) -> list[str]:
        return [arguments[0] for arguments in self.podman.asked]


class Builds:
    """Gives an image, and remembers whether its archive was to be compared."""

    def __init__(self, archive: Path) -> None:
        archive.touch()
        self._image = Image(identity=NEW, archive=archive)
        self.checked: list[bool] = []
        self.said: list[str] = []

    def __call__(self, *, check: bool) -> Image:
        self.checked.append(check)
        return self._image

    def hold(self, store: Store) -> Image:
        return imagestore.hold(store.podman, self, say=self.said.append, what="the image")


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path / "image.tar")


def test_an_image_that_is_there_is_not_loaded_again(place: Place, builds: Builds) -> None:
    store = Store(place, NEW)
    assert builds.hold(store).identity == NEW
    assert "load" not in store.verbs
    assert (builds.checked, builds.said) == ([False], [])


def test_a_new_image_takes_the_place_of_the_older(place: Place, builds: Builds) -> None:
    store = Store(place, OLD)
    builds.hold(store)
    assert ("rmi", "--force", f"sha256:{OLD}") in store.podman.asked
    assert store.held == {NEW}


def test_an_image_that_comes_out_as_another_is_compared_once_and_not_named(place: Place, builds: Builds) -> None:
    with pytest.raises(Refusal, match="another ID"):
        builds.hold(Store(place, loads_as=OLD))
    assert builds.checked == [False, True]


def test_a_store_that_knows_an_image_and_lost_its_files_begins_anew(place: Place, builds: Builds) -> None:
    store = Store(place, NEW)
    store.hollow = {NEW}
    builds.hold(store)
    assert store.held == {NEW}
    assert store.verbs.count("load") == 1
    assert builds.said == [
        "the image is put into a new store: podman create failed: Error: diff: no such file or directory",
        "loading the image",
    ]


def test_a_store_that_cannot_tell_what_it_holds_begins_anew(place: Place, builds: Builds) -> None:
    store = Store(place, NEW)
    store.unreadable = True
    builds.hold(store)
    assert store.held == {NEW}


def test_no_container_is_left_of_the_trial(place: Place, builds: Builds) -> None:
    store = Store(place, NEW)
    builds.hold(store)
    assert store.verbs.index("create") < len(store.verbs) - 1
    assert store.podman.asked[-1] == ("rm", "--all", "--force", "--time=0")
