"""INV-3: whatever is wrong, and whatever fails, is a recorded denial or a failure, and never a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerd import broker as broker_module
from brokerd import reading
from brokerd.mounts import MountDenied, MountRefused
from brokerd.runnerfaults import ImageMissing, RunnerUnavailable
from bxcore.auditlog import Decided, Ended, RunEnding
from bxcore.ids import SessionId
from bxcore.wire.admin import Verdict
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolFailed, ToolResult
from tests.fakes.brokered import Brokered

S = SessionId("s")


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    yield made
    made.close()


def last_decision(brokered: Brokered) -> Decided:
    return [record for record in brokered.records() if isinstance(record, Decided)][-1]


def denied(answer: object) -> tuple[DenyReason, str | None]:
    assert isinstance(answer, ToolDenied)
    return answer.reason, answer.detail


# -- denied -------------------------------------------------------------------------------------


def break_audit(brokered: Brokered, _request: dict[str, Any]) -> None:
    brokered.audit._give_up()


def break_grants(brokered: Brokered, _request: dict[str, Any]) -> None:
    brokered.grant("bad", mode="maybe")


def break_state(brokered: Brokered, _request: dict[str, Any]) -> None:
    path = brokered.state / "sessions" / "s.json"
    path.write_bytes(b"{}")
    path.chmod(0o600)


def name_no_tool(_brokered: Brokered, request: dict[str, Any]) -> None:
    request["tool"], request["text"] = "read_mind", "{}"


def misspell_arguments(_brokered: Brokered, request: dict[str, Any]) -> None:
    request["text"] = '{"pth":"/data/a"}'


def ask_elsewhere(_brokered: Brokered, request: dict[str, Any]) -> None:
    request["path"] = "/etc/passwd"


def break_runner(brokered: Brokered, _request: dict[str, Any]) -> None:
    brokered.containers.unfit = ImageMissing("the tool image is not loaded")


IN_ORDER = [
    (break_audit, DenyReason.AUDIT_UNAVAILABLE),
    (break_grants, DenyReason.GRANTS_INVALID),
    (break_state, DenyReason.STATE_UNREADABLE),
    (name_no_tool, DenyReason.UNKNOWN_TOOL),
    (misspell_arguments, DenyReason.INVALID_ARGUMENTS),
    (ask_elsewhere, DenyReason.NO_GRANT),
    (break_runner, DenyReason.RUNNER_UNAVAILABLE),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)), ids=[reason.value for _, reason in IN_ORDER])
def test_of_all_that_is_wrong_the_first_in_order_is_the_answer(brokered: Brokered, first: int) -> None:
    """INV-3: each is a denial, on record but for the one that could not be recorded, and nothing runs."""
    brokered.grant()
    request: dict[str, Any] = {}
    for wrong, _ in reversed(IN_ORDER[first:]):
        if not (wrong is misspell_arguments and first < 3) and not (wrong is ask_elsewhere and first < 5):
            wrong(brokered, request)
    before = len(brokered.records())
    reason = IN_ORDER[first][1]
    assert denied(brokered.ask(brokered.request(**request)))[0] is reason
    assert brokered.containers.ran == []
    if reason is DenyReason.AUDIT_UNAVAILABLE:
        assert len(brokered.records()) == before
    else:
        [record] = brokered.records()[before:]
        assert isinstance(record, Decided)
        assert (record.verdict, record.reason) == (Verdict.DENIED, reason)


def test_a_bad_grant_is_named_by_file_and_line_and_mended_at_once(brokered: Brokered) -> None:
    """G4, G5: the good one does not work either."""
    brokered.grant("good")
    break_grants(brokered, {})
    reason, detail = denied(brokered.ask())
    assert (reason, detail) == (DenyReason.GRANTS_INVALID, "bad.toml, line 2")
    assert last_decision(brokered).grants is None
    (brokered.grants / "bad.toml").unlink()
    assert isinstance(brokered.ask(), ToolResult)


def test_an_unreadable_state_is_recorded_as_secret_and_untrusted(brokered: Brokered) -> None:
    brokered.grant()
    break_state(brokered, {})
    brokered.ask()
    decided = last_decision(brokered)
    assert (decided.taint, decided.untrusted) == (DataClass.SECRET, True)


def test_nothing_of_the_host_is_looked_at_for_a_call_that_no_grant_covers(brokered: Brokered) -> None:
    brokered.grant()
    brokered.ask(brokered.request(path="/etc/shadow"))
    assert brokered.containers.looked == []


def test_a_deny_grant_is_named_in_the_record(brokered: Brokered) -> None:
    brokered.grant("open")
    brokered.grant("shut", mode="deny", max_taint="secret", paths='["/data/private"]')
    assert denied(brokered.ask(brokered.request(path="/data/private/x")))[0] is DenyReason.DENIED_BY_GRANT
    assert last_decision(brokered).grant == "shut"


def test_p2_a_deny_grant_is_never_passed_by_because_of_a_link(brokered: Brokered, tmp_path: Path) -> None:
    """The model learns neither where the link leads nor what to ask for."""
    docs, home = tmp_path / "docs", tmp_path / "home"
    (docs / "private").mkdir(parents=True)
    home.symlink_to(docs)
    secret = brokered.request(path=str(docs / "private" / "x"))
    brokered.grant("open", paths=f'["{docs}"]')
    brokered.grant("shut", mode="deny", max_taint="secret", paths=f'["{home}/private"]')
    assert denied(brokered.ask(secret)) == (DenyReason.GRANTS_INVALID, "shut.toml")
    assert denied(brokered.ask(brokered.request(path=str(docs / "a"))))[0] is DenyReason.GRANTS_INVALID
    brokered.grant("shut", mode="deny", max_taint="secret", paths=f'["{docs}/private"]')
    for asked in (docs / "private" / "x", home / "private" / "x", docs / "private"):
        assert denied(brokered.ask(brokered.request(path=str(asked))))[0] is DenyReason.DENIED_BY_GRANT
    assert isinstance(brokered.ask(brokered.request(path=str(home / "a"))), ToolResult)


def test_what_the_model_reads_of_a_refusal_does_not_say_how_to_lift_it(brokered: Brokered) -> None:
    """Neighbour 6."""
    texts = {broker_module.REPEATED, broker_module.NO_ROOM, broker_module.UNKNOWN, broker_module.WITHHELD}
    texts |= {reading.FAULT, str(denied(brokered.ask())[1])}
    for text in texts:
        assert not {"grant", "toml", "bxctl", "approve", "config"} & set(text.lower().replace(",", "").split())


def test_a_path_that_the_runner_will_not_show_is_a_matter_of_the_arguments(brokered: Brokered) -> None:
    """P11: refused whatever the grant says."""
    brokered.grant()
    brokered.containers.unfit = MountRefused("this path is, holds or lies in something of Boxmaker's own")
    reason, detail = denied(brokered.ask())
    assert reason is DenyReason.INVALID_ARGUMENTS
    assert detail == "this path is, holds or lies in something of Boxmaker's own"


# -- faults -------------------------------------------------------------------------------------


class Broken:
    """Stands for a part of ours that raises what nobody expects."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


