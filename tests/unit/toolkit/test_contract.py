"""The contract between brokerd and a tool: orders, mounts as decided, exit codes, caps, the leash."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from bxcore import tools
from tests.unit.toolkit import orders
from toolkit import contract


def test_a_tool_that_is_done_exits_0_and_prints_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello\n")
    ended = orders.run("read_file", {"path": f"{tmp_path}/a"}, tmp_path / "a")
    assert (ended.code, ended.lines[1], ended.errors) == (0, "hello", "")


def test_its_own_error_exits_1_and_is_text_for_the_model(tmp_path: Path) -> None:
    ended = orders.run("read_file", {"path": f"{tmp_path}/a"}, tmp_path)
    assert (ended.code, ended.text, ended.errors) == (1, "error: no such file or directory", "")


NO_ORDERS = {
    "no JSON": b"hello\n",
    "a list": b"[]\n",
    "two orders": b'{"tool":1}{"tool":2}\n',
    "a key too few": b'{"tool":"read_file","arguments":{"path":"/a"},"mounts":[]}\n',
    "a key too many": b'{"tool":"read_file","arguments":{"path":"/a"},"mounts":[],"proxy":null,"x":1}\n',
    "an unknown tool": b'{"tool":"rm","arguments":{},"mounts":[],"proxy":null}\n',
    "no tool's name": b'{"tool":7,"arguments":{},"mounts":[],"proxy":null}\n',
    "a tool that is a list": b'{"tool":[],"arguments":{},"mounts":[],"proxy":null}\n',
    "bad arguments": b'{"tool":"read_file","arguments":{"path":"a"},"mounts":[],"proxy":null}\n',
    "mounts that are none": b'{"tool":"read_file","arguments":{"path":"/a"},"mounts":{},"proxy":null}\n',
    "a mount without inode": b'{"tool":"read_file","arguments":{"path":"/a"},"mounts":[{"path":"/a"}],"proxy":null}\n',
    "a path in no mount": b'{"tool":"read_file","arguments":{"path":"/a"},"mounts":[],"proxy":null}\n',
    "a relative proxy": b'{"tool":"read_file","arguments":{"path":"/a"},"mounts":[],"proxy":"x"}\n',
}


@pytest.mark.parametrize("order", NO_ORDERS.values(), ids=NO_ORDERS.keys())
def test_misuse_exits_2_with_a_marker_and_quotes_nothing_on_stdout(order: bytes) -> None:
    ended = orders.end(orders.start(order))
    assert (ended.code, ended.text) == (2, contract.NO_ORDER.decode())
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize("order", [b"", b'{"tool":"read_file"'], ids=["nothing", "half an order"])
def test_without_a_whole_line_nothing_is_done(order: bytes) -> None:
    process = orders.start(order)
    assert process.stdin is not None
    process.stdin.close()
    with process:
        assert process.wait() == 2


def test_an_endless_line_is_not_read_to_its_end() -> None:
    process = orders.start(b"")
    assert process.stdin is not None
    with process:
        try:
            while True:
                os.write(process.stdin.fileno(), b"x" * 65_536)
        except BrokenPipeError:
            pass
    assert process.returncode == 2


@pytest.mark.parametrize("what", ["another inode", "another device", "gone", "a link now"])
def test_p4_what_is_not_mounted_as_decided_is_not_touched(tmp_path: Path, what: str) -> None:
    room, other = tmp_path / "room", tmp_path / "other"
    room.mkdir()
    decided = orders.mount(room)
    match what:
        case "another inode":
            decided = attrs.evolve(decided, inode=decided.inode + 1)
        case "another device":
            decided = attrs.evolve(decided, device=decided.device + 1)
        case _:
            room.rename(other)
            if what == "a link now":
                room.symlink_to(other)
    ended = orders.run("write_file", {"path": f"{room}/new", "content": "x"}, decided)
    assert (ended.code, ended.text) == (2, contract.NOT_AS_DECIDED.decode())
    assert [path.name for top in (room, other) if top.is_dir() for path in top.iterdir()] == []


def test_a_fault_of_ours_is_not_taken_for_the_tools_own_error(tmp_path: Path) -> None:
    broken = orders.ENTRY.replace(
        "from toolkit.__main__", "import toolkit.readfile as r; r.run = lambda *_: 1 / 0; from toolkit.__main__"
    )
    ended = orders.run("read_file", {"path": str(tmp_path)}, tmp_path, entry=broken)
    assert (ended.code, ended.text) == (2, "")
    assert ended.errors.startswith("fault: ZeroDivisionError at ")


def test_inode_numbers_beyond_our_integers_are_compared_exactly(tmp_path: Path) -> None:
    decided = attrs.evolve(orders.mount(tmp_path), inode=2**64 - 1)
    assert orders.run("list_directory", {"path": str(tmp_path)}, decided).code == 2
    as_numbers = {"path": str(tmp_path), "device": tmp_path.stat().st_dev, "inode": tmp_path.stat().st_ino}
    order = {"tool": "list_directory", "arguments": {"path": str(tmp_path)}, "mounts": [as_numbers], "proxy": None}
    assert orders.end(orders.start(json.dumps(order).encode() + b"\n")).code == 0


# -- what is printed ----------------------------------------------------------------------------


def test_a_text_is_cut_visibly() -> None:
    cut = contract.as_bytes("é" * 1001, 1000).decode()
    assert len(cut) == 1000
    assert cut.split("\n")[-1] == "[cut here: 1001 characters, of which these are the first]"
    assert contract.as_bytes("é" * 1000, 1000).decode() == "é" * 1000


def test_bytes_that_are_no_text_show_as_escapes_and_count_as_such() -> None:
    assert contract.as_bytes("a\udc80b\0c", 1000) == b"a\\udc80b\\x00c"
    assert len(contract.as_bytes("\udc80" * 300, 1000)) == 1000


def test_every_tool_has_a_program() -> None:
    for name in tools.TOOLS:
        assert callable(contract.program(name))


def test_a_reader_that_left_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 10_000)
    process = orders.start(b"")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(orders.line("read_file", {"path": f"{tmp_path}/a"}, tmp_path))
    process.stdin.flush()
    with process:
        assert (process.stderr.read(), process.wait()) == (b"", 2)


# -- the leash ----------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    """Say whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def started_sleepers(tmp_path: Path) -> tuple["subprocess.Popen[bytes]", list[int]]:
    """Start a command that starts another, and return once both have written their numbers into a pipe."""
    os.mkfifo(tmp_path / "numbers")
    command = "sh -c 'echo $$ > numbers; exec sleep 3600' & echo $$ > numbers; trap '' TERM HUP; wait; sleep 3600"
    process = orders.start(orders.line("shell", {"directory": str(tmp_path), "command": command}, tmp_path))
    numbers: list[int] = []
    while len(numbers) < 2:
        numbers += [int(word) for word in (tmp_path / "numbers").read_text().split()]
    return process, numbers


