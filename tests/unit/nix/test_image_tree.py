"""The root that Nix packs is the image that is built without Nix, and its interpreter runs from where it lies."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from images import contents, layout, table
from images.oci import Directory, File
from nix import image_tree

PACKAGES = Path(sysconfig.get_path("purelib"))
PYTHON = image_tree.ROOT / "python"

WRITTEN = ("loopd", "tools")
"""Between them they have everything that an image can have."""


@pytest.fixture(scope="module", params=WRITTEN)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of an image and its root, written by the program as Nix runs it."""
    image = table.image(request.param)
    given = [("--busybox", contents.busybox)] if image.shell else []
    given += [("--certificates", contents.ca_bundle)] if image.certificates else []
    given += [("--zones", contents.time_zones)] if image.time_zones else []
    places = [word for option, place in given for word in (option, str(place()))]
    output = tmp_path_factory.mktemp(image.name)
    words = ["--image", image.name, "--packages", str(PACKAGES), "--output", str(output), *places]
    program = image_tree.ROOT / "nix" / "image_tree.py"
    subprocess.run([sys.executable, program, *words], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, check=True)
    return image.name, output


def test_the_root_is_the_image_that_is_built_without_nix(root: tuple[str, Path]) -> None:
    name, output = root
    wanted = contents.tree(table.image(name), PYTHON, PACKAGES)
    for path, entry in wanted.items():
        found = output / path
        if isinstance(entry, Directory):
            assert found.is_dir()
        elif not isinstance(entry, File):
            assert str(found.readlink()) == entry.target
        else:
            assert found.read_bytes() == entry.content
            assert bool(found.stat().st_mode & 0o111) == entry.runs
    files = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_symlink() or path.is_file()}
    assert files == {path for path, entry in wanted.items() if not isinstance(entry, Directory)}


def test_its_interpreter_finds_the_program_as_it_is_started(root: tuple[str, Path]) -> None:
    """The last lines of nix/images.nix, with this machine's interpreter: -I -S, and no site packages."""
    name, output = root
    library = output / layout.LIBRARY
    loader = next(library.glob("ld-linux*"))
    python = output / layout.PROGRAMS / "python3"
    check = f"import sys, {table.image(name).program}.__main__; print(sys.prefix, *sys.path, sep='\\n')"
    told = subprocess.run(
        [loader, "--library-path", library, python, "-I", "-S", "-c", check],
        env={}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    prefix, *places = told.stdout.splitlines()
    assert prefix == str(output / "usr")
    assert all(Path(place).is_relative_to(output) for place in places)


def test_what_an_image_needs_is_asked_for() -> None:
    with pytest.raises(SystemExit, match="this image needs --busybox"):
        image_tree.entries(table.image("tools"), PACKAGES, None, None, None)
