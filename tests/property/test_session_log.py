"""INV-6: break each effect once. Every call of the disk fails, every byte of the log is the last one.

One conversation, with tool calls and with messages that wait, is held again and again; each time
something else breaks. Afterwards what was acknowledged is there, and the session goes on.
"""

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bxcore.errors import StateError
from bxcore.files import DiskFiles
from bxcore.ids import SessionId
from bxcore.sessionrecords import TurnEnd, TurnStart, User
from bxcore.settings.loopd import Limits
from bxcore.wire.channel import TurnEnded, TurnEnding
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.loop import Loop, heard
from tests.fakes.power_loss import Choose, PowerCut, PowerLossSystem
from tests.fakes.scripted_model import answer, calls, echo
from tests.fakes.strict_server import complaints


@attrs.define
class Told:
    """What clients were told: keys of accepted messages, and the ends of turns."""

    accepted: list[str] = attrs.Factory(list)
    ended: list[TurnEnded] = attrs.Factory(list)


def converse(loop: Loop) -> Told:
    """Hold the conversation as far as it goes; return what was acknowledged until then."""
    told = Told()

    def say(text: str, key: str, *, wait: bool = True) -> None:
        _, accepted = loop.accept(text, key=key)
        told.accepted.append(key)
        if wait:
            events = heard(accepted.listener)
            told.ended += [event for event in events if isinstance(event, TurnEnded)]

    loop.model.expect(calls(echo("x"), ("clock", '{"broken'), echo("a long result " * 9)), answer("one"))
    loop.model.expect([lambda: say("while you answer", "k3", wait=False), *answer("two")], answer("three"))
    with suppress(StateError, PowerCut):
        say("Hello", "k1")
        say("More", "k2")
        loop.settle()
        say("The end", "k4")
    loop.settle()
    return told


NOT_RECORDED = {TurnEnding.STATE_FAILED, TurnEnding.INTERNAL}
"""The disk failed, or the power went: nobody could be told, but the turn's thread in this test."""


def check(loop: Loop, told: Told) -> None:
    """Whatever happened before: nothing acknowledged is lost, and the session goes on."""
    said = loop.say("Go on.", key="k9")
    assert said.ended.ending is TurnEnding.ANSWERED
    loop.settle()
    records = loop.records()
    keys = [record.key for record in records if isinstance(record, User)]
    assert set(told.accepted) <= set(keys)
    assert len(keys) == len(set(keys))
    ends = {record.turn: record.ending for record in records if isinstance(record, TurnEnd)}
    for ended in told.ended:
        if ended.ending not in NOT_RECORDED:
            assert ends[ended.turn] is ended.ending
    started = [record.turn for record in records if isinstance(record, TurnStart)]
    assert started == sorted(set(started))
    assert set(started) == set(ends)
    named = [key for record in records if isinstance(record, TurnStart) for key in record.keys]
    assert sorted(named) == sorted(keys)
    assert [found for body in loop.model.bodies for found in complaints(body)] == []


LIMITS = Limits(result_chars=40)


@contextmanager
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bxs") as name:
        yield Path(name)


def calls_of_the_disk() -> dict[str, int]:
    """How often the conversation asks the disk for what, where nothing fails."""
    with place() as directory:
        files = FaultyFiles(None)
        loop = Loop(directory, files=files, limits=LIMITS)
        told = converse(loop)
        assert told.accepted == ["k1", "k2", "k3", "k4"]
        assert [ended.ending for ended in told.ended] == [TurnEnding.ANSWERED] * 3
        loop.close()
        return dict(files.calls)


COUNTS = calls_of_the_disk()
ERRORS = {"no space": errno.ENOSPC, "a bad disk": errno.EIO, "read-only": errno.EROFS, "quota": errno.EDQUOT}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
@pytest.mark.parametrize("call", sorted(COUNTS))
def test_s8_whichever_call_of_the_disk_fails_nothing_acknowledged_is_lost(call: str, error: int) -> None:
    """Once, and from then on; the same loopd goes on when the disk is well again, and so does the next one."""
    for at in range(COUNTS[call]):
        for lasting in (False, True):
            with place() as directory:
                files = FaultyFiles(Fault(call=call, at=at, error=error, lasting=lasting))
                loop = Loop(directory, files=files, limits=LIMITS)
                told = converse(loop)
                files.system.fault = None
                if lasting:
                    loop.close()
                    loop = Loop(directory, limits=LIMITS)
                check(loop, told)
                loop.close()


