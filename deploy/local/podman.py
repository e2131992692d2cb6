"""Podman as the tool user: single commands, and the API service. Starts programs; decides nothing.

Everything runs with a rebuilt environment, from the tool user's own directory, and dies with the thread that
started it: start the service in one that stays. Invariant: no file of the caller's is open in it.
"""

import os
import signal
import socket
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

from bxcore import regularfile
from deploy.local import logfiles, podmanconf
from deploy.local.podmanconf import Machine
from deploy.local.refusal import Refusal
from deploy.local.tooluser import ToolUser

_COMMAND_SECONDS = 120
_READY_SECONDS = 60
_STOP_SECONDS = 10
_LOOK_SECONDS = 0.02
_SHOWN_LINES = 15
_PAUSE_FILE = "pause.pid"
_MOST_DIGITS = 20

FAILED = 125
"""Podman's own failure; with less, what was asked for is not so."""


class Account(Protocol):
    """A user with a Podman of its own: toolplace.Place, and each party of the appliance."""

    @property
    def user(self) -> ToolUser: ...

    @property
    def settings(self) -> Path: ...

    @property
    def storage(self) -> Path: ...

    @property
    def runtime(self) -> Path: ...

    @property
    def api_socket(self) -> Path: ...

    def write(self, path: Path, text: str) -> None:
        """Write a file that the user may read, and not change."""


AccountT_co = TypeVar("AccountT_co", bound=Account, covariant=True)


class Podman(Generic[AccountT_co]):
    """The commands of one place."""

    def __init__(self, place: AccountT_co, machine: Machine) -> None:
        self.place = place
        self.machine = machine
        self._environment = podmanconf.environment(
            machine, home=place.storage, runtime=place.runtime, settings=place.settings
        )

    def run(self, *arguments: str, stdin: BinaryIO | None = None) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end."""
        return subprocess.run(
            self.argv(*arguments),
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_COMMAND_SECONDS,
            cwd=self.place.storage,
            env=self._environment,
        )

    def need(self, *arguments: str, stdin: BinaryIO | None = None) -> str:
        """Run a command that has to succeed, and return what it says. Raises Refusal with Podman's own words."""
        ended = self.run(*arguments, stdin=stdin)
        if ended.returncode != 0:
            raise Refusal(f"podman {arguments[0]} failed: {last_words(ended.stderr)}")
        return ended.stdout.strip()

    def serve(self, log: Path) -> "Service":
        """Start the API service. It listens a moment later; `Service.wait_ready` waits for that."""
        self.place.api_socket.unlink(missing_ok=True)  # a killed one's; whoever calls holds the place's lock
        with logfiles.begin(log) as output:
            popen = subprocess.Popen(
                self.argv("system", "service", "--time=0", f"unix://{self.place.api_socket}"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.place.storage,
                env=self._environment,
                start_new_session=True,
            )
        return Service(popen, self.place.api_socket, log)

    def attached(self, *arguments: str, output: BinaryIO, notify: Path) -> "subprocess.Popen[bytes]":
        """Start a container that we stay attached to, and that is told to end when we do."""
        return subprocess.Popen(
            # TERM: Podman hands that one on to the container, which would outlive a killed client.
            self.argv(*arguments, dies_by="TERM"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self.place.storage,
            env={**self._environment, "NOTIFY_SOCKET": os.fspath(notify)},
            start_new_session=True,
        )

    def argv(self, *arguments: str, dies_by: str = "KILL") -> list[str]:
        """Return the command line, as the tool user, that dies with us."""
        user = self.place.user
        change = [f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"] if user.own else []
        return ["setpriv", f"--pdeathsig={dies_by}", *change, "--", "podman", *arguments]


class Service:
    """A started API service."""

    def __init__(self, popen: "subprocess.Popen[bytes]", api_socket: Path, log: Path) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._socket = api_socket
        self._log = log

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def wait_ready(self) -> None:
        """Return when it answers. Raises Refusal with the end of its log where it ends, or takes too long."""
        until = time.monotonic() + _READY_SECONDS
        while not answers(self._socket):
            if not self.alive or time.monotonic() > until:
                said = "\n".join(f"  {line}" for line in logfiles.last_lines(self._log, _SHOWN_LINES))
                raise Refusal(f"podman's service did not start; its log is {self._log}\n{said}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """End it, and whatever it left of itself."""
        self._popen.terminate()
        try:
            self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        end_leftovers(self._socket)


def answers(api_socket: Path) -> bool:
    """Ask the service whether it is there."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(_COMMAND_SECONDS)
        try:
            asked.connect(os.fspath(api_socket))
            asked.sendall(b"GET /_ping HTTP/1.0\r\nHost: podman\r\n\r\n")
            return b" 200 " in asked.recv(64)
        except OSError:
            return False


def end_leftovers(api_socket: Path) -> None:
    """Kill every service of this socket: Podman is two processes, and a killed first one leaves the second."""
    address = f"unix://{api_socket}"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_service(entry, address):
            _kill(int(entry.name))


def end_pause_process(place: Account) -> None:
    """End the process that only keeps the tool user's namespaces; the next command makes another.

    Its number lies where the tool user writes: no link is followed there, and nothing is waited for.
    """
    try:
        directory = _open_beneath(place.runtime, "libpod", "tmp")
    except OSError:
        return  # it was never there
    try:
        _end_if_of(place.user.uid, _number_in(directory))
    except (OSError, ValueError):
        pass  # it is gone, or what lies there is no file of Podman's
    try:
        os.unlink(_PAUSE_FILE, dir_fd=directory)
    except OSError:
        pass  # it was not there, or is no file
    finally:
        os.close(directory)


def _open_beneath(top: Path, *names: str) -> int:
    """Return a descriptor of the directory, to which no link leads."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(top, flags)
    for name in names:
        try:
            below = os.open(name, flags, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _number_in(directory: int) -> int:
    """Return the number that Podman noted. Raises OSError or ValueError where there is none."""
    opener = partial(os.open, dir_fd=directory)
    descriptor = regularfile.descriptor(Path(_PAUSE_FILE), os.O_RDONLY | os.O_NOFOLLOW, opener=opener)
    with os.fdopen(descriptor, "rb") as file:
        return int(file.read(_MOST_DIGITS))


def _end_if_of(uid: int, number: int) -> None:
    if Path(f"/proc/{number}").stat().st_uid == uid:
        _kill(number)


def last_words(text: str) -> str:
    """Return the last line that Podman wrote, which is the reason."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"


def _is_service(process: Path, address: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return False  # ended meanwhile
    return "service" in words and address in words


def _kill(number: int) -> None:
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass  # ended meanwhile
