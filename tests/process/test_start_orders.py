"""Row S4: the four parts of a turn with a tool in every order of starting, and brokerd away in the middle."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.wire.channel import ToolReturned, TurnEnding
from tests.fakes.llama_server import Call, Reply
from tests.process import brokerd_stack, loopd_stack
from tests.process.loopd_stack import until
from tests.process.role import Role

PARTS = ("llama", "inferproxy", "loopd", "brokerd")


@pytest.fixture
def broker() -> Iterator[brokerd_stack.Stack]:
    with brokerd_stack.stack() as made:
        made.grant()
        yield made


@pytest.fixture
def loop(broker: brokerd_stack.Stack, tmp_path: Path) -> Iterator[loopd_stack.Stack]:
    with loopd_stack.Stack(tmp_path, {"broker": {"socket": str(broker.socket("broker"))}}) as made:
        yield made


def reads_the_note(loop: loopd_stack.Stack, broker: brokerd_stack.Stack) -> ToolReturned:
    """Have the model read the note; return what came of it. Its turn is answered whatever that is."""
    arguments = json.dumps({"name": "read_file", "arguments": {"path": str(broker.note)}})
    loop.replies.extend([Reply(calls=(Call(name="call_tool", arguments=arguments),)), loopd_stack.OK])
    talk = loop.say(new=not loop.log_file().exists())
    assert talk.ended().ending is TurnEnding.ANSWERED
    [returned] = talk.of(ToolReturned)
    return returned


@pytest.mark.parametrize("order", list(itertools.permutations(PARTS)), ids="-".join)
def test_s4_in_every_order_a_granted_call_is_answered(
    loop: loopd_stack.Stack, broker: brokerd_stack.Stack, order: tuple[str, ...]
) -> None:
    started: list[Role] = []
    try:
        for part in order:
            match part:
                case "llama":
                    loop.llama.start()
                case "inferproxy":
                    loop.start_proxy()
                case "loopd":
                    loop.start_loopd()
                    until(loop.home.loop_socket.exists, "the socket")
                case _:
                    started.append(broker.start().wait_ready())
        loop.loopd.wait_ready()
        assert "fair wind" in reads_the_note(loop, broker).content
        assert loop.loopd.process.poll() is started[0].process.poll() is None
    finally:
        for role in started:
            role.__exit__(None, None, None)


def test_s4_while_brokerd_is_away_a_call_is_not_run_and_the_turn_is_answered(
    loop: loopd_stack.Stack, broker: brokerd_stack.Stack
) -> None:
    loop.start()
    for _ in range(3):
        said = reads_the_note(loop, broker).content
        assert "fair wind" not in said
        assert broker.started == []
    with broker.brokerd():
        assert "fair wind" in reads_the_note(loop, broker).content
    assert "fair wind" not in reads_the_note(loop, broker).content
    assert loop.loopd.process.poll() is None
    assert len(broker.started) == 1
