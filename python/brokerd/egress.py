"""The egress proxy of a call, from brokerd's side: its directory, its container, its record in the log.

Each proxy has a directory of its own below `[podman] calls`, which only the two containers of its call see: the proxy
makes its socket there, the tool reaches it through a read-only mount. Nobody else gets there, since `calls` is closed
to all but brokerd and the tool user; the name is no secret, a tool can read it in its own mount table. The proxy is
told one host and one port, those that were decided, and ends with its call, with brokerd, or with its time. It is made
ready first, and started once the start of its call is on record. Threads: any; the lock guards the set of directories
in use. Specified in docs/egress.md, "The egress proxy".
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import attrs

from brokerd import mounts, probe
from brokerd.containerplan import Bounds, Ids, Network, Plan
from brokerd.mounts import Mount
from brokerd.runnerfaults import RunnerUnavailable
from bxcore import logs, strictjson
from bxcore.deadline import Deadline
from bxcore.errors import BadMessage
from bxcore.hosts import Target
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.strictjson import JsonValue

SOCKET = "proxy.sock"
PART = "egress"
PROGRAM = (*probe.PYTHON, "-m", "toolkit.egress")

OPEN = 0o666
"""The mode that the proxy gives its socket once it listens, and not before (toolkit/egress.py)."""

# Anybody may make a file there who gets there, and take away what is his own: the proxy's user on the host is
# nobody in particular. Nobody else gets there: the parent lets nobody in, which is looked at for each call.
_DIRECTORY_MODE = 0o1733
_NAME = re.compile(r"[1-9][0-9]{0,15}-[0-9a-f]{32}")
_LOOK_SECONDS = 0.005
_MOST_SAID = 65_536
_SPARE_S = 5
_MIB = 1024 * 1024
_BOUNDS = {
    "memory_bytes": 256 * _MIB,
    "file_bytes": _MIB,
    "tmpfs_bytes": _MIB,
    "processes": 64,
    "open_files": 128,
    "cpu_percent": 100,
}

log = logs.get("egress")


class EgressMissing(RunnerUnavailable):
    """The call's egress proxy did not come up, so the call does not run."""

    code = "egress_missing"


class Service(Protocol):
    """A container that runs beside another one (containers.Service)."""

    def read(self, *, most_bytes: int) -> bytes: ...

    def start(self, stdin: bytes, deadline: Deadline) -> None: ...

    def close(self) -> None: ...


class Containers(Protocol):
    """What is needed of containers.Podman."""

    @property
    def owner(self) -> str: ...

    def ready(self, plan: Plan, deadline: Deadline) -> Service: ...


