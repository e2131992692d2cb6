"""Grants that never decide are found, and a grant that may decide is never called one that does not."""

from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from brokerd import grantreview, weighing
from brokerd.call import Labels
from bxcore import hosts
from bxcore.grants import Grant, GrantSet, Mode
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import FindingLevel
from bxcore.wire.tools import DataClass
from tests.fakes import calls
from tests.fakes.clocks import BEGIN
from tests.property import test_policy_oracle as generated
from tests.property.policy_oracle import PlainCall, PlainGrant

AUTO, ASK, DENY = Mode.AUTO, Mode.ASK, Mode.DENY
COUNT = "its labels still count"


def found(*grants: Grant, now: int = BEGIN) -> dict[str, str]:
    findings = grantreview.check(calls.grant_set(*grants), Timestamp(now))
    assert all(finding.line == 0 for finding in findings)
    return {finding.file: finding.text for finding in findings}


FOUND: Mapping[str, tuple[list[Grant], dict[str, str]]] = {
    "run out": (
        [calls.grant("a", expires=BEGIN)],
        {"a.toml": f"it ran out at 2026-01-01T00:00:00.000Z and decides nothing; {COUNT}"},
    ),
    "for public sessions, which there are none of": (
        [calls.grant("a", max_taint=DataClass.PUBLIC)],
        {"a.toml": f"its max_taint is public, and every session starts at private: it never applies; {COUNT}"},
    ),
    "denied by the same path": (
        [calls.grant("a"), calls.grant("b", DENY)],
        {"a.toml": f"it never decides, because of b (deny); {COUNT}"},
    ),
    "denied by a wider path": (
        [calls.grant("a", paths=("/data/x/y",)), calls.grant("b", DENY)],
        {"a.toml": f"it never decides, because of b (deny); {COUNT}"},
    ),
    "asked about by a wider path": (
        [calls.grant("a", paths=("/data/x",)), calls.grant("b", ASK)],
        {"a.toml": f"it never decides, because of b (ask); {COUNT}"},
    ),
    "one after the other": (
        [
            calls.grant("a", paths=("/data/x", "/data/y")),
            calls.grant("b", ASK, paths=("/data/x",)),
            calls.grant("c", DENY, paths=("/data/y",)),
        ],
        {"a.toml": f"it never decides, because of b (ask) and c (deny); {COUNT}"},
    ),
    "the same twice": (
        [calls.grant("a"), calls.grant("b")],
        {"b.toml": f"it never decides, because of a (auto); {COUNT}"},
    ),
    "two hosts of one owner": (
        [
            calls.grant("a", tool="http_fetch", hosts=(hosts.rule("*.example.org"),)),
            calls.grant("b", tool="http_fetch", hosts=(hosts.rule("www.example.org"), hosts.rule("*.a.example.org"))),
        ],
        {"b.toml": f"it never decides, because of a (auto); {COUNT}"},
    ),
    "denied already": (
        [calls.grant("a", DENY, paths=("/data/x",)), calls.grant("b", DENY), calls.grant("c", paths=("/data/a", "/e"))],
        {"a.toml": "all that it denies is denied by b (deny) as well"},
    ),
    "nothing to deny": (
        [calls.grant("a", DENY, paths=("/other",)), calls.grant("b")],
        {"a.toml": "no grant allows anything that it denies"},
    ),
    "nothing to deny any more": (
        [calls.grant("a", DENY, tool="list_directory"), calls.grant("b", tool="list_directory", expires=1)],
        {
            "a.toml": "no grant allows anything that it denies",
            "b.toml": f"it ran out at 1970-01-01T00:00:00.001Z and decides nothing; {COUNT}",
        },
    ),
}


@pytest.mark.parametrize(("grants", "expected"), FOUND.values(), ids=FOUND.keys())
def test_a_grant_that_decides_nothing_is_named(grants: list[Grant], expected: dict[str, str]) -> None:
    assert found(*grants) == expected


