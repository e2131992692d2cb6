"""Who is served when: pinned requests queue without a byte, and a client that leaves frees its slot."""

import threading
from typing import Any

from tests.contract.peer import Json, Opened, Peer, fresh, text_of
from tests.fakes.llama_server import Reply

# ignore_eos: a real model must not stop by itself while a test wants the slot to be busy.
ENDLESS: dict[str, Any] = {"max_tokens": 4_000, "ignore_eos": True}
LONG = Reply(text="word " * 4_000, token_delay=0.02)
SHORT = Reply(text="Fine.")


def begun(peer: Peer, *, slot: int) -> Opened:
    """A long reply that has begun to arrive."""
    opened = peer.begin(messages=fresh(), id_slot=slot, **ENDLESS)
    assert opened.status == 200
    next(event for event in opened.events() if text_of([event]))
    return opened


def slots(peer: Peer) -> list[Json]:
    found: list[Json] = peer.ask("GET", "/slots")[1]
    return found


def test_a_pinned_request_waits_without_a_byte_although_another_slot_is_free(peer: Peer) -> None:
    peer.prepare(LONG, SHORT)
    with begun(peer, slot=0), peer.begin(messages=fresh(), id_slot=0, max_tokens=2) as waiting:
        assert not waiting.has_bytes_within(1.5)
        assert [slot["is_processing"] for slot in slots(peer)] == [True, False]


def test_the_queue_moves_on_when_the_client_before_leaves(peer: Peer) -> None:
    peer.prepare(LONG, SHORT)
    with begun(peer, slot=0) as first, peer.begin(messages=fresh(), id_slot=0, max_tokens=2) as second:
        first.__exit__()
        assert second.status == 200
        assert text_of(list(second.events()))


def test_another_slot_is_served_meanwhile(peer: Peer) -> None:
    peer.prepare(LONG, SHORT)
    with begun(peer, slot=0):
        assert text_of(peer.events(messages=fresh(), id_slot=1, max_tokens=2))


def test_leaving_in_the_middle_of_a_reply_frees_the_slot(peer: Peer) -> None:
    peer.prepare(LONG)
    with begun(peer, slot=0):
        assert peer.busy(0)
    peer.until(lambda: not peer.busy(0))


def test_leaving_while_the_prompt_is_read_frees_the_slot(peer: Peer) -> None:
    peer.prepare(Reply(text="Fine.", batch_delay=0.3))
    with peer.begin(messages=fresh("word " * 3_000), id_slot=0, max_tokens=2) as opened:
        events = opened.events()
        next(events)
        second = next(events)["prompt_progress"]
        assert second["processed"] < second["total"]
    peer.until(lambda: not peer.busy(0))


def test_a_client_that_left_the_queue_does_not_keep_the_slot(peer: Peer) -> None:
    peer.prepare(LONG, LONG, SHORT)
    with begun(peer, slot=0), peer.begin(messages=fresh(), id_slot=0, **ENDLESS) as waiting:
        assert not waiting.has_bytes_within(0.5)
    assert text_of(peer.events(messages=fresh(), id_slot=0, max_tokens=2))


def test_two_streams_run_side_by_side(peer: Peer) -> None:
    peer.prepare(Reply(text="word " * 40, token_delay=0.01), Reply(text="word " * 40, token_delay=0.01))
    texts: dict[int, str] = {}

    def run(slot: int) -> None:
        texts[slot] = text_of(peer.events(messages=fresh(), id_slot=slot, max_tokens=30, ignore_eos=True))

    threads = [threading.Thread(target=run, args=(slot,)) for slot in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(texts[slot] for slot in (0, 1))


def test_a_slot_shows_the_settings_of_its_newest_request(peer: Peer) -> None:
    peer.prepare(SHORT)
    peer.events(messages=fresh(), id_slot=1, max_tokens=2, temperature=0.25, top_p=0.5, top_k=7)
    shown = slots(peer)[1]["params"]
    assert (shown["temperature"], shown["top_p"], shown["top_k"], shown["max_tokens"]) == (0.25, 0.5, 7, 2)
