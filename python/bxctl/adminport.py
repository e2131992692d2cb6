"""What bxctl asks brokerd on `admin.sock`."""

from bxcore.deadline import Clock
from bxcore.errors import UpstreamError
from bxcore.wire import admin
from bxctl.port import Port
from bxctl.sockets import Home


class AdminPort(Port):
    """brokerd's owner socket."""

    def __init__(self, home: Home, clock: Clock) -> None:
        super().__init__(home, home.admin_socket, clock)

    def pending(self) -> list[admin.ApprovalSummary]:
        """Return the open questions, oldest first."""
        return [found for found in self.ask(admin.ApprovalList()) if isinstance(found, admin.ApprovalSummary)]

    def block(self, approval: int) -> tuple[str, admin.ApprovalShown]:
        """Return what the owner must read before answering, whole, and what the answer must name.

        Raises RemoteFault(no_approval) where the question is not open, UpstreamError where a piece is missing.
        """
        pieces: list[str] = []
        for received in self.ask(admin.ApprovalShow(id=approval)):
            if isinstance(received, admin.ApprovalText):
                pieces.append(received.text)
            elif isinstance(received, admin.ApprovalShown):
                text = "".join(pieces)
                if len(text) != received.characters:
                    raise UpstreamError("brokerd sent the question incompletely; nothing was answered")
                return text, received
        raise UpstreamError("brokerd did not show the question to its end; nothing was answered")

    def answer(self, shown: admin.ApprovalShown, *, approve: bool, reason: str | None = None) -> admin.ApprovalOutcome:
        """Answer exactly what was shown."""
        asked = admin.ApprovalAnswer(
            id=shown.summary.id, approve=approve, canonical=shown.canonical, reason=reason or None
        )
        # An approved call may first have to wait for its turn at the audit log: give it the time of a slow disk.
        return self.one(asked, admin.ApprovalOutcome, idle_ms=30_000)