USEFUL: Mapping[str, list[Grant]] = {
    "none": [],
    "one": [calls.grant("a")],
    "a deny below what is allowed": [calls.grant("a", DENY, paths=("/data/x",)), calls.grant("b")],
    "a deny above what is asked about": [calls.grant("a", DENY, paths=("/data/x",)), calls.grant("b", ASK)],
    "a narrower auto that the wider ask leaves at secret": [
        calls.grant("a", paths=("/data/x",)),
        calls.grant("b", ASK, max_taint=DataClass.PRIVATE),
    ],
    "a narrower auto that outlasts the ask": [
        calls.grant("a", paths=("/data/x",)),
        calls.grant("b", ASK, expires=9**16),
    ],
    "a narrower one of the same mode": [calls.grant("b", paths=("/data/x",)), calls.grant("a")],
    "one path of two": [calls.grant("b", paths=("/data/x", "/y")), calls.grant("a", ASK)],
    "another tool": [
        calls.grant("a"),
        calls.grant("b", DENY, "list_directory"),
        calls.grant("c", ASK, "list_directory", paths=("/data", "/x")),
    ],
    "another port": [
        calls.grant("a", tool="http_fetch", hosts=(hosts.rule("example.org"),)),
        calls.grant("b", tool="http_fetch", hosts=(hosts.rule("example.org:8443"),)),
    ],
    "the apex beside the wildcard": [
        calls.grant("a", tool="http_fetch", hosts=(hosts.rule("*.example.org"),)),
        calls.grant("b", tool="http_fetch", hosts=(hosts.rule("example.org"),)),
    ],
    "names that begin the same": [calls.grant("a", DENY, paths=("/data/a",)), calls.grant("b", paths=("/data",))],
}


@pytest.mark.parametrize("grants", USEFUL.values(), ids=USEFUL.keys())
def test_of_useful_grants_nothing_is_said(grants: list[Grant]) -> None:
    assert found(*grants) == {}


def test_what_is_pointless_is_a_note_and_what_is_mistaken_a_warning() -> None:
    findings = grantreview.check(
        calls.grant_set(calls.grant("a", DENY), calls.grant("b"), calls.grant("c", DENY, paths=("/x",))), BEGIN
    )
    assert [(it.file, it.level) for it in findings] == [
        ("b.toml", FindingLevel.WARNING),
        ("c.toml", FindingLevel.NOTE),
    ]


# -- never means never ----------------------------------------------------------------------------


def without(grants: GrantSet, grant_id: str) -> GrantSet:
    return GrantSet(grants=tuple(grant for grant in grants.grants if grant.id != grant_id))


@settings(max_examples=800)
@given(generated.cases(), st.data())
def test_no_call_is_decided_by_a_grant_that_is_said_never_to_decide(
    case: tuple[list[PlainGrant], PlainCall], data: st.DataObject
) -> None:
    plain, call = case
    grants = generated.grant_set(plain)
    start = data.draw(generated.TIMES)
    findings = {finding.file.removesuffix(".toml"): finding for finding in grantreview.check(grants, Timestamp(start))}
    assume(findings)
    asked = generated.real(call)
    for taint in (DataClass.PRIVATE, DataClass.SECRET):
        session = Labels(data_class=taint, untrusted=False)
        for now in range(start, 104):
            decided = weighing.weigh(grants, asked, session, Timestamp(now))
            for grant_id, finding in findings.items():
                then = weighing.weigh(without(grants, grant_id), asked, session, Timestamp(now))
                assert then.verdict is decided.verdict
                if finding.level is FindingLevel.WARNING:
                    assert decided.grant is None or decided.grant.id != grant_id
                    assert then.grant == decided.grant


def test_ten_thousand_grants_are_checked_without_comparing_each_with_each() -> None:
    """G7: each place is looked up, so the work grows as the number of grants does."""
    many = [calls.grant(f"g{number}", paths=(f"/data/{number}",)) for number in range(9_999)]
    assert found(*many, calls.grant("z", DENY, paths=("/data/5000",))) == {
        "g5000.toml": f"it never decides, because of z (deny); {COUNT}"
    }
