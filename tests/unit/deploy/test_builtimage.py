"""An image is built when what it is made of has changed, and else not."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.local import builtimage, plan, toolimage
from deploy.local.refusal import Refusal
from images import build, contents, table
from images.table import Image

TOOLS = table.image(table.TOOLS)
LOOPD = table.image("loopd")


class Builds:
    """Stands in for the building, which takes seconds, and counts."""

    def __init__(self) -> None:
        self.revisions: list[str] = []
        self.fails = False

    def __call__(self, script: Sequence[str], archive: Path, revision: str) -> str:
        if self.fails:
            archive.write_text("half")
            raise Refusal("no")
        self.revisions.append(revision)
        archive.write_text("built")
        return f"{len(self.revisions):064}"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    counting = Builds()
    monkeypatch.setattr(builtimage, "run", counting)
    monkeypatch.setattr(builtimage, "fingerprint", lambda image, revision: f"made-from-{revision}")
    monkeypatch.setattr(build, "revision", lambda image: "one")
    return counting


def test_what_has_not_changed_is_built_once(builds: Builds, tmp_path: Path) -> None:
    said: list[str] = []
    images = {toolimage.built(tmp_path, say=said.append).identity for _ in range(3)}
    assert (len(images), builds.revisions, said) == (1, ["one"], ["building the image of tools"])


def test_a_change_is_built(builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = toolimage.built(tmp_path)
    monkeypatch.setattr(build, "revision", lambda image: "two")
    assert toolimage.built(tmp_path).identity != before.identity
    assert builds.revisions == ["one", "two"]


def test_a_lost_archive_is_built_again(builds: Builds, tmp_path: Path) -> None:
    toolimage.built(tmp_path).archive.unlink()
    assert toolimage.built(tmp_path).archive.read_text() == "built"


def test_a_damaged_archive_is_built_again_when_it_is_looked_at(builds: Builds, tmp_path: Path) -> None:
    image = toolimage.built(tmp_path)
    image.archive.write_text("buil")
    assert toolimage.built(tmp_path).archive.read_text() == "buil", "nobody asked"
    assert toolimage.built(tmp_path, check=True).archive.read_text() == "built"
    assert toolimage.built(tmp_path, check=True) == toolimage.built(tmp_path)
    assert builds.revisions == ["one", "one"]


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
    first = builtimage.fingerprint(TOOLS, "r")
    assert builtimage.fingerprint(TOOLS, "r") == first
    assert builtimage.fingerprint(TOOLS, "s") != first
    bundle = tmp_path / "ca"
    bundle.write_text("x")
    monkeypatch.setattr(contents, "_CA_BUNDLES", (bundle,))
    second = builtimage.fingerprint(TOOLS, "r")
    bundle.write_text("xy")
    assert len({first, second, builtimage.fingerprint(TOOLS, "r")}) == 3
    sources = build.sources(TOOLS)
    monkeypatch.setattr(build, "sources", lambda image: sources[1:])
    assert builtimage.fingerprint(TOOLS, "r") not in {first, second}


def test_a_role_is_built_again_for_its_own_sources_only() -> None:
    found = {str(path.relative_to(build.PYTHON)) for path in build.sources(LOOPD) if path.is_relative_to(build.PYTHON)}
    assert {"loopd/turn.py", "loopd/system.md", "bxcore/frame.py"} <= found
    assert {name.split("/")[0] for name in found} == {"bxcore", "loopd"}


@pytest.mark.parametrize(
    ("image", "where", "package"),
    [
        (TOOLS, "_BUSYBOX", "busybox-static"),
        (TOOLS, "_CA_BUNDLES", "ca-certificates"),
        (LOOPD, "_TIME_ZONES", "tzdata"),
    ],
)
def test_what_the_machine_lacks_is_told_by_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Image, where: str, package: str
) -> None:
    monkeypatch.setattr(contents, where, (tmp_path / "none",))
    with pytest.raises(Refusal, match=package):
        builtimage.fingerprint(image, "r")


def test_a_role_needs_no_busybox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contents, "_BUSYBOX", (tmp_path / "none",))
    monkeypatch.setattr(contents, "_CA_BUNDLES", (tmp_path / "none",))
    assert builtimage.fingerprint(LOOPD, "r")


def test_sources_that_cannot_go_into_an_image_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "tool_image.py").write_text("raise SystemExit('image of tools: something is missing')\n")
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    with pytest.raises(Refusal, match="something is missing"):
        builtimage.run(["tool_image.py"], tmp_path / "x.tar", "r")
