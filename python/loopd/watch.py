"""Whether the server behind the socket is (still) the one that passed the self-test.

Threads: one background thread, `start`, tests until the first pass; turns call confirm and doubt.
The lock guards the verdict alone and is not held while the server is asked.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus

import attrs

from bxcore import daemon, logs, sanitize
from bxcore.deadline import Clock, Deadline
from bxcore.errors import ConfigError, UpstreamError
from bxcore.settings.loopd import LoopdSettings
from bxcore.wire.channel import WaitReason
from loopd.cancel import CancelToken
from loopd.llama import ModelServer
from loopd.modelfaults import (
    Cancelled,
    ContextFull,
    ModelChanged,
    ModelLoading,
    ServerAway,
    ServerProtocol,
    ServerRefused,
)
from loopd.selftest import Check
from loopd.serverinfo import Props
from loopd.waits import OnWait

log = logs.get("watch")

_LOOK_AGAIN_SECONDS = 0.5

Test = Callable[[CancelToken, OnWait], Iterable[Check]]
"""Runs the self-test; may be cancelled, and tells what it waits for."""


class SelfTestFailed(ConfigError):
    """The server is there, but it is not what this configuration expects."""

    code = "selftest_failed"


@attrs.frozen(kw_only=True)
class Verdict:
    """What is known of the server."""

    props: Props | None = None
    confirmed_at_ms: int = 0
    doubtful: bool = True
    waiting_for: str | None = "the start-up self-test"


class ServerWatch:
    """See the module's header."""

    def __init__(self, *, server: ModelServer, settings: LoopdSettings, clock: Clock, test: Test) -> None:
        self._server, self._settings, self._clock, self._test = server, settings, clock, test
        self._lock = threading.Lock()
        self._verdict = Verdict()
        self._stopped = threading.Event()
        self._starting = CancelToken()
        self.failure: Exception | None = None

    # -- start ----------------------------------------------------------------------------------

    def start(self, *, on_ready: Callable[[], None], on_failure: Callable[[], None]) -> threading.Thread:
        """Test in the background until the server passes (on_ready) or fails (on_failure, see `failure`)."""
        thread = threading.Thread(target=self._until_passed, args=(on_ready, on_failure), name="selftest", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Give up waiting, and a test that is under way."""
        self._stopped.set()
        self._starting.cancel()

    @property
    def ready(self) -> bool:
        """The self-test has passed since the start."""
        return self._verdict.props is not None

    @property
    def waiting_for(self) -> str | None:
        """What loopd waits for, in words; None when it is ready."""
        return self._verdict.waiting_for

    @property
    def n_ctx(self) -> int:
        """Context of one slot, in tokens; 0 before the first pass."""
        return self._verdict.props.n_ctx if self._verdict.props else 0

    @property
    def model(self) -> str | None:
        """The server's name for its model."""
        return self._verdict.props.model if self._verdict.props else None

    def checks(self, cancel: CancelToken | None = None) -> Iterable[Check]:
        """Run the self-test now, for the owner; changes no verdict."""
        return self._test(cancel or CancelToken(), _unheard)

    def _until_passed(self, on_ready: Callable[[], None], on_failure: Callable[[], None]) -> None:
        try:
            if self._waited():
                on_ready()
            return
        except ModelChanged as failed:
            self.failure = SelfTestFailed(failed.detail)
        except Exception as fault:
            # The thread's outermost frame. Without this a fault of ours leaves a loopd that is never ready.
            log.exception("the self-test failed by itself code=internal")
            self.failure = fault
        on_failure()

    def _waited(self) -> bool:
        """Test until the server passes; say whether it did, or the wait was given up."""
        said = ""
        while not self._stopped.is_set():
            try:
                props = self._server.props(cancel=self._starting)
                self._adopt(props, cancel=self._starting, on_wait=_unheard)
                return True
            except Cancelled:
                return False
            except ModelChanged:
                raise
            except ServerProtocol as wrong:
                raise ModelChanged(f"what answers is no llama-server: {wrong.detail}") from wrong
            except UpstreamError as away:
                if isinstance(away, ServerRefused) and away.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise ModelChanged(f"what answers is no llama-server: {away.detail}") from away
                if away.code != said:
                    log.warning("waiting for the model server code=%s", away.code)
                    said = away.code
                self._wait_for(f"the model server: {away.detail}")
            self._stopped.wait(_LOOK_AGAIN_SECONDS)
        return False

    def _wait_for(self, what: str) -> None:
        daemon.notify(f"STATUS=waiting: {what}")
        self._change(lambda known: attrs.evolve(known, waiting_for=what))

    # -- during a turn --------------------------------------------------------------------------

    def neutralise(self, text: str) -> str:
        """Break up the markup of every known model family and of the served model's template (INV-12)."""
        props = self._verdict.props
        return sanitize.neutralise(text, props.template_tags if props else ())

    def doubt(self) -> None:
        """Confirm before the next request."""
        self._change(lambda known: attrs.evolve(known, doubtful=True))

    def heard(self) -> None:
        """A reply has come to its end. Its connection lasted since the server was confirmed: it is the same one.

        So the next step of the turn need not ask again.
        """
        now = self._clock.monotonic_ms()
        self._change(lambda known: attrs.evolve(known, confirmed_at_ms=now))

    def confirm(self, *, cancel: CancelToken, on_wait: OnWait) -> bool:
        """Return where the next request may be sent; waits for a server that restarts.

        True: it is another server than before, and passed the tests. Raises ModelChanged, Cancelled,
        ServerAway, ModelLoading, ServerSilent or SlotBusy.
        """
        try:
            return self._confirm(cancel, on_wait)
        except (ServerRefused, ServerProtocol, ContextFull) as fault:
            # A question of ours was refused, not the owner's message: that is no reason to drop it.
            raise ServerAway(fault.detail) from fault

    def _confirm(self, cancel: CancelToken, on_wait: OnWait) -> bool:
        verdict = self._verdict
        now = self._clock.monotonic_ms()
        if not verdict.doubtful and now - verdict.confirmed_at_ms < self._settings.infer.recheck_ms:
            return False
        props = self._wait_for_props(cancel, on_wait)
        if verdict.props is not None and props == verdict.props:
            self._change(lambda known: attrs.evolve(known, doubtful=False, confirmed_at_ms=now))
            return False
        log.warning("the model server has changed; testing it again")
        self._adopt(props, cancel=cancel, on_wait=on_wait)
        return True

    def _wait_for_props(self, cancel: CancelToken, on_wait: OnWait) -> Props:
        limit_ms = self._settings.infer.load_wait_ms
        deadline = Deadline.after(self._clock, milliseconds=limit_ms)
        while True:
            cancel.check()
            try:
                return self._server.props(cancel=cancel)
            except Cancelled:
                raise
            except UpstreamError as away:
                if deadline.passed():
                    raise
                reason = WaitReason.MODEL_LOADING if isinstance(away, ModelLoading) else WaitReason.SERVER_AWAY
                on_wait(reason, limit_ms - deadline.remaining_ms(), limit_ms)
            self._stopped.wait(_LOOK_AGAIN_SECONDS)

    def _adopt(self, props: Props, *, cancel: CancelToken, on_wait: OnWait) -> None:
        """Test the server that answered with `props`; from then on it is the one to compare with."""
        failed = [check for check in self._test(cancel, on_wait) if not check.passed]
        if failed:
            raise ModelChanged(_words(failed))
        now = self._clock.monotonic_ms()
        self._change(lambda _: Verdict(props=props, confirmed_at_ms=now, doubtful=False, waiting_for=None))

    def _change(self, change: Callable[[Verdict], Verdict]) -> None:
        with self._lock:
            self._verdict = change(self._verdict)


def _unheard(_reason: WaitReason, _waited_ms: int, _limit_ms: int) -> None:
    """Nobody listens to this wait."""


def _words(failed: Sequence[Check]) -> str:
    return "; ".join(
        f"{check.name}: expected {check.expected}, found {check.found}, see docs/runbook.md#{check.runbook}"
        for check in failed
    )
