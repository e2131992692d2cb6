"""What can be found out about a request before anybody judges it: the grants, the call that it spells, its effects.

Reads: the grant files, the links of the path, the container service. Invariant: `look` never raises; what
could not be found out stands there as the reason for which such a request is denied, a fault of ours
included. Threads: any, without the ledger: a slow disk or service must not hold up other calls.
"""

from collections.abc import Callable
from typing import Protocol

import attrs

from brokerd.approvaltext import MountShown, Terms
from brokerd.call import Call, Labels
from brokerd.mounts import MountRefused, Unresolvable
from brokerd.runner import Effects, RunnerUnavailable
from bxcore import hosts, logs, tools
from bxcore.auditlog import Decided
from bxcore.grants import GrantFaults, GrantSet
from bxcore.tools import TOOLS, BadArguments, ToolKind
from bxcore.wire.tools import DenyReason, ToolRequest

LONGEST_DETAIL = 300
FAULT = "a fault of ours; nothing was run"

log = logs.get("reading")


@attrs.frozen(kw_only=True)
class Unfit:
    """Why a request must be denied before any grant is looked at. `detail` quotes nothing that the model wrote."""

    reason: DenyReason
    detail: str | None


@attrs.frozen(kw_only=True)
class Looked:
    """What was found out about one request. `effects` is None while that has not been looked at."""

    grants: GrantSet | Unfit
    call: Call | Unfit
    effects: Effects | Unfit | None


class GrantSource(Protocol):
    """Where grants come from."""

    def current(self) -> GrantSet: ...


Resolve = Callable[[str, ToolKind], str]


class Reading:
    """Finds out. `resolve` follows the links of a path, `effects` says what a call would put into effect."""

    def __init__(self, *, grants: GrantSource, resolve: Resolve, effects: Callable[[Call], Effects]) -> None:
        self._grants = grants
        self._resolve = resolve
        self._effects = effects

    def look(self, request: ToolRequest) -> Looked:
        """Return what judging the request needs, but for its effects. Never raises."""
        return Looked(grants=self.grants(), call=self.call(request), effects=None)

    def look_on(self, looked: Looked) -> Looked:
        """Add what the call would put into effect, for one that may run: else nothing of the host is looked at.

        That may take a while, so the grants are read once more after it.
        """
        effects = looked.call if isinstance(looked.call, Unfit) else self.effects(looked.call)
        return attrs.evolve(looked, grants=self.grants(), effects=effects)

    def grants(self) -> GrantSet | Unfit:
        """Return the grants as they are now."""
        try:
            return self._grants.current()
        except GrantFaults as error:
            return Unfit(reason=DenyReason.GRANTS_INVALID, detail=_first_of(error))
        except Exception:
            log.exception("denied by a fault reason=grants_invalid code=internal")
            return Unfit(reason=DenyReason.GRANTS_INVALID, detail=FAULT)

    def call(self, request: ToolRequest) -> Call | Unfit:
        """Return the call that the request spells, its path resolved now."""
        if request.tool not in TOOLS:
            return Unfit(reason=DenyReason.UNKNOWN_TOOL, detail="there is no tool of that name")
        try:
            return self._read(request, TOOLS[request.tool])
        except (BadArguments, Unresolvable) as error:
            return Unfit(reason=DenyReason.INVALID_ARGUMENTS, detail=_short(error.detail))
        except Exception:
            log.exception("denied by a fault reason=invalid_arguments code=internal")
            return Unfit(reason=DenyReason.INVALID_ARGUMENTS, detail=FAULT)

    def effects(self, call: Call) -> Effects | Unfit:
        """Return what the call would put into effect."""
        try:
            return self._effects(call)
        except MountRefused as error:
            log.warning("a call cannot run tool=%s code=%s why=%s", call.kind.name, error.code, error.detail)
            return Unfit(reason=DenyReason.INVALID_ARGUMENTS, detail=_short(error.detail))
        except RunnerUnavailable as error:
            log.warning("a call cannot run tool=%s code=%s why=%s", call.kind.name, error.code, error.detail)
            return Unfit(reason=DenyReason.RUNNER_UNAVAILABLE, detail=_short(error.detail))
        except Exception:
            log.exception("denied by a fault reason=runner_unavailable code=internal")
            return Unfit(reason=DenyReason.RUNNER_UNAVAILABLE, detail=FAULT)

    def _read(self, request: ToolRequest, kind: ToolKind) -> Call:
        arguments = tools.parse(request.tool, request.arguments)
        asked, url = tools.asked_path(arguments), tools.asked_url(arguments)
        path = None if asked is None else self._resolve(asked, kind)
        if path is not None and not _is_text(path):
            raise BadArguments("path: leads to a name that is not UTF-8, which cannot be recorded")
        return _call(request, kind, arguments, path=path, url=url)


def terms_of(effects: Effects, *, session: Labels, result: Labels) -> Terms:
    """Return what a yes puts into effect, in the words of the block that the owner reads."""
    return Terms(
        mounts=tuple(MountShown(path=mount.source, writable=mount.writable) for mount in effects.mounts),
        hosts=effects.hosts,
        image=effects.image,
        limits=effects.limits,
        session=session,
        result=result,
    )


def recorded_call(record: Decided) -> Call | None:
    """Return the call of a recorded decision with the path that was judged; None where it could not be read then."""
    if record.canonical is None or record.tool not in TOOLS:
        return None
    request = ToolRequest(session=record.session, call=record.call, tool=record.tool, arguments=record.arguments)
    try:
        arguments = tools.parse(record.tool, record.arguments)
    except BadArguments:
        return None  # an older record: the tool takes other arguments today
    return _call(request, TOOLS[record.tool], arguments, path=record.path, url=tools.asked_url(arguments))


def _call(request: ToolRequest, kind: ToolKind, arguments: object, *, path: str | None, url: str | None) -> Call:
    return Call(
        request=request,
        kind=kind,
        arguments=arguments,
        canonical=tools.canonical(arguments),
        path=path,
        target=None if url is None else hosts.target(url),
    )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first_of(error: GrantFaults) -> str:
    """Name the place alone: the words of the fault are for the owner, and this is read by the model too."""
    if not error.faults:
        return "the grants cannot be read"
    first, *more = error.faults
    line = f", line {first.line}" if first.line else ""
    return _short(f"{first.file}{line}{f', and {len(more)} more' if more else ''}")


def _short(detail: str) -> str:
    line = " ".join(detail.split())
    return line if len(line) <= LONGEST_DETAIL else line[: LONGEST_DETAIL - 1] + "…"
