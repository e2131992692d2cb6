"""What the owner is told about grants is what policy does, and what is suggested would ask, and no more."""

import attrs
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from brokerd import grantreview, match, policy, weighing
from brokerd.call import FRESH, Call, Labels
from bxcore import grants as grantfiles
from bxcore import paths, tools
from bxcore.auditlog import Decided
from bxcore.grants import Grant, GrantSet, Mode
from bxcore.ids import Hash32
from bxcore.strictjson import dumps
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp
from bxcore.tools import TOOLS
from bxcore.wire.admin import GrantReason, GrantSuggestion, Verdict
from bxcore.wire.tools import DataClass, DenyReason
from tests.fakes import calls
from tests.fakes.clocks import BEGIN
from tests.property import test_policy_oracle as generated
from tests.property.policy_oracle import PlainCall, PlainGrant

NOBODY = Hash32("0" * 64)
SECRET = Labels(data_class=DataClass.SECRET, untrusted=True)


def record(
    call: Call | None = None,
    *,
    reason: DenyReason | None = DenyReason.NO_GRANT,
    verdict: Verdict = Verdict.DENIED,
    session: Labels = FRESH,
    time: int = BEGIN,
) -> Decided:
    call = call or calls.call()
    return Decided(
        seq=42,
        time=Timestamp(time),
        prev=NOBODY,
        session=call.request.session,
        call=call.request.call,
        tool=call.request.tool,
        arguments=call.request.arguments,
        canonical=NOBODY,
        path=call.path,
        host=None if call.target is None else call.target.authority,
        taint=session.data_class,
        untrusted=session.untrusted,
        verdict=verdict,
        grant=None,
        grant_hash=None,
        grants=NOBODY,
        reason=reason,
        detail=None,
    )


def suggest(denied: Decided, now: int = BEGIN) -> GrantSuggestion:
    return grantreview.suggest(denied, TOOLS.get(denied.tool), Timestamp(now))


# -- reasons ------------------------------------------------------------------------------------


def why(*grants: Grant, session: Labels = FRESH) -> dict[str, tuple[bool, str]]:
    said = grantreview.reasons(calls.grant_set(*grants), calls.call(), session, BEGIN)
    assert [it.grant for it in said] == sorted(grant.id for grant in grants)
    return {it.grant: (it.matched, it.why) for it in said}


def test_every_grant_has_its_first_reason() -> None:
    assert why(
        calls.grant("a", Mode.AUTO),
        calls.grant("b", Mode.ASK, paths=("/data/a",)),
        calls.grant("c", Mode.ASK),
        calls.grant("d", Mode.ASK, expires=BEGIN, max_taint=DataClass.PRIVATE),
        calls.grant("e", Mode.ASK, max_taint=DataClass.PRIVATE),
        calls.grant("f", Mode.DENY, paths=("/other",)),
        calls.grant("g", Mode.DENY, tool="shell"),
        calls.grant("h", Mode.ASK, paths=("/data/a",)),
        session=SECRET,
    ) == {
        "a": (True, "it lets the call run, but b decides: ask comes before auto"),
        "b": (True, "it asks, and decides"),
        "c": (True, "it asks, but b decides: it names a longer path"),
        "d": (False, "it ran out at 2026-01-01T00:00:00.000Z"),
        "e": (False, "its max_taint is private, the session is at secret"),
        "f": (False, "none of its paths holds the path of the call"),
        "g": (False, "it is for shell"),
        "h": (True, "it asks, but b decides: its name comes first"),
    }


def test_a_deny_grant_is_said_to_deny() -> None:
    assert why(calls.grant("a"), calls.grant("b", Mode.DENY)) == {
        "a": (True, "it lets the call run, but b decides: deny comes before auto"),
        "b": (True, "it denies, and decides"),
    }


