"""loopd with many clients at once, with clients that leave, come late, read slowly, or speak nonsense."""

import itertools
import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator

import pytest

from bxcore import client, frame, ids
from bxcore.deadline import SystemClock
from bxcore.envelope import Envelope, encode
from bxcore.ids import CallId, SessionId
from bxcore.wire.channel import (
    MessageAccepted,
    PromptProgress,
    TextDelta,
    TurnEnding,
    TurnSnapshot,
    TurnStarted,
    TurnState,
    UserMessage,
)
from bxcore.wire.tools import ToolRequest
from tests.fakes.llama.text import pieces
from tests.fakes.llama_server import Pause, Reply
from tests.process.loopd_stack import PATIENCE_SECONDS, Stack, faults, lost, of, until

CLIENTS = 100
SENDERS = 20
MANY_EVENTS = 12_000
"""More than a listener may be behind, with what fits into the socket between."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("clients"), {"sampling": {"max_tokens": 20_000}}) as stack:
        yield stack.start()


@pytest.fixture
def stack(running: Stack) -> Stack:
    running.replies.clear()
    return running


sessions = (f"s{number}" for number in itertools.count())


def test_a_hundred_clients_at_once_are_all_answered(stack: Stack) -> None:
    names = [next(sessions) for _ in range(CLIENTS)]
    talks = [stack.say(f"I am {name}.", session=name, new=True) for name in names]
    assert Counter(talk.ended().ending for talk in talks) == {TurnEnding.ANSWERED: CLIENTS}
    for name, talk in zip(names, talks, strict=True):
        assert talk.text == "All right."
        records = stack.records(name)
        assert [record["content"] for record in of(records, "user")] == [f"I am {name}."]
        assert lost(talk, records) == []
        assert faults(records) == []
    assert sorted(len(stack.bodies(f"I am {name}.")) for name in names) == [1] * CLIENTS


def test_messages_that_come_during_a_turn_are_the_next_turn_together(stack: Stack) -> None:
    session, pause = next(sessions), Pause()
    stack.replies.append(Reply(text="One two.", pause_after=1, pause=pause))
    first = stack.say("first", session=session, new=True, key="k0")
    assert pause.reached.wait(PATIENCE_SECONDS)
    others = [stack.say(f"other {number}", session=session, key=f"k{number}") for number in range(1, SENDERS)]
    # Half of them send it a second time, as a client does that lost its connection.
    again = [stack.say(f"other {number}", session=session, key=f"k{number}") for number in range(1, SENDERS, 2)]
    accepted = [talk.wait(MessageAccepted) for talk in others + again]
    assert {(message.turn, message.queued) for message in accepted} == {(2, True)}
    assert Counter(message.duplicate for message in accepted)[False] == len(others)
    pause.go_on.set()
    assert first.ended().turn == 1
    assert {talk.ended().turn for talk in others + again} == {2}
    (keys,) = {talk.wait(TurnStarted).keys for talk in others + again}
    assert sorted(keys) == sorted(f"k{number}" for number in range(1, SENDERS))
    records = stack.records(session)
    assert faults(records) == []
    assert [lost(talk, records) for talk in [first, *others, *again]] == [[]] * (1 + len(others) + len(again))
    question = json.loads(stack.bodies("other 1")[-1])["messages"][-1]
    assert question["content"].split("\n\n") == [f"other {key.removeprefix('k')}" for key in keys]


def test_a_turn_goes_on_without_its_client_and_its_end_can_be_looked_up(stack: Stack) -> None:
    session, pause = next(sessions), Pause()
    stack.replies.append(Reply(text="One two three.", pause_after=1, pause=pause))
    talk = stack.say(session=session, new=True)
    assert talk.wait(TextDelta).text == "One"
    talk.leave()
    pause.go_on.set()
    until(lambda: of(stack.records(session), "turn_end"), "the end of the turn")
    seen = stack.follow(session=session)
    assert (seen.ended().ending, seen.ended().text) == (TurnEnding.ANSWERED, "One two three.")
    assert seen.wait(TurnSnapshot).state is TurnState.ENDED


def test_who_joins_in_the_middle_hears_the_whole_text_once(stack: Stack) -> None:
    session, pause = next(sessions), Pause()
    thinking = len(pieces("<think>\nLet me see.\n</think>\n\n"))
    thoughtful = Reply(reasoning="Let me see.", text="One two three four.", pause_after=thinking + 2, pause=pause)
    stack.replies.append(thoughtful)
    talk = stack.say(session=session, new=True)
    talk.wait(TextDelta, 2)
    joined = stack.follow(session=session)
    snapshot = joined.wait(TurnSnapshot)
    pause.go_on.set()
    assert joined.ended() == talk.ended()
    assert snapshot.state is TurnState.RUNNING
    assert (snapshot.text, joined.text) == ("One two", " three four.")
    assert snapshot.reasoning == "Let me see.\n"


def test_who_reads_too_slowly_is_let_go_and_nobody_else_is_held_up(stack: Stack) -> None:
    session, pause = next(sessions), Pause()
    words = " ".join(f"w{number}" for number in range(MANY_EVENTS))  # all different: no answer that repeats itself
    stack.replies.append(Reply(text=words, pause_after=1, pause=pause))
    message = UserMessage(session=SessionId(session), new=True, key=ids.new_message_key(), text="Tell me all.")
    with client.Connection(stack.home.loop_socket, clock=SystemClock()) as slow:
        events = slow.request(message, idle_ms=PATIENCE_SECONDS * 1000)
        assert isinstance(next(events).msg, MessageAccepted)
        assert pause.reached.wait(PATIENCE_SECONDS)
        others = [stack.follow(session=session) for _ in range(3)]
        snapshots = [other.wait(TurnSnapshot) for other in others]
        pause.go_on.set()
        assert [other.ended().text for other in others] == [words] * 3
        assert [had.text + other.text for had, other in zip(snapshots, others, strict=True)] == [words] * 3
        with pytest.raises(client.RemoteFault) as let_go:
            list(events)
    assert let_go.value.code == "lagged"
    assert stack.say(session=session).ended().ending is TurnEnding.ANSWERED


@pytest.mark.parametrize("place", ["in the prompt", "in the text"])
def test_a_turn_that_is_cancelled_gives_its_slot_back(stack: Stack, place: str) -> None:
    session = next(sessions)
    inside = place == "in the text"
    stack.replies.append(Reply(text="One two.", silent_after=1) if inside else Reply(batch_delay=3_600))
    talk = stack.say(session=session, new=True)
    talk.wait(TextDelta if inside else PromptProgress)
    assert stack.llama.slots.all[0].busy
    assert stack.cancel(session=session).turn == 1
    assert talk.ended().ending is TurnEnding.CANCELLED
    until(lambda: not stack.llama.slots.all[0].busy, "the free slot")
    assert stack.say(session=session).ended().ending is TurnEnding.ANSWERED
    assert stack.cancel(session=session).turn is None
    assert faults(stack.records(session)) == []


def test_a_turn_that_waits_for_another_ones_slot_can_be_cancelled(stack: Stack) -> None:
    first, second, pause = next(sessions), next(sessions), Pause()
    stack.replies.append(Reply(text="One two.", pause_after=1, pause=pause))
    holds = stack.say("holds the slot", session=first, new=True)
    assert pause.reached.wait(PATIENCE_SECONDS)
    waits = stack.say("waits for it", session=second, new=True)
    waits.wait(TurnStarted)
    stack.cancel(session=second)
    assert waits.ended().ending is TurnEnding.CANCELLED
    pause.go_on.set()
    assert holds.ended().ending is TurnEnding.ANSWERED
    assert stack.bodies("waits for it") == []


def test_a_message_of_another_socket_is_forbidden(stack: Stack) -> None:
    asks_the_broker = ToolRequest(session=SessionId("s"), call=CallId(1), tool="echo", arguments="{}")
    assert stack.talk(asks_the_broker).over().code == "forbidden"
    assert stack.status().ready


WHOLE = encode(
    Envelope(id=1, final=True, msg=UserMessage(session=SessionId("x"), new=True, key=ids.new_message_key(), text="x"))
)


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


GARBAGE = {
    "nothing": b"",
    "half a header": b"\0\0",
    "a length of 0": b"\0\0\0\0",
    "a length of 4 GiB": b"\xff\xff\xff\xff",
    "half a body": framed(WHOLE)[:-5],
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no JSON": framed(b"\xff\xfe"),
    "deep": framed(b"[" * 100_000),
    "a key twice": framed(WHOLE.replace(b'"new":true', b'"new":true,"new":true')),
    "an unknown field": framed(WHOLE.replace(b'"new":true', b'"new":true,"old":true')),
    "a missing field": framed(WHOLE.replace(b'"new":true,', b"")),
    "null for a text": framed(WHOLE.replace(b'"text":"x"', b'"text":null')),
    "half a surrogate pair": framed(WHOLE.replace(b'"text":"x"', b'"text":"\\ud800"')),
    "a session that is a path": framed(WHOLE.replace(b'"session":"x"', b'"session":"../x"')),
    "another version": framed(WHOLE.replace(b'"v":1', b'"v":2')),
    "an unknown kind": framed(WHOLE.replace(b"user_message", b"user_massage")),
    "two values": framed(WHOLE + WHOLE),
}


def everything(peer: socket.socket) -> bytes:
    """Read to the end; a peer that closes with something of ours unread resets the connection after its last word."""
    received = b""
    try:
        while piece := peer.recv(4_096):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_garbage_on_other_connections_disturbs_no_turn(stack: Stack) -> None:
    session, pause = next(sessions), Pause()
    stack.replies.append(Reply(text="One two.", pause_after=1, pause=pause))
    talk = stack.say(session=session, new=True)
    assert pause.reached.wait(PATIENCE_SECONDS)
    for name, sent in GARBAGE.items():
        with socket.socket(socket.AF_UNIX) as rude:
            rude.settimeout(PATIENCE_SECONDS)
            rude.connect(str(stack.home.loop_socket))
            rude.sendall(sent)
            rude.shutdown(socket.SHUT_WR)
            answer = everything(rude)
        # Who closed between two frames has said nothing, and is told nothing.
        assert (b'"kind":"error"' in answer) is (name != "nothing"), name
        assert len(answer) <= frame.MAX_FRAME
        assert stack.status().running_turns == 1
    pause.go_on.set()
    assert talk.ended().ending is TurnEnding.ANSWERED
    assert not (stack.state / "sessions" / "x").exists()
    assert "Traceback" not in stack.loopd.log()
