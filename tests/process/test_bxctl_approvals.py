"""Approvals at the command line and in a conversation: real bxctl, a brokerd and a loopd of the test's own."""

import json
import threading
import time
from pathlib import Path

import pytest

from bxcore.ids import CallId
from bxcore.server import Request
from bxcore.wire import admin, channel
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.control import ErrorCode
from tests.fakes import loopd
from tests.fakes.admin import BLOCK, EXPIRES, HASH, FakeAdmin, settles, shows, summary
from tests.fakes.loopd import FakeLoopd, called, ended, returned
from tests.fakes.rolesocket import Script, refuses, replies
from tests.fakes.terminal import CTRL_C, CTRL_D, ENTER
from tests.process.bxctl_process import on_terminal, run

PROMPT = "you> "
NONE_OPEN = refuses(ErrorCode.NO_APPROVAL, "no question of this number is open")


def asks(home: Path, show: Script | None = None) -> FakeAdmin:
    answer = settles(ApprovalEnding.APPROVED)
    return FakeAdmin(home, {admin.ApprovalShow: show or shows(), admin.ApprovalAnswer: answer})


# -- the verbs ----------------------------------------------------------------------------------------


def test_approvals_shows_each_open_question_whole(tmp_path: Path) -> None:
    listing = replies(summary(42), summary(43), admin.ApprovalListEnd(total=2))
    with FakeAdmin(tmp_path, {admin.ApprovalList: listing, admin.ApprovalShow: shows()}):
        done = run(tmp_path, "approvals")
    assert done.returncode == 0
    assert done.stdout.decode().count(BLOCK.strip()) == 2
    assert f"bxctl --home {tmp_path} approve 43" in done.stdout.decode()


def test_no_open_question_is_said(tmp_path: Path) -> None:
    with FakeAdmin(tmp_path, {admin.ApprovalList: replies(admin.ApprovalListEnd(total=0))}):
        done = run(tmp_path, "approvals")
    assert (done.returncode, done.stdout) == (0, b"")
    assert "Nothing waits" in done.stderr.decode()


def test_a_question_answered_while_it_was_listed_is_left_out(tmp_path: Path) -> None:
    listing = replies(summary(42), admin.ApprovalListEnd(total=1))
    with FakeAdmin(tmp_path, {admin.ApprovalList: listing, admin.ApprovalShow: NONE_OPEN}):
        done = run(tmp_path, "approvals")
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(("verb", "approve"), [("approve", True), ("deny", False)])
def test_an_answer_names_the_hash_of_what_was_shown(tmp_path: Path, verb: str, approve: bool) -> None:
    ending = ApprovalEnding.APPROVED if approve else ApprovalEnding.REFUSED
    with FakeAdmin(tmp_path, {admin.ApprovalShow: shows(), admin.ApprovalAnswer: settles(ending)}) as fake:
        done = run(tmp_path, verb, "42", *([] if approve else ["wrong file"]))
    assert done.returncode == 0
    assert BLOCK.strip() in done.stdout.decode()
    reason = None if approve else "wrong file"
    assert fake.of(admin.ApprovalAnswer) == [
        admin.ApprovalAnswer(id=42, approve=approve, canonical=HASH, reason=reason)
    ]


@pytest.mark.parametrize("ending", [ending for ending in ApprovalEnding if ending is not ApprovalEnding.APPROVED])
def test_an_approval_that_did_not_take_effect_is_exit_4(tmp_path: Path, ending: ApprovalEnding) -> None:
    with FakeAdmin(tmp_path, {admin.ApprovalShow: shows(), admin.ApprovalAnswer: settles(ending, "so it is")}):
        done = run(tmp_path, "approve", "42")
    assert done.returncode == 4
    assert "so it is" in done.stdout.decode()


def test_a_question_that_came_incompletely_is_not_answered(tmp_path: Path) -> None:
    scripts = {admin.ApprovalShow: shows(missing=3), admin.ApprovalAnswer: settles(ApprovalEnding.APPROVED)}
    with FakeAdmin(tmp_path, scripts) as fake:
        done = run(tmp_path, "approve", "42")
    assert done.returncode == 3
    assert fake.of(admin.ApprovalAnswer) == []


