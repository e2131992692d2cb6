"""Statement N18: what any role listens on is a Unix socket. Looked up in the kernel's tables, as `ss` does."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bxcore.wire.tools import ToolResult
from tests.fakes.llama_server import FakeLlama
from tests.process import brokerd_stack, loopd_stack
from tests.process.role import Role

INTERNET = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
LISTENS_UNIX = 0x10000  # the flag __SO_ACCEPTCON in the fourth column


def sockets(pid: int | str) -> set[str]:
    """Return the inodes of a process's sockets."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this very look
            match = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            found |= {match[1]} if match else set()
    return found


def internet(pid: int | str) -> list[str]:
    """Return the internet sockets of a process that listen, or are bound and connected to nobody."""
    mine, found = sockets(pid), []
    for kind in INTERNET:
        for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, local, remote, *_, inode = row.split()[:10]
            if inode in mine and int(remote.partition(":")[2], 16) == 0:
                found.append(f"{kind} {local}")
    return found


def unix(pid: int | str) -> set[str]:
    """Return the names of the Unix sockets that a process listens on."""
    mine, found = sockets(pid), set()
    for row in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = row.split(maxsplit=7)
        if words[6] in mine and int(words[3], 16) & LISTENS_UNIX:
            found.add(words[7])
    return found


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[dict[str, tuple[Role, set[Path]]]]:
    """Each role at work, and where it is meant to listen."""
    with ExitStack() as held:
        broker = held.enter_context(brokerd_stack.stack())
        broker.grant()
        settings = {"broker": {"socket": str(broker.socket("broker"))}}
        loop = held.enter_context(loopd_stack.Stack(tmp_path, settings)).start()
        role = held.enter_context(broker.brokerd())
        assert isinstance(broker.ask(), ToolResult)
        loop.say(new=True).ended()
        yield {
            "brokerd": (role, {broker.socket(name) for name in ("broker", "admin", "state")}),
            "loopd": (loop.loopd, {loop.home.loop_socket}),
            "inferproxy": (loop._roles["inferproxy"], {loop.home.infer_socket}),
        }


def test_n18_no_role_listens_on_the_network(roles: dict[str, tuple[Role, set[Path]]]) -> None:
    for name, (role, meant) in roles.items():
        assert (name, internet(role.process.pid)) == (name, [])
        assert (name, unix(role.process.pid)) == (name, {str(path) for path in meant})


def test_a_listener_on_the_network_is_seen() -> None:
    before = len(internet("self"))
    with FakeLlama():
        assert len(internet("self")) == before + 1