@pytest.mark.parametrize("after_bytes", [1, 20, 150, 400])
def test_a_write_that_is_torn_loses_nothing_acknowledged(after_bytes: int) -> None:
    for at in range(COUNTS["write"]):
        with place() as directory:
            files = FaultyFiles(Fault(call="write", at=at, after_bytes=after_bytes))
            loop = Loop(directory, files=files, limits=LIMITS)
            told = converse(loop)
            check(loop, told)
            loop.close()


def test_s36_a_log_that_ends_at_any_byte_is_opened_and_gone_on_with() -> None:
    """Statement 36, and kill -9 at every step (S1): acknowledged is what has its newline."""
    with place() as directory:
        loop = Loop(directory, limits=LIMITS)
        loop.model.expect(calls(echo("x"), ("clock", '{"broken')), answer("one"))
        loop.say("Hello", key="k1")
        loop.close()
        whole = loop.log().read_bytes()
        for cut in range(len(whole)):
            loop.log().write_bytes(whole[:cut])
            at_an_end = b"\n" in whole[max(0, cut - 2) : cut + 2]
            check_cut(directory, whole[:cut], go_on=at_an_end or cut % 8 == 0)


def check_cut(directory: Path, log: bytes, *, go_on: bool) -> None:
    """Open a log that ends anywhere; for most of them that is all, since a turn takes its time."""
    loop = Loop(directory, limits=LIMITS)
    before = loop.records() if log.count(b"\n") else []
    keys = [record.key for record in before if isinstance(record, User)]
    if go_on:
        check(loop, Told(accepted=[*keys]))
    elif before:
        loop.sessions.follow(SessionId("s"), 0)
        loop.settle()
    if go_on or before:
        assert loop.records()[: len(before)] == before
    assert loop.log().read_bytes().startswith(log)
    loop.close()


FATES: dict[str, Callable[[bytes], bytes]] = {
    "whole": lambda written: written,
    "lost": lambda _: b"",
    "zeros": lambda written: bytes(len(written)),
    "garbage": lambda written: b"\n\xff{}\n" * (len(written) // 5),
}


def arrived(data: st.DataObject, written: bytes) -> bytes:
    """What is found of a write that was not synced."""
    fate = data.draw(st.sampled_from([*FATES, "torn"]))
    return written[: data.draw(st.integers(0, len(written)))] if fate == "torn" else FATES[fate](written)


@settings(max_examples=150)
@given(st.data())
def test_s2_power_that_goes_at_any_moment_takes_nothing_acknowledged(data: st.DataObject) -> None:
    """S2: unsynced writes are dropped, torn, zeros or garbage, and unsynced names are dropped."""
    with place() as directory:
        before, after = directory / "before", directory / "after"
        before.mkdir()
        system = PowerLossSystem(
            before, cut_at=data.draw(st.integers(0, CALLS_UNTIL_THE_END)), effect_first=data.draw(st.booleans())
        )
        loop = Loop(before, files=DiskFiles(system), limits=LIMITS)
        told = converse(loop)
        loop.close()
        system.after(after, Choose(lambda: data.draw(st.booleans()), lambda written: arrived(data, written)))
        later = Loop(after, limits=LIMITS)
        check(later, told)
        later.close()


def calls_until_the_end() -> int:
    with place() as directory:
        system = PowerLossSystem(directory, cut_at=None, effect_first=False)
        loop = Loop(directory, files=DiskFiles(system), limits=LIMITS)
        converse(loop)
        loop.close()
        return system.calls


CALLS_UNTIL_THE_END = calls_until_the_end()