def test_what_brokerd_shows_is_escaped_once_more(tmp_path: Path) -> None:
    """Statement 5: nothing rewrites the question on the terminal, not even through a brokerd that forgot to escape."""
    with FakeAdmin(tmp_path, {admin.ApprovalShow: shows("a\x1b[2Jb\u202ec\n"), admin.ApprovalAnswer: NONE_OPEN}):
        done = run(tmp_path, "approve", "42")
    assert "a\\u{001B}[2Jb\\u{202E}c" in done.stdout.decode()
    assert b"\x1b" not in done.stdout


def test_nobody_at_the_socket_is_exit_3_and_names_brokerd(tmp_path: Path) -> None:
    done = run(tmp_path, "approvals")
    assert done.returncode == 3
    assert "brokerd is not running" in done.stderr.decode()


def test_json_answers_are_the_frames(tmp_path: Path) -> None:
    with asks(tmp_path):
        done = run(tmp_path, "approve", "42", "--json")
    assert json.loads(done.stdout) == {"kind": "approval_outcome", "id": 42, "ending": "approved", "detail": ""}


# -- in a conversation ----------------------------------------------------------------------------------


def waits_for(answered: threading.Event, *, ok: bool = True, content: str | None = None) -> Script:
    """A turn with a call that the owner is asked about; it goes on once `answered` is set."""

    def script(request: Request) -> None:
        request.answer(loopd.accepted(request), final=False)
        request.answer(called("write_file", '{"path":"/srv/notes/a.txt"}'), final=False)
        pending = channel.ApprovalPending(turn=1, call=CallId(1), name="write_file", approval=42, expires=EXPIRES)
        request.answer(pending, final=False)
        assert answered.wait(60)
        came = content or ("done" if ok else "denied: approval_refused")
        request.answer(returned("write_file", came, ok=ok), final=False)
        request.answer(ended("It is written."), final=True)

    return script


def setting(answered: threading.Event, script: Script) -> Script:
    def both(request: Request) -> None:
        script(request)
        answered.set()

    return both


def test_typing_the_number_approves_what_was_shown(tmp_path: Path) -> None:
    answered = threading.Event()
    scripts = {
        admin.ApprovalShow: shows(),
        admin.ApprovalAnswer: setting(answered, settles(ApprovalEnding.APPROVED)),
    }
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}),
        FakeAdmin(tmp_path, scripts) as fake,
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect(
            r"write_file waits for your answer to question 42.*write_file asks to run.*Type 42 to approve.*42\? "
        )
        screen.send("yes" + ENTER)
        screen.expect(r"that answers nothing.*42\? ")
        screen.send("42" + ENTER)
        screen.expect(r"42 approved.*It is written\..*" + PROMPT)
        screen.send(CTRL_D)
        assert screen.wait() == 0
    (answer,) = fake.of(admin.ApprovalAnswer)
    assert (answer.approve, answer.canonical) == (True, HASH)


def test_a_reason_behind_n_refuses(tmp_path: Path) -> None:
    answered = threading.Event()
    scripts = {
        admin.ApprovalShow: shows(),
        admin.ApprovalAnswer: setting(answered, settles(ApprovalEnding.REFUSED)),
    }
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered, ok=False)}),
        FakeAdmin(tmp_path, scripts) as fake,
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect(r"42\? ")
        screen.send("n the wrong file" + ENTER)
        screen.expect(r"42 refused.*" + PROMPT)
        screen.send(CTRL_D)
        assert screen.wait() == 0
    (answer,) = fake.of(admin.ApprovalAnswer)
    assert (answer.approve, answer.reason) == (False, "the wrong file")


def test_a_line_that_was_typed_before_the_question_answers_nothing(tmp_path: Path) -> None:
    answered, typed = threading.Event(), threading.Event()

    def late(request: Request) -> None:
        assert typed.wait(60)
        shows()(request)

    scripts: dict[type, Script] = {
        admin.ApprovalShow: late,
        admin.ApprovalAnswer: setting(answered, settles(ApprovalEnding.APPROVED)),
    }
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}),
        FakeAdmin(tmp_path, scripts) as fake,
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect("waits for your answer to question 42")
        screen.send("42" + ENTER)
        typed.set()
        screen.expect(r"42\? ")
        time.sleep(0.5)  # long enough for a line that was left over to be read
        assert fake.of(admin.ApprovalAnswer) == []
        screen.send("42" + ENTER)
        screen.expect(r"It is written\.")


