"""A question as posts of a chat: the block that an approval shows, whole, in as few numbered parts as it takes. Pure.

Invariant (INV-8, also here): every character of the block is in a part and is seen there, none of it is Markdown,
and no two questions give the same posts. The block stands in a fence that nothing in it can close; it is cut between
lines, or where a line is longer than a part between two of its marks, never within an escape, and the next part says
so. Specified in docs/authority.md, "A question in Mattermost".
"""

import hashlib
import re
from collections.abc import Sequence

from brokerd import approvaltext
from brokerd.approvaltext import Question

MOST_PARTS = 4
"""Nobody reads more of one question in a chat; what is longer is answered on the machine."""

# The web app makes a line end of this picture of one, also in code.
_PICTURED = "\u2424"
_RUNS = re.compile("`+")
_LONGEST_FENCE = 64
_MARK = re.compile(r"\\u\{[^}]*\}|\\.|[^\\]", re.DOTALL)
_LONGEST_MARK = 32
"""No escape is longer: `\\u{20*` and the count of at most as many blanks as a call can hold."""
_AROUND = 640
"""What stands around the text of a part, fence and all, takes no more."""


def parts(question: Question, *, limit: int) -> tuple[tuple[str, ...], bool]:
    """Return the texts of the posts, each of at most `limit` code points, and whether they may be answered there.

    Where they may not, it is one text that says why, and how to answer on the machine.
    """
    block = approvaltext.block(question).replace(_PICTURED, f"\\u{{{ord(_PICTURED):x}}}")
    fence = "`" * max(3, 1 + max(map(len, _RUNS.findall(block)), default=0))
    pieces = _cut(block, limit - _AROUND) if len(fence) <= _LONGEST_FENCE else ()
    if not 0 < len(pieces) <= MOST_PARTS:
        return (_too_long(question, block),), False
    texts = [_part(question, pieces, number, fence) for number in range(len(pieces))]
    texts[-1] += _ending(question, len(pieces))
    return tuple(texts), True


def _cut(block: str, room: int) -> tuple[str, ...]:
    """Return the pieces of `block`, each of at most `room`; none where they would be too many."""
    pieces: list[str] = []
    at = 0
    while at < len(block):
        if len(pieces) == MOST_PARTS or room <= _LONGEST_MARK:
            return ()
        end = _end(block, at, room)
        pieces.append(block[at:end])
        at = end
    return tuple(pieces)


def _end(block: str, at: int, room: int) -> int:
    """Return where a piece from `at` ends: behind a line, or behind a mark where no line ends in its second half."""
    if len(block) - at <= room:
        return len(block)
    end = block.rfind("\n", at + room // 2, at + room) + 1
    if end:
        return end
    # From the start of the line, since only there is known that no escape has begun.
    end = start = max(at, block.rfind("\n", 0, at + room) + 1)
    for mark in _MARK.finditer(block, start, at + room + _LONGEST_MARK):
        if mark.end() > at + room:
            break
        end = mark.end()
    return end


def _part(question: Question, pieces: Sequence[str], number: int, fence: str) -> str:
    heading = f"**Approval {question.id}**"
    if len(pieces) > 1:
        heading += f", part {number + 1} of {len(pieces)}"
    if number and not pieces[number - 1].endswith("\n"):
        heading += ", within a line"
    return f"{heading}\n\n{fence}\n{pieces[number].removesuffix(chr(10))}\n{fence}\n"


def _ending(question: Question, count: int) -> str:
    shown = "the block" if count == 1 else f"all {count} parts"
    return (
        f"\nApproval {question.id} is {shown} above, fingerprint (SHA-256) `{question.call.fingerprint}`."
        " A phone shows four lines of a block until you tap it."
        f" To answer, write in this thread `!approve {question.id}` or `!deny {question.id} reason`.\n"
    )


def _too_long(question: Question, block: str) -> str:
    digest = hashlib.sha256(block.encode()).hexdigest()
    return (
        f"**Approval {question.id}** is too long for a chat ({len(block)} characters, SHA-256 `{digest}`), so no answer"
        " to it is taken here.\n"
        f"\nRead it and answer it on the machine: `bxctl approvals`, then `bxctl approve {question.id}` or"
        f" `bxctl deny {question.id}`. Its call is `{question.call.kind.name}`,"
        f" fingerprint `{question.call.fingerprint}`.\n"
    )
