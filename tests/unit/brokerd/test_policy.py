"""What policy decides, case by case; tests/property/test_policy_oracle.py compares it with the rules at large."""

import os
import random
import string
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from brokerd import policy, weighing
from brokerd.call import FRESH, UNREADABLE, Call, Labels
from brokerd.policy import Ask, Decision, Denial
from bxcore.grants import Grant, Mode
from bxcore.hosts import HostRule, Target
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp
from bxcore.tools import TOOLS
from bxcore.wire.tools import DataClass, DenyReason
from tests.fakes import calls
from tests.fakes.clocks import HandClock

NOW = Timestamp(1_000_000)
SECRET = Labels(data_class=DataClass.SECRET, untrusted=False)

AUTO, ASK, DENY = Mode.AUTO, Mode.ASK, Mode.DENY
PUBLIC, PRIVATE = DataClass.PUBLIC, DataClass.PRIVATE


def decide(*grants: Grant, call: Call | None = None, session: Labels = FRESH, now: int = NOW) -> policy.Outcome:
    return policy.decide(calls.grant_set(*grants), call or calls.call(), session, Timestamp(now))


def said(outcome: policy.Outcome) -> str:
    return outcome.reason.value if isinstance(outcome, Denial) else type(outcome).__name__


CASES: Mapping[str, tuple[list[Grant], str, str | None]] = {
    # grants, what comes of reading /data/a in a fresh session, the grant that is named
    "no grant at all": ([], "no_grant", None),
    "only for another tool": ([calls.grant(tool="list_directory")], "no_grant", None),
    "only for another path": ([calls.grant(paths=("/other",))], "no_grant", None),
    "auto": ([calls.grant("a")], "Decision", "a"),
    "ask": ([calls.grant("a", ASK)], "Ask", "a"),
    "deny": ([calls.grant("a", DENY)], "denied_by_grant", "a"),
    "G1 deny before ask before auto": (
        [calls.grant("a", AUTO), calls.grant("b", ASK), calls.grant("c", DENY)],
        "denied_by_grant",
        "c",
    ),
    "G1 the same, named the other way round": (
        [calls.grant("c", AUTO), calls.grant("b", ASK), calls.grant("a", DENY)],
        "denied_by_grant",
        "a",
    ),
    "G1 ask before auto, whatever is more exact": (
        [calls.grant("a", AUTO, paths=("/data/a",)), calls.grant("b", ASK, paths=("/data",))],
        "Ask",
        "b",
    ),
    "the longest path of a mode": (
        [calls.grant("a", AUTO, paths=("/data",)), calls.grant("b", AUTO, paths=("/data/a",))],
        "Decision",
        "b",
    ),
    "then the smallest id": ([calls.grant("b"), calls.grant("a"), calls.grant("c")], "Decision", "a"),
    "the longest path of those that deny": (
        [calls.grant("a", DENY, paths=("/data",)), calls.grant("b", DENY, paths=("/data/a",))],
        "denied_by_grant",
        "b",
    ),
    "public data only": ([calls.grant(max_taint=PUBLIC)], "taint_too_high", None),
    "expired": ([calls.grant(expires=NOW - 1000)], "grant_expired", None),
    "expired beside public only": (
        [calls.grant("a", expires=NOW - 1), calls.grant("b", max_taint=PUBLIC)],
        "taint_too_high",
        None,
    ),
    "expired and public only": ([calls.grant(expires=NOW, max_taint=PUBLIC)], "grant_expired", None),
    "a deny grant that has run out": ([calls.grant("a", DENY, expires=NOW), calls.grant("b")], "Decision", "b"),
    "nothing but a deny grant that has run out": ([calls.grant("a", DENY, expires=NOW)], "no_grant", None),
    "an ask grant that has run out leaves the auto grant": (
        [calls.grant("a", ASK, expires=NOW), calls.grant("b", AUTO)],
        "Decision",
        "b",
    ),
    "an ask grant that taint shuts out leaves the auto grant": (
        [calls.grant("a", ASK, max_taint=PUBLIC), calls.grant("b", AUTO)],
        "Decision",
        "b",
    ),
}


