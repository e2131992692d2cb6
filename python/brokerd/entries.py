"""What the one path writes into the audit log, each as a function of the number, time and hash that the log gives.

Pure. Texts of results never come here, only their hash and size; of what nobody could have meant as a call, no more
than these either.
"""

import hashlib

import attrs

from brokerd.call import Call, Labels
from bxcore.auditlog import Answered, Decided, Ended, Make, RunEnding, Started
from bxcore.ids import Hash32, SessionId
from bxcore.timestamp import Timestamp
from bxcore.tools import MAX_ARGUMENT_BYTES
from bxcore.wire.admin import ApprovalEnding, Verdict
from bxcore.wire.tools import DenyReason, ToolRequest

NOTHING = Hash32(hashlib.sha256(b"").hexdigest())
"""The hash of no bytes."""


LEFT_OUT = "left out: "
"""How a text begins that stands for one too long to record. No JSON begins so, nor does the name of a tool."""

LONGEST_TOOL_BYTES = 64


@attrs.frozen(kw_only=True)
class Said:
    """What policy said, without its seal: `grant` is the one that decided, `reason` and `detail` those of a no."""

    verdict: Verdict
    grant: str | None = None
    grant_hash: Hash32 | None = None
    reason: DenyReason | None = None
    detail: str | None = None


@attrs.frozen(kw_only=True)
class CameBack:
    """How a run ended, in what may be recorded of it: `labels` are those of the result."""

    ending: RunEnding
    labels: Labels
    exit: int | None = None
    size: int = 0
    sha256: Hash32 = NOTHING
    truncated: bool = False


def decided(
    request: ToolRequest, call: Call | None, said: Said, session: Labels, grants: Hash32 | None
) -> Make[Decided]:
    """Record what was said about a request; `grants` is the digest of the files that it was said by."""
    tool = _kept(request.tool, LONGEST_TOOL_BYTES)
    arguments = _kept(request.arguments, MAX_ARGUMENT_BYTES)

    def make(seq: int, time: Timestamp, prev: Hash32) -> Decided:
        return Decided(
            seq=seq,
            time=time,
            prev=prev,
            session=request.session,
            call=request.call,
            tool=tool,
            arguments=arguments,
            canonical=None if call is None else call.fingerprint,
            path=None if call is None else call.path,
            host=None if call is None or call.target is None else call.target.authority,
            taint=session.data_class,
            untrusted=session.untrusted,
            verdict=said.verdict,
            grant=said.grant,
            grant_hash=said.grant_hash,
            grants=grants,
            reason=said.reason,
            detail=said.detail,
        )

    return make


def _kept(text: str, most_bytes: int) -> str:
    """Return the text, or its size and hash where it is too long, or would be taken for such a one."""
    content = text.encode()
    if len(content) <= most_bytes and not text.startswith(LEFT_OUT):
        return text
    return f"{LEFT_OUT}{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"


@attrs.frozen(kw_only=True)
class Reply:
    """How a question ended. `approver` and `post` say who said so and where, `reason` is the owner's own words."""

    ending: ApprovalEnding
    approver: str | None = None
    post: str | None = None
    reason: str | None = None


def answered(decision: int, reply: Reply, said: Said | None, session: Labels) -> Make[Answered]:
    """Record how the question about `decision` ended; `said` is what policy said to a yes."""

    def make(seq: int, time: Timestamp, prev: Hash32) -> Answered:
        return Answered(
            seq=seq,
            time=time,
            prev=prev,
            decision=decision,
            ending=reply.ending,
            approver=reply.approver,
            post=reply.post,
            reason=reply.reason,
            grant=None if said is None else said.grant,
            grant_hash=None if said is None else said.grant_hash,
            taint=session.data_class,
            untrusted=session.untrusted,
        )

    return make


def started(decision: int, image: str, plan: Hash32) -> Make[Started]:
    """Record that the container of `decision` is about to run."""

    def make(seq: int, time: Timestamp, prev: Hash32) -> Started:
        return Started(seq=seq, time=time, prev=prev, decision=decision, image=image, plan=plan)

    return make


def ended(decision: int, whose: SessionId, back: CameBack, session: Labels) -> Make[Ended]:
    """Record how the run of `decision` ended; `session` are the session's labels after it."""

    def make(seq: int, time: Timestamp, prev: Hash32) -> Ended:
        return Ended(
            seq=seq,
            time=time,
            prev=prev,
            decision=decision,
            session=whose,
            ending=back.ending,
            exit=back.exit,
            size=back.size,
            sha256=back.sha256,
            truncated=back.truncated,
            data_class=back.labels.data_class,
            untrusted=back.labels.untrusted,
            taint_after=session.data_class,
            untrusted_after=session.untrusted,
        )

    return make
