"""How the owner learns that a question is open: one courier for each channel.

A courier only carries: it announces a question and says when it is closed. An answer comes back through the
channel's own door to brokerd.approvals, under the courier's `name`; a courier that fails leaves the question
open for the others. Here is the local one; the chat's is brokerd.gatewaycourier.
"""

from collections.abc import Sequence
from typing import Protocol

from brokerd.approvaltext import Question
from bxcore import logs
from bxcore.wire.admin import ApprovalEnding

log = logs.get("couriers")


class Courier(Protocol):
    """One channel. Both calls return soon: whoever calls holds up a tool call."""

    @property
    def name(self) -> str:
        """What an approval through this channel is recorded under, beside the person where it knows one."""
        ...

    def ask(self, question: Question) -> None:
        """Tell the owner that a question is open."""
        ...

    def close(self, question: Question, ending: ApprovalEnding) -> None:
        """Tell the owner that it is over."""
        ...


class LocalCourier:
    """The machine itself: bxctl looks open questions up on admin.sock, so a line in the log is all there is to do."""

    name = "bxctl"

    def ask(self, question: Question) -> None:
        request = question.call.request
        log.info(
            "question open id=%d session=%s call=%d tool=%s", question.id, request.session, request.call, request.tool
        )

    def close(self, question: Question, ending: ApprovalEnding) -> None:
        log.info("question closed id=%d ending=%s", question.id, ending.value)


class Couriers:
    """All of them. Never raises: what one of them gets wrong must not leave a question without an end."""

    def __init__(self, couriers: Sequence[Courier]) -> None:
        self._couriers = list(couriers)

    def add(self, courier: Courier) -> None:
        """Ask through one more, which may need the questions themselves to be made. Before the first question."""
        self._couriers.append(courier)

    def ask(self, question: Question) -> None:
        for courier in self._couriers:
            try:
                courier.ask(question)
            except Exception:
                log.exception("not announced id=%d courier=%s code=courier_failed", question.id, courier.name)

    def close(self, question: Question, ending: ApprovalEnding) -> None:
        for courier in self._couriers:
            try:
                courier.close(question, ending)
            except Exception:
                log.exception("not told the end id=%d courier=%s code=courier_failed", question.id, courier.name)
