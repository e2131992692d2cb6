"""A role's image is found under a name that says its content, in a directory of that role's."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.local import builtimage, roleimages
from deploy.local.refusal import Refusal
from images import build, table


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Stands in for the building; what was to be run."""
    asked: list[Sequence[str]] = []

    def run(script: Sequence[str], archive: Path, revision: str) -> str:
        asked.append(script)
        archive.write_text(revision)
        return f"{'a' * 64} {'a' * 16}"

    monkeypatch.setattr(builtimage, "run", run)
    monkeypatch.setattr(build, "revision", lambda image: f"revision of {image.name}")
    return asked


def test_an_image_is_built_once_and_named_after_its_content(scripts: list[Sequence[str]], tmp_path: Path) -> None:
    first, again = (roleimages.built("loopd", directory=tmp_path) for _ in range(2))
    assert first == again
    assert (first.role, first.identity) == ("loopd", "a" * 64)
    assert first.name == f"localhost/boxmaker/loopd:{'a' * 16}"
    assert first.archive.read_text() == "revision of loopd"
    assert scripts == [["role_image.py", "--role", "loopd"]]


def test_every_role_has_a_directory_of_its_own(scripts: list[Sequence[str]], tmp_path: Path) -> None:
    built = [roleimages.built(role, directory=tmp_path) for role in table.roles()]
    assert len({image.archive for image in built}) == len(built) == len(scripts)


def test_who_waits_is_told(scripts: list[Sequence[str]], tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        roleimages.built("brokerd", directory=tmp_path, say=said.append)
    assert said == ["building the image of brokerd"]


@pytest.mark.parametrize("name", ["tools", "toolkit", "bxctl", "../loopd"])
def test_what_is_no_role_has_no_image(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"roles\.toml"):
        roleimages.built(name, directory=tmp_path)