ELSEWHERE = {
    "approved": (True, "done", "answered elsewhere: approved, and the call ran"),
    "refused": (False, "denied: approval_refused (not that file)", "answered elsewhere: refused"),
    "expired": (False, "denied: approval_expired", "has expired: nobody answered in time"),
}


@pytest.mark.parametrize(("ok", "content", "told"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_a_question_that_ends_elsewhere_says_how(tmp_path: Path, ok: bool, content: str, told: str) -> None:
    answered = threading.Event()
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered, ok=ok, content=content)}),
        asks(tmp_path) as fake,
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect(r"42\? ")
        answered.set()
        screen.expect(rf"Question 42 .*{told}.*It is written\..*" + PROMPT)
    assert fake.of(admin.ApprovalAnswer) == []


def test_enter_leaves_the_question_open_and_its_number_still_answers(tmp_path: Path) -> None:
    answered = threading.Event()
    scripts = {
        admin.ApprovalShow: shows(),
        admin.ApprovalAnswer: setting(answered, settles(ApprovalEnding.APPROVED)),
    }
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}) as loop,
        FakeAdmin(tmp_path, scripts),
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect(r"42\? ")
        for keys in (ENTER, ENTER, CTRL_D):
            screen.send(keys)
            screen.expect(r"42\? ")
        screen.send("is it written yet?" + ENTER)
        screen.expect(r"that answers nothing.*42\? ")
        screen.send("42" + ENTER)
        screen.expect(r"42 approved.*It is written\..*" + PROMPT)
    assert screen.shown.count("It stays open") == 1
    assert [message.text for message in loop.of(channel.UserMessage)] == ["write it"]


def test_an_answer_that_brokerd_did_not_hear_can_be_given_again(tmp_path: Path) -> None:
    answered = threading.Event()

    def first_refuses(request: Request) -> None:
        if len(broker.of(admin.ApprovalAnswer)) == 1:
            refuses(ErrorCode.AUDIT_UNAVAILABLE, "the audit log cannot be written")(request)
        else:
            setting(answered, settles(ApprovalEnding.APPROVED))(request)

    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}),
        FakeAdmin(tmp_path, {admin.ApprovalShow: shows(), admin.ApprovalAnswer: first_refuses}) as broker,
        on_terminal(tmp_path, "chat") as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect(r"42\? ")
        screen.send("42" + ENTER)
        screen.expect(r"audit_unavailable.*42\? ")
        screen.send("42" + ENTER)
        screen.expect(r"42 approved.*It is written\..*" + PROMPT)


def test_the_question_ends_with_a_line_that_says_what_it_is_about(tmp_path: Path) -> None:
    answered = threading.Event()
    block = "write_file asks to run\n" + f'  path            "/srv/{"d" * 90}/notes.txt"\n' + "    1,\n" * 60
    with (
        FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}),
        asks(tmp_path, shows(block)),
        on_terminal(tmp_path, "chat", more={"NO_COLOR": "1"}) as screen,
    ):
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        line = screen.expect(r'\n(write_file "/srv/[^\n]*)\r\n').group(1)
        screen.expect(r"42\? ")
        answered.set()
        screen.expect(PROMPT)
    assert line.endswith('/notes.txt", which writes')
    assert "…" in line
    assert len(line) < 80


def test_ctrl_c_at_the_question_cancels_the_turn(tmp_path: Path) -> None:
    answered = threading.Event()
    scripts: dict[type, Script] = {
        channel.UserMessage: waits_for(answered),
        channel.TurnCancel: setting(answered, replies(channel.TurnCancelNoted(session=loopd.session("s"), turn=1))),
    }
    with FakeLoopd(tmp_path, scripts) as fake, asks(tmp_path) as broker, on_terminal(tmp_path, "chat") as screen:
        screen.expect(PROMPT)
        screen.send("write it" + ENTER)
        screen.expect(r"42\? ")
        screen.send(CTRL_C)
        fake.wait(channel.TurnCancel)
        screen.expect(r"Question 42 is withdrawn.*nothing was approved here.*" + PROMPT)
    assert broker.of(admin.ApprovalAnswer) == []


