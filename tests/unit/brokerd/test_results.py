"""brokerd.results: what came out of a container -> what loopd is told and what is recorded."""

import hashlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import results
from brokerd.call import FRESH, Labels
from brokerd.entries import NOTHING
from brokerd.exited import UNSTARTED, Exited, Stop
from brokerd.results import Ran
from bxcore import strictjson, tools
from bxcore.auditlog import RunEnding
from bxcore.settings.brokerd import Limits
from bxcore.tools import TOOLS
from bxcore.wire.tools import DataClass, ToolFailed, ToolResult
from toolkit import contract

READ = TOOLS["read_file"]
SECRET = Labels(data_class=DataClass.SECRET, untrusted=True)
DONE = Exited(stop=Stop.END, exit=0, stdout=b"text", size=4, out_of_memory=False)


def ran(**changes: object) -> Ran:
    return Ran(kind=READ, limits=Limits(), exited=attrs.evolve(DONE, **changes))  # type: ignore[arg-type]


def result(**changes: object) -> ToolResult:
    answer, _ = results.of(ran(**changes), SECRET)
    assert isinstance(answer, ToolResult)
    return answer


def test_what_a_tool_says_is_labelled_and_recorded_by_hash() -> None:
    answer, back = results.of(ran(), SECRET)
    assert answer == ToolResult(content="text", data_class=DataClass.SECRET, untrusted=True, truncated=False)
    assert (back.ending, back.exit, back.size) == (RunEnding.DONE, 0, 4)
    assert back.sha256 == hashlib.sha256(b"text").hexdigest()
    assert back.labels == SECRET


def test_a_tools_own_error_is_a_labelled_result() -> None:
    answer, back = results.of(ran(exit=1, stdout=b"error: no such file"), SECRET)
    assert answer == ToolResult(
        content="error: no such file", data_class=DataClass.SECRET, untrusted=True, truncated=False
    )
    assert back.ending is RunEnding.TOOL_ERROR


FAILURES = {
    "time": (ran(stop=Stop.DEADLINE, exit=None), "time limit of 20000 ms"),
    "time, by podman": (ran(exit=255), "time limit of 20000 ms"),
    "output": (ran(stop=Stop.OUTPUT, exit=None), "output limit of 4194304 bytes"),
    "memory": (ran(exit=137, out_of_memory=True), "memory limit of 536870912 bytes"),
    "killed": (ran(exit=137), "memory limit of 536870912 bytes"),
    "out of memory, and yet an exit code of its own": (ran(out_of_memory=True), "memory limit"),
    "file size": (ran(exit=153), "limit of 67108864 bytes for a file"),
    "cancelled": (ran(stop=Stop.CANCELLED, exit=None), "nobody waits"),
    "misuse": (ran(exit=2, stdout=b""), "could not carry out its order"),
    "another file": (ran(exit=2, stdout=contract.NOT_AS_DECIDED), "no longer the file or directory"),
    "an odd exit": (ran(exit=42), "as no tool of ours does"),
    "not started": (Ran(kind=READ, limits=Limits(), exited=UNSTARTED), "was not started"),
    "an unreadable stream": (ran(stop=Stop.BROKEN), "not readable"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_s6_a_failure_names_the_limit_in_a_sentence_of_ours(name: str) -> None:
    given_run, expected = FAILURES[name]
    secret = attrs.evolve(given_run, exited=attrs.evolve(given_run.exited, stdout=given_run.exited.stdout or b"hush"))
    answer, back = results.of(secret, SECRET)
    assert isinstance(answer, ToolFailed)
    assert expected in answer.message
    assert "text" not in answer.message
    assert "hush" not in answer.message
    assert (back.ending, back.size, back.sha256) == (RunEnding.FAILED, 0, NOTHING)


def test_s1_an_end_that_nobody_saw_is_unknown() -> None:
    answer, back = results.of(ran(stop=Stop.BROKEN, exit=None), SECRET)
    assert answer == ToolFailed(message=results.UNKNOWN)
    assert back.ending is RunEnding.UNKNOWN


def test_the_wrappers_marker_is_the_one_that_is_known_here() -> None:
    assert results.NOT_AS_DECIDED == contract.NOT_AS_DECIDED


def test_a_long_result_is_cut_visibly_and_once() -> None:
    answer = result(stdout=b"x" * (READ.result_chars + 1))
    assert answer.truncated
    assert len(answer.content) == READ.result_chars
    assert answer.content.rpartition("\n")[2].startswith(tools.CUT)
    assert result(stdout=answer.content.encode()) == answer
    assert not result(stdout=b"x" * READ.result_chars).truncated


@given(st.binary(max_size=200))
def test_any_bytes_become_text_that_fits_into_a_message(stdout: bytes) -> None:
    answer = result(stdout=stdout)
    strictjson.loads(strictjson.dumps({"content": answer.content}))
    assert not answer.truncated or b"cut" in stdout


@given(st.text(max_size=100))
def test_text_comes_through_unchanged(text: str) -> None:
    _, back = results.of(ran(stdout=text.encode()), FRESH)
    assert result(stdout=text.encode()).content == text
    assert back.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_failed_tool_cannot_say_a_number() -> None:
    """Every exit code gives one of a handful of sentences: what a hostile tool can tell by failing is which."""
    said = {results.of(ran(exit=code), SECRET)[0] for code in range(2, 256)}
    assert len(said) == 5
    odd = results.of(ran(exit=42), SECRET)
    assert odd[0] == results.of(ran(exit=43), SECRET)[0]
    assert odd[1].exit == 42, "the record keeps it"
