"""The audit log on a disk that fails, after a crash, and after somebody was at it (rows A1, A6, S10; INV-6, INV-7)."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokerd import auditseals
from brokerd.audit import AuditBroken, AuditExposed, AuditLog, AuditUnavailable
from bxcore import audithead
from bxcore.auditlog import BreakAccepted, Fault, Record
from bxcore.errors import StateError
from bxcore.files import StateUnwritable
from tests.fakes.audited import calls, decided
from tests.fakes.auditplace import DAY_MS, FIRST, Place
from tests.fakes.faulty_files import Fault as DiskFault
from tests.fakes.faulty_files import FaultyFiles


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- a disk that fails -------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("after_bytes", [0, 1, 100, 400])
def test_a6_after_a_failed_write_nothing_is_recorded_until_a_restart(
    place: Place, error: int, after_bytes: int
) -> None:
    log = place.open(disk=FaultyFiles(DiskFault(at=1, error=error, after_bytes=after_bytes)))
    log.append(decided())
    for _ in range(3):  # the disk would take it again: nobody tries
        with pytest.raises(AuditUnavailable):
            log.append(decided())
    assert log.broken
    assert log.head.seq == 1
    log.close()
    assert place.content().count(b"\n") == 1
    with place.opened() as log:
        assert (log.recovered is not None) == (after_bytes > 0)
        log.append(decided())
    place.assert_whole()


@pytest.mark.parametrize("at", range(8))
def test_a6_a_failed_fsync_is_the_end_wherever_it_comes(place: Place, at: int) -> None:
    acknowledged: list[Record] = []
    log: AuditLog | None = None
    with pytest.raises(StateError):  # noqa: PT012 - the one that fails may be any of these
        log = place.open(disk=FaultyFiles(DiskFault(call="fsync", at=at, error=errno.EIO)))
        while len(acknowledged) < 10:
            acknowledged.append(log.append(decided()))
    if log is not None:
        assert log.broken
        with pytest.raises(AuditUnavailable):
            log.append(decided())
        log.close()
    with place.opened() as log:
        assert list(log.records())[: len(acknowledged)] == acknowledged
    place.assert_whole()


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("at", range(6))
def test_a6_a_fault_while_the_page_is_turned_loses_nothing(place: Place, call: str, at: int) -> None:
    place.write(1)
    acknowledged = 1
    try:
        log = place.open(disk=FaultyFiles(DiskFault(call=call, at=at)))
    except StateError:
        pass  # already the start failed
    else:
        with log_closed(log):
            try:
                place.clock.wind(DAY_MS)
                log.append(decided())
                acknowledged += 1
            except AuditUnavailable:
                assert log.broken
    with place.opened() as log:
        log.append(decided())
        assert log.head.seq >= acknowledged + 1
    place.assert_whole()


@contextmanager
def log_closed(log: AuditLog) -> Iterator[None]:
    try:
        yield
    finally:
        log.close()


def test_a_fault_that_is_none_of_the_disks_ends_the_log_as_well(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_data: bytes) -> None:
        raise KeyboardInterrupt

    log = place.open()
    assert log._appender is not None
    monkeypatch.setattr(log._appender, "append", interrupted)
    with log_closed(log):
        with pytest.raises(KeyboardInterrupt):
            log.append(decided())
        assert log.broken


def test_a_recovery_that_cannot_be_written_keeps_the_log_shut(place: Place) -> None:
    place.write(2)
    (place.audit / FIRST).write_bytes(place.content() + b"torn")
    with pytest.raises(AuditUnavailable):
        place.open(disk=FaultyFiles(DiskFault(call="write", error=errno.ENOSPC)))
    assert place.content().endswith(b"torn")
    with place.opened() as log:
        assert log.recovered is not None


# -- tears -------------------------------------------------------------------------------------------------


def test_a1_a_torn_end_is_kept_described_and_said(place: Place) -> None:
    place.write(2)
    before = place.content()
    (place.audit / FIRST).write_bytes(before + b'{"event":"dec')
    with place.opened() as log:
        assert log.recovered is not None
        assert (log.recovered.file, log.recovered.line, log.recovered.bytes) == (FIRST, 3, 13)
        log.append(decided())
    assert place.content().startswith(before + b'{"event":"dec\n')
    with place.opened() as log:
        assert log.recovered is None
    place.assert_whole()
    assert len(place.report().recovered) == 1


def test_a1_a_recovery_goes_where_the_tear_is_and_not_into_todays_file(place: Place) -> None:
    place.write(2)
    (place.audit / FIRST).write_bytes(place.content() + b"torn")
    place.clock.wind(DAY_MS)
    place.write(1)
    assert place.files() == [FIRST, "2026-01-02.jsonl"]
    assert place.content().count(b"\n") == 4
    place.assert_whole()


def test_a1_a_torn_recovery_is_described_in_its_turn(place: Place) -> None:
    place.write(2)
    (place.audit / FIRST).write_bytes(place.content() + b"torn")
    with place.opened():
        pass
    whole = place.content()
    for cut in (1, 40, 200):
        (place.audit / FIRST).write_bytes(whole[:-cut])
        (place.state / audithead.FILE).unlink()
        place.write(1)
        place.assert_whole()


# -- broken logs -----------------------------------------------------------------------------------------


def test_a_broken_log_is_refused_with_file_line_and_what(place: Place) -> None:
    place.write(5)
    place.change(b'"tool":"read_file"', b'"tool":"tead_file"')
    before = place.content()
    with pytest.raises(AuditBroken) as refused:
        place.open()
    assert f"{FIRST}:2: line 1 was changed after it was written" in str(refused.value)
    assert place.content() == before


def test_an_accepted_break_is_recorded_and_the_log_goes_on(place: Place) -> None:
    place.write(5)
    place.change(b'"tool":"read_file"', b'"tool":"tead_file"')
    before = place.content()
    with place.opened(accept_break=True) as log:
        assert log.accepted is not None
        assert (log.accepted.line, log.accepted.found, log.accepted.seq) == (2, Fault.BROKEN_LINK, 6)
        log.append(decided())
    assert place.content().startswith(before)
    place.write(1)
    place.assert_whole()
    assert place.report().head.seq == 8


def test_with_nothing_to_accept_nothing_is_written(place: Place) -> None:
    place.write(3)
    before = place.content()
    with place.opened(accept_break=True) as log:
        assert log.accepted is None
    assert place.content() == before


def test_a_torn_end_is_recovered_and_not_accepted(place: Place) -> None:
    place.write(3)
    (place.audit / FIRST).write_bytes(place.content() + b"torn")
    with place.opened(accept_break=True) as log:
        assert (log.accepted, log.recovered is not None) == (None, True)
    place.assert_whole()


def test_one_acceptance_covers_a_break_a_tear_and_a_cut_tail_together(place: Place) -> None:
    place.write(9)
    content = place.content().replace(b"read_file", b"tead_file", 1)
    (place.audit / FIRST).write_bytes(content[:-1000])
    with pytest.raises(AuditBroken, match="and 2 more"):
        place.open()
    place.clock.wind(DAY_MS)
    with place.opened(accept_break=True) as log:
        assert isinstance(log.accepted, BreakAccepted)
        log.append(decided())
    place.write(1)
    place.assert_whole()


def test_a_tail_that_was_cut_off_is_found_at_the_start(place: Place) -> None:
    place.write(5)
    lines = place.content().splitlines(keepends=True)
    (place.audit / FIRST).write_bytes(b"".join(lines[:3]))
    with pytest.raises(AuditBroken, match="ends before the head that was kept, record 5"):
        place.open()
    with place.opened(accept_break=True) as log:
        assert log.accepted is not None
        assert (log.accepted.found, log.accepted.seq) == (Fault.MISSING_END, 4)
        log.append(decided())
    place.write(1)
    place.assert_whole()


def test_a_log_that_was_removed_is_found_at_the_start(place: Place) -> None:
    place.write(5)
    (place.audit / FIRST).unlink()
    with pytest.raises(AuditBroken, match="record 5"):
        place.open()
    with place.opened(accept_break=True) as log:
        assert log.accepted is not None
        assert log.accepted.seq == 1
    place.assert_whole()


def test_a_last_record_that_was_changed_is_found_at_the_start(place: Place) -> None:
    place.write(5)
    lines = place.content().splitlines(keepends=True)
    (place.audit / FIRST).write_bytes(b"".join(lines[:4]) + lines[4].replace(b"read_file", b"tead_file"))
    with pytest.raises(AuditBroken, match="another one than the head"):
        place.open()
    with place.opened(accept_break=True):
        pass
    place.write(1)
    place.assert_whole()


# -- the head outside ------------------------------------------------------------------------------------


def test_a_head_that_is_behind_is_no_fault_and_is_brought_up_to_date(place: Place) -> None:
    place.write(2)
    behind = (place.state / audithead.FILE).read_bytes()
    place.write(3)
    (place.state / audithead.FILE).write_bytes(behind)
    with place.opened() as log:
        assert place.kept() == log.head
        assert log.head.seq == 5


@pytest.mark.parametrize("content", [None, b"", b"x" * 500], ids=["missing", "empty", "garbage"])
def test_a_head_that_cannot_be_read_costs_a_warning(
    place: Place, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    place.write(3)
    path = place.state / audithead.FILE
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with place.opened() as log:
        assert place.kept() == log.head
    assert "code=audit_head_lost" in caplog.text


def test_a_first_start_warns_of_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.opened():
        pass
    assert caplog.text == ""


def test_a_head_that_cannot_be_written_stops_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.opened() as log:
        log._head_file._fd, whole = 10**6, log._head_file._fd
        log.append(decided())
        log.append(decided())
        log._head_file._fd = whole
    assert caplog.text.count("code=audit_head_lost") == 1
    place.write(1)
    place.assert_whole()


def test_a_link_in_the_heads_place_is_never_followed(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.write(3)
    head = place.state / audithead.FILE
    precious = head.read_bytes()
    head.rename(tmp_path / "other")
    head.symlink_to(tmp_path / "other")
    place.write(1)
    assert (tmp_path / "other").read_bytes() == precious
    assert not head.is_symlink()
    assert "was a link, and is made anew code=audit_head_lost" in caplog.text
    assert "no head was kept" in caplog.text
    place.assert_whole()


def test_a_pipe_in_the_heads_place_is_told_and_made_anew(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.write(3)
    (place.state / audithead.FILE).unlink()
    os.mkfifo(place.state / audithead.FILE)
    place.write(1)
    assert "was no file, and is made anew code=audit_head_lost" in caplog.text
    place.assert_whole()


def test_a_directory_in_the_heads_place_stops_the_start(place: Place) -> None:
    place.write(3)
    (place.state / audithead.FILE).unlink()
    (place.state / audithead.FILE).mkdir()
    with pytest.raises(StateUnwritable, match="a directory lies where the head of the audit log belongs"):
        place.open()
    (place.state / audithead.FILE).rmdir()
    place.write(1)


@pytest.mark.parametrize("name", [audithead.FILE, auditseals.FILE])
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_vouches_for_the_log_may_be_written_by_nobody_else(place: Place, name: str, mode: int) -> None:
    place.write(1)
    place.clock.wind(DAY_MS)
    place.write(1)
    (place.state / name).chmod(mode)
    for accept_break in (False, True):
        with pytest.raises(AuditExposed, match=f"others may write it, mode {mode:04o}"):
            place.open(accept_break=accept_break)
    (place.state / name).chmod(0o640)
    place.write(1)
    place.assert_whole()


def test_s10_a_backup_of_state_first_and_log_second_is_whole(place: Place, tmp_path: Path) -> None:
    with place.opened() as log:
        log.append(decided())
        shutil.copytree(place.state, tmp_path / "copy" / "broker")
        log.append(decided())
        place.clock.wind(DAY_MS)
        for make in calls(2, first=3):
            log.append(make)
        shutil.copytree(place.audit, tmp_path / "copy" / "audit")
        log.append(decided())
    torn = tmp_path / "copy" / "audit" / "2026-01-02.jsonl"
    torn.write_bytes(torn.read_bytes()[:-20])  # as if it had been copied in the middle of a write
    copy = Place(tmp_path / "copy")
    with copy.opened() as log:
        assert log.head.seq == 9
        assert log.recovered is not None
    copy.assert_whole()