class Egress:
    """Makes proxies ready. Each is a program of the tool image, of the same one as its call."""

    def __init__(self, settings: BrokerdSettings, *, podman: Containers) -> None:
        self._settings, self._podman = settings, podman
        self._calls = settings.podman.calls
        self._lock = threading.Lock()
        self._used: set[str] = set()

    def prepare(self, *, seq: int, target: Target, image: str, deadline: Deadline) -> "CallProxy":
        """Return a proxy that will reach `target` alone, until `deadline`. Raises RunnerUnavailable."""
        _check_closed(self._calls)
        directory = self._calls / f"{seq}-{secrets.token_hex(16)}"
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._using(directory))
            mount = _made(directory)
            plan = self._plan(seq, image, mount, deadline)
            service = undo.enter_context(contextlib.closing(self._podman.ready(plan, deadline)))
            order = self._order(target, deadline)
            return CallProxy(plan, order=order, service=service, held=undo.pop_all())

    def sweep(self) -> int:
        """Remove the directories that calls of an earlier brokerd left behind; return how many."""
        try:
            found = [path for path in self._calls.iterdir() if _NAME.fullmatch(path.name)]
        except OSError:
            return 0  # no directory of calls yet: the first call that needs it says so
        with self._lock:
            left = [path for path in found if path.name not in self._used]
        return sum(_removed(path) for path in left)

    def _order(self, target: Target, deadline: Deadline) -> bytes:
        """Return the line that toolkit/egressorder.py reads."""
        order: JsonValue = {
            "host": target.host,
            "port": target.port,
            "socket": f"{mounts.PROXY_PLACE}/{SOCKET}",
            "total_bytes": self._settings.egress.total_bytes,
            "deadline_ms": max(deadline.remaining_ms(), 1),
        }
        return strictjson.dumps(order) + b"\n"

    def _plan(self, seq: int, image: str, mount: Mount, deadline: Deadline) -> Plan:
        return Plan(
            owner=self._podman.owner,
            call=seq,
            part=PART,
            image=image,
            argv=PROGRAM,
            mounts=(mount,),
            network=Network(self._settings.egress.network.value),
            ids=Ids.OWN,
            seccomp=str(self._settings.podman.seccomp),
            bounds=Bounds(**_BOUNDS, lifetime_s=deadline.remaining_ms() // 1000 + _SPARE_S),
        )

    @contextlib.contextmanager
    def _using(self, directory: Path) -> Iterator[None]:
        """While inside, the sweep leaves the directory alone; afterwards it is gone."""
        with self._lock:
            self._used.add(directory.name)
        try:
            yield
        finally:
            _removed(directory)
            with self._lock:
                self._used.discard(directory.name)


class CallProxy:
    """One proxy, ready to start. Close it when its call has ended, however it did. Belongs to the thread of its call.

    `mount` is what the tool's container sees: the proxy's directory, read-only. `plan` is the proxy's own container.
    """

    def __init__(self, plan: Plan, *, order: bytes, service: Service, held: contextlib.ExitStack) -> None:
        (own,) = plan.mounts
        self.plan, self.mount = plan, attrs.evolve(own, writable=False)
        self._order, self._service, self._held = order, service, held

    def start(self, deadline: Deadline) -> None:
        """Start it, and return once it listens. Raises RunnerUnavailable."""
        self._service.start(self._order, deadline)
        _wait(Path(self.mount.source) / SOCKET, deadline)

    def close(self) -> None:
        """End the proxy, log what it reached, remove its directory."""
        with self._held:
            self._record(self._service.read(most_bytes=_MOST_SAID))

    def _record(self, untrusted_said: bytes) -> None:
        """Log each connection: the names and addresses that were decided on, never what passed."""
        for untrusted_line in untrusted_said.splitlines():
            try:
                seen = _fields(untrusted_line)
            except BadMessage:
                log.warning("the egress proxy said what it must not seq=%d", self.plan.call)
                return
            log.info("egress seq=%d host=%s port=%s verdict=%s address=%s bytes=%s", self.plan.call, *seen)


def _fields(untrusted_line: bytes) -> tuple[object, ...]:
    """Return the values of one record in their order. Raises BadMessage."""
    value = strictjson.loads(untrusted_line)
    if not isinstance(value, dict) or list(value) != ["host", "port", "verdict", "address", "bytes"]:
        raise BadMessage("expected host, port, verdict, address and bytes")
    if any(isinstance(field, (list, dict)) for field in value.values()):
        raise BadMessage("expected plain values")
    return tuple("-" if field is None else field for field in value.values())


def _check_closed(calls: Path) -> None:
    """Raise EgressMissing where somebody else could get to the proxies' sockets."""
    try:
        found = calls.lstat()
    except OSError as error:
        raise EgressMissing(
            f"the directory for the sockets of egress proxies cannot be looked at ({error.strerror})"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & stat.S_IRWXO:
        raise EgressMissing("the directory for the sockets of egress proxies is open to others, or not brokerd's own")


def _made(directory: Path) -> Mount:
    """Make the directory of one call and return it as the proxy's container sees it. Raises EgressMissing."""
    try:
        directory.mkdir(mode=0o700)
        directory.chmod(_DIRECTORY_MODE)  # whatever the umask
        found = directory.stat()
    except OSError as error:
        raise EgressMissing(
            f"the directory for the sockets of egress proxies cannot be written ({error.strerror})"
        ) from None
    return Mount(
        source=str(directory),
        destination=mounts.PROXY_PLACE,
        writable=True,
        device=found.st_dev,
        inode=found.st_ino,
    )


def _wait(path: Path, deadline: Deadline) -> None:
    """Return once the proxy listens. Raises EgressMissing."""
    while not _listens(path):
        if deadline.passed():
            raise EgressMissing("the egress proxy of a call did not come up in time")
        time.sleep(_LOOK_SECONDS)


def _listens(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == OPEN


def _removed(directory: Path) -> bool:
    """Remove a call's directory with whatever is in it, following no link; whether it is gone."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("a call's directory could not be removed name=%s code=egress_missing", directory.name)
        return False
    return True