@settings(max_examples=400)
@given(generated.cases(), generated.TAINTS, generated.TIMES)
def test_reasons_and_verdict_say_what_policy_does(
    case: tuple[list[PlainGrant], PlainCall], taint: str, now: int
) -> None:
    plain, plain_call = case
    grants, call, session = generated.grant_set(plain), generated.real(plain_call), generated.session(taint)
    outcome = policy.decide(grants, call, session, Timestamp(now))
    said = {it.grant: it for it in grantreview.reasons(grants, call, session, Timestamp(now))}
    assert set(said) == {grant.id for grant in grants.grants}
    deciding = [it.grant for it in said.values() if it.why.endswith("and decides")]
    assert deciding == ([] if outcome.grant is None else [outcome.grant])
    assert any(it.matched for it in said.values()) is (outcome.grant is not None)
    for grant in grants.grants:
        assert said[grant.id].matched is applies(grant, call, session, now)
    verdict = grantreview.verdict(grants, call, session, Timestamp(now))
    assert verdict.grant == outcome.grant
    if isinstance(outcome, policy.Denial):
        assert (verdict.verdict, verdict.reason, verdict.detail) == (Verdict.DENIED, outcome.reason, outcome.detail)
        assert verdict.result_class is None
    else:
        assert isinstance(outcome, policy.Decision | policy.Ask)
        allowed = isinstance(outcome, policy.Decision)
        assert verdict.verdict is (Verdict.ALLOWED if allowed else Verdict.ASK)
        assert (verdict.result_class, verdict.result_untrusted) == (outcome.labels.data_class, outcome.labels.untrusted)


def applies(grant: Grant, call: Call, session: Labels, now: int) -> bool:
    fits = isinstance(match.match(grant, call), match.Match)
    return fits and weighing.why_not_now(grant, session, Timestamp(now)) is None


def test_a_dry_run_makes_no_decision() -> None:
    grants = calls.grant_set(calls.grant("a"), calls.grant("b", Mode.ASK))
    before = len(policy._unspent), len(policy._open_asks)
    answers = [
        grantreview.verdict(grants, calls.call(), FRESH, BEGIN),
        *grantreview.reasons(grants, calls.call(), FRESH, BEGIN),
        suggest(record()),
    ]
    assert (len(policy._unspent), len(policy._open_asks)) == before
    assert not [it for it in answers if isinstance(it, policy.Outcome)]
    assert isinstance(answers[1], GrantReason)


# -- suggestions --------------------------------------------------------------------------------

SUGGESTED = """\
# For the call of decision 42, which was denied: no_grant.
tool = "read_file"
mode = "ask"
max_taint = "private"
expires = 2026-01-08T00:00:00.000Z

[constraints]
paths = ["/data/a"]
"""


def test_a_suggestion_is_a_file_for_this_one_place() -> None:
    assert suggest(record()) == GrantSuggestion(
        file="read-file-42.toml", toml=SUGGESTED, note="nothing covered the call"
    )


def allowed_by(suggestion: GrantSuggestion) -> GrantSet:
    assert suggestion.toml is not None
    return GrantSet(grants=(grantfiles.parse(suggestion.file, suggestion.toml.encode()),))


PLACES = {
    "read_file": ("/data/a", None, "/data/a"),
    "list_directory": ("/data", None, "/data"),
    "search_files": ("/data", None, "/data"),
    "shell": ("/data", None, "/data"),
    "write_file": ("/data/x/a", None, "/data/x"),
    "edit_file": ("/data/x/a", None, "/data/x"),
    "http_fetch": (None, "https://www.example.org/x?y", "www.example.org:443"),
}


@pytest.mark.parametrize(("tool", "place"), PLACES.items(), ids=PLACES.keys())
def test_what_is_suggested_names_the_narrowest_place(tool: str, place: tuple[str | None, str | None, str]) -> None:
    path, url, named = place
    call = calls.call(tool, path=path, url=url)
    grants = allowed_by(suggest(record(call)))
    (grant,) = grants.grants
    assert [*grant.paths, *map(str, grant.hosts)] == [named]
    assert (grant.mode, grant.untrusted, grant.result_class) == (Mode.ASK, True, DataClass.PRIVATE)
    assert isinstance(policy.decide(grants, call, FRESH, BEGIN), policy.Ask)


def test_every_tool_has_a_suggestion() -> None:
    assert set(PLACES) == set(TOOLS)


COMPONENT = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)


