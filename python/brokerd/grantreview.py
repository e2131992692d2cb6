"""What the owner can ask about grants: why they decide as they do, and what would have to be written. Pure.

Nothing here decides or changes anything: a dry run weighs the rules (brokerd.weighing) and makes no
Decision, and a suggestion is text that is shown.
"""

from brokerd import approvaltext, grantcheck, match, weighing
from brokerd.call import Call, Labels
from bxcore import grants as grantfiles
from bxcore import timestamp
from bxcore.auditlog import Decided
from bxcore.grants import Grant, GrantFaults, GrantSet, Mode
from bxcore.timestamp import DAY_MS, MAX_TIMESTAMP, Timestamp
from bxcore.tools import Takes, ToolKind
from bxcore.wire.admin import GrantFinding, GrantReason, GrantSuggestion, GrantsVerdict, Verdict
from bxcore.wire.tools import DenyReason

SUGGESTED_MS = 7 * DAY_MS
"""How long a suggested grant lasts: long enough to try it, short enough to be forgotten safely."""


def check(grants: GrantSet, now: Timestamp) -> tuple[GrantFinding, ...]:
    """Return which grants never decide anything, from `now` on; see brokerd.grantcheck."""
    return grantcheck.check(grants, now)


def verdict(grants: GrantSet, call: Call, session: Labels, now: Timestamp) -> GrantsVerdict:
    """Return what policy would say. Mounts, hosts and the record are for the caller, who looks at more than grants."""
    weighed = weighing.weigh(grants, call, session, now)
    return GrantsVerdict(
        verdict=weighed.verdict,
        reason=weighed.reason,
        detail=None if weighed.reason is None else weighing.DETAILS[weighed.reason],
        grant=None if weighed.grant is None else weighed.grant.id,
        result_class=None if weighed.labels is None else weighed.labels.data_class,
        result_untrusted=None if weighed.labels is None else weighed.labels.untrusted,
        mounts=(),
        hosts=(),
        recorded=None,
        same_grants=True,
    )


def reasons(grants: GrantSet, call: Call, session: Labels, now: Timestamp) -> tuple[GrantReason, ...]:
    """Say for each grant whether it applies to the call, and the first reason why not; in the order of their ids."""
    winner = weighing.weigh(grants, call, session, now).grant
    return tuple(_reason(grant, call, session, now, winner) for grant in grants.grants)


def _reason(grant: Grant, call: Call, session: Labels, now: Timestamp, winner: Grant | None) -> GrantReason:
    found = match.match(grant, call)
    if isinstance(found, match.WhyNot):
        return GrantReason(grant=grant.id, matched=False, why=found.text)
    if weighing.is_expired(grant, now) and grant.expires is not None:
        return GrantReason(grant=grant.id, matched=False, why=f"it ran out at {timestamp.to_text(grant.expires)}")
    if weighing.why_not_now(grant, session, now) is not None:
        limit, taint = grant.max_taint.value, session.data_class.value
        return GrantReason(grant=grant.id, matched=False, why=f"its max_taint is {limit}, the session is at {taint}")
    return GrantReason(grant=grant.id, matched=True, why=_rank(grant, found.depth, call, winner))


_DOES = {Mode.DENY: "it denies", Mode.ASK: "it asks", Mode.AUTO: "it lets the call run"}


def _rank(grant: Grant, depth: int, call: Call, winner: Grant | None) -> str:
    if winner is None or grant.id == winner.id:
        return f"{_DOES[grant.mode]}, and decides"
    if grant.mode is not winner.mode:
        why = f"{winner.mode.value} comes before {grant.mode.value}"
    elif match.match(winner, call) != match.Match(depth=depth):
        why = "it names a longer path"
    else:
        why = "its name comes first"
    return f"{_DOES[grant.mode]}, but {winner.id} decides: {why}"


# -- what would have to be written ----------------------------------------------------------------

