import threading
from collections.abc import Iterator

import pytest

from bxcore.wire.channel import ReasoningDelta, TextDelta
from loopd import broadcast
from loopd.broadcast import Broadcast, Lagged, Listener


def text(words: str, *, step: int = 1) -> TextDelta:
    return TextDelta(turn=1, step=step, text=words)


def thought(words: str, *, step: int = 1) -> ReasoningDelta:
    return ReasoningDelta(turn=1, step=step, text=words)


def heard(listener: Listener) -> list[object]:
    """Everything up to the end of the turn. A silence of ten seconds is a fault of the test."""
    return [event for event in listener.events(look_seconds=10) if event is not None]


def test_a_listener_hears_everything_from_its_beginning_on_in_order() -> None:
    turn = Broadcast()
    listener = turn.listen()
    told = [text("a"), thought("b"), object(), text("c", step=2)]
    for event in told:
        turn.tell(event)
    turn.end()
    assert heard(listener) == told


def test_who_comes_later_gets_the_running_step_and_then_what_follows() -> None:
    turn = Broadcast()
    turn.tell(thought("I "))
    turn.tell(thought("think."))
    turn.tell(text("Hel"))
    late = turn.listen()
    assert (late.reasoning, late.text) == ("I think.", "Hel")
    turn.tell(text("lo"))
    turn.end()
    assert heard(late) == [text("lo")]


def test_a_new_step_begins_with_nothing() -> None:
    turn = Broadcast()
    turn.tell(thought("old"))
    turn.tell(text("old"))
    turn.tell(text("new", step=2))
    late = turn.listen()
    assert (late.reasoning, late.text) == ("", "new")


def test_listening_after_the_end_ends_at_once() -> None:
    turn = Broadcast()
    turn.tell(text("x"))
    turn.end()
    late = turn.listen()
    assert late.text == "x"
    assert heard(late) == []


def test_a_silence_is_reported_and_does_not_end_the_listening() -> None:
    turn = Broadcast()
    events = turn.listen().events(look_seconds=0.001)
    assert next(events) is None
    assert next(events) is None
    turn.tell(text("x"))
    assert next(event for event in events if event is not None) == text("x")


def test_who_left_hears_nothing_more_and_may_leave_twice() -> None:
    turn = Broadcast()
    gone, stays = turn.listen(), turn.listen()
    turn.leave(gone)
    turn.leave(gone)
    turn.tell(text("x"))
    turn.end()
    assert heard(stays) == [text("x")]
    assert list_now(gone) == [None]


def list_now(listener: Listener) -> list[object | None]:
    return [next(listener.events(look_seconds=0.001))]


def flooded(turn: Broadcast, count: int) -> Iterator[TextDelta]:
    for number in range(count):
        event = text(str(number))
        turn.tell(event)
        yield event


def test_a_listener_that_does_not_keep_up_is_let_go_after_what_reached_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_BEHIND", 8)
    turn = Broadcast()
    slow = turn.listen()
    told = list(flooded(turn, 20))
    turn.end()
    events = slow.events(look_seconds=10)
    assert [next(events) for _ in range(8)] == told[:8]
    with pytest.raises(Lagged):
        next(events)


def test_a_slow_listener_holds_up_neither_the_turn_nor_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_BEHIND", 8)
    turn = Broadcast()
    turn.listen()
    fast = turn.listen()
    told, events = [], fast.events(look_seconds=10)
    for event in flooded(turn, 100):
        told.append(event)
        assert next(events) == event
    turn.end()
    assert list(events) == []
    assert len(told) == 100


def test_the_end_that_found_no_room_is_a_lag_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_BEHIND", 2)
    turn = Broadcast()
    full = turn.listen()
    list(flooded(turn, 2))
    turn.end()
    with pytest.raises(Lagged):
        list(full.events(look_seconds=10))


def test_nothing_is_missed_or_heard_twice_by_whoever_comes_in_the_middle() -> None:
    """Snapshot and stream join without a seam, however the threads are cut."""
    turn, words = Broadcast(), [f"{number} " for number in range(1_500)]
    listeners: list[Listener] = []
    begun = threading.Event()

    def tell() -> None:
        for number, word in enumerate(words):
            turn.tell(text(word))
            if number == 100:
                begun.set()
        turn.end()

    teller = threading.Thread(target=tell)
    teller.start()
    begun.wait(10)
    while teller.is_alive() and len(listeners) < 40:
        listeners.append(turn.listen())
    listeners.append(turn.listen())
    teller.join()
    whole = "".join(words)
    for listener in listeners:
        rest = "".join(event.text for event in heard(listener) if isinstance(event, TextDelta))
        assert listener.text + rest == whole
