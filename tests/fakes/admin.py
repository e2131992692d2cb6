"""A brokerd's owner socket that says what a test wrote: questions, answers, verdicts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bxcore.ids import CallId, Hash32, SessionId
from bxcore.server import Request
from bxcore.timestamp import from_text
from bxcore.wire import admin
from bxcore.wire.admin import ApprovalEnding
from tests.fakes.rolesocket import FakeRole, Script, send

HASH = Hash32("ab" * 32)
EXPIRES = from_text("2026-11-30T11:26:00.000Z")
BLOCK = 'write_file asks to run\n  path     /srv/notes/a.txt\n  content  "hi\\u{202E}"\n'


class FakeAdmin(FakeRole):
    """Serves `<home>/run/admin/admin.sock` while the `with` block lasts."""

    def __init__(self, home: Path, scripts: Mapping[Any, Script]) -> None:
        super().__init__(home, "admin", "admin.sock", scripts)


def summary(number: int) -> admin.ApprovalSummary:
    return admin.ApprovalSummary(
        id=number,
        session=SessionId("s"),
        call=CallId(3),
        tool="write_file",
        grant="write-notes",
        opened=from_text("2026-11-30T10:26:00.000Z"),
        expires=EXPIRES,
        canonical=HASH,
    )


def shows(block: str = BLOCK, *, missing: int = 0) -> Script:
    """Show a question in two pieces; `missing` characters of it never come."""

    def script(request: Request) -> None:
        message = request.message
        assert isinstance(message, admin.ApprovalShow)
        half = len(block) // 2
        pieces = [admin.ApprovalText(text=block[:half]), admin.ApprovalText(text=block[half : len(block) - missing])]
        shown = admin.ApprovalShown(summary=summary(message.id), canonical=HASH, characters=len(block))
        send(request, [*pieces, shown])

    return script


def settles(ending: ApprovalEnding, detail: str = "") -> Script:
    """Answer an answer."""

    def script(request: Request) -> None:
        message = request.message
        assert isinstance(message, admin.ApprovalAnswer)
        request.answer(admin.ApprovalOutcome(id=message.id, ending=ending, detail=detail), final=True)

    return script