@pytest.mark.parametrize(("grants", "verdict", "grant"), CASES.values(), ids=CASES.keys())
def test_the_strictest_grant_decides(grants: list[Grant], verdict: str, grant: str | None) -> None:
    for order in (grants, grants[::-1]):
        outcome = decide(*order)
        assert (said(outcome), outcome.grant) == (verdict, grant)


@pytest.mark.parametrize(
    ("now", "verdict"), [(NOW - 1, "Decision"), (NOW, "grant_expired"), (NOW + 1, "grant_expired")]
)
def test_g2_a_grant_has_expired_at_the_moment_that_it_names(now: int, verdict: str) -> None:
    assert said(decide(calls.grant(expires=NOW), now=now)) == verdict


def test_g3_the_time_is_the_one_that_is_handed_in() -> None:
    clock = HandClock()
    grant = calls.grant(expires=clock.now_ms() + 1)
    assert said(decide(grant, now=clock.now_ms())) == "Decision"
    clock.wind(1)
    assert said(decide(grant, now=clock.now_ms())) == "grant_expired"


@pytest.mark.parametrize(
    ("max_taint", "taint", "verdict"),
    [
        (DataClass.PRIVATE, DataClass.PRIVATE, "Decision"),
        (DataClass.PRIVATE, DataClass.SECRET, "taint_too_high"),
        (DataClass.SECRET, DataClass.SECRET, "Decision"),
        (DataClass.PUBLIC, DataClass.PRIVATE, "taint_too_high"),
    ],
)
def test_g17_a_grant_applies_up_to_its_taint(max_taint: DataClass, taint: DataClass, verdict: str) -> None:
    session = Labels(data_class=taint, untrusted=False)
    assert said(decide(calls.grant(max_taint=max_taint), session=session)) == verdict


@pytest.mark.parametrize("untrusted", [False, True])
def test_untrusted_text_changes_no_decision(untrusted: bool) -> None:
    session = attrs.evolve(FRESH, untrusted=untrusted)
    for grants, verdict, grant in CASES.values():
        outcome = decide(*grants, session=session)
        assert (said(outcome), outcome.grant) == (verdict, grant)


def test_a_deny_grant_denies_at_every_taint() -> None:
    assert said(decide(calls.grant("a", DENY), calls.grant("b"), session=UNREADABLE)) == "denied_by_grant"


def test_a_deny_grant_denies_whatever_its_max_taint() -> None:
    """No file can say so; should a grant ever come about otherwise, it denies all the same."""
    assert said(decide(calls.grant("a", DENY, max_taint=PUBLIC), calls.grant("b"))) == "denied_by_grant"


def test_of_what_denies_only_the_paths_that_count_for_the_tool_are_measured() -> None:
    above, both = calls.grant("b", DENY, paths=("/data/a",)), calls.grant("a", DENY, paths=("/data", "/data/a/b/c"))
    assert decide(above, both, call=calls.call(path="/data/a")).grant == "b"
    tool = "search_files"
    assert decide(*(attrs.evolve(it, tool=tool) for it in (above, both)), call=calls.call(tool)).grant == "a"


# -- labels -------------------------------------------------------------------------------------


def test_g18_a_result_has_the_strictest_labels_of_all_grants_that_speak_of_it() -> None:
    decides = calls.grant("a", paths=("/data/a",), result_class=PUBLIC, untrusted=False)
    expired = calls.grant("b", untrusted=True, result_class=PUBLIC, expires=1)
    shut = calls.grant("c", max_taint=PUBLIC, result_class=DataClass.SECRET, untrusted=False)
    lapsed = calls.grant("d", DENY, expires=1, result_class=PRIVATE, untrusted=False)
    elsewhere = calls.grant("e", paths=("/other",), result_class=DataClass.SECRET)
    assert labels_of(decides) == (PUBLIC, False)
    assert labels_of(decides, elsewhere) == (PUBLIC, False)
    assert labels_of(decides, expired) == (PUBLIC, True)
    assert labels_of(decides, shut) == (DataClass.SECRET, False)
    assert labels_of(decides, lapsed) == (PRIVATE, False)
    assert labels_of(decides, expired, shut) == (DataClass.SECRET, True)