def test_when_stdin_ends_the_tool_and_all_it_started_end(tmp_path: Path) -> None:
    process, numbers = started_sleepers(tmp_path)
    assert all(alive(pid) for pid in numbers)
    assert process.stdin is not None
    process.stdin.close()
    with process:
        assert process.wait() == 2
    while any(alive(pid) for pid in numbers):
        pass
    assert process.returncode == 2


def test_more_bytes_on_stdin_do_not_loosen_the_leash(tmp_path: Path) -> None:
    process, numbers = started_sleepers(tmp_path)
    assert process.stdin is not None
    process.stdin.write(b"\n\nhello\n")
    process.stdin.flush()
    assert process.poll() is None
    process.stdin.close()
    with process:
        assert process.wait() == 2
    while any(alive(pid) for pid in numbers):
        pass


def test_killing_brokerd_ends_the_tool(tmp_path: Path) -> None:
    """The other end of stdin belongs to a process that is killed with SIGKILL, as brokerd may be."""
    reader, writer = os.pipe()
    holder = subprocess.Popen(["/bin/sleep", "3600"], stdin=writer, pass_fds=[writer])
    os.mkfifo(tmp_path / "numbers")
    command = "echo $$ > numbers; exec sleep 3600"
    tool = subprocess.Popen(
        [sys.executable, "-I", "-c", orders.ENTRY], stdin=reader, stdout=subprocess.PIPE, close_fds=True
    )
    os.close(reader)
    os.write(writer, orders.line("shell", {"directory": str(tmp_path), "command": command}, tmp_path))
    os.close(writer)
    number = int((tmp_path / "numbers").read_text())
    with tool, holder:
        assert tool.poll() is None
        holder.send_signal(signal.SIGKILL)
        assert tool.wait() == 2
    while alive(number):
        pass
    assert stat.S_ISFIFO((tmp_path / "numbers").stat().st_mode)