_NO_GRANT_HELPS = {
    DenyReason.DENIED_BY_GRANT: "it was denied by a grant, and no other grant outweighs that one",
    DenyReason.INVALID_ARGUMENTS: "the call itself was refused, whatever the grants say",
    DenyReason.UNKNOWN_TOOL: "there is no such tool",
    DenyReason.GRANTS_INVALID: "the grants could not be read; mend them first (grants check)",
    DenyReason.AUDIT_UNAVAILABLE: "nothing could be recorded; this has nothing to do with grants",
    DenyReason.STATE_UNREADABLE: "the session's state could not be read; this has nothing to do with grants",
    DenyReason.RUNNER_UNAVAILABLE: "no container could be run; this has nothing to do with grants",
    DenyReason.APPROVAL_REFUSED: (
        "it was asked about, and refused: the same call is refused unasked until a grant changes or the time of"
        " [approvals] ttl_ms in brokerd.toml is over, an hour unless you set it"
    ),
    DenyReason.APPROVAL_EXPIRED: "it was asked about, and nobody answered in time",
}

_LOOK_FIRST = {
    DenyReason.NO_GRANT: "nothing covered the call",
    DenyReason.GRANT_EXPIRED: "a grant that covered the call has run out; perhaps it is that one you want",
    DenyReason.TAINT_TOO_HIGH: "grants cover the call up to a lower taint; this one lets what was read go with it",
}


def suggest(record: Decided, kind: ToolKind | None, now: Timestamp) -> GrantSuggestion:
    """Return the narrowest grant that would ask about the call of `record`, or why there is none.

    `kind` is None for a tool that does not exist. What is suggested asks each time, for one path or host
    and port, up to the taint that the session had, and runs out after a week.
    """
    file = f"{record.tool.replace('_', '-')}-{record.seq}{grantfiles.SUFFIX}" if kind else ""
    if record.verdict is not Verdict.DENIED or record.reason is None:
        said = "let run" if record.verdict is Verdict.ALLOWED else "asked about"
        return GrantSuggestion(file=file, toml=None, note=f"it was not denied but {said}")
    if record.reason not in _LOOK_FIRST or kind is None:
        return GrantSuggestion(file=file, toml=None, note=_NO_GRANT_HELPS.get(record.reason, "there is no such tool"))
    toml = _narrowest(record, kind, Timestamp(min(max(record.time, now) + SUGGESTED_MS, MAX_TIMESTAMP)))
    if toml is None or not _is_grant(file, toml):
        return GrantSuggestion(file=file, toml=None, note="no grant can name the place that the call is about")
    return GrantSuggestion(file=file, toml=toml, note=_LOOK_FIRST[record.reason])


def _narrowest(record: Decided, kind: ToolKind, expires: Timestamp) -> str | None:
    place = record.host if kind.takes is Takes.HOSTS else record.path
    if place is None and kind.takes is not Takes.NONE:
        return None
    if place is not None and match.replaces_a_file(kind):
        place = place.rpartition("/")[0]
    constraint = "" if place is None else f"{kind.takes.value} = [{_quoted(place)}]\n"
    return (
        f"# For the call of decision {record.seq}, which was denied: {record.reason.value if record.reason else ''}.\n"
        f"tool = {_quoted(kind.name)}\n"
        f"mode = {_quoted(Mode.ASK.value)}\n"
        f"max_taint = {_quoted(record.taint.value)}\n"
        f"expires = {timestamp.to_text(expires)}\n"
        f"\n[constraints]\n{constraint}"
    )


def _quoted(text: str) -> str:
    """Return a basic string of TOML, in which whatever does not show itself is spelled out."""
    return '"' + "".join(map(_seen, text)) + '"'


def _seen(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return f"\\U{ord(character):08x}" if approvaltext.hidden(character) else character


def _is_grant(file: str, toml: str) -> bool:
    try:
        grantfiles.parse(file, toml.encode())
    except (GrantFaults, UnicodeEncodeError):
        return False
    return True
