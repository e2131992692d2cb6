"""The model client before the first byte: nobody there, a model that loads, a slot that is busy (M6)."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.wire.channel import WaitReason
from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled, ModelLoading, ServerAway, ServerLost, ServerSilent, SlotBusy
from tests.fakes.llama_server import FakeLlama, Refusal, Reply, Vanish
from tests.fakes.model_client import Told, assembled, client, read


@pytest.fixture
def fake() -> Iterator[FakeLlama]:
    with tempfile.TemporaryDirectory(prefix="bxm") as name, FakeLlama(Path(name) / "m.sock") as fake:
        yield fake


# -- nobody there ------------------------------------------------------------------------------------------


def test_a_server_that_is_away_is_tried_again_briefly(fake: FakeLlama) -> None:
    fake.kill()
    told = Told()
    with pytest.raises(ServerAway):
        read(client(fake, connect_ms=600), told=told)
    assert 1 < len(told.reasons) < 10
    assert set(told.reasons) == {WaitReason.SERVER_AWAY}
    assert set(told.limits) == {600}


def test_a_server_that_comes_back_in_time_is_used(fake: FakeLlama) -> None:
    fake.kill()
    fake.say(Reply(text="Back."))
    told = Told(lambda _: fake.start())
    assert assembled(read(client(fake), told=told)).content == "Back."
    assert told.reasons == [WaitReason.SERVER_AWAY]


def test_a_connection_closed_before_the_headers_is_tried_again(fake: FakeLlama) -> None:
    """inferproxy closes at once where its upstream is down."""
    fake.say(Vanish(), Vanish(), Reply(text="Back."))
    assert assembled(read(client(fake))).content == "Back."
    assert len(fake.completions) == 3


def test_a_gateway_that_reaches_nobody_is_tried_again(fake: FakeLlama) -> None:
    page = Refusal(status=502, body=b"<html>Bad gateway</html>")
    fake.say(page, Reply(text="Back."))
    assert assembled(read(client(fake))).content == "Back."
    fake.say(*[page] * 100)
    with pytest.raises(ServerAway, match="HTTP 502"):
        read(client(fake, connect_ms=300))


def test_a_server_that_breaks_at_each_request_is_not_asked_for_ever(fake: FakeLlama) -> None:
    fake.say(*[Vanish()] * 100)
    with pytest.raises(ServerLost):
        read(client(fake, connect_ms=500))
    assert 1 < len(fake.completions) < 10


def test_a_request_that_waited_long_is_not_sent_to_a_new_server(fake: FakeLlama) -> None:
    """It may have been what broke the old one."""
    fake.say(Reply(text="Never."))
    with fake.busy(0):
        told = Told(lambda _: fake.kill())
        with pytest.raises(ServerLost):
            read(client(fake, connect_ms=100), told=told)
    assert told.reasons == [WaitReason.SLOT_BUSY]
    assert len(fake.completions) == 1


def test_waiting_for_a_server_can_be_cancelled(fake: FakeLlama) -> None:
    fake.kill()
    cancel = CancelToken()
    with pytest.raises(Cancelled):
        read(client(fake), cancel=cancel, told=Told(lambda _: cancel.cancel()))


# -- the model loads --------------------------------------------------------------------------------------


def test_a_loading_model_is_waited_for_and_the_request_sent_again(fake: FakeLlama) -> None:
    fake.loading = True
    fake.say(Reply(text="Loaded."))

    def load(_: WaitReason) -> None:
        if len(told.reasons) == 2:
            fake.loading = False

    told = Told(load)
    assert assembled(read(client(fake, load_ms=77_000), told=told)).content == "Loaded."
    assert told.reasons == [WaitReason.MODEL_LOADING] * 2
    assert set(told.limits) == {77_000}
    # Asked by /health meanwhile: the prompt may be long, and would be sent in vain.
    assert len(fake.completions) == 2


def test_a_model_that_does_not_load_in_time_is_given_up(fake: FakeLlama) -> None:
    fake.loading = True
    with pytest.raises(ModelLoading):
        read(client(fake, load_ms=600))


def test_a_server_that_restarts_while_it_loads_is_waited_for(fake: FakeLlama) -> None:
    fake.loading = True
    fake.say(Reply(text="Loaded."))

    def restart(_: WaitReason) -> None:
        if len(told.reasons) == 1:
            fake.kill()
        else:
            fake.loading = False
            fake.start()

    told = Told(restart)
    assert assembled(read(client(fake), told=told)).content == "Loaded."


def test_waiting_for_a_model_can_be_cancelled(fake: FakeLlama) -> None:
    fake.loading = True
    cancel = CancelToken()
    with pytest.raises(Cancelled):
        read(client(fake), cancel=cancel, told=Told(lambda _: cancel.cancel()))


# -- the slot is busy ---------------------------------------------------------------------------------------


def test_a_queued_request_says_so_and_is_served_in_the_end(fake: FakeLlama) -> None:
    fake.say(Reply(text="At last."))
    freed = threading.Event()
    told = Told(lambda _: freed.set())

    def other_client() -> None:
        with fake.busy(0):
            held.set()
            freed.wait()

    held = threading.Event()
    thread = threading.Thread(target=other_client)
    thread.start()
    held.wait()
    assert assembled(read(client(fake, slot_ms=88_000), told=told)).content == "At last."
    thread.join()
    assert told.reasons == [WaitReason.SLOT_BUSY]
    assert told.limits == [88_000]


def test_a_slot_that_stays_busy_is_given_up(fake: FakeLlama) -> None:
    fake.say(Reply(text="Never."))
    with fake.busy(0), pytest.raises(SlotBusy):
        read(client(fake, slot_ms=700))


def test_another_clients_slot_is_none_of_our_business(fake: FakeLlama) -> None:
    """Slot 1 is busy, ours is free, and no headers come: that server is not busy but silent."""
    fake.say(Reply(text="Never."))
    fake.frozen_paths = {"/v1/chat/completions"}
    with fake.busy(1), pytest.raises(ServerSilent):
        read(client(fake, load_ms=500))


def test_the_slots_of_the_named_model_are_asked_for(fake: FakeLlama) -> None:
    fake.say(Reply(text="Never."))
    with fake.busy(0), pytest.raises(SlotBusy):
        read(client(fake, model="a/b", slot_ms=500))
    assert "/slots?model=a%2Fb" in [request.target for request in fake.requests]


def test_waiting_for_a_slot_can_be_cancelled_and_the_queue_moves_on(fake: FakeLlama) -> None:
    fake.say(Reply(text="Never."), Reply(text="Next."))
    cancel = CancelToken()
    with fake.busy(0), pytest.raises(Cancelled):
        read(client(fake), cancel=cancel, told=Told(lambda _: cancel.cancel()))
    assert assembled(read(client(fake))).content == "Next."


def test_a_server_that_hangs_is_given_up_although_it_was_busy_before(fake: FakeLlama) -> None:
    fake.say(Reply(text="Never."))

    def freeze(_: WaitReason) -> None:
        fake.frozen = True

    with fake.busy(0), pytest.raises(SlotBusy):
        read(client(fake, slot_ms=1_500), told=Told(freeze))


def test_headers_that_come_during_a_look_end_it(fake: FakeLlama) -> None:
    """The look at /slots may take a second; the reply must not wait for it."""
    fake.say(Reply(text="At last."))
    fake.frozen_paths = {"/slots"}
    looked = threading.Event()
    fake.on_request = lambda request: looked.set() if request.target == "/slots" else None

    def other_client() -> None:
        with fake.busy(0):
            held.set()
            looked.wait()

    held = threading.Event()
    thread = threading.Thread(target=other_client)
    thread.start()
    held.wait()
    told = Told()
    assert assembled(read(client(fake), told=told)).content == "At last."
    thread.join()
