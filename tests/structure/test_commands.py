"""A command that a page names exists, and what a command runs exists too."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.structure import sources

TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
COMMAND = re.compile(r"(?:^\$ (?:.*\| )?|`)make ([a-z][a-z-]*)", re.MULTILINE)
SCRIPT = re.compile(r"(?<![\w/.-])((?:deploy|nix|tests)/[\w./-]+\.(?:py|sh))\b")


def unknown_commands(page: str, makefile: str) -> list[str]:
    return sorted(set(COMMAND.findall(page)) - set(TARGET.findall(makefile)))


def missing_scripts(text: str, top: Path) -> list[str]:
    return sorted({name for name in SCRIPT.findall(text) if not (top / name).is_file()})


def makefile() -> str:
    return (sources.ROOT / "Makefile").read_text(encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    for path in sources.files():
        if path.suffix == ".md":
            yield sources.shown(path), path.read_text(encoding="utf-8")


def test_every_command_of_a_page_is_a_target() -> None:
    found = {name: unknown for name, page in pages() if (unknown := unknown_commands(page, makefile()))}
    assert found == {}


def test_a_command_that_does_not_exist_is_seen() -> None:
    page = "Run `make all` or\n\n$ make gate\n$ printf 'x' | make chatt\n\nThis may make sense.\n"
    assert unknown_commands(page, "gate: checks ## may it land?\n") == ["all", "chatt"]


def test_every_script_of_a_target_exists() -> None:
    assert missing_scripts(makefile(), sources.ROOT) == []


def test_a_script_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    (tmp_path / "nix").mkdir()
    (tmp_path / "nix" / "there.py").touch()
    assert missing_scripts("\t@$(BIN)/python nix/there.py nix/gone.py\n", tmp_path) == ["nix/gone.py"]


def test_the_readme_begins_with_the_two_commands_of_a_newcomer() -> None:
    readme = (sources.ROOT / "README.md").read_text(encoding="utf-8")
    assert COMMAND.findall(readme)[:2] == ["chat", "test"]


def kinds_run(makefile: str) -> list[str]:
    """Return the kinds of tests that `make test` names whole, each as often as it does."""
    return sorted(
        re.findall(r"\btests/(\w+)(?![\w/])", " ".join(re.findall(r"^\w+_TESTS := (.*)$", makefile, re.MULTILINE)))
    )


def test_make_test_runs_every_kind_of_test_once() -> None:
    kinds = {path.relative_to(sources.ROOT / "tests").parts[0] for path in (sources.ROOT / "tests").rglob("test_*.py")}
    assert kinds_run(makefile()) == sorted(kinds)
    # Parts of a kind that two processes share are left out where the kind is run.
    assert "$(SINGLE_TESTS) $(addprefix --ignore=,$(PAIRED_TESTS))" in makefile()


def test_a_kind_that_is_run_twice_or_never_is_seen() -> None:
    assert kinds_run("A_TESTS := tests/unit tests/nix\nB_TESTS := tests/unit\n") == ["nix", "unit", "unit"]
