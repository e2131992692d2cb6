"""The place where tools run: a Podman service of the tool user with the tool image loaded, for one home.

    with toolhost.start(state) as host: ...

The launcher and the tests share it; brokerd gets what it returns by its configuration. Writes: the directory that
toolplace.py chooses, <state>/log/podman.log. Invariants: one service a place, by flock; when it is closed no
container, no process and no socket is left. Start it in a thread that stays: the service dies with that thread.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from deploy.local import imagestore, podman, podmanconf, toolimage, toolplace, tooluser
from deploy.local.plan import ROOT
from deploy.local.podman import Podman, Service
from deploy.local.refusal import Refusal
from deploy.local.toolplace import Place
from deploy.local.tooluser import ToolUser

SECCOMP = ROOT / "images" / "tool-seccomp.json"
TUN = Path("/dev/net/tun")


class InUse(Refusal):
    """Another process runs the tools of this home."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What this machine allows, and what the owner should know of it, a sentence each."""

    driver: str
    runtime: str
    egress_network: str
    """For brokerd's [egress]: how a proxy's container can reach the internet here."""
    notes: tuple[str, ...]


class ToolHost:
    """A running service. Everything that it names exists until it is closed."""

    def __init__(
        self, tools: Podman[Place], service: Service, log: Path, conditions: Conditions, lock: BinaryIO
    ) -> None:
        self._podman = tools
        self._service = service
        self._log = log
        self._lock = lock
        self.conditions = conditions

    @property
    def place(self) -> Place:
        return self._podman.place

    @property
    def user(self) -> ToolUser:
        return self.place.user

    @property
    def api_socket(self) -> Path:
        return self.place.api_socket

    @property
    def image_id_file(self) -> Path:
        return self.place.image_id

    @property
    def calls_dir(self) -> Path:
        return self.place.calls

    @property
    def seccomp_path(self) -> Path:
        return self.place.seccomp

    @property
    def shared_dir(self) -> Path:
        """Where folders lie that tools are to see; the tool user's own. `give` makes a thing in it theirs."""
        return self.place.shared

    @property
    def service_pid(self) -> int:
        return self._service.pid

    @property
    def image_id(self) -> str:
        return self.image_id_file.read_text().strip()

    @property
    def alive(self) -> bool:
        return self._service.alive

    def give(self, path: Path) -> None:
        self.place.give(path)

    def podman(self, *arguments: str) -> str:
        """Run one Podman command as the tool user, for tests and for people; brokerd speaks to the socket."""
        return self._podman.need(*arguments)

    def tend(self) -> bool:
        """Start the service again if it has ended. Returns whether it had."""
        if self.alive:
            return False
        self._service.stop()
        self._service = self._podman.serve(self._log)
        self._service.wait_ready()
        return True

    def close(self) -> None:
        """Stop the service, then everything that it started."""
        self._service.stop()
        imagestore.sweep(self._podman)
        podman.end_pause_process(self.place)
        self.api_socket.unlink(missing_ok=True)
        self._lock.close()

    def __enter__(self) -> "ToolHost":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(state: Path, *, say: Callable[[str], None] = lambda _: None) -> ToolHost:
    """Start the service of this home. `say` is told what takes time. Raises Refusal with what to do."""
    if shutil.which("podman") is None:
        raise Refusal("Podman is not installed; deploy/local/setup.sh podman installs it, or says the one command")
    user = tooluser.find()
    machine = podmanconf.look(user.uid)
    place = toolplace.choose(state, user)
    place.prepare()
    lock = place.lock()
    if lock is None:
        raise InUse(f"another launcher runs the tools of {state}; its directory is {place.path}")
    try:
        place.write(place.home, f"{state.resolve()}\n")
        for lost in toolplace.lost(user):
            _forget(Podman(lost, machine))
        return _start(Podman(place, machine), machine, state / "log" / "podman.log", say, lock)
    except BaseException:
        lock.close()
        raise


def _start(
    tools: Podman[Place], machine: podmanconf.Machine, log: Path, say: Callable[[str], None], lock: BinaryIO
) -> ToolHost:
    place = tools.place
    log.parent.mkdir(mode=0o700, exist_ok=True)
    podman.end_leftovers(place.api_socket)
    place.write(place.settings / "containers.conf", podmanconf.containers(machine))
    place.write(place.seccomp, SECCOMP.read_text(encoding="utf-8"))
    driver = imagestore.opened(tools)
    image = imagestore.hold(tools, partial(toolimage.built, say=say), say=say, what="the tool image")
    place.write(place.image_id, f"{image.identity}\n")
    service = tools.serve(log)
    try:
        service.wait_ready()
    except BaseException:
        service.stop()
        raise
    conditions = Conditions(
        driver=driver,
        runtime=machine.runtime,
        egress_network=outside_network(place.user),
        notes=tuple(_notes(driver, place.user)),
    )
    return ToolHost(tools, service, log, conditions, lock)


def _forget(tools: Podman[Place]) -> None:
    """Remove the place of a home that is gone, unless something still runs there.

    Folders stay in which somebody may have left something: the home can be on a disk that is not there now.
    """
    place = tools.place
    if lock := place.lock():
        with lock:
            tools.run("rm", "--all", "--force", "--time=0")
            podman.end_leftovers(place.api_socket)
            # Through Podman: what is in there belongs to ids that only it may act as.
            tools.run("unshare", "rm", "-rf", str(place.storage), str(place.runtime / "containers"))
            podman.end_pause_process(place)
            for path in set(place.path.iterdir()) - {place.shared}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not any(place.shared.iterdir()):
                shutil.rmtree(place.path)


def outside_network(user: ToolUser) -> str:
    """Return Podman's name of the network by which a container of this user can reach the internet here."""
    return "slirp4netns" if _may_open(TUN, user) else "host"


def _may_open(device: Path, user: ToolUser) -> bool:
    if not user.own:
        return os.access(device, os.R_OK | os.W_OK)
    return device.exists() and device.stat().st_mode & 0o006 == 0o006


def _notes(driver: str, user: ToolUser) -> list[str]:
    slow = "the tool user's storage copies the image for each call (vfs), since overlay does not work here"
    return [note for note in (user.warning, slow if driver == "vfs" else None) if note]
