"""`bxctl audit`, each a real process on a log of the test's own."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from bxcore import audithead, auditlog
from bxcore.chain import Head, Verifier
from bxcore.ids import Hash32
from bxcore.timestamp import from_text
from bxcore.wire.admin import ApprovalEnding, Verdict
from tests.fakes import audited
from tests.fakes.audited import answered, chained, decided, ended, head_of, started
from tests.process.bxctl_process import on_terminal, run

OTHER = "20261130-999999-cafe"
HOSTILE = '{"path":"/n/\u202eb\x1b[31m\\n"}'
STORY = chained(
    [
        decided(),
        started(1),
        ended(1),
        decided(Verdict.ASK, session=OTHER, arguments=HOSTILE),
        answered(4, ApprovalEnding.REFUSED),
        decided(Verdict.DENIED),
    ]
)
LATER = chained([decided()], after=head_of(STORY), time=from_text("2026-12-01T08:00:00.000Z"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    audited.write(tmp_path / "audit", {"2026-11-30": STORY, "2026-12-01": LATER})
    return tmp_path


def keep(home: Path, head: Head) -> None:
    (home / "broker").mkdir()
    (home / "broker" / "audit-head").write_bytes(audithead.slot(head)[1])


def damage(home: Path) -> None:
    path = home / "audit" / "2026-11-30.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"tool":"read_file"', b'"tool":"tead_file"', 1))


# -- verify and head ------------------------------------------------------------------------------


def test_a_whole_log_is_told_with_its_head(home: Path) -> None:
    keep(home, head_of(STORY))
    done = run(home, "audit", "verify")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        f"✓ whole: 7 records in 2 files, {len(audited.stored([*STORY, *LATER])) / 1000:.1f} kB",
        f"  head  {head_of(LATER, before=6)}",
        "  it has the head that was kept: the one that brokerd keeps",
        "  allowed, not started: 7",
    ]


def test_a_broken_log_is_told_with_file_line_and_what(home: Path) -> None:
    damage(home)
    done = run(home, "audit", "verify")
    assert done.returncode == 1
    assert done.stdout.decode().splitlines() == [
        "✗ 2026-11-30.jsonl:2: line 1 was changed after it was written (broken_link)",
        "Whole up to record 1, of 7 lines. [audit_broken]",
    ]


def test_a_head_that_the_owner_kept_finds_a_tail_that_was_cut_off(home: Path) -> None:
    head = run(home, "audit", "head").stdout.decode().strip()
    assert head == str(head_of(LATER, before=6))
    assert run(home, "audit", "verify", "--head", head).returncode == 0
    (home / "audit" / "2026-12-01.jsonl").unlink()
    assert run(home, "audit", "verify").returncode == 0
    done = run(home, "audit", "verify", "--head", head)
    assert done.returncode == 1
    assert "the log ends before the head that was kept, record 7 (missing_end)" in done.stdout.decode()


def test_no_head_is_given_for_a_broken_log(home: Path) -> None:
    damage(home)
    done = run(home, "audit", "head")
    assert done.returncode == 1
    assert b"[audit_broken]" in done.stdout


def test_without_a_head_to_compare_with_that_is_said(home: Path) -> None:
    assert b"no head to compare with" in run(home, "audit", "verify").stdout


def test_a_torn_end_is_no_fault_and_said(home: Path) -> None:
    with (home / "audit" / "2026-12-01.jsonl").open("ab") as file:
        file.write(b'{"event":"dec')
    done = run(home, "audit", "verify")
    assert done.returncode == 0
    assert b"2026-12-01.jsonl:2 is being written, or was cut off" in done.stdout


def test_an_accepted_break_and_a_tear_are_told(home: Path) -> None:
    damage(home)
    path = home / "audit" / "2026-12-01.jsonl"
    verifier = Verifier()
    for name in ("2026-11-30.jsonl", "2026-12-01.jsonl"):
        verifier.begin(name)
        verifier.feed((home / "audit" / name).read_bytes())
    broken = verifier.finish().broken
    assert broken is not None
    line = auditlog.encode(broken.accepted(seq=8, time=audited.NOON))
    path.write_bytes(path.read_bytes() + line + b"\ntorn")
    torn_after = Head(seq=8, hash=Hash32(sha256(line).hexdigest()))
    recovery = auditlog.Recovered(
        seq=10,
        time=audited.NOON,
        prev=torn_after.hash,
        file="2026-12-01.jsonl",
        line=3,
        bytes=4,
        sha256=Hash32(sha256(b"torn").hexdigest()),
    )
    path.write_bytes(path.read_bytes() + b"\n" + auditlog.encode(recovery) + b"\n")
    done = run(home, "audit", "verify")
    assert done.returncode == 0
    told = done.stdout.decode()
    assert "2026-12-01.jsonl:3 torn, kept and described: 4 B" in told
    assert "2026-11-30.jsonl:2 broken (broken_link), accepted by record 8" in told
    shown = run(home, "audit", "show").stdout.decode()
    assert "accepted  2026-11-30.jsonl:2 broken (broken_link), good up to 1" in shown
    assert "      9  2026-12-01.jsonl:3: torn: a crash cut it off" in shown


def test_verify_in_json_is_the_whole_report(home: Path) -> None:
    whole = json.loads(run(home, "audit", "verify", "--json").stdout)
    assert (whole["whole"], whole["head"]["seq"], whole["kept"]) == (True, 7, "not_asked")
    assert whole["counts"] == {"decision": 4, "started": 1, "result": 1, "approval": 1}
    damage(home)
    done = run(home, "audit", "verify", "--json")
    broken = json.loads(done.stdout)
    assert done.returncode == 1
    assert (broken["whole"], broken["findings"][0]["line"], broken["broken"]["last_good"]) == (False, 2, 1)


@pytest.mark.parametrize("head", ["7", "7:abc", "x:" + "0" * 64])
def test_a_head_that_is_none_is_wrong_usage(home: Path, head: str) -> None:
    done = run(home, "audit", "verify", "--head", head)
    assert done.returncode == 2
    assert b"SEQ:HASH" in done.stderr or b"64 lowercase" in done.stderr


def test_a_copy_elsewhere_can_be_verified(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = run(tmp_path_factory.mktemp("other"), "audit", "verify", "--directory", str(home / "audit"))
    assert done.returncode == 0


def test_on_a_terminal_the_bar_is_gone_when_it_is_done(home: Path) -> None:
    with on_terminal(home, "audit", "verify", more={"TERM": "xterm"}) as screen:
        assert screen.wait() == 0
    assert "\u2588" in screen.shown
    assert "whole" in screen.shown.rpartition("\u2588")[2]


# -- show -------------------------------------------------------------------------------------------


def test_records_are_one_line_each(home: Path) -> None:
    done = run(home, "audit", "show")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "      1  2026-11-30 12:00:00  allowed   read_file /n/a  (grant notes)",
        "      2  2026-11-30 12:00:00  started   1 image 5e5e5e5e5e5e",
        "      3  2026-11-30 12:00:00  result    1 done, 1.2 kB, private, untrusted; session now private",
        "      4  2026-11-30 12:00:00  ask       read_file /n/a  (grant notes)",
        "      5  2026-11-30 12:00:00  answer    4 refused by bxctl",
        "      6  2026-11-30 12:00:00  denied    read_file /n/a  (no_grant)",
        "      7  2026-12-01 08:00:00  allowed   read_file /n/a  (grant notes)",
    ]


def numbers(home: Path, *arguments: str) -> list[int]:
    return [int(line.split()[0]) for line in run(home, "audit", "show", *arguments).stdout.decode().splitlines()]


def test_records_are_chosen_by_session_time_and_count(home: Path) -> None:
    assert numbers(home, "--session", OTHER) == [4, 5]
    assert numbers(home, "--session", audited.SESSION) == [1, 2, 3, 6, 7]
    assert numbers(home, "--since", "2026-12-01") == [7]
    assert numbers(home, "--since", "2026-11-30T12:00:00.001Z") == [7]
    assert numbers(home, "--since", "999999d") == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(home, "--limit", "2") == [6, 7]
    assert b"the last 2 of 7 records" in run(home, "audit", "show", "--limit", "2").stderr


def test_a_session_that_another_record_only_quotes_is_not_shown(home: Path) -> None:
    quoting = chained([decided(arguments=f'{{"x":"\\"session\\":\\"{OTHER}\\""}}')])
    audited.write(home / "audit", {"2026-11-30": quoting, "2026-12-01": []})
    assert numbers(home, "--session", OTHER) == []


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "2026-02-30", "12:00", "5w"])
def test_a_time_that_is_none_is_wrong_usage(home: Path, since: str) -> None:
    done = run(home, "audit", "show", "--since", since)
    assert done.returncode == 2
    assert b"90m" in done.stderr


def test_one_record_is_shown_whole_and_escaped_with_what_is_about_it(home: Path) -> None:
    done = run(home, "audit", "show", "4")
    told = done.stdout.decode().splitlines()
    assert told[0] == "2026-11-30.jsonl:4"
    assert '  arguments   {"path":"/n/\\u{202E}b\\u{001B}[31m\\n"}' in told
    assert told[-1].endswith("answer    4 refused by bxctl")
    assert numbers_of(run(home, "audit", "show", "1", "--json").stdout) == [1, 2, 3]


def numbers_of(lines: bytes) -> list[int]:
    return [json.loads(line)["record"]["seq"] for line in lines.splitlines()]


def test_records_in_json_are_ascii_and_say_where_they_are(home: Path) -> None:
    done = run(home, "audit", "show", "--json")
    assert done.stdout.isascii()
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["file"], last["line"], last["record"]["seq"]) == ("2026-12-01.jsonl", 1, 7)


def test_a_record_that_does_not_exist_is_said(home: Path) -> None:
    done = run(home, "audit", "show", "8")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"[no_record]" in done.stderr


def test_help_of_audit_needs_none_of_the_heavy_packages(home: Path) -> None:
    done = run(home, "audit", "--help", PYTHONPROFILEIMPORTTIME="1")
    imported = {line.split("|")[-1].strip() for line in done.stderr.decode().splitlines()}
    assert imported.isdisjoint({"attrs", "attr", "cattrs", "tomlkit", "requests", "bxcore.chain"})
