"""In which order the parts of gatewayd start and stop."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bxcore.deadline import SystemClock
from bxcore.secrets import Secret
from bxcore.settings import gatewayd as settings_file
from gatewayd import account
from gatewayd.faults import NotABot
from gatewayd.parts import Parts
from gatewayd.posts import Account
from gatewayd.store import Store
from tests.fakes.postbox import BOT, an_id

CLOCK = SystemClock()
PATIENCE_MS, PATIENCE_SECONDS = 60_000, 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path, CLOCK)) as made:
        yield made


@pytest.fixture
def parts(tmp_path: Path, store: Store) -> Parts:
    settings = settings_file.GatewaydSettings(
        state=tmp_path,
        listen=settings_file.Listen(gateway=tmp_path / "g", owner=tmp_path / "o"),
        mattermost=settings_file.Mattermost(url="http://127.0.0.1:1", retry_most_ms=1),
        loop=settings_file.Loop(socket=tmp_path / "l"),
        allow=settings_file.Allow(users=(an_id("alice"),)),
    )
    return Parts(settings, Secret("mattermost-token", "canary"), store=store, clock=CLOCK)


class Noted:
    """A part that only notes what is done to it."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self._name, self._seen = name, seen

    def start(self) -> None:
        self._seen.append(f"start {self._name}")

    def stop(self) -> None:
        self._seen.append(f"stop {self._name}")

    def join(self, _milliseconds: int) -> bool:
        self._seen.append(f"join {self._name}")
        return True


def says(what: Callable[[], Account | None]) -> Callable[..., Account | None]:
    """account.check, which finds what a test says."""

    def check(*_: object, tried: Callable[[], None], **__: object) -> Account | None:
        tried()
        return what()

    return check


def test_whoever_takes_work_starts_first_and_stops_last(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(account, "check", says(lambda: BOT))
    monkeypatch.setattr(Parts, "_learn_limits", lambda _: None)
    monkeypatch.setattr(Parts, "_built", lambda *_: [Noted("giver", seen), Noted("taker", seen)])
    parts.start(tried=lambda: seen.append("tried"), on_failure=lambda: seen.append("failed"))
    assert parts._thread is not None
    parts._thread.join()
    parts.stop()
    assert parts.join(PATIENCE_MS)
    assert seen == ["tried", "start taker", "start giver", "stop giver", "stop taker", "join giver", "join taker"]


def test_the_real_parts_stand_in_the_order_in_which_a_post_meets_them(parts: Parts) -> None:
    built = parts._built(BOT)
    for part in built:
        part.stop()
        assert part.join(PATIENCE_MS)
    assert [type(part).__name__ for part in built] == [
        "Events",
        "Inbound",
        "Doing",
        "Conversation",
        "Typing",
        "Questions",
        "Poster",
    ]


def test_stopped_before_the_server_said_who_we_are_nothing_is_started(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late() -> Account:
        parts.stop()
        return BOT

    seen: list[str] = []
    monkeypatch.setattr(account, "check", says(late))
    monkeypatch.setattr(Parts, "_built", lambda *_: [Noted("part", seen)])
    parts.start(tried=lambda: None, on_failure=lambda: seen.append("failed"))
    assert parts.join(PATIENCE_MS)
    assert seen == []


@pytest.mark.parametrize("error", [NotABot("a person's"), RuntimeError("a fault of ours")], ids=["owner's", "ours"])
def test_what_ends_the_start_is_handed_to_the_main_thread(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> Account:
        raise error

    failed = threading.Event()
    monkeypatch.setattr(account, "check", says(fail))
    parts.start(tried=lambda: None, on_failure=failed.set)
    assert failed.wait(PATIENCE_SECONDS)
    assert parts.join(PATIENCE_MS)
    assert parts.failure is error


def test_a_server_that_does_not_say_its_limits_leaves_the_smallest(parts: Parts) -> None:
    parts._learn_limits()
    assert parts._size.characters == 4_000


def test_a_second_stop_harms_nothing(parts: Parts) -> None:
    parts.stop()
    parts.stop()
    assert parts.join(PATIENCE_MS)
