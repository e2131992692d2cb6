"""brokerd as a process: its sockets, its start and its end, and what it does about others that are missing."""

import array
import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bxcore.auditlog import Answered, BreakAccepted, Decided, Ended
from bxcore.client import RemoteFault
from bxcore.errors import EXIT_CONFIG, EXIT_STATE
from bxcore.wire import admin, state
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolFailed, ToolResult
from tests.fakes.podman import Exchange
from tests.process.brokerd_stack import Stack, silent, stack


@pytest.fixture
def rig() -> Iterator[Stack]:
    with stack() as made:
        yield made


# -- calls --------------------------------------------------------------------------------------


def test_a_granted_read_comes_back_labelled_and_leaves_no_container(rig: Stack) -> None:
    rig.grant()
    with rig.brokerd() as role:
        answer = rig.ask()
        assert isinstance(answer, ToolResult)
        assert (answer.data_class, answer.untrusted, answer.truncated) == (DataClass.PRIVATE, True, False)
        assert "fair wind" in answer.content
        assert "level=info role=brokerd" in role.log()
        assert "fair wind" not in role.log()
        assert rig.status().running == 0
        assert rig.left() == 0
        assert role.terminate() == 0
    assert [type(record) for record in rig.records()][-1] is Ended


def test_a_write_asks_on_one_socket_and_is_answered_on_the_other(rig: Stack) -> None:
    rig.grant(tool="write_file", mode="ask")
    with rig.brokerd(), rig.question(rig.request("write_file", content="gone fishing\n")) as (pending, answers):
        assert rig.note.read_text() == "fair wind\n"
        assert rig.yes(pending.approval).ending is ApprovalEnding.APPROVED
        assert isinstance(next(answers).msg, ToolResult)
        assert rig.note.read_text() == "gone fishing\n"


def test_a_grant_that_is_replaced_while_the_owner_thinks_is_the_one_that_counts(rig: Stack) -> None:
    """G6."""
    rig.grant(mode="ask")
    with rig.brokerd(), rig.question() as (pending, answers):
        rig.grant(mode="deny", max_taint="secret")
        assert rig.yes(pending.approval).ending is ApprovalEnding.DENIED_NOW
        last = next(answers).msg
        assert isinstance(last, ToolDenied)
        assert last.reason is DenyReason.DENIED_BY_GRANT
    assert rig.started == []


def test_a_question_that_nobody_answers_expires_and_is_told_once(rig: Stack) -> None:
    """G15."""
    rig.configure("[approvals]\nttl_ms = 1_000\n")
    rig.grant(mode="ask")
    with rig.brokerd(), rig.question() as (pending, answers):
        [last] = answers
        assert last.msg == ToolDenied(reason=DenyReason.APPROVAL_EXPIRED, detail=None)
        assert rig.tell(admin.ApprovalList()) == [admin.ApprovalListEnd(total=0)]
        [outcome] = rig.tell(admin.ApprovalAnswer(id=pending.approval, approve=True, canonical=None, reason=None))
        assert outcome.ending is ApprovalEnding.NOT_PENDING


def test_questions_are_cut_to_a_rate_and_a_refused_call_stays_refused(rig: Stack) -> None:
    """G14."""
    rig.configure("[approvals]\nper_minute = 2\n")
    rig.grant(mode="ask")
    with rig.brokerd():
        for _ in range(2):
            with rig.question() as (pending, answers):
                rig.tell(admin.ApprovalAnswer(id=pending.approval, approve=False, canonical=None, reason="no"))
                assert next(answers).msg == ToolDenied(reason=DenyReason.APPROVAL_REFUSED, detail="no")
            rig.note = rig.home / "files" / "other"
            rig.note.write_text("x")
        first = rig.ask(rig.request(path=str(rig.home / "files" / "note.txt")))
        third = rig.ask(rig.request(path=str(rig.home / "files" / "third")))
        assert first.detail == "the owner refused this very call before"
        assert isinstance(third, ToolDenied)


def test_a_grant_that_a_later_clock_saw_expire_stays_expired(rig: Stack) -> None:
    """G3: a clock that was set back."""
    rig.grant(more="expires = 2090-01-01T00:00:00Z")
    with rig.brokerd():
        assert isinstance(rig.ask(), ToolResult)
    mark = rig.home / "state" / "clock"
    mark.write_text(json.dumps({"v": 1, "latest": "2090-01-01T00:00:00.000Z"}, separators=(",", ":")) + "\n")
    with rig.brokerd():
        assert rig.ask().reason is DenyReason.GRANT_EXPIRED


