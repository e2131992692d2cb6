"""Grants, the broker's state and doctor's look at it: real bxctl, a brokerd of the test's own."""

import json
from pathlib import Path

import attrs
import pytest

from bxcore.wire import admin
from bxcore.wire.admin import Verdict
from bxcore.wire.state import SessionStateAsk, SessionStateReport
from bxcore.wire.tools import DataClass, DenyReason
from tests.fakes import loopd
from tests.fakes.admin import HASH, FakeAdmin
from tests.fakes.rolesocket import replies
from tests.process.bxctl_process import run

# -- grants and the broker's state --------------------------------------------------------------------------


def finding(level: admin.FindingLevel) -> admin.GrantFinding:
    return admin.GrantFinding(file="a.toml", line=3, level=level, text="mod: unknown key")


@pytest.mark.parametrize(("valid", "code"), [(True, 0), (False, 1)])
def test_grants_check_says_whether_calls_are_decided(tmp_path: Path, valid: bool, code: int) -> None:
    level = admin.FindingLevel.NOTE if valid else admin.FindingLevel.ERROR
    answer = replies(finding(level), admin.GrantsCheckEnd(valid=valid, grants=1, findings=1))
    with FakeAdmin(tmp_path, {admin.GrantsCheck: answer}):
        done = run(tmp_path, "grants", "check")
    assert done.returncode == code
    assert f"a.toml:3: {level.value}: mod: unknown key" in done.stdout.decode()
    assert ("denies every call" in done.stdout.decode()) is not valid


VERDICT = admin.GrantsVerdict(
    verdict=Verdict.DENIED,
    reason=DenyReason.TAINT_TOO_HIGH,
    detail=None,
    grant=None,
    result_class=None,
    result_untrusted=None,
    mounts=(),
    hosts=(),
    recorded=None,
    same_grants=True,
)
REASON = admin.GrantReason(grant="read-notes", matched=False, why="the path is not below /srv/notes")


def test_grants_test_types_arguments_as_the_tool_wants_them(tmp_path: Path) -> None:
    with FakeAdmin(tmp_path, {admin.GrantsTest: replies(REASON, VERDICT)}) as fake:
        done = run(
            tmp_path, "grants", "test", "--tool", "read_file", "--arg", "path=/srv/1", "--arg", "max_lines=5",
            "--taint", "secret", "--untrusted",
        )  # fmt: skip
    asked = fake.wait(admin.GrantsTest)
    assert json.loads(asked.arguments) == {"path": "/srv/1", "max_lines": 5}
    assert (asked.tool, asked.taint, asked.untrusted) == ("read_file", DataClass.SECRET, True)
    assert "read-notes: the path is not below /srv/notes" in done.stdout.decode()
    assert "denied: taint_too_high" in done.stdout.decode()


