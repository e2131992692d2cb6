"""roles.toml is read strictly, has a table for each role of the wiring, and is what the README says."""

from pathlib import Path

import pytest

from bxcore import wiring
from images import layout, stdlib, table
from images.table import Image, Unknown
from tests.structure import sources

README = (sources.ROOT / "images" / "README.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    part = README.split(f"\n{heading}\n", 1)[1].split("\n## ")[0].split("\n### ")[0]
    return sources.table_rows(part)


def load(path: Path, text: str) -> dict[str, Image]:
    file = path / "roles.toml"
    file.write_text(text)
    return table.load(file)


def named(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "none"


def test_every_role_of_the_wiring_has_an_image_and_no_other_is_there() -> None:
    wired = wiring.load(sources.ROOT / "nix" / "roles.json")
    assert set(table.roles()) == set(wired.roles)
    assert {name: image.repository for name, image in table.roles().items()} == {
        name: role.image for name, role in wired.roles.items()
    }
    assert table.image(table.TOOLS).repository == wired.tools.image


def test_what_runs_by_itself_is_what_the_wiring_runs() -> None:
    wired = wiring.load(sources.ROOT / "nix" / "roles.json")
    for name, image in table.roles().items():
        assert layout.command(image) == tuple(wired.roles[name].command)


def test_the_readme_says_what_is_in_each_image() -> None:
    expected = [
        [
            f"`{image.name}`",
            named(sorted(image.packages)),
            "all" if image.parts == stdlib.WHOLE else named(sorted(image.parts)),
            ", ".join(
                word
                for word, there in (
                    ("certificates", image.certificates),
                    ("shell", image.shell),
                    ("time zones", image.time_zones),
                )
                if there
            ),
        ]
        for image in table.load().values()
    ]
    assert rows("## What is in them") == expected


def test_the_readme_says_what_the_parts_of_the_standard_library_are() -> None:
    assert rows("### The standard library") == [[f"`{part}`", why] for part, why in stdlib.WHY.items()]


def test_inferproxy_carries_the_interpreter_alone() -> None:
    image = table.image("inferproxy")
    assert (image.packages, image.parts) == ((), frozenset())
    assert [image.certificates, image.shell, image.time_zones] == [False] * 3


def test_a_short_table_is_enough(tmp_path: Path) -> None:
    image = load(tmp_path, '[memoryd]\ntitle = "notes"\nstandard_library = ["sqlite"]\n')["memoryd"]
    assert (image.program, image.packages, image.parts) == ("memoryd", (), frozenset({"sqlite"}))
    assert image.repository == "localhost/boxmaker/memoryd"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a]\n", "title"),
        ('[a]\ntitle = "t"\npakages = []\n', "pakages"),
        ('[a]\ntitle = "t"\npackages = "attrs"\n', "packages"),
        ('[a]\ntitle = "t"\npackages = [1]\n', "packages"),
        ('[a]\ntitle = "t"\npackages = ["attrs"]\n', r"a\.why"),
        ('[a]\ntitle = "t"\n[a.why]\nattrs = "x"\n', r"a\.why"),
        ('[a]\ntitle = "t"\nstandard_library = ["ssl"]\n', "ssl"),
        ('[a]\ntitle = "t"\nshell = 1\n', "shell"),
    ],
)
def test_what_nobody_would_read_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Unknown, match=says):
        load(tmp_path, text)


def test_an_image_that_is_not_there_is_named() -> None:
    with pytest.raises(Unknown, match="gatewayd2"):
        table.image("gatewayd2")
