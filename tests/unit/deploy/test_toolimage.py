"""The tool image is built when what it is made of has changed, and else not."""

from pathlib import Path

import pytest

from deploy.local import plan, toolimage
from deploy.local.refusal import Refusal
from images import contents, tool_image


class Builds:
    """Stands in for the building, which takes seconds, and counts."""

    def __init__(self) -> None:
        self.revisions: list[str] = []
        self.fails = False

    def __call__(self, archive: Path, revision: str) -> str:
        if self.fails:
            archive.write_text("half")
            raise Refusal("no")
        self.revisions.append(revision)
        archive.write_text("built")
        return f"{len(self.revisions):064}"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    counting = Builds()
    monkeypatch.setattr(toolimage, "_build", counting)
    monkeypatch.setattr(toolimage, "fingerprint", lambda revision: f"made-from-{revision}")
    monkeypatch.setattr(tool_image, "revision", lambda: "one")
    return counting


def test_what_has_not_changed_is_built_once(builds: Builds, tmp_path: Path) -> None:
    said: list[str] = []
    images = {toolimage.built(tmp_path, say=said.append).identity for _ in range(3)}
    assert (len(images), builds.revisions, said) == (1, ["one"], ["building the tool image"])


def test_a_change_is_built(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = toolimage.built(tmp_path)
    monkeypatch.setattr(tool_image, "revision", lambda: "two")
    assert toolimage.built(tmp_path).identity != before.identity
    assert builds.revisions == ["one", "two"]


def test_a_lost_archive_is_built_again(builds: Builds, tmp_path: Path) -> None:
    toolimage.built(tmp_path).archive.unlink()
    assert toolimage.built(tmp_path).archive.read_text() == "built"


def test_a_build_that_failed_does_not_count(builds: Builds, tmp_path: Path) -> None:
    toolimage.built(tmp_path)
    (tmp_path / "stamp").write_text("something older")
    builds.fails = True
    with pytest.raises(Refusal):
        toolimage.built(tmp_path)
    builds.fails = False
    toolimage.built(tmp_path)
    assert builds.revisions == ["one", "one"]


def test_the_fingerprint_knows_the_sources_and_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = toolimage.fingerprint("r")
    assert toolimage.fingerprint("r") == first
    assert toolimage.fingerprint("s") != first
    bundle = tmp_path / "ca"
    bundle.write_text("x")
    monkeypatch.setattr(contents, "_CA_BUNDLES", (bundle,))
    second = toolimage.fingerprint("r")
    bundle.write_text("xy")
    assert len({first, second, toolimage.fingerprint("r")}) == 3
    sources = tool_image.sources()
    monkeypatch.setattr(tool_image, "sources", lambda: sources[1:])
    assert toolimage.fingerprint("r") not in {first, second}


def test_a_machine_without_busybox_is_told_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contents, "_BUSYBOX", (tmp_path / "none",))
    with pytest.raises(Refusal, match="busybox-static"):
        toolimage.fingerprint("r")


def test_sources_that_cannot_go_into_an_image_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "tool_image.py").write_text("raise SystemExit('tool image: something is missing')\n")
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    with pytest.raises(Refusal, match="something is missing"):
        toolimage._build(tmp_path / "x.tar", "r")
