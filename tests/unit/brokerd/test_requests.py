"""What may be said on which socket, and what is answered: the real handlers on real sockets."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerd import requests
from brokerd.condition import Condition
from brokerd.grantdesk import GrantDesk
from brokerd.grantpaths import PathReview
from brokerd.probe import Held
from brokerd.protected import Protected
from brokerd.requests import Requests, Socket
from brokerd.runnerfaults import ImageMissing
from bxcore import listener
from bxcore.auditlog import Answered, Decided
from bxcore.client import Connection, PeerLeft, RemoteFault
from bxcore.deadline import SystemClock
from bxcore.ids import CallId, Hash32, SessionId
from bxcore.server import Door, Server
from bxcore.wire import admin, state, tools
from bxcore.wire.admin import ApprovalEnding, FindingLevel, Verdict
from bxcore.wire.control import ErrorCode
from bxcore.wire.kinds import KIND_OF, KINDS
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolRequest, ToolResult
from tests.fakes.brokered import IMAGE, PATIENCE_SECONDS, Brokered
from tests.fixtures import make_wire

IDLE_MS = PATIENCE_SECONDS * 1000
CLOCK = SystemClock()
S = SessionId("s")


class RunnerState:
    held: Held | None = Held(held=("time", "memory"), missing=("cpu",))
    lacks_image = False

    def image(self) -> str:
        if self.lacks_image:
            raise ImageMissing("the file that names the tool image cannot be read")
        return IMAGE


class Served:
    """A Brokered on its three sockets."""

    def __init__(self, home: Path, *, max_connections: int = 32) -> None:
        self.home = home
        self.brokered = Brokered(home, clock=CLOCK)
        self.runner = RunnerState()
        condition = Condition(
            ledger=self.brokered.ledger,
            reading=self.brokered.reading,
            approvals=self.brokered.approvals,
            running=self.brokered.running,
            runner=self.runner,
            told="at the last start: open questions became void (3)",
        )
        desk = GrantDesk(
            files=self.brokered.files,
            reading=self.brokered.reading,
            ledger=self.brokered.ledger,
            paths=PathReview(protected=lambda: Protected(whole=()), user=lambda: None),
            now=self.brokered.time.now_ms,
        )
        self.table = Requests(
            broker=self.brokered.broker,
            approvals=self.brokered.approvals,
            desk=desk,
            ledger=self.brokered.ledger,
            condition=condition,
        ).table()
        self.listening = {}
        for name in Socket:
            self.path(name).parent.mkdir(mode=0o750, parents=True)
            self.listening[name] = listener.open_socket(self.path(name))
        doors = [
            Door(
                listening=opened,
                name=name.value,
                handlers=self.table[name],
                max_connections=max_connections,
                reserved=requests.RESERVED & frozenset(self.table[name]),
                reserved_connections=requests.RESERVED_CONNECTIONS,
            )
            for name, opened in self.listening.items()
        ]
        self.server = Server(doors, clock=CLOCK, drain_seconds=5)
        self._thread = threading.Thread(
            target=lambda: self.server.serve(before_drain=self.brokered.broker.stop), name="server"
        )
        self._thread.start()

    def close(self) -> None:
        self.server.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        for opened in self.listening.values():
            opened.close()
        self.brokered.close()

    def path(self, name: Socket) -> Path:
        return self.home / "run" / name.value / f"{name.value}.sock"

    def dial(self, name: Socket) -> Connection:
        return Connection(self.path(name), clock=CLOCK)

    def ask(self, message: object, name: Socket = Socket.ADMIN) -> list[Any]:
        with self.dial(name) as connection:
            answers = list(connection.request(message, idle_ms=IDLE_MS))
        assert [frame.final for frame in answers] == [*[False] * (len(answers) - 1), True]
        return [frame.msg for frame in answers]

    def fault(self, message: object, name: Socket = Socket.ADMIN) -> str:
        with pytest.raises(RemoteFault) as caught:
            self.ask(message, name)
        return caught.value.code


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def request(number: int = 1, path: str = "/data/a", session: str = "s") -> ToolRequest:
    arguments = json.dumps({"path": path})
    return ToolRequest(session=SessionId(session), call=CallId(number), tool="read_file", arguments=arguments)


# -- who may say what ---------------------------------------------------------------------------

MAY = {
    Socket.BROKER: {"tool_request"},
    Socket.ADMIN: {
        *("approval_list", "approval_show", "approval_answer", "grants_check", "grants_test", "grants_explain"),
        *("grants_suggest", "session_rebuild", "broker_status", "session_state_ask"),
    },
    Socket.STATE: {"session_state_ask"},
}


def test_the_table_says_what_may_be_said_where(served: Served) -> None:
    assert {name: {KIND_OF[kind] for kind in handlers} for name, handlers in served.table.items()} == MAY


def test_every_message_of_every_other_role_is_forbidden_on_every_socket(served: Served) -> None:
    """F12: loopd, gatewayd, memoryd and bxctl each say everything that there is; nothing of it acts."""
    served.brokered.grant()
    samples = {name: one.msg for name, one in make_wire.envelopes().items()}
    assert {name.split(".")[0] for name in samples} == set(KINDS)
    for name in Socket:
        for sample, message in samples.items():
            if sample.split(".")[0] in MAY[name]:
                continue
            assert served.fault(message, name) == ErrorCode.FORBIDDEN.value, f"{sample} on {name.value}"
    assert served.brokered.records() == []
    assert served.brokered.containers.ran == []


def test_a_role_that_says_what_another_may_is_logged_and_loses_its_connection(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with served.dial(Socket.BROKER) as connection:
        yes = admin.ApprovalAnswer(id=1, approve=True, canonical=Hash32("0" * 64), reason=None)
        with pytest.raises(RemoteFault):
            list(connection.request(yes, idle_ms=IDLE_MS))
        with pytest.raises((RemoteFault, PeerLeft)):
            list(connection.request(request(), idle_ms=IDLE_MS))
    assert any("approval_answer" in record.getMessage() for record in caplog.records)


# -- broker.sock --------------------------------------------------------------------------------


def test_a_call_is_answered_with_its_result(served: Served) -> None:
    served.brokered.grant()
    [answer] = served.ask(request(), Socket.BROKER)
    assert isinstance(answer, ToolResult)


def test_a_call_that_asks_is_pending_until_the_owner_has_answered_on_the_other_socket(served: Served) -> None:
    served.brokered.grant(mode="ask")
    with served.dial(Socket.BROKER) as connection:
        answers = connection.request(request(), idle_ms=IDLE_MS)
        pending = next(answers)
        assert isinstance(pending.msg, tools.ToolPending)
        assert pending.final is False
        [summary, end] = served.ask(admin.ApprovalList())
        assert (summary.id, summary.session, summary.tool, summary.grant) == (pending.msg.approval, S, "read_file", "g")
        assert end.total == 1
        *pieces, shown = served.ask(admin.ApprovalShow(id=summary.id))
        text = "".join(piece.text for piece in pieces)
        assert len(text) == shown.characters
        assert '"/data/a", read only' in text
        assert shown.summary == summary
        yes = admin.ApprovalAnswer(id=summary.id, approve=True, canonical=shown.canonical, reason=None)
        assert served.ask(yes) == [admin.ApprovalOutcome(id=summary.id, ending=ApprovalEnding.APPROVED, detail="")]
        assert isinstance(next(answers).msg, ToolResult)
    assert served.ask(admin.ApprovalList()) == [admin.ApprovalListEnd(total=0)]
    [outcome] = served.ask(yes)
    assert outcome.ending is ApprovalEnding.NOT_PENDING


def test_a_block_of_any_length_arrives_whole(served: Served) -> None:
    served.brokered.grant(tool="write_file", mode="ask")
    content = "".join(f"{number}\u202e\n" for number in range(20_000))
    message = ToolRequest(
        session=S, call=CallId(1), tool="write_file", arguments=json.dumps({"path": "/data/a", "content": content})
    )
    with served.dial(Socket.BROKER) as connection:
        pending: Any = next(connection.request(message, idle_ms=IDLE_MS)).msg
        *pieces, shown = served.ask(admin.ApprovalShow(id=pending.approval))
    assert len(pieces) > 1
    text = "".join(piece.text for piece in pieces)
    assert (len(text), text.count("\\u{202e}\\u{a}")) == (shown.characters, 20_000)


def test_a_client_that_leaves_takes_its_question_along(served: Served) -> None:
    served.brokered.grant(mode="ask")
    with served.dial(Socket.BROKER) as connection:
        next(connection.request(request(), idle_ms=IDLE_MS))
    while served.brokered.audit.unsettled.asked:
        pass
    answered = [record for record in served.brokered.records() if isinstance(record, Answered)]
    assert [record.ending for record in answered] == [ApprovalEnding.VOID]


def test_a_stop_answers_whoever_waits_for_the_owner(served: Served) -> None:
    served.brokered.grant(mode="ask")
    with served.dial(Socket.BROKER) as connection:
        answers = connection.request(request(), idle_ms=IDLE_MS)
        next(answers)
        served.server.stop()
        [last] = answers
    assert isinstance(last.msg, ToolDenied)
    assert last.msg.reason is DenyReason.APPROVAL_EXPIRED


def test_the_owner_gets_through_while_every_place_at_both_doors_is_taken(tmp_path: Path) -> None:
    """F10: silent connections at admin.sock, questions at broker.sock."""
    served = Served(tmp_path, max_connections=4)
    served.brokered.grant(mode="ask")
    opened = []
    for number in range(1, 5):
        connection = served.dial(Socket.BROKER)
        opened.append((connection, connection.request(request(number, f"/data/{number}"), idle_ms=IDLE_MS)))
        next(opened[-1][1])
    silent = []
    for _ in range(40):
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(served.path(Socket.ADMIN)))
        silent.append(one)
    assert served.fault(request(9), Socket.BROKER) == ErrorCode.TOO_BUSY.value
    assert served.ask(admin.ApprovalList())[-1] == admin.ApprovalListEnd(total=4)
    for connection, _ in opened:
        connection.close()
    for one in silent:
        one.close()
    served.close()


# -- approvals ----------------------------------------------------------------------------------


def test_a_question_that_is_not_open_cannot_be_shown(served: Served) -> None:
    assert served.fault(admin.ApprovalShow(id=7)) == ErrorCode.NO_APPROVAL.value


def test_an_answer_that_cannot_be_recorded_is_an_error(served: Served) -> None:
    served.brokered.grant(mode="ask")
    with served.dial(Socket.BROKER) as connection:
        answers = connection.request(request(), idle_ms=IDLE_MS)
        pending: Any = next(answers).msg
        served.brokered.audit._give_up()
        no = admin.ApprovalAnswer(id=pending.approval, approve=False, canonical=None, reason=None)
        assert served.fault(no) == ErrorCode.AUDIT_UNAVAILABLE.value
        last: Any = next(answers).msg
    assert last.reason is DenyReason.AUDIT_UNAVAILABLE


# -- grants -------------------------------------------------------------------------------------


def test_good_grants_are_counted_and_what_never_matters_is_named(served: Served) -> None:
    there = f'["{served.brokered.audit_dir}"]'
    served.brokered.grant("good", paths=there)
    served.brokered.grant("late", paths=there, more="expires = 2020-01-01T00:00:00Z")
    finding, end = served.ask(admin.GrantsCheck())
    assert (finding.file, finding.level) == ("late.toml", FindingLevel.WARNING)
    assert end == admin.GrantsCheckEnd(valid=True, grants=2, findings=1)


def test_a_grant_that_allows_through_a_link_is_warned_of(served: Served, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there")
    served.brokered.grant("open", paths=f'["{tmp_path}/link"]')
    finding, end = served.ask(admin.GrantsCheck())
    assert (finding.file, finding.level) == ("open.toml", FindingLevel.WARNING)
    assert f"leads to {tmp_path}/there;" in finding.text
    assert end == admin.GrantsCheckEnd(valid=True, grants=1, findings=1)


def test_a_bad_grant_is_named_with_its_line(served: Served) -> None:
    """G4, G5."""
    served.brokered.grant("bad", mode="maybe")
    finding, end = served.ask(admin.GrantsCheck())
    assert (finding.file, finding.line, finding.level) == ("bad.toml", 2, FindingLevel.ERROR)
    assert end == admin.GrantsCheckEnd(valid=False, grants=0, findings=1)


def dry_run(arguments: str, taint: DataClass = DataClass.PRIVATE, tool: str = "read_file") -> admin.GrantsTest:
    return admin.GrantsTest(tool=tool, arguments=arguments, taint=taint, untrusted=False)


def test_a_dry_run_says_what_would_happen_and_records_nothing(served: Served) -> None:
    served.brokered.grant("g", mode="ask")
    served.brokered.grant("other", tool="list_directory")
    *reasons, verdict = served.ask(dry_run('{"path":"/data/a"}'))
    assert [(reason.grant, reason.matched) for reason in reasons] == [("g", True), ("other", False)]
    assert (verdict.verdict, verdict.grant, verdict.mounts) == (Verdict.ASK, "g", ("/data/a (read only)",))
    assert (verdict.result_class, verdict.result_untrusted) == (DataClass.PRIVATE, True)
    assert (verdict.recorded, verdict.same_grants) == (None, True)
    assert served.brokered.records() == []
    assert served.brokered.approvals.questions() == []


DRY: dict[str, tuple[Any, DenyReason]] = {
    "no grant": (dry_run('{"path":"/etc/x"}'), DenyReason.NO_GRANT),
    "taint": (dry_run('{"path":"/data/a"}', DataClass.SECRET), DenyReason.TAINT_TOO_HIGH),
    "arguments": (dry_run('{"pth":"/data/a"}'), DenyReason.INVALID_ARGUMENTS),
    "tool": (dry_run("{}", tool="read_mind"), DenyReason.UNKNOWN_TOOL),
}


@pytest.mark.parametrize(("message", "reason"), DRY.values(), ids=DRY.keys())
def test_a_dry_run_of_a_denied_call_says_why(served: Served, message: admin.GrantsTest, reason: DenyReason) -> None:
    served.brokered.grant()
    verdict = served.ask(message)[-1]
    assert (verdict.verdict, verdict.reason) == (Verdict.DENIED, reason)


def test_a_dry_run_tells_of_bad_grants_and_of_a_missing_image(served: Served) -> None:
    served.brokered.grant()
    served.brokered.containers.unfit = ImageMissing("the tool image is not loaded")
    assert served.ask(dry_run('{"path":"/data/a"}'))[-1].reason is DenyReason.RUNNER_UNAVAILABLE
    served.brokered.grant("bad", mode="maybe")
    assert served.ask(dry_run('{"path":"/data/a"}'))[-1].reason is DenyReason.GRANTS_INVALID


def test_a_dry_run_decides_as_the_path_does(served: Served) -> None:
    """The same policy: what the dry run says is what then happens."""
    served.brokered.grant("a", paths='["/data"]')
    served.brokered.grant("b", mode="deny", max_taint="secret", paths='["/data/private"]')
    for number, path in enumerate(("/data/a", "/data/private/x", "/etc/passwd"), 1):
        verdict = served.ask(dry_run(json.dumps({"path": path})))[-1]
        [answer] = served.ask(request(number, path), Socket.BROKER)
        assert (verdict.verdict is Verdict.ALLOWED) is isinstance(answer, ToolResult)
        if isinstance(answer, ToolDenied):
            assert (verdict.reason, verdict.detail) == (answer.reason, answer.detail)


def test_a_recorded_decision_is_explained_by_the_grants_of_today(served: Served) -> None:
    served.brokered.grant()
    served.ask(request(1, "/etc/passwd"), Socket.BROKER)
    served.ask(request(2), Socket.BROKER)
    seqs = [record.seq for record in served.brokered.records() if isinstance(record, Decided)]
    denied, allowed = (served.ask(admin.GrantsExplain(seq=seq))[-1] for seq in seqs)
    assert denied.recorded == "denied: no_grant (nothing covers this call); session at private"
    assert (denied.verdict, denied.same_grants) == (Verdict.DENIED, True)
    assert allowed.recorded == "allowed by g; session at private"
    (served.brokered.grants / "g.toml").unlink()
    gone = served.ask(admin.GrantsExplain(seq=seqs[1]))[-1]
    assert (gone.verdict, gone.same_grants, gone.recorded) == (Verdict.DENIED, False, allowed.recorded)


def test_what_could_not_be_read_is_explained_by_what_was_said_then(served: Served) -> None:
    served.brokered.grant()
    message = ToolRequest(session=S, call=CallId(1), tool="read_file", arguments='{"pth":1}')
    served.ask(message, Socket.BROKER)
    verdict = served.ask(admin.GrantsExplain(seq=1))[-1]
    assert (verdict.reason, verdict.recorded) == (
        DenyReason.INVALID_ARGUMENTS,
        f"denied: invalid_arguments ({verdict.detail}); session at private",
    )


def test_a_suggestion_would_ask_for_the_call_that_was_denied(served: Served) -> None:
    served.ask(request(1, "/data/log.md"), Socket.BROKER)
    [suggestion] = served.ask(admin.GrantsSuggest(seq=1))
    assert suggestion.toml is not None
    assert suggestion.file == f"{served.brokered.grants}/read-file-1.toml"
    served.brokered.grant("suggested", text=suggestion.toml)
    verdict = served.ask(admin.GrantsExplain(seq=1))[-1]
    assert (verdict.verdict, verdict.grant) == (Verdict.ASK, "suggested")


@pytest.mark.parametrize("message", [admin.GrantsExplain(seq=99), admin.GrantsSuggest(seq=99)])
def test_a_number_that_is_no_decision_is_no_record(served: Served, message: object) -> None:
    assert served.fault(message) == ErrorCode.NO_RECORD.value


def test_a_record_of_another_kind_is_no_decision(served: Served) -> None:
    served.brokered.grant()
    served.ask(request(), Socket.BROKER)
    assert served.fault(admin.GrantsExplain(seq=2)) == ErrorCode.NO_RECORD.value


# -- state --------------------------------------------------------------------------------------


def test_a_sessions_labels_are_told_on_both_sockets_and_can_be_computed_again(served: Served) -> None:
    served.brokered.grant(max_taint="secret", more='result_class = "secret"')
    served.ask(request(), Socket.BROKER)
    seen = state.SessionStateReport(session=S, taint=DataClass.SECRET, untrusted=True, readable=True)
    for name in (Socket.ADMIN, Socket.STATE):
        assert served.ask(state.SessionStateAsk(session=S), name) == [seen]
    path = served.brokered.state / "sessions" / "s.json"
    path.write_text("{")
    for name in (Socket.ADMIN, Socket.STATE):
        [unreadable] = served.ask(state.SessionStateAsk(session=S), name)
        assert (unreadable.taint, unreadable.untrusted, unreadable.readable) == (DataClass.SECRET, True, False)
    assert served.ask(admin.SessionRebuild(session=S)) == [seen]
    [answer] = served.ask(request(2), Socket.BROKER)
    assert isinstance(answer, ToolResult)


def test_a_session_that_never_called_is_as_every_session_starts(served: Served) -> None:
    fresh = state.SessionStateReport(session=S, taint=DataClass.PRIVATE, untrusted=False, readable=True)
    assert served.ask(state.SessionStateAsk(session=S), Socket.STATE) == [fresh]


# -- condition ----------------------------------------------------------------------------------


def status(served: Served) -> admin.BrokerStatusReport:
    [report] = served.ask(admin.BrokerStatus())
    assert isinstance(report, admin.BrokerStatusReport)
    return report


def test_the_status_says_what_holds(served: Served) -> None:
    served.brokered.grant()
    served.ask(request(), Socket.BROKER)
    report = status(served)
    assert (report.denies, report.grants, report.pending, report.running) == (None, 1, 0, 0)
    assert report.detail == "at the last start: open questions became void (3)"
    assert (report.audit_seq, report.audit_hash) == (3, served.brokered.audit.head.hash)
    assert (report.image, report.limits_held, report.limits_missing) == (IMAGE, ("time", "memory"), ("cpu",))


def test_the_status_says_why_every_call_is_denied(served: Served) -> None:
    served.brokered.grant()
    served.runner.held = None
    assert status(served).denies is DenyReason.RUNNER_UNAVAILABLE
    served.runner.lacks_image = True
    report = status(served)
    assert (report.denies, report.image) == (DenyReason.RUNNER_UNAVAILABLE, None)
    served.brokered.grant("bad", mode="maybe")
    report = status(served)
    assert (report.denies, report.detail, report.grants) == (DenyReason.GRANTS_INVALID, "bad.toml, line 2", 0)
    served.brokered.audit._give_up()
    assert status(served).denies is DenyReason.AUDIT_UNAVAILABLE