MISTAKES = {
    "tool": (["--tool", "read_flie", "--arg", "path=/a"], "there is no tool read_flie; did you mean read_file?"),
    "no tool at all": (["--tool", "x"], "there is no tool x; there are read_file, write_file, "),
    "argument": (["--tool", "read_file", "--arg", "paht=/a"], "takes no argument paht; did you mean path?"),
    "argument in JSON": (["--tool", "read_file", "--arguments", '{"pth":"/a"}'], "argument pth; did you mean path?"),
    "no argument": (["--tool", "read_file"], "read_file needs the argument path; it takes path, "),
    "no JSON": (["--tool", "read_file", "--arguments", "{path"], "the arguments are no JSON"),
    "no object": (["--tool", "read_file", "--arguments", "[]"], "must be one JSON object"),
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_grants_test_of_a_call_that_cannot_be_is_wrong_usage(tmp_path: Path, words: list[str], told: str) -> None:
    with FakeAdmin(tmp_path, {admin.GrantsTest: replies(VERDICT)}) as fake:
        done = run(tmp_path, "grants", "test", *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert told in done.stderr.decode()
    assert fake.asked == []


@pytest.mark.parametrize(
    ("reason", "told"),
    [(DenyReason.INVALID_ARGUMENTS, "own: it fits\n"), (DenyReason.DENIED_BY_GRANT, "own: it denies, and decides\n")],
)
def test_a_grant_decides_only_where_the_decision_is_its_own(tmp_path: Path, reason: DenyReason, told: str) -> None:
    matched = admin.GrantReason(grant="own", matched=True, why="it denies, and decides")
    verdict = attrs.evolve(VERDICT, reason=reason)
    with FakeAdmin(tmp_path, {admin.GrantsTest: replies(matched, verdict)}):
        done = run(tmp_path, "grants", "test", "--tool", "read_file", "--arg", "path=/a")
    assert told in done.stdout.decode()
    assert done.returncode == 0


def test_grants_explain_tells_that_the_files_have_changed(tmp_path: Path) -> None:
    recorded = attrs.evolve(VERDICT, recorded="allowed by grant old", same_grants=False)
    with FakeAdmin(tmp_path, {admin.GrantsExplain: replies(recorded)}):
        done = run(tmp_path, "grants", "explain", "7")
    assert "on record: allowed by grant old" in done.stdout.decode()
    assert "have changed since" in done.stdout.decode()


def test_grants_suggest_prints_nothing_but_toml_on_standard_output(tmp_path: Path) -> None:
    suggestion = admin.GrantSuggestion(file="/g/x.toml", toml='tool = "read_file"\nmode = "ask"\n', note="look first")
    with FakeAdmin(tmp_path, {admin.GrantsSuggest: replies(suggestion)}):
        done = run(tmp_path, "grants", "suggest", "7")
    assert done.stdout.decode() == 'tool = "read_file"\nmode = "ask"\n'
    assert done.stderr.decode() == "look first\n/g/x.toml:\n"


def test_broker_status_fails_where_every_call_is_denied(tmp_path: Path) -> None:
    report = admin.BrokerStatusReport(
        denies=DenyReason.GRANTS_INVALID,
        detail="a.toml:3: unknown key",
        grants=0,
        pending=0,
        running=0,
        audit_seq=12,
        audit_hash=HASH,
        image=None,
        limits_held=("wall clock",),
        limits_missing=("memory",),
    )
    with FakeAdmin(tmp_path, {admin.BrokerStatus: replies(report)}):
        done = run(tmp_path, "broker", "status")
    assert done.returncode == 1
    assert "[grants_invalid]" in done.stdout.decode()
    assert "does not enforce: memory" in done.stdout.decode()


@pytest.mark.parametrize("rebuild", [False, True])
def test_broker_session_asks_or_rebuilds(tmp_path: Path, rebuild: bool) -> None:
    report = SessionStateReport(session=loopd.session("s"), taint=DataClass.SECRET, untrusted=True, readable=True)
    asked = admin.SessionRebuild if rebuild else SessionStateAsk
    with FakeAdmin(tmp_path, {asked: replies(report)}) as fake:
        done = run(tmp_path, "broker", "session", "s", *(["--rebuild"] if rebuild else []))
    assert done.stdout.decode() == "s: secret, has read untrusted text\n"
    assert len(fake.asked) == 1


# -- doctor --------------------------------------------------------------------------------------------------


def status(denies: DenyReason | None) -> admin.BrokerStatusReport:
    return admin.BrokerStatusReport(
        denies=denies,
        detail="a.toml:3: unknown key" if denies else None,
        grants=3,
        pending=0,
        running=0,
        audit_seq=12,
        audit_hash=HASH,
        image="ab" * 32,
        limits_held=("time",),
        limits_missing=(),
    )


@pytest.mark.parametrize(
    ("denies", "told"),
    [
        (None, "brokerd: decides by 3 grants; 12 records"),
        (DenyReason.GRANTS_INVALID, "docs/runbook.md, grants_invalid"),
    ],
)
def test_doctor_asks_brokerd_where_there_should_be_one(tmp_path: Path, denies: DenyReason | None, told: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "brokerd.toml").touch()
    with FakeAdmin(tmp_path, {admin.BrokerStatus: replies(status(denies))}):
        done = run(tmp_path, "doctor")
    assert told in done.stdout.decode()
    assert "brokerd's socket folder: mode 2750\n" in done.stdout.decode()


def test_doctor_says_that_a_brokerd_which_should_be_there_is_away(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "brokerd.toml").touch()
    assert "brokerd is not running" in run(tmp_path, "doctor").stdout.decode()


def test_doctor_of_a_home_without_brokerd_says_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert "brokerd" not in run(tmp_path, "doctor").stdout.decode()
