"""From a Decision to what its container said: the mounts, the proxy, the plan, the run.

Reads: the file with the tool image's ID, anew for each call. Invariants: only a Decision that policy made and nobody
spent can run, and what runs is the call that policy remembers (INV-2); where no container can be started, nothing
runs, least of all on the host; no call sees a container that another one used (INV-9). Threads: any number of calls
at once; the lock guards what the probe found. How many run at a time is brokerd.running's.
"""

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import attrs

from brokerd import containerplan, mounts, policy, probe
from brokerd.call import Call
from brokerd.containerplan import Bounds, Ids, Network, Plan
from brokerd.containers import PREPARE_MS, Podman, Swept, Work
from brokerd.exited import UNSTARTED
from brokerd.mounts import Mount, MountDenied
from brokerd.policy import Decision
from brokerd.probe import Held
from brokerd.protected import Protected
from brokerd.results import Ran
from brokerd.runnerfaults import ImageMissing, NotAsApproved, PodmanForbidden, RunnerUnavailable
from bxcore import logs, regularfile, strictjson, tools
from bxcore.deadline import Clock, Deadline
from bxcore.hosts import Target
from bxcore.ids import Hash32
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.strictjson import JsonValue

__all__ = ["Effects", "Egress", "Proxy", "Ran", "Runner", "RunnerUnavailable"]

TOOLKIT = (*probe.PYTHON, "-m", "toolkit")
PROXY_SOCKET = f"{mounts.PROXY_PLACE}/proxy.sock"

PROXY_MS = 10_000
"""The longest that a proxy may take until it listens. The tool's container is ready by then, and waits."""

PROVING_S = 20
"""How long a call waits for another thread's probe of the image."""

SPARE_S = 5 + PROXY_MS // 1000
"""How much later than brokerd Podman ends a container: it matters only where brokerd is gone."""

_IMAGE = re.compile(r"(?:sha256:)?([0-9a-f]{64})\n?", re.ASCII)
_MIB = 1024 * 1024

log = logs.get("runner")


class Proxy(Protocol):
    """The egress proxy of one call: where its socket lies. Start it; close it when the call has ended."""

    @property
    def mount(self) -> Mount: ...

    @property
    def plan(self) -> Plan: ...

    def start(self, deadline: Deadline) -> None: ...

    def close(self) -> None: ...


class Egress(Protocol):
    """Makes the proxy of a call ready, and does not start it (brokerd.egress). Raises RunnerUnavailable."""

    def prepare(self, *, seq: int, target: Target, image: str, deadline: Deadline) -> Proxy: ...

    def sweep(self) -> int: ...


@attrs.frozen(kw_only=True)
class Effects:
    """What a call would put into effect: everything that a yes to it is a yes to."""

    mounts: tuple[Mount, ...]
    hosts: tuple[str, ...]
    image: str
    limits: tuple[str, ...]


