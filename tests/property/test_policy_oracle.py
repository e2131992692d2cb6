"""brokerd.policy against rules that were written down twice: thousands of grant sets, calls, labels and times."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd import match, policy
from brokerd.call import Call, Labels
from bxcore import hosts
from bxcore.grants import Grant, GrantSet, Mode
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from tests.fakes import calls
from tests.property.policy_oracle import RANK, Answer, PlainCall, PlainGrant, judge, judge_again, speaks_of

PATH_TOOLS = ("read_file", "write_file", "search_files", "shell")
# One component is the start of another, two are the same letters to the eye, and one differs in case only.
COMPONENTS = st.sampled_from(["a", "ab", "a.b", "A", "\u00e9", "e\u0301"])
NAMES = st.sampled_from(["example.org", "a.example.org", "a.example.org", "b.a.example.org", "ba.example.org"])
PORTS = st.sampled_from([443, 443, 443, 443, 80, 8443])
TIMES = st.integers(98, 102)
CLASSES = st.sampled_from(["public", "private", "secret"])
TAINTS = st.sampled_from(["private", "private", "secret", "public"])


def path(parts: Iterable[str]) -> str:
    return "/" + "/".join(parts)


PATHS = st.lists(COMPONENTS, min_size=1, max_size=4).map(path)
# Most of them on one line of descent, so that many fit one call.
LINE = st.integers(1, 4).map(lambda depth: path(["a", "ab", "a", "e"][:depth]))
ANY_PATHS = st.one_of(LINE, LINE, LINE, LINE, LINE, PATHS)
ASKED_PATHS = st.one_of(st.just("/a/ab/a"), ANY_PATHS, ANY_PATHS, st.just("/"))
RULES = st.tuples(st.one_of(NAMES, NAMES.map("*.{}".format)), PORTS)


@st.composite
def grant_of(draw: st.DrawFn, number: int, tools: tuple[str, ...]) -> PlainGrant:
    tool = draw(st.sampled_from(tools))
    mode = draw(st.sampled_from(["auto", "auto", "auto", "ask", "ask", "ask", "deny"]))
    takes_hosts = tool == "http_fetch"
    return PlainGrant(
        id=f"g{number}",
        tool=tool,
        mode=mode,
        max_taint="secret" if mode == "deny" else draw(CLASSES),
        result_class=draw(CLASSES),
        untrusted=draw(st.booleans()),
        expires=draw(st.one_of(st.none(), st.none(), TIMES)),
        paths=[] if takes_hosts else draw(st.lists(ANY_PATHS, min_size=1, max_size=3)),
        hosts=draw(st.lists(RULES, min_size=1, max_size=3)) if takes_hosts else [],
    )


@st.composite
def grant_sets(draw: st.DrawFn, tools: tuple[str, ...]) -> list[PlainGrant]:
    size = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7]))
    numbers = draw(st.lists(st.integers(0, 20), min_size=size, max_size=size, unique=True))
    return [draw(grant_of(number, tools)) for number in numbers]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[PlainGrant], PlainCall]:
    """A set of grants and a call; nearly all of the grants are for the tool of the call."""
    if draw(st.booleans()):
        tool = draw(st.sampled_from(PATH_TOOLS))
        call = PlainCall(tool=tool, path=draw(ASKED_PATHS))
    else:
        tool = "http_fetch"
        call = PlainCall(tool=tool, host=draw(NAMES), port=draw(PORTS))
    return draw(grant_sets((tool, tool, tool, tool, tool, "read_file"))), call


def grant(plain: PlainGrant) -> Grant:
    return Grant(
        id=plain.id,
        tool=plain.tool,
        mode=Mode(plain.mode),
        max_taint=DataClass(plain.max_taint),
        result_class=DataClass(plain.result_class),
        untrusted=plain.untrusted,
        expires=None if plain.expires is None else Timestamp(plain.expires),
        paths=tuple(plain.paths),
        hosts=tuple(hosts.rule(f"{name}:{port}") for name, port in plain.hosts),
        hash=Hash32("0" * 64),
    )


def grant_set(plain: Iterable[PlainGrant]) -> GrantSet:
    return GrantSet(grants=tuple(map(grant, plain)))


def real(call: PlainCall) -> Call:
    scheme = "http" if call.port == 80 else "https"
    url = None if call.host is None else f"{scheme}://{call.host}:{call.port}/"
    return calls.call(call.tool, path=call.path, url=url)


def session(taint: str) -> Labels:
    return Labels(data_class=DataClass(taint), untrusted=False)


def answer(outcome: policy.Outcome) -> Answer:
    if isinstance(outcome, policy.Denial):
        return Answer("denied", outcome.grant, outcome.reason.value)
    assert isinstance(outcome, policy.Decision | policy.Ask)
    verdict = "allowed" if isinstance(outcome, policy.Decision) else "ask"
    return Answer(verdict, outcome.grant, labels=(outcome.labels.data_class.value, outcome.labels.untrusted))


@settings(max_examples=900)
@given(cases())
def test_decide_says_what_the_rules_say(case: tuple[list[PlainGrant], PlainCall]) -> None:
    """G1, G2, G5, G18: at every taint, and at every moment around every expiry."""
    grants, call = case
    loaded, asked = grant_set(grants), real(call)
    for taint in RANK:
        for now in range(97, 104):
            outcome = policy.decide(loaded, asked, session(taint), Timestamp(now))
            assert answer(outcome) == judge(grants, call, taint, now), (taint, now)


@settings(max_examples=800)
@given(cases(), st.data(), TAINTS, TIMES, TAINTS, TIMES)
def test_redecide_says_what_the_rules_say_of_both_moments(
    case: tuple[list[PlainGrant], PlainCall], data: st.DataObject, taint: str, now: int, later_taint: str, later: int
) -> None:
    """G6: grants removed, narrowed, widened or added while the question was open."""
    grants, call = case
    asked = judge(grants, call, taint, now)
    ask = policy.decide(grant_set(grants), real(call), session(taint), Timestamp(now))
    if not isinstance(ask, policy.Ask):
        assert asked.verdict != "ask"
        return
    changed = data.draw(changes(grants))
    outcome = policy.redecide(ask, grant_set(changed), real(call), session(later_taint), Timestamp(later))
    assert answer(outcome) == judge_again(asked, changed, call, later_taint, later)


@st.composite
def changes(draw: st.DrawFn, grants: list[PlainGrant]) -> list[PlainGrant]:
    """The grants as they are after some were removed, rewritten, added, or not touched at all."""
    kept = [plain for plain in grants if draw(st.integers(0, 5))]
    tools = tuple({plain.tool for plain in grants})
    written = draw(st.lists(st.integers(0, 20), max_size=2, unique=True))
    rewritten = [draw(grant_of(number, tools)) for number in written]
    return [plain for plain in kept if plain.id not in {new.id for new in rewritten}] + rewritten


@settings(max_examples=800)
@given(cases())
def test_the_quick_look_finds_exactly_the_grants_that_speak_of_the_call(
    case: tuple[list[PlainGrant], PlainCall],
) -> None:
    grants, call = case
    found = match.touching(grant_set(grants).by_tool.get(call.tool, ()), real(call))
    assert [it.id for it in found] == sorted(plain.id for plain in grants if speaks_of(plain, call))


@settings(max_examples=300)
@given(cases(), TAINTS, TIMES, st.randoms())
def test_the_order_of_the_files_does_not_matter(
    case: tuple[list[PlainGrant], PlainCall], taint: str, now: int, random: Random
) -> None:
    grants, call = case
    before = answer(policy.decide(grant_set(grants), real(call), session(taint), Timestamp(now)))
    shuffled = list(grants)
    random.shuffle(shuffled)
    assert answer(policy.decide(grant_set(shuffled), real(call), session(taint), Timestamp(now))) == before


@settings(max_examples=300)
@given(cases(), TAINTS, TIMES, st.data())
def test_one_more_deny_grant_never_lets_anything_run(
    case: tuple[list[PlainGrant], PlainCall], taint: str, now: int, data: st.DataObject
) -> None:
    grants, call = case
    more = data.draw(grant_of(30, (call.tool,)))
    more.mode, more.max_taint = "deny", "secret"
    before = policy.decide(grant_set(grants), real(call), session(taint), Timestamp(now))
    after = policy.decide(grant_set([*grants, more]), real(call), session(taint), Timestamp(now))
    assert type(after) in {type(before), policy.Denial}


def test_the_oracle_compares_paths_as_the_standard_library_does() -> None:
    for upper in ("/", "/a", "/a/b", "/ab", "/a.b"):
        for lower in ("/", "/a", "/a/b", "/a/b/c", "/ab/c"):
            plain = PlainGrant(id="g", tool="read_file", mode="ask", paths=[upper])
            expected = PurePosixPath(lower).is_relative_to(upper)
            assert speaks_of(plain, PlainCall(tool="read_file", path=lower)) is expected