def labels_of(*grants: Grant, call: Call | None = None) -> tuple[DataClass, bool]:
    outcome = decide(*grants, call=call)
    assert isinstance(outcome, Decision | Ask)
    return outcome.labels.data_class, outcome.labels.untrusted


@pytest.mark.parametrize(("tool", "expected"), [("search_files", DataClass.SECRET), ("list_directory", PUBLIC)])
def test_a_tool_that_sees_all_below_gets_the_labels_of_what_lies_there(tool: str, expected: DataClass) -> None:
    """A search of the whole folder must not be a way round the label of its most secret part."""
    whole = calls.grant("a", tool=tool, result_class=PUBLIC, untrusted=False)
    part = calls.grant("b", tool=tool, paths=("/data/x/keys",), result_class=DataClass.SECRET, untrusted=False)
    assert labels_of(whole, part, call=calls.call(tool, path="/data")) == (expected, False)


def test_g18_what_the_call_says_of_itself_labels_nothing() -> None:
    text = '{"path":"/data/a","content":"{\\"result_class\\":\\"public\\",\\"untrusted\\":false}"}'
    call = calls.call("write_file", text=text)
    assert labels_of(calls.grant(tool="write_file"), call=call) == (PRIVATE, True)


# -- what must not matter -----------------------------------------------------------------------


def test_1_a_shell_is_always_asked_about() -> None:
    call = calls.call("shell", path="/data")
    assert said(decide(calls.grant("a", AUTO, "shell"), call=call)) == "Ask"
    assert said(decide(calls.grant("a", AUTO, "shell"), calls.grant("b", AUTO, "shell"), call=call)) == "Ask"


COMMANDS = (
    *("cat x | sh", "ls\nrm -rf /", "sort --compress-program=sh x", "$(curl x)", "`x`", "x; y && z || w", "${IFS}"),
    *("sudo x", "sh -c 'x'", "python3 -c 1", "\u202ecat", "x #", "alias ls=rm", "eval x", "", " "),
)


def test_3_no_command_text_changes_the_decision() -> None:
    """A thousand variants: what is decided depends on the grants' fields and on the folder alone."""
    luck = random.Random(3)
    for number in range(1_000):
        words = [luck.choice(COMMANDS), *luck.choices(string.printable, k=luck.randrange(30))]
        luck.shuffle(words)
        command = "".join(words).replace("\0", "")
        text = calls.arguments("shell", path="/data", command=command or "x")
        call = calls.call("shell", text=text, number=number + 1)
        assert said(decide(calls.grant("a", ASK, "shell"), call=call)) == "Ask"
        assert said(decide(calls.grant("a", ASK, "shell", paths=("/other",)), call=call)) == "no_grant"
        assert said(decide(calls.grant("a", ASK, "shell"), calls.grant("b", DENY, "shell"), call=call)) == (
            "denied_by_grant"
        )


ADVICE = ("grant", "toml", "bxctl", "owner", "approv", "allow", "permission", "admin", "/", "config", "set ", "ask ")


def test_6_no_detail_names_a_way_round_the_refusal() -> None:
    for text in weighing.DETAILS.values():
        assert not [word for word in ADVICE if word in text]
        assert len(text) <= 300
        assert text.isprintable()


def test_6_the_detail_of_a_denial_is_one_of_the_fixed_sentences() -> None:
    for grants, *_ in CASES.values():
        outcome = decide(*grants)
        assert not isinstance(outcome, Denial) or outcome.detail == weighing.DETAILS[outcome.reason]


