"""How brokerd is: why it denies every call, if it does; what waits, what runs; which limits hold here."""

from typing import Protocol

from brokerd.approvals import Approvals
from brokerd.ledger import Ledger
from brokerd.probe import Held
from brokerd.reading import Reading, Unfit
from brokerd.runner import RunnerUnavailable
from brokerd.running import Running
from bxcore.wire.admin import BrokerStatusReport
from bxcore.wire.tools import DenyReason


class RunnerState(Protocol):
    """What is asked of brokerd.runner."""

    @property
    def held(self) -> Held | None: ...
    def image(self) -> str: ...


class Condition:
    """Asked by bxctl, and once at the start. `told` is what that start found unfinished, or None."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        reading: Reading,
        approvals: Approvals,
        running: Running,
        runner: RunnerState,
        told: str | None,
    ) -> None:
        self._ledger = ledger
        self._reading = reading
        self._approvals = approvals
        self._running = running
        self._runner = runner
        self._told = told

    def report(self) -> BrokerStatusReport:
        """Look, and say it. Asks Podman nothing: the round that tends the containers does."""
        grants, held, head = self._reading.grants(), self._runner.held, self._ledger.head
        image, no_runner = self._image(held)
        unfit = grants if isinstance(grants, Unfit) else no_runner
        if self._ledger.broken:
            unfit = Unfit(reason=DenyReason.AUDIT_UNAVAILABLE, detail="a record could not be written; restart brokerd")
        return BrokerStatusReport(
            denies=None if unfit is None else unfit.reason,
            detail=self._told if unfit is None else unfit.detail,
            grants=0 if isinstance(grants, Unfit) else len(grants.grants),
            pending=len(self._approvals.questions()),
            running=self._running.count,
            audit_seq=head.seq,
            audit_hash=head.hash,
            image=image,
            limits_held=() if held is None else held.held,
            limits_missing=() if held is None else held.missing,
        )

    def _image(self, held: Held | None) -> tuple[str | None, Unfit | None]:
        try:
            image = self._runner.image()
        except RunnerUnavailable as error:
            return None, Unfit(reason=DenyReason.RUNNER_UNAVAILABLE, detail=error.detail)
        if held is None:
            why = "no container of the tool image could be tried yet; the log says why"
            return image, Unfit(reason=DenyReason.RUNNER_UNAVAILABLE, detail=why)
        return image, None
