"""The rules: what the grants say of a call, for a session with its labels, at a moment. Pure.

Order: a deny grant that fits, then ask, then auto; within a mode the longest path, then the smallest id. What
comes of it is a plain value that permits nothing: brokerd.policy makes Decisions of it, a dry run shows it.
The texts of a denial are fixed sentences, read by the model: none names a way round the refusal.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter

import attrs

from brokerd import labels, match
from brokerd.call import Call, Labels
from bxcore.grants import Grant, GrantSet, Mode
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import Verdict
from bxcore.wire.tools import DenyReason

DETAILS: Mapping[DenyReason, str] = {
    DenyReason.NO_GRANT: "nothing covers this call",
    DenyReason.GRANT_EXPIRED: "what covered this call has run out",
    DenyReason.TAINT_TOO_HIGH: "this conversation holds data that must not travel this way",
    DenyReason.DENIED_BY_GRANT: "this call is ruled out",
    DenyReason.APPROVAL_REFUSED: "this call is no longer the one that was asked about",
}


@attrs.frozen(kw_only=True)
class Weighed:
    """What the rules say of a call.

    `grant` is the one that decided, or None where none did; `labels` are those of the result, None for a denial.
    """

    verdict: Verdict
    reason: DenyReason | None = None
    grant: Grant | None = None
    labels: Labels | None = None


def weigh(grants: GrantSet, call: Call, session: Labels, now: Timestamp) -> Weighed:
    """Apply the rules: deny, then ask, then auto; in a mode the longest path, then the smallest id."""
    if call.kind.name != call.request.tool:
        raise ValueError("the call was read as one of another tool")
    speaking = match.touching(grants.by_tool.get(call.kind.name, ()), call)
    fitting = match.fitting(speaking, call)
    current = [(depth, grant) for depth, grant in fitting if grant.expires is None or not is_expired(grant, now)]
    if denying := [it for it in current if it[1].mode is Mode.DENY]:
        return Weighed(verdict=Verdict.DENIED, reason=DenyReason.DENIED_BY_GRANT, grant=_first(denying))
    enough = labels.limits_for(session.data_class)
    usable = [it for it in current if it[1].max_taint in enough]
    if asking := [it for it in usable if it[1].mode is Mode.ASK]:
        return Weighed(verdict=Verdict.ASK, grant=_first(asking), labels=_of_result(speaking))
    if usable:
        # Some tools are always asked about, whatever a grant says.
        verdict = Verdict.ALLOWED if call.kind.auto_allowed else Verdict.ASK
        return Weighed(verdict=verdict, grant=_first(usable), labels=_of_result(speaking))
    return Weighed(verdict=Verdict.DENIED, reason=_why_nothing_allows(fitting, session, now))


def why_not_now(grant: Grant, session: Labels, now: Timestamp) -> DenyReason | None:
    """Return why a grant that fits does not apply to this session at this time, None where it does."""
    if is_expired(grant, now):
        return DenyReason.GRANT_EXPIRED
    if grant.max_taint not in labels.limits_for(session.data_class):
        return DenyReason.TAINT_TOO_HIGH
    return None


def is_expired(grant: Grant, now: Timestamp) -> bool:
    """Whether `grant` has run out; at the very moment that it names, it has."""
    return grant.expires is not None and now >= grant.expires


def _first(fitting: list[tuple[int, Grant]]) -> Grant:
    longest = max(depth for depth, _ in fitting)
    return min((grant for depth, grant in fitting if depth == longest), key=attrgetter("id"))


def _of_result(speaking: list[Grant]) -> Labels:
    """Return the strictest labels: of every grant that speaks of what is seen, whatever its mode, expiry or limit."""
    return Labels(
        data_class=labels.highest(grant.result_class for grant in speaking),
        untrusted=any(grant.untrusted for grant in speaking),
    )


def _why_nothing_allows(fitting: Iterable[tuple[int, Grant]], session: Labels, now: Timestamp) -> DenyReason:
    """Return the reason to give. A deny grant that has run out is none: it never allowed anything."""
    found = {why_not_now(grant, session, now) for _, grant in fitting if grant.mode is not Mode.DENY}
    for reason in (DenyReason.TAINT_TOO_HIGH, DenyReason.GRANT_EXPIRED):
        if reason in found:
            return reason
    return DenyReason.NO_GRANT