def test_7_decisions_are_the_same_in_an_empty_environment() -> None:
    """G19 too: no terminal, nothing on standard input, no variable."""
    if os.environ.get("BOXMAKER_TEST_INNER"):
        return
    here = Path(__file__)
    roots = f"{here.parents[3] / 'python'}', '{here.parents[3]}"
    program = (
        f"import sys; sys.path[:0] = ['{roots}']\n"
        "import importlib.util as u\n"
        f"spec = u.spec_from_file_location('cases', {str(here)!r}); cases = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(cases)\n"
        "for grants, verdict, grant in cases.CASES.values():\n"
        "    outcome = cases.decide(*grants)\n"
        "    assert (cases.said(outcome), outcome.grant) == (verdict, grant)\n"
        "print('same', len(cases.CASES))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"same {len(CASES)}\n"), done.stderr


def test_a_call_that_was_read_as_another_tools_is_no_call() -> None:
    call = attrs.evolve(calls.call(), kind=TOOLS["list_directory"])
    with pytest.raises(ValueError, match="another tool"):
        decide(calls.grant(), call=call)


@pytest.mark.parametrize("tool", ["read_file", "http_fetch"])
def test_a_call_without_a_place_is_covered_by_nothing(tool: str) -> None:
    call = attrs.evolve(calls.call(tool), path=None, target=None)
    rules = (HostRule(host="example.org", wildcard=False, port=443),) if tool == "http_fetch" else ()
    assert said(decide(calls.grant(tool=tool, hosts=rules), call=call)) == "no_grant"


# -- approvals ----------------------------------------------------------------------------------


def asked(*grants: Grant, call: Call | None = None) -> Ask:
    ask = decide(*grants, call=call)
    assert isinstance(ask, Ask)
    return ask


def redecide(
    ask: Ask, *grants: Grant, call: Call | None = None, session: Labels = FRESH, now: int = NOW
) -> Decision | Denial:
    return policy.redecide(ask, calls.grant_set(*grants), call or calls.call(), session, Timestamp(now))


AFTER: Mapping[str, tuple[list[Grant], str]] = {
    "as it was": ([calls.grant("a", ASK)], "Decision"),
    "G6 removed": ([], "no_grant"),
    "G6 removed, and another asks": ([calls.grant("b", ASK)], "no_grant"),
    "G6 removed, and another allows": ([calls.grant("b", AUTO)], "no_grant"),
    "G6 narrowed away": ([calls.grant("a", ASK, paths=("/data/b",))], "no_grant"),
    "G6 narrowed, and it still fits": ([calls.grant("a", ASK, paths=("/data/a",))], "Decision"),
    "G6 widened": ([calls.grant("a", ASK, paths=("/data", "/other"))], "Decision"),
    "G6 for another tool now": ([calls.grant("a", ASK, "list_directory")], "no_grant"),
    "no longer asking": ([calls.grant("a", AUTO)], "Decision"),
    "denying now": ([calls.grant("a", DENY)], "denied_by_grant"),
    "denied by a new one": ([calls.grant("a", ASK), calls.grant("b", DENY)], "denied_by_grant"),
    "expired": ([calls.grant("a", ASK, expires=NOW)], "grant_expired"),
    "expired, and another allows": ([calls.grant("a", ASK, expires=NOW), calls.grant("b", AUTO)], "grant_expired"),
    "shut out by taint": ([calls.grant("a", ASK, max_taint=PUBLIC)], "taint_too_high"),
    "shut out by taint, and another allows": (
        [calls.grant("a", ASK, max_taint=PUBLIC), calls.grant("b", AUTO)],
        "taint_too_high",
    ),
}


@pytest.mark.parametrize(("grants", "verdict"), AFTER.values(), ids=AFTER.keys())
def test_g6_a_yes_is_weighed_again_by_the_grants_of_the_moment(grants: list[Grant], verdict: str) -> None:
    ask = asked(calls.grant("a", ASK))
    assert said(redecide(ask, *grants)) == verdict


def test_g6_the_labels_are_the_stricter_of_then_and_now() -> None:
    loose = calls.grant("a", ASK, result_class=PUBLIC, untrusted=False)
    strict = calls.grant("a", ASK, result_class=DataClass.SECRET, untrusted=True)
    for then, now in ((loose, strict), (strict, loose)):
        decision = redecide(asked(then), now)
        assert isinstance(decision, Decision)
        assert decision.labels == UNREADABLE


def test_a_session_that_has_read_a_secret_meanwhile_is_judged_as_one_that_has() -> None:
    ask = asked(calls.grant("a", ASK, max_taint=PRIVATE))
    assert said(redecide(ask, calls.grant("a", ASK, max_taint=PRIVATE), session=SECRET)) == "taint_too_high"


def test_a_decision_names_the_grant_of_the_moment() -> None:
    ask = asked(calls.grant("a", ASK, digest=Hash32("1" * 64)))
    decision = redecide(ask, calls.grant("a", ASK), calls.grant("b", ASK, paths=("/data/a",), digest=Hash32("2" * 64)))
    assert (ask.grant, ask.grant_hash) == ("a", "1" * 64)
    assert (decision.grant, decision.grant_hash) == ("b", "2" * 64)


def test_a_denial_names_the_grant_that_denies_and_no_other() -> None:
    denial = decide(calls.grant("a", DENY, digest=Hash32("3" * 64)))
    assert (denial.grant, denial.grant_hash) == ("a", "3" * 64)
    assert decide(calls.grant(expires=1)).grant_hash is None


OTHERS = {
    "G8 one byte of the path": calls.call(path="/data/b"),
    "G8 another session": calls.call(session="t"),
    "G8 the same call again": calls.call(number=2),
    "G8 one more argument": calls.call(text='{"path":"/data/a","max_lines":1}'),
    "G8 a path that leads elsewhere now": attrs.evolve(calls.call(), path="/data/elsewhere"),
    "G8 another order of keys, sent as another request": calls.call(text='{ "path": "/data/a" }'),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_g8_a_yes_is_for_the_call_that_was_asked_about_and_no_other(other: Call) -> None:
    ask = asked(calls.grant("a", ASK))
    denial = redecide(ask, calls.grant("a", ASK), call=other)
    assert isinstance(denial, Denial)
    assert denial.reason is DenyReason.APPROVAL_REFUSED
    assert denial.request == ask.request
    with pytest.raises(policy.SealError):
        redecide(ask, calls.grant("a", ASK))


def test_g8_what_is_weighed_again_is_what_was_asked_about() -> None:
    """A call of the same fingerprint that would dial elsewhere does not get there with this yes."""
    rule = HostRule(host="example.org", wildcard=False, port=443)
    grant = calls.grant("a", ASK, "http_fetch", hosts=(rule,))
    call = calls.call("http_fetch")
    elsewhere = attrs.evolve(call, target=Target(scheme="https", host="example.com", port=443))
    moved = attrs.evolve(grant, hosts=(attrs.evolve(rule, host="example.com"),))
    decision = redecide(asked(grant, call=call), grant, call=elsewhere)
    assert isinstance(decision, Decision)
    assert policy.spend(decision) is call
    assert said(redecide(asked(grant, call=call), moved, call=elsewhere)) == "no_grant"


FINGERPRINTS = {
    "key order": ('{"path":"/data/a","start_line":1}', '{"start_line":1,"path":"/data/a"}', True),
    "white space": ('{"path":"/data/a"}', '{ "path" : "/data/a" }', True),
    "an escape": ('{"path":"/data/a"}', '{"path":"\\u002fdata/a"}', True),
    "one byte": ('{"path":"/data/a"}', '{"path":"/data/A"}', False),
    "a number": ('{"path":"/data/a","start_line":1}', '{"path":"/data/a","start_line":2}', False),
}


@pytest.mark.parametrize(("first", "second", "same"), FINGERPRINTS.values(), ids=FINGERPRINTS.keys())
def test_g8_a_fingerprint_is_that_of_the_meaning(first: str, second: str, same: bool) -> None:
    assert (calls.call(text=first).fingerprint == calls.call(text=second).fingerprint) is same


def test_g8_a_fingerprint_tells_sessions_tools_and_resolved_paths_apart() -> None:
    several = [
        calls.call(),
        calls.call(session="t"),
        calls.call("list_directory"),
        attrs.evolve(calls.call(), path="/data/link-target"),
    ]
    assert len({call.fingerprint for call in several}) == len(several)
    assert calls.call(number=2).fingerprint == calls.call().fingerprint


def test_what_is_refused_before_grants_are_looked_at_has_no_call() -> None:
    request = calls.request("read_file", "{}")
    denial = policy.refuse(request, DenyReason.INVALID_ARGUMENTS, "path: missing")
    assert (denial.request, denial.call, denial.grant) == (request, None, None)
    assert (denial.reason, denial.detail) == (DenyReason.INVALID_ARGUMENTS, "path: missing")
