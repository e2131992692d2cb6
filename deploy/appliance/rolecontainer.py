"""One role's container that was started: when it is ready, how it ended, and its end.

The process is the Podman that is attached to the container; what it cannot hand on is said to another one.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from deploy.local import logfiles
from deploy.local.plan import Part
from deploy.local.podman import Account, Podman
from deploy.local.processes import Process
from deploy.local.readiness import NotifySocket
from deploy.local.refusal import Refusal

_LOOK_SECONDS = 0.02
_SHOWN_LINES = 15


class RoleContainer(Process):
    """A role that was started in its container. The process is the Podman that is attached to it."""

    def __init__(
        self,
        part: Part,
        popen: "subprocess.Popen[bytes]",
        news: NotifySocket,
        log: Path,
        *,
        kept: logfiles.Capped,
        store: Podman[Account],
        name: str,
    ) -> None:
        super().__init__(part, popen, news, log)
        self.name = name
        self._store = store
        self._kept = kept

    @property
    def exit_code(self) -> int | None:
        """None while it runs. Once it has ended its log is whole."""
        code = super().exit_code
        if code is not None:
            self._kept.finish()
        return code

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def ready(self, timeout: float) -> None:
        """Return once the role says that it serves. Raises Refusal with the end of its log, where it does not."""
        until = time.monotonic() + timeout
        while not self.news.ready:
            if not self.alive:
                raise Refusal(self._last_words(f"did not start ({self.ending})"))
            if time.monotonic() > until:
                raise Refusal(self._last_words(f"was not ready after {timeout:.0f} s"))
            time.sleep(_LOOK_SECONDS)
            self.news.read()

    def wait(self, timeout: float) -> int | None:
        """Return the exit code once it has ended; None where it has not after `timeout` seconds."""
        until = time.monotonic() + timeout
        while (code := self.exit_code) is None and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send `number` to the role. Podman hands signals on, except the one that it cannot: then it is told."""
        if number is signal.SIGKILL and self._popen.returncode is None and not self._ended_well():
            # A killed client leaves its container.
            self._store.run("rm", "--force", "--time=0", "--ignore", self.name)
        super().signal(number)

    def _ended_well(self) -> bool:
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None and ended.si_status == 0

    def _last_words(self, what: str) -> str:
        lines = [f"  {line}" for line in logfiles.last_lines(self.log, _SHOWN_LINES)]
        return "\n".join([f"{self.part.name} {what}; its log is {self.log}", *lines])
