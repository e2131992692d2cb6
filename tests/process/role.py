"""Starts one role as a real process and waits, without guessing, for what it says and does."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]


class Role:
    """`python -m <module> <arguments>` with its standard error in a file, ready when it says so."""

    def __init__(self, module: str, *arguments: str, home: Path, python: tuple[str, ...] = ()) -> None:
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind("")  # an abstract name, of the kernel's choosing
        self._ready = threading.Event()
        # All that it says is read, to its end: of what nobody reads there is no room for the next.
        self._listener = threading.Thread(target=self._listen, name="notify", daemon=True)
        self._listener.start()
        name = self._notify.getsockname().decode()
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
            "NOTIFY_SOCKET": "@" + name.removeprefix("\0"),
        }
        self.log_path = home / f"{module}.{id(self)}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *python, "-m", module, *arguments], env=environment, stderr=log, cwd=ROOT
            )

    def wait_ready(self) -> "Role":
        """Return once the process has said READY=1; the test's own timeout is the only limit."""
        while not self._ready.wait(0.2):
            assert self.process.poll() is None, f"ended instead of getting ready: {self.log()}"
        return self

    def _listen(self) -> None:
        while said := self._notify.recv(4096):
            if said == b"READY=1":
                self._ready.set()

    def log(self) -> str:
        return self.log_path.read_text()

    def terminate(self) -> int:
        """Ask it to stop and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def exit_code(self) -> int:
        return self.process.wait()

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def threads(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/task").iterdir())

    def __enter__(self) -> "Role":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        self._notify.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._notify.close()
