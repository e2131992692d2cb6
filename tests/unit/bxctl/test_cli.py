"""The command line and its page say the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bxcore.settings.roles import ROLES
from bxctl import (
    VERSION,
    chat,
    cli,
    doctor,
    exits,
    hostchecks,
    imagechecks,
    mattermostfiles,
    mattermostlive,
    placechecks,
    socketchecks,
    userchecks,
    wayin,
)

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "bxctl.md").read_text(encoding="utf-8")


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        full = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, full)
        else:
            yield full, command


@pytest.mark.parametrize("name", [name for name, _ in commands(cli.main)])
def test_every_command_is_in_the_page(name: str) -> None:
    assert name in PAGE


OPTIONS = {
    option
    for _, command in [*commands(cli.main), ("", cli.main)]
    for parameter in command.params
    for option in (*parameter.opts, *parameter.secondary_opts)
    if option.startswith("--")
}
BY_DEFAULT = {"--reasoning", "--usage"}


@pytest.mark.parametrize("option", sorted(OPTIONS - BY_DEFAULT))
def test_every_option_is_in_the_page(option: str) -> None:
    assert re.search(rf"{option}\b", PAGE)


def test_every_exit_code_is_in_the_page_with_its_meaning() -> None:
    assert set(exits.MEANINGS) == set(exits.Exit)
    for code in exits.Exit:
        assert re.search(rf"^\| {code.value} \| ", PAGE, re.MULTILINE)


def test_every_line_command_of_the_chat_is_in_the_page() -> None:
    for word in re.findall(r"^  (/\w+(?: ID)?)", chat.HELP, re.MULTILINE):
        assert f"| `{word}` |" in PAGE


def test_every_check_of_the_doctor_has_an_entry_in_the_runbook() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    rooms = (
        doctor,
        hostchecks,
        imagechecks,
        mattermostfiles,
        mattermostlive,
        placechecks,
        socketchecks,
        userchecks,
        wayin,
    )
    told = [value for room in rooms for name, value in vars(room).items() if name.isupper() and type(value) is str]
    codes = [value for value in told if re.fullmatch(r"[a-z]+(_[a-z]+)+", value)]
    assert len(set(codes)) >= 17
    for code in codes:
        assert f"\n## {code}\n" in runbook


def test_the_version_is_that_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{VERSION}"\n' in project


def test_every_role_that_reads_a_file_is_checked() -> None:
    without = {"bxctl", "toolkit"}  # one is the reader, the other gets everything on standard input
    readers = {path.parent.name for path in (ROOT / "python").glob("*/__main__.py")} - without
    assert set(ROLES) == readers
