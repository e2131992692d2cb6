"""What lies on the disk is no longer what we wrote: nothing more is recorded, and so nothing runs (INV-2, INV-3)."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerd.audit import AuditUnavailable
from bxcore.timestamp import MAX_TIMESTAMP
from bxcore.wire.tools import DenyReason, ToolDenied, ToolFailed
from tests.fakes.audited import decided
from tests.fakes.auditplace import DAY_MS, FIRST, Place
from tests.fakes.brokered import Brokered
from tests.fakes.clocks import BEGIN, HandClock

Slip = Callable[[Path], object]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    yield made
    made.close()


def happening(slip: Slip, audit: Path) -> Callable[..., None]:
    def happen(*_: object) -> None:
        slip(audit)

    return happen


def today(audit: Path) -> Path:
    return max(audit.glob("*.jsonl"))


def replace(audit: Path) -> None:
    """As an editor does when it saves."""
    path, content = today(audit), today(audit).read_bytes()
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o600)


def link_instead(audit: Path) -> None:
    path = today(audit)
    path.rename(audit / "elsewhere")
    path.symlink_to(audit / "elsewhere")


def write_into(audit: Path) -> None:
    with today(audit).open("ab") as file:
        file.write(b"{}\n")


def copy_the_directory(audit: Path) -> None:
    audit.rename(audit.with_name("elsewhere"))
    shutil.copytree(audit.with_name("elsewhere"), audit)
    audit.chmod(0o700)


def link_the_directory(audit: Path) -> None:
    audit.rename(audit.with_name("elsewhere"))
    audit.symlink_to(audit.with_name("elsewhere"))


SLIPS: dict[str, tuple[Slip, str]] = {
    "removed": (lambda audit: today(audit).unlink(), "was removed"),
    "moved": (lambda audit: today(audit).rename(audit / "away"), "No such file"),
    "replaced": (replace, "was removed"),
    "moved and linked": (link_instead, "another one than we opened"),
    "emptied": (lambda audit: os.truncate(today(audit), 0), "it has 0 bytes"),
    "cut": (lambda audit: os.truncate(today(audit), today(audit).stat().st_size - 1), "and we left it with"),
    "written to": (write_into, "and we left it with"),
    "file writable by others": (lambda audit: today(audit).chmod(0o666), "mode 0666 now, and not 0600"),
    "file readable by others": (lambda audit: today(audit).chmod(0o640), "mode 0640 now, and not 0600"),
    "directory moved": (lambda audit: audit.rename(audit.with_name("away")), "No such file"),
    "directory removed": (shutil.rmtree, "was removed"),
    "directory copied": (copy_the_directory, "another one than we opened"),
    "directory linked": (link_the_directory, "another one than we opened"),
    "directory open to others": (lambda audit: audit.chmod(0o777), "mode 0777 now, and not 0700"),
}
each_slip = pytest.mark.parametrize(("slip", "why"), SLIPS.values(), ids=SLIPS.keys())


@each_slip
def test_a_log_that_is_not_as_we_left_it_takes_nothing_more(
    place: Place, slip: Slip, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with place.opened() as log:
        log.append(decided())
        slip(place.audit)
        with pytest.raises(AuditUnavailable, match=why):
            log.append(decided())
        assert log.broken
        assert (log.head.seq, place.kept()) == (1, log.head)
        with pytest.raises(AuditUnavailable, match="until a restart"):
            log.append(decided())
    assert caplog.text.count("code=audit_unavailable") == 1


def test_a_log_that_was_put_back_stays_shut_until_a_restart(place: Place) -> None:
    with place.opened() as log:
        log.append(decided())
        place.audit.chmod(0o755)
        with pytest.raises(AuditUnavailable):
            log.append(decided())
        place.audit.chmod(0o700)
        with pytest.raises(AuditUnavailable):
            log.append(decided())
    place.write(1)
    place.assert_whole()


def test_the_file_of_the_day_before_is_looked_at_before_the_page_is_turned(place: Place) -> None:
    with place.opened() as log:
        log.append(decided())
        (place.audit / FIRST).unlink()
        place.clock.wind(DAY_MS)
        with pytest.raises(AuditUnavailable, match="was removed"):
            log.append(decided())
    assert place.files() == []


def test_a_new_days_file_is_watched_as_well(place: Place) -> None:
    with place.opened() as log:
        log.append(decided())
        place.clock.wind(DAY_MS)
        log.append(decided())
        log.append(decided())
        today(place.audit).unlink()
        with pytest.raises(AuditUnavailable, match="was removed"):
            log.append(decided())


def test_what_takes_nothing_away_stops_nothing(place: Place, tmp_path: Path) -> None:
    """A backup: it reads, links and copies."""
    with place.opened() as log:
        log.append(decided())
        os.link(place.audit / FIRST, tmp_path / "linked")
        shutil.copytree(place.audit, tmp_path / "copy")
        (place.audit / "notes").write_bytes(b"")
        os.utime(place.audit / FIRST)
        log.append(decided())
    place.assert_whole()


IMPOSSIBLE = pytest.mark.parametrize("time", [-1, -(10**15), MAX_TIMESTAMP + 1, 10**18])


@IMPOSSIBLE
def test_a_clock_that_no_record_can_tell_stops_the_start(place: Place, time: int) -> None:
    place.write(1)
    place.clock.set_wall(time - place.clock.now_ms())
    for accept_break in (False, True):
        with pytest.raises(AuditUnavailable, match="clock lies outside the years 1970 to 9999"):
            place.open(accept_break=accept_break)
    place.clock.set_wall(BEGIN - place.clock.now_ms())
    place.write(1)
    place.assert_whole()


@IMPOSSIBLE
def test_a_clock_that_no_record_can_tell_denies_every_call(
    brokered: Brokered, time: int, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-3."""
    brokered.grant()
    assert isinstance(brokered.clock, HandClock)
    brokered.clock.set_wall(time - brokered.clock.now_ms())
    for _ in range(2):
        answer = brokered.ask()
        assert isinstance(answer, ToolDenied)
        assert answer.reason is DenyReason.AUDIT_UNAVAILABLE
    assert brokered.containers.ran == []
    assert caplog.text.count("clock lies outside the years 1970 to 9999") == 1


@each_slip
def test_nothing_is_run_without_the_log(brokered: Brokered, slip: Slip, why: str) -> None:
    """INV-3."""
    del why
    brokered.grant()
    brokered.ask()
    ran = len(brokered.containers.ran)
    slip(brokered.audit_dir)
    for _ in range(2):
        answer = brokered.ask()
        assert isinstance(answer, ToolDenied)
        assert answer.reason is DenyReason.AUDIT_UNAVAILABLE
    assert len(brokered.containers.ran) == ran == 1


@each_slip
def test_a_start_without_the_log_is_no_start(brokered: Brokered, slip: Slip, why: str) -> None:
    """INV-2."""
    del why
    brokered.grant()
    brokered.containers.before_it_starts = happening(slip, brokered.audit_dir)
    answer = brokered.ask()
    assert isinstance(answer, ToolDenied)
    assert answer.reason is DenyReason.AUDIT_UNAVAILABLE
    assert brokered.containers.ran == []


@each_slip
def test_a_result_without_the_log_is_withheld(brokered: Brokered, slip: Slip, why: str) -> None:
    del why
    brokered.grant()
    brokered.containers.while_it_runs = happening(slip, brokered.audit_dir)
    assert isinstance(brokered.ask(), ToolFailed)
    assert len(brokered.containers.ran) == 1
