"""shell: what the command prints and how it ended; nothing of it outlives the call, whatever it tries."""

import os
import sys
from pathlib import Path

import pytest

from bxcore import tools
from tests.unit.toolkit import orders
from tests.unit.toolkit.test_contract import alive
from toolkit.shell import Output


def shell(directory: Path, command: str, *, entry: str = orders.ENTRY, **more: int) -> orders.Ended:
    given = {"directory": str(directory), "command": command, **more}
    return orders.run("shell", given, directory, entry=entry)


SAID = {
    "output": ("echo hello", "[exit code 0]\nhello"),
    "nothing": ("true", "[exit code 0]"),
    "an exit code": ("exit 7", "[exit code 7]"),
    "both streams as they came": ("echo 1; echo 2 >&2; echo 3; echo 4 >&2", "[exit code 0]\n1\n2\n3\n4"),
    "a command that is not there": ("no-such-command", "no-such-command"),
    "several lines": ("a=1\necho $((a + 1))", "[exit code 0]\n2"),
    "a signal": ("kill -9 $$", "[ended by signal 9]"),
    "bytes that are no text": (r"printf 'caf\351 a\000b'", "[exit code 0]\ncaf\\udce9 a\\x00b"),
    "no input": ("cat; echo done", "[exit code 0]\ndone"),
}


@pytest.mark.parametrize(("command", "said"), SAID.values(), ids=SAID.keys())
def test_a_command_is_run_and_its_end_is_said(tmp_path: Path, command: str, said: str) -> None:
    ended = shell(tmp_path, command)
    assert ended.code == 0
    assert ended.text == said or (command == "no-such-command" and said in ended.text)


def test_it_runs_in_the_directory_and_may_write_there(tmp_path: Path) -> None:
    assert shell(tmp_path, "pwd; echo x > file; ls").lines == ["[exit code 0]", str(tmp_path), "file"]
    assert (tmp_path / "file").read_text() == "x\n"


def test_p2_a_link_is_no_directory_to_run_in(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "link").symlink_to("../outside")
    given = {"directory": f"{tmp_path}/room/link", "command": "touch ran"}
    assert orders.run("shell", given, tmp_path / "room").code == 1
    assert list((tmp_path / "outside").iterdir()) == []


def test_the_environment_is_three_variables(tmp_path: Path) -> None:
    entry = f"import os; os.environ['SECRET'] = 'x'; {orders.ENTRY}"
    names = {line.partition("=")[0] for line in shell(tmp_path, "env", entry=entry).lines[1:]}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "HOME", "LANG"}


def test_no_descriptor_of_ours_is_passed_on(tmp_path: Path) -> None:
    assert shell(tmp_path, "ls /proc/self/fd").lines[1:] == ["0", "1", "2", "3"]  # 3 is the directory that ls reads


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


def test_what_it_left_in_the_background_ends_with_it(tmp_path: Path) -> None:
    ended = shell(
        tmp_path, "(trap '' TERM HUP INT; echo $$ >> pids; sleep 3600) & sleep 3600 & echo $! >> pids; echo out"
    )
    assert ended.text == "[exit code 0]\nout"
    for pid in pids(tmp_path / "pids"):
        while alive(pid):
            pass


def test_at_the_time_limit_it_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    command = "trap '' TERM; sleep 3600 & echo $! $$ > pids; echo before; wait; echo after"
    ended = shell(tmp_path, command, timeout_ms=500)
    assert (ended.code, ended.text) == (0, "[stopped: the time limit of 500 ms]\nbefore")
    for pid in pids(tmp_path / "pids"):
        while alive(pid):
            pass


def test_a_command_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    ended = shell(tmp_path, "exec >&- 2>&-; sleep 0.3; touch done; exit 4")
    assert (ended.text, (tmp_path / "done").exists()) == ("[exit code 4]", True)


def test_a_command_that_closes_its_output_is_still_stopped_in_time(tmp_path: Path) -> None:
    assert shell(tmp_path, "exec >&- 2>&-; sleep 3600", timeout_ms=300).text == "[stopped: the time limit of 300 ms]"


# -- M9, S6: too much of anything ----------------------------------------------------------------