@settings(max_examples=400)
@given(
    st.sampled_from([tool for tool in TOOLS if tool != "http_fetch"]),
    st.lists(COMPONENT, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts)),
    st.sampled_from([DataClass.PRIVATE, DataClass.SECRET]),
    st.sampled_from([DenyReason.NO_GRANT, DenyReason.GRANT_EXPIRED, DenyReason.TAINT_TOO_HIGH]),
    st.integers(0, 10**10),
)
@example("read_file", '/a"b\\c', DataClass.SECRET, DenyReason.NO_GRANT, 0)
@example("read_file", "/\u202etxt/\U000e0041", DataClass.PRIVATE, DenyReason.NO_GRANT, 0)
@example("write_file", "/a/]\n[x", DataClass.PRIVATE, DenyReason.NO_GRANT, 0)
def test_what_is_suggested_asks_for_the_same_call_or_there_is_a_reason(
    tool: str, path: str, taint: DataClass, reason: DenyReason, later: int
) -> None:
    call = attrs.evolve(calls.call(tool), path=path)  # resolved: a link may lead to a name that nobody may ask for
    session = Labels(data_class=taint, untrusted=True)
    suggestion = suggest(record(call, reason=reason, session=session), now=BEGIN + later)
    if suggestion.toml is None:
        assert "name the place" in suggestion.note
        granted = path.rpartition("/")[0] if match.replaces_a_file(call.kind) else path
        with pytest.raises(paths.BadPath):
            paths.check_grant(granted)
        return
    assert suggestion.toml.replace("\n", "").isprintable()
    grants = allowed_by(suggestion)
    for now in (BEGIN, BEGIN + later):
        assert isinstance(policy.decide(grants, call, session, Timestamp(now)), policy.Ask)
    for deeper in (f"{path}x", f"{path}/../x", "/"):
        other = policy.decide(grants, attrs.evolve(call, path=deeper), session, BEGIN)
        assert isinstance(other, policy.Denial) or deeper.startswith(f"{grants.grants[0].paths[0]}/")


@settings(max_examples=150)
@given(
    st.sampled_from(["example.org", "a.b.example.org", "xn--bcher-kva.example.com"]),
    st.sampled_from([("https", 443), ("http", 80), ("https", 8443), ("http", 8080)]),
    st.text(max_size=8),
)
def test_what_is_suggested_for_an_address_asks_for_its_host_and_port(
    host: str, way: tuple[str, int], query: str
) -> None:
    url = f"{way[0]}://{host}:{way[1]}/{query}"
    try:
        call = calls.call("http_fetch", text=dumps({"url": url}).decode())
    except (tools.BadArguments, ValueError):
        assume(False)  # no URL at all
    grants = allowed_by(suggest(record(call)))
    assert isinstance(policy.decide(grants, call, FRESH, BEGIN), policy.Ask)
    elsewhere = calls.call("http_fetch", url=f"https://{host}:444/")
    assert isinstance(policy.decide(grants, elsewhere, FRESH, BEGIN), policy.Denial)


@pytest.mark.parametrize("reason", [reason for reason in DenyReason if reason not in grantreview._LOOK_FIRST])
def test_where_no_grant_would_help_the_reason_is_said(reason: DenyReason) -> None:
    suggestion = suggest(record(reason=reason))
    assert suggestion.toml is None
    assert suggestion.note
    assert suggestion.note == grantreview._NO_GRANT_HELPS[reason]


def test_for_a_tool_that_does_not_exist_there_is_none() -> None:
    denied = attrs.evolve(record(reason=DenyReason.UNKNOWN_TOOL), tool="rm -rf", path=None)
    assert suggest(denied) == GrantSuggestion(file="", toml=None, note="there is no such tool")


@pytest.mark.parametrize(("verdict", "word"), [(Verdict.ALLOWED, "let run"), (Verdict.ASK, "asked about")])
def test_for_what_was_not_denied_there_is_none(verdict: Verdict, word: str) -> None:
    suggestion = suggest(record(verdict=verdict, reason=None))
    assert (suggestion.toml, suggestion.note) == (None, f"it was not denied but {word}")


@pytest.mark.parametrize(
    "call",
    [calls.call("write_file", path="/a"), calls.call("list_directory", path="/"), calls.call(path="/a:b")],
    ids=["a file in /", "/ itself", "a name that a grant cannot hold"],
)
def test_for_a_place_that_no_grant_can_name_there_is_none(call: Call) -> None:
    suggestion = suggest(record(call))
    assert (suggestion.toml, suggestion.note) == (None, "no grant can name the place that the call is about")


def test_a_suggestion_lasts_a_week_from_when_it_is_made() -> None:
    week = 7 * 86_400_000
    for time, now, expires in (
        (BEGIN, BEGIN + 5, BEGIN + 5 + week),
        (BEGIN + 5, BEGIN, BEGIN + 5 + week),
        (BEGIN, MAX_TIMESTAMP, MAX_TIMESTAMP),
    ):
        assert allowed_by(suggest(record(time=time), now=now)).grants[0].expires == expires
