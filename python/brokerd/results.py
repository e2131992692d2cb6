"""What came out of a container -> what loopd is told, and what the audit log keeps of it. Pure.

Invariant: text of a tool is only ever in a ToolResult, which carries labels; a ToolFailed holds one of the sentences
below, and no number that the tool has a say in. Which sentence, it can choose (docs/threat-model.md). The wrapper in a
container has its own cut (`bxcore.tools.CUT`); here it is made sure of. docs/tools.md.
"""

import hashlib
from collections.abc import Mapping

import attrs

from brokerd.call import Labels
from brokerd.entries import CameBack
from brokerd.exited import Exited, Stop
from bxcore import tools
from bxcore.auditlog import RunEnding
from bxcore.ids import Hash32
from bxcore.settings.brokerd import Limits
from bxcore.tools import ToolKind
from bxcore.wire.tools import ToolFailed, ToolResult

NOT_AS_DECIDED = b"boxmaker: not mounted as decided\n"
"""What the wrapper writes where a mount is not the file or directory that was decided on (toolkit/contract.py)."""

UNKNOWN = "the container service was lost while the tool ran: whether it took effect is not known"

_DONE, _OWN_ERROR, _MISUSE = 0, 1, 2
_KILLED, _FILE_SIZE, _TIMED_OUT = 137, 153, 255


@attrs.frozen(kw_only=True)
class Ran:
    """One run that was started: of which tool, within which limits, and how its container ended."""

    kind: ToolKind
    limits: Limits
    exited: Exited


def of(ran: Ran, labels: Labels) -> tuple[ToolResult | ToolFailed, CameBack]:
    """Return the answer and what may be recorded of it; `labels` are those that policy gave to a result."""
    exited = ran.exited
    if exited.stop is Stop.END and not exited.out_of_memory and exited.exit in {_DONE, _OWN_ERROR}:
        return _result(ran, labels, RunEnding.DONE if exited.exit == _DONE else RunEnding.TOOL_ERROR)
    if exited.stop is Stop.BROKEN and exited.exit is None:
        return ToolFailed(message=UNKNOWN), CameBack(ending=RunEnding.UNKNOWN, labels=labels)
    return ToolFailed(message=_why(ran)), CameBack(ending=RunEnding.FAILED, labels=labels, exit=exited.exit)


def _result(ran: Ran, labels: Labels, ending: RunEnding) -> tuple[ToolResult, CameBack]:
    content, truncated = _content(ran.exited.stdout, ran.kind.result_chars)
    raw = content.encode()
    back = CameBack(
        ending=ending,
        labels=labels,
        exit=ran.exited.exit,
        size=len(raw),
        sha256=Hash32(hashlib.sha256(raw).hexdigest()),
        truncated=truncated,
    )
    answer = ToolResult(content=content, data_class=labels.data_class, untrusted=labels.untrusted, truncated=truncated)
    return answer, back


def _content(stdout: bytes, most: int) -> tuple[str, bool]:
    """Return the text, at most `most` characters of it with the mark that says so, and whether any was cut."""
    text = stdout.decode("utf-8", "replace")
    if len(text) > most:
        mark = f"\n{tools.CUT}: {len(text)} characters, of which these are the first]"
        return text[: max(0, most - len(mark))] + mark, True
    return text, text.rpartition("\n")[2].startswith(tools.CUT)


def _why(ran: Ran) -> str:
    """Return the sentence that names the limit, or what else it was."""
    exited, limits = ran.exited, ran.limits
    stopped: Mapping[Stop, str] = {
        Stop.DEADLINE: f"the tool was stopped at its time limit of {ran.kind.default_ms} ms",
        Stop.OUTPUT: f"the tool was stopped at its output limit of {limits.output_bytes} bytes",
        Stop.CANCELLED: "the tool was stopped: nobody waits for its result any more",
        Stop.BROKEN: "what the tool wrote was not readable; it has ended",
        Stop.NOT_STARTED: "the tool was not started: what it needs to reach its host did not come up",
    }
    if exited.stop in stopped:
        return stopped[exited.stop]
    if exited.out_of_memory:
        return f"the tool was ended at its memory limit of {limits.memory_bytes} bytes"
    if exited.exit == _MISUSE and exited.stdout == NOT_AS_DECIDED:
        return "the path is no longer the file or directory that was decided on; nothing was read or written"
    named = {
        _MISUSE: "the tool's container could not carry out its order",
        _KILLED: f"the tool was killed, most likely at its memory limit of {limits.memory_bytes} bytes",
        _FILE_SIZE: f"the tool was ended at its limit of {limits.file_bytes} bytes for a file",
        _TIMED_OUT: f"the tool was stopped at its time limit of {ran.kind.default_ms} ms",
    }
    return named.get(exited.exit or 0, "the tool ended as no tool of ours does")