def test_one_question_shows_the_block_on_standard_error_and_asks_nothing(tmp_path: Path) -> None:
    answered = threading.Event()
    show = setting(answered, shows())
    with FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}), asks(tmp_path, show) as fake:
        done = run(tmp_path, "chat", "--say", "write it")
    assert (done.returncode, done.stdout) == (0, b"It is written.\n")
    assert BLOCK.strip() in done.stderr.decode()
    assert "approve 42" in done.stderr.decode()
    assert fake.of(admin.ApprovalAnswer) == []


def test_with_json_the_event_is_all_and_brokerd_is_not_asked(tmp_path: Path) -> None:
    answered = threading.Event()
    answered.set()
    with FakeLoopd(tmp_path, {channel.UserMessage: waits_for(answered)}), asks(tmp_path) as fake:
        done = run(tmp_path, "chat", "--json", "--say", "write it")
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert "approval_pending" in kinds
    assert fake.asked == []


# -- a question that is wider than the terminal ---------------------------------------------------------------


def test_a_long_line_cannot_pass_for_another_line_of_the_question(tmp_path: Path) -> None:
    """The model chooses what stands in an argument; where the terminal breaks it, no line of its own may begin."""
    forged = "x" * 56 + "  network         none" + " " * 58 + "  will see        nothing"
    block = f'shell asks to run\n  command  "{forged}"\n  network         host\n'
    scripts = {admin.ApprovalShow: shows(block), admin.ApprovalAnswer: settles(ApprovalEnding.REFUSED)}
    with FakeAdmin(tmp_path, scripts), on_terminal(tmp_path, "deny", "42", more={"NO_COLOR": "1"}) as screen:
        screen.expect("42 refused")
        assert screen.wait() == 0
    lines = screen.shown.replace("\r", "").split("\n")
    assert [line for line in lines if line.startswith("  network")] == ["  network         host"]
    assert all(len(line) < 80 for line in lines)
    told = "".join(line.removeprefix("  ↳ ") if line.startswith("  ↳ ") else f"\n{line}" for line in lines)
    assert f'  command  "{forged}"' in told, "broken, and nothing left out"


def test_our_own_words_break_at_spaces_and_are_not_marked(tmp_path: Path) -> None:
    limits = "20 s of time, 256 MiB of memory, 1 processor, 64 processes, 16 MiB of temporary files"
    block = f"  limits          {limits}\n  fingerprint     {'ab' * 32}\n"
    scripts = {admin.ApprovalShow: shows(block), admin.ApprovalAnswer: settles(ApprovalEnding.REFUSED)}
    with FakeAdmin(tmp_path, scripts), on_terminal(tmp_path, "deny", "42", more={"NO_COLOR": "1"}) as screen:
        screen.expect("42 refused")
        assert screen.wait() == 0
    assert "↳" not in screen.shown
    lines = screen.shown.replace("\r", "").split("\n")
    assert all(len(line) < 80 for line in lines)
    assert " ".join(line.strip() for line in lines[:2]) == f"limits          {limits}"
    assert "".join(line.strip() for line in lines[2:4]) == f"fingerprint     {'ab' * 32}"


def test_a_long_line_is_broken_in_a_pipe_too(tmp_path: Path) -> None:
    """A pager breaks it at its own edge, where it could pass for another line of the question."""
    block = f'shell asks to run\n  command  "{"x" * 400}"\n  note  "{"·" * 100}"\n'
    scripts = {admin.ApprovalShow: shows(block), admin.ApprovalAnswer: settles(ApprovalEnding.REFUSED)}
    with FakeAdmin(tmp_path, scripts):
        done = run(tmp_path, "deny", "42")
    lines = done.stdout.decode().splitlines()
    assert max(len(line) for line in lines) < 80
    assert max(len(line) for line in lines if "·" in line) <= 44, "two columns each, in some terminals"
    whole = "".join(line.removeprefix("  ↳ ") for line in lines[:-1])
    assert "x" * 400 in whole
    assert "·" * 100 in whole