def test_m9_of_a_long_output_beginning_and_end_are_shown(tmp_path: Path) -> None:
    ended = shell(tmp_path, "seq 100000")
    assert len(ended.text) <= 16_000
    assert ended.lines[:3] == ["[exit code 0]", "1", "2"]
    assert ended.lines[-2] == "100000"
    assert ended.lines[-1].startswith(f"{tools.CUT}: ")
    assert ended.lines[-1].endswith(" of 588895 bytes are not shown]")
    assert any(line.startswith("[... ") for line in ended.lines)


def test_s6_output_without_end_is_stopped(tmp_path: Path) -> None:
    ended = shell(tmp_path, "yes")
    assert ended.lines[0] == "[stopped: the limit of 16777216 bytes of output]"
    assert len(ended.text) <= 16_000


def test_s6_the_file_size_limit_is_named(tmp_path: Path) -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)); {orders.ENTRY}"
    ended = shell(tmp_path, "exec head -c 20000 /dev/zero > file", entry=limited)
    assert ended.text == "[ended by the limit on the size of a file]"


DATA = 256 * 1024 * 1024
LIMITED = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({DATA}, {DATA})); {orders.ENTRY}"


@pytest.mark.parametrize(("mib", "works"), [(64, True), (1_024, False)])
def test_s6_memory_that_is_shared_is_bounded_as_well(tmp_path: Path, mib: int, works: bool) -> None:
    """RLIMIT_DATA, the tool's own limit, does not count it."""
    take = f"import mmap; mmap.mmap(-1, {mib} << 20); print('taken')"
    ended = shell(tmp_path, f'{sys.executable} -I -S -c "{take}"', entry=LIMITED)
    assert ("taken" in ended.text, "Cannot allocate memory" in ended.text) == (works, not works)


@pytest.mark.parametrize("command", SAID)
def test_s6_the_bound_changes_nothing_of_what_a_command_says(tmp_path: Path, command: str) -> None:
    assert shell(tmp_path, SAID[command][0], entry=LIMITED).text.replace("sh: 1:", "") == shell(
        tmp_path, SAID[command][0]
    ).text.replace("sh: 1:", "")


def test_s6_the_bound_cannot_be_raised(tmp_path: Path) -> None:
    ended = shell(tmp_path, "ulimit -v; ulimit -H -v", entry=LIMITED)
    assert ended.lines[1:] == [str((DATA + 128 * 1024 * 1024) // 1024)] * 2


def test_a_command_finds_the_tool_closed_that_started_it(tmp_path: Path) -> None:
    """What that means to a command is seen with a container's user: tests/container/test_isolation_real.py."""
    asked = "code = main(); import ctypes; sys.exit(code or 7 + ctypes.CDLL(None).prctl(3))"
    assert shell(tmp_path, "true", entry=orders.ENTRY.replace("sys.exit(main())", asked)).code == 7


def test_s6_where_no_process_can_be_started_it_is_an_error(tmp_path: Path) -> None:
    """The limit on processes does not bind root, so the kernel's answer is a stand-in's."""
    none_left = orders.ENTRY.replace(
        "from toolkit.__main__",
        "import subprocess\n"
        "def no(*a, **b): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "subprocess.Popen = no\nfrom toolkit.__main__",
    )
    ended = shell(tmp_path, "true", entry=none_left)
    assert (ended.code, ended.text) == (1, "error: resource temporarily unavailable")


@pytest.mark.parametrize("sizes", [[], [3], [10], [11], [20], [21], [5] * 9, [1] * 100, [100, 1], [1, 100], [7, 30, 7]])
def test_what_is_kept_of_an_output_is_its_beginning_and_its_end(sizes: list[int]) -> None:
    output, whole = Output(most=10), b""
    for number, size in enumerate(sizes):
        part = bytes([97 + number % 26]) * size
        output.add(part)
        whole += part
    text, left_out = output.text()
    if len(whole) <= 20:
        assert (text, left_out) == (whole.decode(), 0)
    else:
        assert left_out == len(whole) - 20
        assert text == f"{whole[:10].decode()}\n[... {left_out} bytes ...]\n{whole[-10:].decode()}"
    assert sum(map(len, output.tail)) <= 10 + max(sizes, default=0)


def test_a_process_of_its_own_session_cannot_hold_the_result_back(tmp_path: Path) -> None:
    """In the container it ends with process 1; here the test ends it."""
    ended = shell(tmp_path, "setsid sh -c 'echo $$ > pid; exec sleep 3600' & while [ ! -s pid ]; do :; done; echo out")
    assert ended.text == "[exit code 0]\nout"
    os.kill(pids(tmp_path / "pid")[0], 9)
