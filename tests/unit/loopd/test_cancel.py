"""Stopping from another thread: nothing that waits sleeps on, and no descriptor is left behind."""

import select
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from loopd.cancel import CancelToken
from loopd.modelfaults import Cancelled

OPEN = Path("/proc/self/fd")


def readable(fd: int, *, milliseconds: int = 0) -> bool:
    return bool(select.select([fd], [], [], milliseconds / 1000)[0])


def test_a_fresh_token_lets_everything_pass() -> None:
    token = CancelToken()
    token.check()
    with token.waking() as wake:
        assert not readable(wake)
    assert not token.cancelled


def test_cancelling_wakes_every_wait_and_those_that_begin_later() -> None:
    token = CancelToken()
    with token.waking() as first, token.waking() as second:
        token.cancel()
        token.cancel()
        with token.waking() as later:
            assert all(readable(wake) for wake in (first, second, later))
    with pytest.raises(Cancelled):
        token.check()


def test_a_wait_in_another_thread_ends_at_once() -> None:
    token, woken = CancelToken(), threading.Event()

    def wait() -> None:
        with token.waking() as wake:
            started.set()
            if readable(wake, milliseconds=60_000):
                woken.set()

    started = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    token.cancel()
    thread.join()
    assert woken.is_set()


def test_many_threads_may_cancel_and_wait_at_once() -> None:
    token = CancelToken()

    def come_and_go() -> None:
        for _ in range(200):
            with token.waking() as wake:
                token.cancel()
                assert readable(wake)

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert token.cancelled


def test_no_descriptor_is_left_open() -> None:
    token = CancelToken()
    before = len(list(OPEN.iterdir()))
    with ExitStack() as held:
        for _ in range(50):
            held.enter_context(token.waking())
    assert len(list(OPEN.iterdir())) <= before
