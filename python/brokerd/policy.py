"""The only maker of Decisions. No I/O; the lock guards two dictionaries.

`decide` and `redecide` seal what the rules say (brokerd.weighing): a Decision is the only thing that the
runner takes, it is spent once, and what runs is the call that this module remembers, not the one that the
value shows. An Ask becomes a Decision through `redecide` alone, once, by the rules of that moment.
The seal guards against slips, not against hostile code in this process (docs/invariants.md, INV-2).
"""

import threading
from typing import TypeVar, final
from weakref import WeakKeyDictionary

import attrs

from brokerd import labels, match, weighing
from brokerd.call import Call, Labels
from brokerd.weighing import DETAILS, Weighed
from bxcore.grants import Grant, GrantSet
from bxcore.ids import Hash32
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import Verdict
from bxcore.wire.tools import DenyReason, ToolRequest


class SealError(Exception):
    """Somebody made, changed, copied or reused what only this module makes. Always a fault of ours."""


_SEAL = object()


class Outcome:
    """What was decided for one request: Decision, Ask or Denial. Made in this module only, never changed or copied.

    `grant` and `grant_hash` name the grant that decided, None where none did. `call` is None where the
    request was refused before its arguments were read.
    """

    __slots__ = ("__weakref__", "call", "grant", "grant_hash", "request")

    request: ToolRequest
    call: Call | None
    grant: str | None
    grant_hash: Hash32 | None

    def __init__(self, seal: object, **shown: object) -> None:
        if seal is not _SEAL:
            raise SealError(f"{type(self).__name__} can only be made by brokerd.policy")
        for name, value in shown.items():
            object.__setattr__(self, name, value)

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:
            raise SealError("nobody else makes another kind of outcome")

    def __setattr__(self, name: str, value: object) -> None:
        raise SealError("an outcome cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise SealError("an outcome cannot be changed")

    def __reduce_ex__(self, protocol: object) -> str:
        raise SealError("an outcome cannot be copied or stored")


@final
class Decision(Outcome):
    """The call may run, once: see `spend`. `labels` are those that its result will get."""

    __slots__ = ("labels",)

    call: Call
    labels: Labels


@final
class Ask(Outcome):
    """The owner must say yes first; see `redecide`. `labels` are those that the result would get."""

    __slots__ = ("labels",)

    call: Call
    labels: Labels


@final
class Denial(Outcome):
    """The call does not run. `detail` is one line for the model and the owner, or None."""

    __slots__ = ("detail", "reason")

    reason: DenyReason
    detail: str | None


@attrs.frozen(kw_only=True)
class _Asked:
    call: Call
    grant: str
    labels: Labels


_lock = threading.Lock()
_unspent: WeakKeyDictionary[Decision, Call] = WeakKeyDictionary()
_open_asks: WeakKeyDictionary[Ask, _Asked] = WeakKeyDictionary()


def refuse(request: ToolRequest, reason: DenyReason, detail: str | None) -> Denial:
    """Deny what no grant was looked at for. `detail`: one line that names no way round."""
    return Denial(_SEAL, request=request, call=None, grant=None, grant_hash=None, reason=reason, detail=detail)


def decide(grants: GrantSet, call: Call, session: Labels, now: Timestamp) -> Decision | Ask | Denial:
    """Decide a call. `session` are the session's labels now, `now` the clock that never goes back."""
    weighed = weighing.weigh(grants, call, session, now)
    if weighed.verdict is Verdict.ALLOWED:
        return _allowed(call, *_chosen(weighed))
    if weighed.verdict is Verdict.ASK:
        return _asked(call, *_chosen(weighed))
    return _denied(call, weighed.reason or DenyReason.NO_GRANT, weighed.grant)


def redecide(ask: Ask, grants: GrantSet, call: Call, session: Labels, now: Timestamp) -> Decision | Denial:
    """Turn an answered Ask into a Decision, by the grants and labels of this moment, or into a Denial.

    `call` is the call as it would run now, its path resolved again: it must be the one that was
    asked about. The grant that asked must still apply, and the result gets the stricter labels of
    then and now. Uses the Ask up, whatever comes out. Raises SealError for one that is used up.
    """
    asked = _take(_open_asks, ask, Ask)
    if call.request != asked.call.request or call.fingerprint != asked.call.fingerprint:
        return _denied(asked.call, DenyReason.APPROVAL_REFUSED, None)
    weighed = weighing.weigh(grants, asked.call, session, now)
    reason = weighed.reason or _why_it_asks_no_more(asked, grants, session, now)
    if reason is not None:
        return _denied(asked.call, reason, weighed.grant if weighed.verdict is Verdict.DENIED else None)
    grant, current = _chosen(weighed)
    return _allowed(asked.call, grant, labels.joined(asked.labels, current))


def spend(decision: Decision) -> Call:
    """Return the call that `decision` was made for, once. Raises SealError for anything but an unspent Decision."""
    return _take(_unspent, decision, Decision)


def _allowed(call: Call, grant: Grant, of_result: Labels) -> Decision:
    decision = Decision(_SEAL, request=call.request, call=call, grant=grant.id, grant_hash=grant.hash, labels=of_result)
    with _lock:
        _unspent[decision] = call
    return decision


def _asked(call: Call, grant: Grant, of_result: Labels) -> Ask:
    ask = Ask(_SEAL, request=call.request, call=call, grant=grant.id, grant_hash=grant.hash, labels=of_result)
    with _lock:
        _open_asks[ask] = _Asked(call=call, grant=grant.id, labels=of_result)
    return ask


def _denied(call: Call, reason: DenyReason, grant: Grant | None) -> Denial:
    named = {"grant": None, "grant_hash": None} if grant is None else {"grant": grant.id, "grant_hash": grant.hash}
    return Denial(_SEAL, request=call.request, call=call, reason=reason, detail=DETAILS[reason], **named)


def _chosen(weighed: Weighed) -> tuple[Grant, Labels]:
    if weighed.grant is None or weighed.labels is None:
        raise ValueError("a call that may run without a grant")
    return weighed.grant, weighed.labels


def _why_it_asks_no_more(asked: _Asked, grants: GrantSet, session: Labels, now: Timestamp) -> DenyReason | None:
    same = [grant for grant in grants.by_tool.get(asked.call.kind.name, ()) if grant.id == asked.grant]
    for _, grant in match.fitting(match.touching(same, asked.call), asked.call):
        return weighing.why_not_now(grant, session, now)
    return DenyReason.NO_GRANT


_Sealed = TypeVar("_Sealed", Decision, Ask)
_Kept = TypeVar("_Kept")


def _take(ledger: WeakKeyDictionary[_Sealed, _Kept], key: _Sealed, kind: type[_Sealed]) -> _Kept:
    # By the object itself: its id() may be another's once it is gone, and its class and fields can be forged.
    with _lock:
        kept = ledger.pop(key, None) if type(key) is kind else None
    if kept is None:
        raise SealError(f"not an unused {kind.__name__} of this process")
    return kept
