import json

import pytest

from bxcore import jsonl, sessionrecords, strictjson
from bxcore.sessionrecords import Record, ToolCall
from loopd import arguments, replyrecords, stream
from loopd.history import History
from loopd.replyrecords import MAX_BROKEN_CHARS, Place
from loopd.stream import Cap, Completion, ReceivedCall
from tests.fakes.records import NOW, end, said, start, usage, user
from tests.unit.loopd.test_arguments import BAD, GOOD

AT = Place(time=NOW, turn=3, step=2)


def received(
    *calls: ReceivedCall,
    content: str | None = None,
    reasoning: str | None = None,
    prompt: int = 100,
    cached: int = 60,
) -> Completion:
    return Completion(
        content=content,
        reasoning=reasoning,
        calls=calls,
        finish="stop",
        prompt=prompt,
        cached=cached,
        predicted=7,
        reasoning_tokens=2,
    )


def asked(arguments_text: str, *, identity: str = "id-1", name: str = "clock") -> ReceivedCall:
    return ReceivedCall(id=identity, name=name, arguments=arguments_text)


def stored(*calls: ReceivedCall) -> tuple[ToolCall, ...]:
    return replyrecords.stored_calls(received(*calls))


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_s27_arguments_that_cannot_be_sent_back_are_stored_as_an_empty_object(text: str) -> None:
    """Statement 27: one broken call in history must not fail every later request."""
    (call,) = stored(asked(text))
    assert call.arguments == "{}"
    assert call.broken is not None
    assert call.broken == text.encode(errors="replace").decode()[:MAX_BROKEN_CHARS]


@pytest.mark.parametrize("text", [text for text, _ in GOOD.values()], ids=GOOD.keys())
def test_good_arguments_are_stored_byte_for_byte(text: str) -> None:
    assert stored(asked(text)) == (ToolCall(id="id-1", name="clock", arguments=text, broken=None),)


WORST = "\x01"
"""The character that takes the most bytes of a line: six."""


@pytest.mark.parametrize("where", ["text", "thinking", "arguments"])
def test_whatever_a_reply_holds_its_record_fits_a_line(where: str) -> None:
    much = WORST * stream.MAX_CHARS
    call = asked('{"a":"' + "é" * (stream.MAX_CHARS - 8) + '"}', name=WORST * stream.LONGEST_NAME)
    same = ReceivedCall(id=WORST * stream.LONGEST_ID, name=WORST * stream.LONGEST_NAME, arguments="{}")
    reply = received(
        *([call] if where == "arguments" else []),
        *[same] * (stream.MAX_CALLS - 1),
        content=much if where == "text" else None,
        reasoning=much if where == "thinking" else None,
    )
    record = replyrecords.assistant(AT, reply, replyrecords.stored_calls(reply))
    assert len(strictjson.dumps(sessionrecords.to_value(record))) <= jsonl.MAX_LINE


def test_of_broken_arguments_a_part_is_kept() -> None:
    (call,) = stored(asked('{"a":"' + "x" * 100_000))
    assert call.broken is not None
    assert len(call.broken) == MAX_BROKEN_CHARS


def test_a_call_without_an_id_or_a_name_gets_one() -> None:
    first, second = stored(asked("{}", identity="", name=""), asked("{}", identity=""))
    assert (first.name, second.name) == ("unnamed", "clock")
    assert first.id
    assert second.id
    assert first.id != second.id


def test_each_call_of_a_reply_has_an_id_of_its_own() -> None:
    """A result names the id it answers; the model could not tell which of two equal ones is meant."""
    for calls in (
        [asked("{}"), asked("{}")],
        [asked("{}", identity=""), asked("{}", identity="call-1")],
        [asked("{}", identity="call-2"), asked("{}", identity="")],
        [asked("{}")] * 5,
    ):
        kept = stored(*calls)
        assert len({call.id for call in kept}) == len(calls)
        assert kept[0].id == (calls[0].id or kept[0].id)


def test_whatever_was_received_can_be_sent_back() -> None:
    for text in [*BAD.values(), *(text for text, _ in GOOD.values())]:
        for call in stored(asked(text), asked("{}")):
            assert type(arguments.parse(call.arguments)) is dict
            json.dumps(json.loads(call.arguments), allow_nan=False).encode()


def test_a_reply_is_stored_as_received() -> None:
    kept = replyrecords.assistant(AT, received(content=" a\n", reasoning=None), ())
    assert (kept.turn, kept.step, kept.content, kept.reasoning_content, kept.tool_calls) == (3, 2, " a\n", None, ())


def after(*records: Record) -> History:
    history = History("system")
    for record in records:
        history.add(record)
    return history


def test_usage_adds_up() -> None:
    counted, loss = replyrecords.usage(AT, received(prompt=100, cached=60), after(user("k"), start(1, "k")))
    assert (counted.prompt, counted.cached, counted.read, counted.reread) == (100, 60, 40, 0)
    assert (counted.output, counted.reasoning, counted.finish) == (7, 2, "stop")
    assert loss is None


def test_s31_a_server_that_read_again_is_recorded_with_what_it_should_have_had() -> None:
    """Statement 31."""
    history = after(user("k"), start(1, "k"), said("a"), usage(prompt=1_000, cached=0, output=50), end())
    history.add(user("l"))
    history.add(start(2, "l"))
    counted, loss = replyrecords.usage(AT, received(prompt=1_100, cached=3), history)
    assert counted.reread == 1_046
    assert loss is not None
    assert (loss.expected, loss.got) == (1_050, 3)


def test_a_reply_that_broke_off_before_the_first_count_is_no_loss() -> None:
    history = after(user("k"), start(1, "k"), said("a"), usage(prompt=1_000, cached=0, output=50), end())
    counted, loss = replyrecords.usage(AT, received(prompt=0, cached=0), history)
    assert loss is None
    assert counted.reread == 0


def test_a_thinking_cap_is_recorded_where_it_was_reached() -> None:
    assert replyrecords.cap(AT, None) is None
    reached = replyrecords.cap(AT, Cap(tokens=4096, ended=False))
    assert reached is not None
    assert (reached.tokens, reached.ended) == (4096, False)