def no_grants(brokered: Brokered) -> None:
    brokered.reading._grants = Broken()


def no_links(brokered: Brokered) -> None:
    brokered.reading._resolve = fail


def no_effects(brokered: Brokered) -> None:
    brokered.containers.unfit = ZeroDivisionError()


def no_labels(brokered: Brokered) -> None:
    brokered.ledger._book._states = Broken()


def fail(*_: object) -> str:
    raise ZeroDivisionError


FAULTS = {
    "grants": (no_grants, DenyReason.GRANTS_INVALID),
    "labels": (no_labels, DenyReason.STATE_UNREADABLE),
    "links": (no_links, DenyReason.INVALID_ARGUMENTS),
    "effects": (no_effects, DenyReason.RUNNER_UNAVAILABLE),
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_an_exception_while_deciding_is_a_recorded_denial(brokered: Brokered, fault: Any, reason: DenyReason) -> None:
    """INV-3."""
    brokered.grant()
    fault(brokered)
    assert denied(brokered.ask())[0] is reason
    decided = last_decision(brokered)
    assert (decided.verdict, decided.reason) == (Verdict.DENIED, reason)
    assert brokered.containers.ran == []


def test_an_exception_in_the_decision_itself_is_a_recorded_denial(brokered: Brokered) -> None:
    brokered.grant()
    times = iter([brokered.time.now_ms()])
    brokered.broker._now = lambda: next(times)  # once for a look, and then it fails
    assert denied(brokered.ask()) == (DenyReason.NO_GRANT, reading.FAULT)
    assert last_decision(brokered).reason is DenyReason.NO_GRANT


def test_a_run_that_cannot_begin_is_denied_and_has_ended(brokered: Brokered, caplog: pytest.LogCaptureFixture) -> None:
    """S7: never the host, and the log knows that nothing ran."""
    brokered.grant()
    for fault, reason in (
        (ImageMissing("the tool image is not loaded"), DenyReason.RUNNER_UNAVAILABLE),
        (MountDenied("the user may not reach it"), DenyReason.INVALID_ARGUMENTS),
        (MountRefused("there is a link now"), DenyReason.INVALID_ARGUMENTS),
        (ZeroDivisionError(), DenyReason.RUNNER_UNAVAILABLE),
    ):
        brokered.containers.fails_before = fault
        assert denied(brokered.ask())[0] is reason
        decided, ended = brokered.records()[-2:]
        assert isinstance(decided, Decided)
        assert isinstance(ended, Ended)
        assert (ended.decision, ended.ending) == (decided.seq, RunEnding.FAILED)
    assert brokered.containers.ran == []
    assert brokered.audit.not_started() == ()
    assert "not run seq=1 code=image_missing why=the tool image is not loaded" in caplog.text
    assert "code=mount_denied why=the user may not reach it" in caplog.text


@pytest.mark.parametrize("fault", [ImageMissing("the tool image is not loaded"), MountRefused("a link now")])
def test_a_call_that_cannot_run_at_all_has_its_code_in_the_log(
    brokered: Brokered, fault: RunnerUnavailable, caplog: pytest.LogCaptureFixture
) -> None:
    brokered.grant()
    brokered.containers.unfit = fault
    denied(brokered.ask())
    assert f"a call cannot run tool=read_file code={fault.code} why={fault.detail}" in caplog.text


def test_a_run_that_breaks_off_is_unknown_and_counts_as_seen(brokered: Brokered) -> None:
    brokered.grant(more='result_class = "secret"')
    brokered.containers.fails_after = ZeroDivisionError()
    answer = brokered.ask()
    assert answer == ToolFailed(message=broker_module.UNKNOWN)
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert (ended.ending, ended.taint_after) == (RunEnding.UNKNOWN, DataClass.SECRET)
    assert brokered.states.labels(S).data_class is DataClass.SECRET


def test_a_result_whose_labels_cannot_be_kept_is_withheld(brokered: Brokered) -> None:
    """INV-4."""
    brokered.grant()
    brokered.containers.while_it_runs = lambda _: break_state(brokered, {})
    assert brokered.ask() == ToolFailed(message=broker_module.WITHHELD)
    assert isinstance(ended := brokered.records()[-1], Ended)
    assert ended.ending is RunEnding.FAILED


def test_a_result_that_cannot_be_recorded_is_withheld_and_nothing_is_decided_after_it(brokered: Brokered) -> None:
    brokered.grant()
    brokered.containers.while_it_runs = lambda _: break_audit(brokered, {})
    assert brokered.ask() == ToolFailed(message=broker_module.WITHHELD)
    assert denied(brokered.ask())[0] is DenyReason.AUDIT_UNAVAILABLE
    assert len(brokered.containers.ran) == 1


def test_a_start_that_cannot_be_recorded_is_no_start(brokered: Brokered) -> None:
    """INV-2."""
    brokered.grant()
    brokered.containers.before_it_starts = lambda: break_audit(brokered, {})
    assert denied(brokered.ask())[0] is DenyReason.AUDIT_UNAVAILABLE
    assert brokered.containers.ran == []
