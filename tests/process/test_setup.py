"""The set-up asks for what is missing, and only as far as the user may install it.

The script runs in a copy, with programs of ours where it would change the machine.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import tooluser

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


# --- podman: what tools run in, and the user they run as -------------------------------------

PODMAN = ("podman", "runc", "conmon", "slirp4netns", "newuidmap", "busybox")
NOBODY = "nobody-of-this-machine"


@pytest.fixture
def with_podman(checkout: Path, programs: Path) -> Path:
    """Make a checkout whose environment is ready, on a machine that has Podman. The user has no ids for containers."""
    python = checkout / ".state/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    made_from = ("poetry.lock", "deploy/local/requirements.py")
    sums = [f"{hashlib.sha256((checkout / name).read_bytes()).hexdigest()}  {name}" for name in made_from]
    stamp = [f"1 {checkout} {python.resolve()}", *sums]
    (checkout / ".state/venv/stamp").write_text("\n".join(stamp) + "\n")
    for name in PODMAN:
        put(programs, name, "exit 0")
    put(programs, "id", f'case "$*" in -un) echo {NOBODY} ;; *) echo 1000 ;; esac')
    return checkout


def recording(programs: Path, *names: str) -> Path:
    """Put programs that only write down what they were asked."""
    asked = programs.parent / "asked"
    asked.touch()
    for name in names:
        put(programs, name, f'echo "{name} $*" >>"{asked}"')
    return asked


def test_a_user_without_ids_is_told_the_command_and_goes_on(with_podman: Path, programs: Path) -> None:
    result = set_up(with_podman, programs, "podman")
    assert result.returncode == 0
    assert f"usermod --add-subuids {(ids := tooluser.free_range())} --add-subgids {ids} {NOBODY}" in result.stderr
    assert "broken out of would be you" in result.stderr
    assert "as root once for" not in result.stderr


def test_with_sudo_the_ids_are_given(with_podman: Path, programs: Path) -> None:
    asked = recording(programs, "sudo")
    assert set_up(with_podman, programs, "podman").returncode == 0
    assert asked.read_text().splitlines()[-1] == (
        f"sudo usermod --add-subuids {(ids := tooluser.free_range())} --add-subgids {ids} {NOBODY}"
    )


def test_root_has_a_user_made_that_can_do_nothing_else(with_podman: Path, programs: Path) -> None:
    put(programs, "id", "[ $# = 1 ] && echo 0")  # it is root, and the user is not there
    asked = recording(programs, "useradd", "usermod")
    assert set_up(with_podman, programs, "podman").returncode == 0
    made, given = asked.read_text().splitlines()
    assert made.startswith("useradd --system --user-group --no-create-home")
    assert made.endswith("--shell /usr/sbin/nologin boxmaker-tools")
    assert given.endswith(" boxmaker-tools")


def test_a_busybox_that_needs_libraries_is_not_enough(with_podman: Path, programs: Path) -> None:
    (programs / "busybox").unlink()
    shutil.copy(Path(sys.executable).resolve(), programs / "busybox")
    result = set_up(with_podman, programs, "podman")
    assert result.returncode == 1
    assert "apt-get install -y busybox-static" in result.stderr


def test_a_conversation_goes_on_without_what_tools_need(with_podman: Path, programs: Path) -> None:
    without_libraries = programs / "busybox"
    without_libraries.unlink()
    shutil.copy(Path(sys.executable).resolve(), without_libraries)
    result = set_up(with_podman, programs, "podman?")
    assert result.returncode == 0
    assert "apt-get install -y busybox-static" in result.stderr
    assert "going on without tools" in result.stderr


def test_a_failed_installation_of_what_tools_need_is_no_end(with_podman: Path, programs: Path) -> None:
    (programs / "busybox").unlink()
    shutil.copy(Path(sys.executable).resolve(), programs / "busybox")
    put(programs, "sudo", '[ "$1" = -n ] || { echo "E: no such package"; exit 100; }')
    assert set_up(with_podman, programs, "podman").returncode == 1
    result = set_up(with_podman, programs, "podman?")
    assert result.returncode == 0
    assert "E: no such package" in result.stderr


def test_a_tool_user_that_cannot_be_made_is_no_end(with_podman: Path, programs: Path) -> None:
    put(programs, "id", "[ $# = 1 ] && echo 0")
    put(programs, "useradd", "exit 1")
    assert set_up(with_podman, programs, "podman").returncode == 1
    result = set_up(with_podman, programs, "podman?")
    assert (result.returncode, "going on without tools" in result.stderr) == (0, True), result.stderr


def test_where_more_is_missing_one_command_names_all_of_it(checkout: Path, programs: Path) -> None:
    shutil.copy(Path(sys.executable).resolve(), programs / "busybox")
    result = set_up(checkout, programs, "podman?")
    assert result.returncode == 1
    (command,) = [line for line in result.stderr.splitlines() if "apt-get install" in line]
    assert " python3 python3-venv " in command
    assert " busybox-static" in command


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_state_of_another_users_is_refused_and_left_as_it_is(with_podman: Path, programs: Path) -> None:
    state = with_podman / ".state"
    os.chown(state, 65_534, 65_534)
    before = sorted(state.rglob("*"))
    result = set_up(with_podman, programs, "podman")
    assert result.returncode == 1
    assert f"{state} belongs to the user nobody" in result.stderr
    assert sorted(state.rglob("*")) == before


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        (["chat"], ["model", "podman?"]),
        (["chat", "UPSTREAM=http://host:1"], ["podman?"]),
        (["chat", "ARGS=--home x --no-tools"], ["model"]),
        (["demo"], ["podman"]),
        (["test"], ["model", "appliance", "node"]),
        (["appliance"], ["model", "appliance"]),
    ],
    ids=" ".join,
)
def test_a_conversation_alone_may_go_without_podman(typed: list[str], parts: list[str]) -> None:
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["make", "--dry-run", *typed], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert shlex.split(done.stdout.splitlines()[0]) == ["deploy/local/setup.sh", *parts]


# --- node: the client that judges the Mattermost server of the tests --------------------------

CLIENT = "tests/contract/mattermost"


@pytest.fixture
def with_client(with_podman: Path, programs: Path) -> Path:
    """Make a checkout whose environment is ready and that names the client's packages."""
    (with_podman / CLIENT).mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / CLIENT / name, with_podman / CLIENT / name)
    put(programs, "node", "exit 0")
    return with_podman


def test_the_packages_of_the_lock_are_installed_once_and_run_no_script(with_client: Path, programs: Path) -> None:
    asked = recording(programs, "npm")
    for _ in range(2):
        assert set_up(with_client, programs, "node").returncode == 0
        (with_client / ".state/npm/node_modules").mkdir(exist_ok=True)
    (line,) = asked.read_text().splitlines()
    assert "ci --prefix" in line
    assert "--ignore-scripts" in line
    assert (with_client / ".state/npm/package-lock.json").exists()


def test_a_node_that_is_too_old_is_named(with_client: Path, programs: Path) -> None:
    put(programs, "node", '[ "$1" = --version ] && echo v16.20.0')
    result = set_up(with_client, programs, "node")
    assert result.returncode == 1
    assert "v16.20.0; the client needs 18 or later" in result.stderr


def test_the_lock_of_the_client_names_no_place_to_get_it_from() -> None:
    lock = (ROOT / CLIENT / "package-lock.json").read_text()
    assert "resolved" not in lock
    assert lock.count('"integrity": "sha512-') == lock.count('"node_modules/')