class Runner:
    """Runs what was decided. `egress` None: a call that needs a host cannot run."""

    def __init__(
        self, settings: BrokerdSettings, *, podman: Podman, egress: Egress | None, clock: Clock, protected: Protected
    ) -> None:
        self._settings, self._podman, self._egress, self._clock = settings, podman, egress, clock
        self._own = self._protected = protected
        self._lock = threading.Lock()
        self._probed: tuple[str, Held] | None = None

    @property
    def held(self) -> Held | None:
        """What the probe of the present image found; None while no probe came to its end."""
        return None if self._probed is None else self._probed[1]

    @property
    def protected(self) -> Protected:
        """What no tool may see, as far as it is known: where Podman keeps its containers comes with the probe."""
        return self._protected

    def image(self) -> str:
        """Return the ID of the tool image. Raises ImageMissing."""
        try:
            text = regularfile.content(self._settings.podman.image_file, most=128).decode("ascii")
        except (OSError, ValueError):
            raise ImageMissing("the file that names the tool image cannot be read") from None
        match = _IMAGE.fullmatch(text)
        if match is None:
            raise ImageMissing("the file that names the tool image does not hold one image ID")
        return match[1]

    def effects(self, call: Call) -> Effects:
        """Return what would take effect, having looked whether it could. Raises RunnerUnavailable, MountRefused."""
        image = self._ready()
        found = mounts.plan(call, self._protected)
        return Effects(
            mounts=found,
            hosts=() if call.target is None else (f"{call.target.scheme}://{call.target.authority}",),
            image=image,
            limits=self._limits(call),
        )

    def run(
        self,
        decision: Decision,
        *,
        seq: int,
        started: Callable[[str, Hash32], None],
        cancelled: Callable[[], bool],
        approved: Effects | None = None,
    ) -> Ran:
        """Run one decision, if what it comes to is still what was `approved`, where somebody did.

        `started` gets the image's ID and a hash of all that is about to start, right before it does. RunnerUnavailable
        (MountRefused and NotAsApproved among them), and whatever `started` raises, mean that nothing ran.
        """
        call = policy.spend(decision)
        # What is compared is what is used: the containers are made from these values, not looked up once more.
        effects = self.effects(call)
        if approved is not None and approved != effects:
            raise NotAsApproved(f"not as it was approved any more: {', '.join(_differing(approved, effects))}")
        with contextlib.ExitStack() as held:
            proxy = self._proxy(call, seq, effects.image, held)
            beside = () if proxy is None else (proxy,)
            found = (*effects.mounts, *(one.mount for one in beside))
            plan = self._plan(call, seq, effects.image, found)
            recorded = threading.Event()

            def start() -> None:
                started(effects.image, containerplan.digest(plan, *(one.plan for one in beside)))
                recorded.set()
                for one in beside:
                    one.start(Deadline.after(self._clock, milliseconds=PROXY_MS))

            work = Work(
                stdin=order(call, found),
                output_bytes=self._settings.limits.output_bytes,
                limit_ms=call.kind.default_ms,
                cancelled=cancelled,
            )
            try:
                exited = self._podman.run(plan, work, start)
            except RunnerUnavailable as fault:
                if not recorded.is_set() and effects.mounts and isinstance(fault, PodmanForbidden):
                    # All else that a container is made from was there for the probe, so it is the path.
                    raise MountDenied("the user that tools run as may not reach this path") from fault
                if not recorded.is_set():
                    raise
                log.error("the tool was not started seq=%d why=%s code=%s", seq, fault.detail, fault.code)
                exited = UNSTARTED
        log.info("container ended seq=%d stop=%s exit=%s bytes=%d", seq, exited.stop.value, exited.exit, exited.size)
        return Ran(kind=call.kind, limits=self._settings.limits, exited=exited)

    def _proxy(self, call: Call, seq: int, image: str, held: contextlib.ExitStack) -> Proxy | None:
        """Return the proxy that the call needs, ready to start; `held` ends it."""
        if call.target is None:
            return None
        if self._egress is None:
            raise RunnerUnavailable("no way to the internet is set up for tools")
        until = Deadline.after(self._clock, milliseconds=PREPARE_MS + PROXY_MS + call.kind.default_ms)
        proxy = self._egress.prepare(seq=seq, target=call.target, image=image, deadline=until)
        return held.enter_context(contextlib.closing(proxy))

    def tend(self) -> Swept:
        """What is to be done at start and from time to time: prove the walls once, remove what was left behind."""
        swept = self._podman.sweep()
        if swept.removed or swept.left:
            log.warning("swept containers removed=%d left=%d", swept.removed, swept.left)
        if self._egress is not None:
            self._egress.sweep()
        self._ready()
        return swept

    def _ready(self) -> str:
        """Return the image's ID once it is known to be there, and its walls to hold. Raises RunnerUnavailable."""
        image = self.image()
        if not self._podman.has_image(image):
            raise ImageMissing("the tool image is not loaded")
        if not self._lock.acquire(timeout=PROVING_S):
            raise RunnerUnavailable("it is still being tried whether the walls of a tool container hold")
        try:
            if self._probed is None or self._probed[0] != image:
                self._prove(image)
        finally:
            self._lock.release()
        return image

    def _prove(self, image: str) -> None:
        places = (*self._own.places, *self._podman.places())
        self._protected = attrs.evolve(self._own, places=places)
        held = probe.run(self._podman, image=image, seccomp=str(self._settings.podman.seccomp))
        self._probed = (image, held)
        log.info("limits proved held=%s missing=%s", ",".join(held.held), ",".join(held.missing) or "-")

    def _plan(self, call: Call, seq: int, image: str, found: tuple[Mount, ...]) -> Plan:
        limits = self._settings.limits
        granted = any(mount.source == mount.destination for mount in found)
        return Plan(
            owner=self._podman.owner,
            call=seq,
            part="tool",
            image=image,
            argv=TOOLKIT,
            mounts=found,
            network=Network.NONE,
            ids=Ids.HOST_USER if granted else Ids.OWN,
            seccomp=str(self._settings.podman.seccomp),
            bounds=Bounds(
                memory_bytes=limits.memory_bytes,
                file_bytes=limits.file_bytes,
                tmpfs_bytes=limits.tmpfs_bytes,
                processes=limits.processes,
                open_files=limits.open_files,
                cpu_percent=100,
                lifetime_s=call.kind.default_ms // 1000 + SPARE_S,
            ),
        )

    def _limits(self, call: Call) -> tuple[str, ...]:
        """Say what always holds; what this host keeps beside it is in the start-up log line and in `bxctl`."""
        limits = self._settings.limits
        return (
            f"{call.kind.default_ms / 1000:g} s",
            f"{limits.memory_bytes // _MIB} MiB of memory a process",
            f"{limits.processes} processes",
            f"{limits.file_bytes // _MIB} MiB a file",
            f"{limits.output_bytes // _MIB} MiB of output",
        )


def _differing(then: Effects, now: Effects) -> list[str]:
    return [field.name for field in attrs.fields(Effects) if getattr(then, field.name) != getattr(now, field.name)]


def order(call: Call, found: tuple[Mount, ...]) -> bytes:
    """Return the line that the wrapper in the container reads (toolkit/order.py)."""
    # As digits: inode numbers go beyond what our JSON counts up to.
    granted: list[JsonValue] = [
        {"path": mount.destination, "device": str(mount.device), "inode": str(mount.inode)}
        for mount in found
        if mount.destination != mounts.PROXY_PLACE
    ]
    value: JsonValue = {
        "tool": call.kind.name,
        "arguments": strictjson.loads(tools.canonical(_as_decided(call))),
        "mounts": granted,
        "proxy": None if call.target is None else PROXY_SOCKET,
    }
    return strictjson.dumps(value) + b"\n"


def _as_decided(call: Call) -> object:
    """Return the arguments with the path that was decided: where the asked one leads now is no matter any more."""
    return call.arguments if call.path is None else tools.with_path(call.arguments, call.path)


def protected_by(settings: BrokerdSettings, *, config: Path) -> Protected:
    """Return what no tool may see: what the settings name, the file that they stand in, and its neighbours."""
    return Protected.of(settings, also=(config.parent,))