def test_without_any_environment_the_decisions_are_the_same(rig: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """G19, neighbour 7: no terminal, no variables."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    rig.grant("ask", mode="ask", paths=f'["{rig.home}/files/ask"]')
    rig.grant("auto")
    with rig.brokerd():
        assert isinstance(rig.ask(), ToolResult)
        assert rig.ask(rig.request(path="/etc/passwd")).reason is DenyReason.NO_GRANT
        asked = rig.home / "files" / "ask"
        asked.write_text("x")
        with rig.question(rig.request(path=str(asked))) as (pending, _):
            assert rig.tell(admin.ApprovalList())[-1] == admin.ApprovalListEnd(total=1)
            assert pending.approval > 0


def test_taint_outlives_the_process(rig: Stack) -> None:
    """G17."""
    rig.grant(more='result_class = "secret"', max_taint="private")
    with rig.brokerd():
        assert isinstance(rig.ask(), ToolResult)
    with rig.brokerd():
        assert rig.ask().reason is DenyReason.TAINT_TOO_HIGH
        [seen] = rig.tell(state.SessionStateAsk(session=rig.request().session), "state")
        assert (seen.taint, seen.untrusted, seen.readable) == (DataClass.SECRET, True, True)


# -- peers --------------------------------------------------------------------------------------


def test_a_flood_at_one_socket_leaves_the_owner_his_own(rig: Stack) -> None:
    """F10."""
    rig.grant()
    with rig.brokerd() as role, contextlib.ExitStack() as held:
        for _ in range(2_000):
            held.enter_context(silent(rig.socket("broker")))
        for _ in range(200):
            held.enter_context(silent(rig.socket("admin")))
        assert rig.status().denies is None
        assert isinstance(rig.ask(), ToolResult)
        assert role.threads() <= 2 * 32 + 16
        assert role.descriptors() <= 2 * 32 + 48


def test_descriptors_that_a_peer_passes_along_are_dropped(rig: Stack) -> None:
    """F14."""
    rig.grant()
    with rig.brokerd() as role:
        rig.ask()
        before = role.descriptors()
        for _ in range(50):
            with silent(rig.socket("broker")) as client, rig.config.open() as passed:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed.fileno()] * 8))]
                client.sendmsg([b"\x00\x00\x00\x02{}"], rights)
                client.settimeout(60)
                assert client.recv(65_536)
        rig.status()
        assert role.descriptors() <= before + 8


def test_loopd_may_ask_nothing_of_the_owners(rig: Stack) -> None:
    """F12."""
    with rig.brokerd() as role:
        for name, message in (
            ("broker", admin.ApprovalAnswer(id=1, approve=True, canonical=None, reason=None)),
            ("state", admin.BrokerStatus()),
            ("admin", rig.request()),
        ):
            with pytest.raises(RemoteFault) as caught:
                rig.tell(message, name)
            assert caught.value.code == "forbidden"
            assert f"socket={name} code=forbidden" in role.log()


# -- starting -----------------------------------------------------------------------------------


def test_the_start_says_which_limits_hold_here(rig: Stack) -> None:
    rig.grant()
    with rig.brokerd() as role:
        [line] = [line for line in role.log().splitlines() if " ready " in line]
        for words in ("limits=time,output,processes,memory", "missing=cpu", "grants=1", "denies=-"):
            assert words in line
        assert rig.status().limits_missing == ("cpu",)


def test_without_a_container_service_it_serves_and_denies_and_never_runs_on_the_host(rig: Stack) -> None:
    """S4, S7, neighbour 12: and it works as soon as the service is there."""
    rig.grant()
    away = rig.podman.path.with_name("away.sock")
    rig.podman.path.rename(away)
    with rig.brokerd() as role:
        assert rig.status().denies is DenyReason.RUNNER_UNAVAILABLE
        answer = rig.ask()
        assert isinstance(answer, ToolDenied)
        assert answer.reason is DenyReason.RUNNER_UNAVAILABLE
        assert rig.started == []
        assert "code=podman_away" in role.log()
        away.rename(rig.podman.path)
        assert isinstance(rig.ask(), ToolResult)
        assert rig.status().denies is None


def test_s5_a_container_service_that_trickles_keeps_nobody_from_asking(rig: Stack) -> None:
    """brokerd serves, records the end of what was open, and denies, until the service answers as it should."""
    rig.grant()
    over = threading.Event()

    def trickle(exchange: Exchange) -> bool:
        exchange.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not over.wait(1):
            exchange.wfile.write(b" ")
        exchange.close_connection = True
        return True

    for step in ("list", "exists"):
        rig.podman.on(step, trickle)
    try:
        with rig.brokerd():
            assert rig.status().denies is DenyReason.RUNNER_UNAVAILABLE
            assert rig.ask().reason is DenyReason.RUNNER_UNAVAILABLE
            assert rig.started == []
            for step in ("list", "exists"):
                rig.podman.on(step, lambda _: False)
            over.set()
            assert isinstance(rig.ask(), ToolResult)
    finally:
        over.set()


def test_without_an_image_it_denies(rig: Stack) -> None:
    """S7."""
    rig.grant()
    rig.podman.images.clear()
    with rig.brokerd():
        assert rig.ask().reason is DenyReason.RUNNER_UNAVAILABLE
    assert rig.started == []


def test_a_bad_grant_does_not_stop_it_but_every_call(rig: Stack) -> None:
    """G5."""
    rig.grant()
    rig.grant("bad", mode="maybe")
    with rig.brokerd():
        assert rig.ask() == ToolDenied(reason=DenyReason.GRANTS_INVALID, detail="bad.toml, line 2")
        assert (rig.status().denies, rig.status().detail) == (DenyReason.GRANTS_INVALID, "bad.toml, line 2")
        (rig.home / "grants" / "bad.toml").unlink()
        assert isinstance(rig.ask(), ToolResult)


UNSAFE = {
    "socket directory": ("run/broker", 0o777, EXIT_CONFIG, "unsafe_directory"),
    "state for a group": ("state", 0o750, EXIT_CONFIG, "unsafe_directory"),
    "grants for everybody": ("grants", 0o755, EXIT_CONFIG, "unsafe_directory"),
    "audit log for a group": ("audit", 0o750, EXIT_STATE, "audit_exposed"),
}


@pytest.mark.parametrize(("name", "mode", "code", "word"), UNSAFE.values(), ids=UNSAFE.keys())
def test_a_directory_that_is_open_to_others_is_no_place_to_start(
    rig: Stack, name: str, mode: int, code: int, word: str
) -> None:
    """F11, A10."""
    (rig.home / name).chmod(mode)
    with rig.start() as role:
        assert role.exit_code() == code
        assert f"[{word}]" in role.log()
        assert "Traceback" not in role.log()


@pytest.mark.parametrize("name", ["state", "audit"])
def test_a_missing_directory_is_named(rig: Stack, name: str) -> None:
    (rig.home / name).rmdir()
    with rig.start() as role:
        assert role.exit_code() == EXIT_CONFIG
        assert f"{rig.home}/{name}: No such file or directory; create it" in role.log()


def test_a_link_in_the_place_of_a_socket_or_of_the_state_is_refused(rig: Stack) -> None:
    """F11."""
    rig.socket("broker").symlink_to(rig.home / "elsewhere")
    with rig.start() as role:
        assert role.exit_code() == EXIT_CONFIG
    rig.socket("broker").unlink()
    (rig.home / "state").rename(rig.home / "moved")
    (rig.home / "state").symlink_to(rig.home / "moved")
    with rig.start() as role:
        assert role.exit_code() == EXIT_CONFIG


def test_a_second_one_does_not_start(rig: Stack) -> None:
    """A5."""
    with rig.brokerd() as first, rig.start() as second:
        assert second.exit_code() == EXIT_CONFIG
        assert "[already_running]" in second.log()
        assert first.process.poll() is None


def test_a_log_that_was_changed_stops_it_until_that_is_accepted(rig: Stack) -> None:
    """A4, INV-7."""
    rig.grant()
    with rig.brokerd():
        rig.ask()
    [path] = (rig.home / "audit").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"read_file", b"list_file", 1))
    with rig.start() as role:
        assert role.exit_code() == EXIT_STATE
        assert "[audit_broken]" in role.log()
    with rig.brokerd("--accept-break"):
        assert isinstance(rig.ask(rig.request(number=99)), ToolResult)
    assert any(isinstance(record, BreakAccepted) for record in rig.records())
    with rig.brokerd():
        assert rig.status().denies is None


def test_a_stop_withdraws_what_is_open_and_records_it(rig: Stack) -> None:
    rig.grant("ask", mode="ask", paths=f'["{rig.home}/files"]')
    with rig.brokerd() as role, rig.question() as (pending, answers):
        assert role.terminate() == 0
        last = next(answers).msg
        assert isinstance(last, ToolDenied)
        assert last.reason is DenyReason.APPROVAL_EXPIRED
    [answered] = [record for record in rig.records() if isinstance(record, Answered)]
    assert (answered.decision, answered.ending) == (pending.approval, ApprovalEnding.VOID)


def test_a_stop_ends_what_runs_and_records_it(rig: Stack) -> None:
    rig.grant()
    rig.tool = ["/bin/sleep", "1000"]
    with rig.brokerd() as role, rig.dial() as connection:
        answers = connection.request(rig.request(), idle_ms=3_600_000)
        while not rig.started:
            assert role.process.poll() is None
        assert role.terminate() == 0
        assert isinstance(next(answers).msg, ToolFailed)
        assert rig.left() == 0
    assert isinstance(rig.records()[-1], Ended)


def test_every_call_has_its_decision_also_those_that_are_denied(rig: Stack) -> None:
    with rig.brokerd():
        for number in range(20):
            assert isinstance(rig.ask(rig.request(path=f"/etc/{number}")), ToolDenied)
    assert len([record for record in rig.records() if isinstance(record, Decided)]) == 20


def test_the_state_socket_is_optional(rig: Stack) -> None:
    text = rig.config.read_text()
    rig.config.write_text(text.replace(f'state = "{rig.socket("state")}"\n', ""))
    with rig.brokerd():
        assert not rig.socket("state").exists()
        assert rig.status().denies is None


def test_the_log_of_the_daemon_holds_no_argument_and_no_content(rig: Stack) -> None:
    rig.grant()
    secret = rig.home / "files" / "kept-back.txt"
    secret.write_text("the owner's words")
    with rig.brokerd() as role:
        rig.ask(rig.request(path=str(secret)))
        rig.ask(rig.request(path=str(Path("/etc/kept-back"))))
        assert "kept-back" not in role.log()
        assert "the owner's words" not in role.log()
