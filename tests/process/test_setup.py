"""The set-up asks for what is missing, and only as far as the user may install it.

The script runs in a copy, with programs of ours where it would change the machine.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("deploy/local/setup.sh", "deploy/local/requirements.py", "deploy/local/model-requirements.txt", "poetry.lock")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    top = tmp_path / "a checkout"
    for name in NEEDED:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, top / name)
    return top


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Make a directory of programs that go before the machine's own. The user is an ordinary one."""
    directory = tmp_path / "bin"
    directory.mkdir()
    put(directory, "id", "echo 1000")
    put(directory, "sudo", "exit 1")
    put(directory, "apt-get", "exit 1")
    return directory


def put(directory: Path, name: str, script: str) -> None:
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def set_up(checkout: Path, programs: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up on a machine that has no Python for us."""
    return subprocess.run(
        [checkout / "deploy/local/setup.sh", *parts],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": "no-python-here"},
        input="this belongs to the conversation\n",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_part_that_does_not_exist_is_refused(checkout: Path, programs: Path) -> None:
    result = set_up(checkout, programs, "modle")
    assert result.returncode == 1
    assert "no part called 'modle'" in result.stderr


def test_a_user_who_may_not_install_is_told_the_one_command(checkout: Path, programs: Path) -> None:
    result = set_up(checkout, programs)
    assert result.returncode == 1
    assert "apt-get install -y python3 python3-venv" in result.stderr
    assert not (checkout / ".state/venv").exists()


def test_a_user_with_sudo_installs_what_is_missing_and_no_more(checkout: Path, programs: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    put(programs, "sudo", f'echo "$@" >>"{asked}"; cat')
    set_up(checkout, programs)
    *_, install = asked.read_text().splitlines()
    assert install.endswith("apt-get -q install -y --no-install-recommends python3 python3-venv")


def test_the_set_up_leaves_standard_output_to_the_program_that_follows(checkout: Path, programs: Path) -> None:
    put(programs, "sudo", "cat")  # it would repeat the conversation, were it handed any
    result = set_up(checkout, programs)
    assert result.stdout == ""
    assert "conversation" not in (checkout / ".state/log/setup.log").read_text()


def test_what_apt_says_is_shown_when_it_fails(checkout: Path, programs: Path) -> None:
    put(programs, "sudo", '[ "$1" = -n ] || { echo "E: no such package"; exit 100; }')
    result = set_up(checkout, programs)
    assert result.returncode == 1
    assert "E: no such package" in result.stderr
