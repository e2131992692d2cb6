"""A started appliance: the roles' and the tools' Podman[Account], each as its user, and the roles' containers.

    with host.start(state, say=print) as appliance: appliance.start("inferproxy").ready(60)

`make appliance` and the tests share it. Writes: the place (place.py), <state>/log. Invariants: one appliance a place,
by flock; a container that a killed one left is gone before anything starts; when it is closed no container, no process
and no socket is left. Start it in a thread that stays: what it starts is ended with that thread.
"""

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bxcore import wiring as wirings
from bxcore.wiring import TOOLS, Network, Wiring
from deploy.appliance import place as places
from deploy.appliance import remains, roleplan, socketpaths, users
from deploy.appliance.place import Account, Place
from deploy.appliance.rolecontainer import RoleContainer
from deploy.appliance.roleplan import Settings
from deploy.local import imagestore, logfiles, podman, podmanconf, roleimages, toolhost, toolimage
from deploy.local.home import ROLES, refuse_unprintable
from deploy.local.imagestore import Archive
from deploy.local.plan import Part
from deploy.local.podman import Podman, Service
from deploy.local.readiness import NotifySocket
from deploy.local.refusal import Refusal

Say = Callable[[str], None]

_STOP_SECONDS = 15
_KILL_SECONDS = 15
_SOCKET_MODE = 0o660
_HOST_NETWORK = "host"

_DAMAGE = frozenset({1, podman.FAILED, 126, 127})
"""How a container ends without a program, or with one that lacks a module. A role that refuses has codes of its own."""

_READY_SECONDS = 120
_LOOPD_READY_SECONDS = 900
"""A busy model server delays its self-test."""


class InUse(Refusal):
    """Another process runs the appliance of this state."""


class Appliance:
    """See the module's header. `settings` may be changed before a role is started."""

    def __init__(
        self, place: Place, stores: Mapping[str, Podman[Account]], lock: BinaryIO, *, upstream: str, log: Path
    ) -> None:
        self.place = place
        # The same for every user: what is asked is whether a device is open to everybody.
        self.egress_network = toolhost.outside_network(place.account(TOOLS).user)
        self.settings = Settings(
            upstream=upstream, network=self.egress_network, granted=(place.shared,), outbound=self.egress_network
        )
        self.log = log
        self._stores = stores
        self._lock = lock
        self._images: dict[str, str] = {}
        self._running: dict[str, RoleContainer] = {}
        self._service: Service | None = None

    @property
    def wiring(self) -> Wiring:
        return self.place.wiring

    @property
    def notes(self) -> tuple[str, ...]:
        """What the owner should know of this machine, a sentence each."""
        return tuple(note for note in (self.place.users.warning, self._open_network) if note)

    @property
    def _open_network(self) -> str | None:
        """A role that dials out has the machine's own network where no other one can be made. Only here."""
        dialling = [name for name in self._stores if name != TOOLS and self._dials_out(name)]
        if self.settings.outbound != _HOST_NETWORK or not dialling:
            return None
        return (
            f"{' and '.join(dialling)}: in its container is this machine's own network, since {toolhost.TUN} cannot be "
            "used here; on an appliance it has one of its own"
        )

    def _dials_out(self, role: str) -> bool:
        return self.wiring.roles[role].network is Network.OUTBOUND

    @property
    def service_pid(self) -> int:
        """The tools' container service."""
        assert self._service is not None
        return self._service.pid

    def start(self, role: str, *, instead: Sequence[str] | None = None, more: Sequence[str] = ()) -> RoleContainer:
        """Start a role in its container, and go on at once.

        `instead`: another command in the same container. `more`: further options of `podman run`.
        """
        name = f"boxmaker-{role}"
        store = self._stores[role]
        words = roleplan.run(
            self.wiring,
            role,
            self.settings,
            container=name,
            image=self._images[role],
            more=(*roleplan.secrets(self.wiring, role, self.place.credentials(role)), "--sdnotify=container", *more),
            instead=instead,
        )
        if (before := self._running.pop(role, None)) is not None:
            before.close()
        news = self._notify_socket(role)
        log = self.log / f"{role}.log"
        kept = logfiles.Capped(log)
        with kept.output as output:
            popen = store.attached(*words, output=output, notify=news.path)
        container = RoleContainer(_part(role, words), popen, news, log, kept=kept, store=store, name=name)
        self._running[role] = container
        return container

    def stop(self, role: str) -> None:
        """End a role, in order where it does that in time, and its container in any case."""
        container = self._running.pop(role)
        container.signal(signal.SIGTERM)
        if container.wait(_STOP_SECONDS) is None:
            container.signal(signal.SIGKILL)
            container.wait(_KILL_SECONDS)
        container.close()

    def podman(self, party: str, *arguments: str) -> str:
        """Run one Podman command as the user of a role, or of the tools. Raises Refusal with Podman's words."""
        return self._stores[party].need(*arguments)

    def part(self, role: str, *, once: tuple[str, ...] = ()) -> Part:
        """Return a role as a part of a stack. `once`: more words of its command line for the first start."""
        return replace(_part(role, roleplan.command(self.wiring, role)), once=once)

    @property
    def shared_dir(self) -> Path:
        """Where folders lie that tools are to see: starter.Sharing."""
        return self.place.shared

    def give(self, path: Path) -> None:
        """Make a thing of ours the tool user's; brokerd may pass through, to look at every path by itself."""
        user = self.place.account(TOOLS).user
        if not user.own:
            return
        os.chown(path, user.uid, user.gid, follow_symlinks=False)
        if path.is_dir():
            broker = self.wiring.user(self.wiring.edge("tool-runner").client)
            places.set_acl(path, [f"u:{broker}:x", f"d:u:{broker}:x"])

    def fill(self, *, say: Say) -> None:
        """Have each party's image in its store, no other one, and no container."""

        def hold(party: str) -> None:
            store = self._stores[party]
            store.place.write(store.place.settings / "containers.conf", podmanconf.containers(store.machine))
            imagestore.opened(store)
            image = imagestore.hold(store, partial(_image, party, say=say), say=say, what=_image_of(party))
            self._images[party] = f"sha256:{image.identity}"

        _each(self._stores, hold)
        # Nobody is left who would make another. A role could tell less of what it finds there.
        for socket in self._sockets:
            socketpaths.clear(socket)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The roles that ended before they served, in a way that damage in the image would explain."""
        ended = {role: running.exit_code for role, running in self._running.items() if not running.news.ready}
        return tuple(role for role, code in ended.items() if code in _DAMAGE)

    def renew(self, roles: Sequence[str], *, say: Say) -> None:
        """Have these roles' images loaded again into new stores, from archives that were checked."""
        for role in roles:
            if role in self._running:
                self.stop(role)
            imagestore.renewed(self._stores[role], partial(_image, role, say=say), say=say, what=_image_of(role))

    def serve_tools(self) -> None:
        """Start the tools' container service, and let in whom its directory lets in."""
        account = self.place.account(TOOLS)
        podman.end_leftovers(account.api_socket)
        socketpaths.clear(account.api_socket)
        self._service = self._stores[TOOLS].serve(self.log / "podman.log")
        self._service.wait_ready()
        # Podman makes it for its own user alone, whatever the directory says.
        _open_socket(account.api_socket, uid=account.user.uid)

    def tend(self) -> bool:
        """Start the tools' service again if it has ended. Returns whether it had."""
        if self._service is None or self._service.alive:
            return False
        self._service.stop()
        self.serve_tools()
        return True

    def close(self) -> None:
        """Stop everything: the roles, the last one first, then the tools, then what they left.

        One step that fails keeps no other one from being done; what failed is told after all. Raises Refusal.
        """
        steps: list[Callable[[], None]] = [partial(self.stop, role) for role in reversed(list(self._running))]
        if self._service is not None:
            steps.append(self._service.stop)
        steps += [partial(_each, self._stores, lambda party: remains.clear(self._stores[party]))]
        steps += [partial(socketpaths.clear, socket) for socket in self._sockets]
        steps.append(self.place.forget_secrets)
        failed = [said for step in (*steps, self._lock.close) if (said := _failure(step))]
        if failed:
            raise Refusal("\n".join(failed))

    @property
    def _sockets(self) -> tuple[Path, ...]:
        return (self.place.model_socket, *(self.wiring.at(edge.path) for edge in self.wiring.edges))

    def __enter__(self) -> "Appliance":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _notify_socket(self, role: str) -> NotifySocket:
        news = NotifySocket(self.place.notify(role) / "ready.sock")
        user = self.place.account(role).user
        if user.own:
            os.chown(news.path, os.geteuid(), user.gid)
        news.path.chmod(_SOCKET_MODE)
        return news


def start(
    state: Path,
    *,
    say: Say = lambda _: None,
    upstream: str | None = None,
    only: Sequence[str] | None = None,
    enabled: Collection[str] = (),
) -> Appliance:
    """Make the place of `state` ready, with images loaded and the tools' service up. No role is started yet.

    `upstream` as in inferproxy.toml; None: a model server's socket in the place. `only`: the roles to make ready;
    without it all but the optional ones that are not among `enabled`.
    Raises Refusal with what to do.
    """
    refuse_unprintable(state.resolve())
    for program in ("podman", "setfacl"):
        if shutil.which(program) is None:
            raise Refusal(f"there is no {program} here; deploy/local/setup.sh appliance installs it, or says how")
    wiring = wirings.load(ROLES)
    found = users.find(wiring)
    place = places.choose(state, wiring, found)
    if upstream is not None:
        check_socket(upstream, place.wiring)
    lock = place.lock()
    if lock is None:
        raise InUse(f"another one runs the appliance of {state}; its directory is {place.path}")
    try:
        place.prepare()
    except BaseException:
        lock.close()
        raise
    log = state / "log"
    log.mkdir(mode=0o700, parents=True, exist_ok=True)
    places.write(place.state, f"{state.resolve()}\n", gid=None, mode=0o644)
    stores = {party: _store(place, party) for party in (*(wiring.running(enabled) if only is None else only), TOOLS)}
    appliance = Appliance(place, stores, lock, upstream=upstream or f"unix:{place.model_socket}", log=log)
    try:
        for lost in places.lost(wiring, found):
            _forget(lost)
        _furnish(appliance, [party for party in stores if party != TOOLS], say)
    except BaseException:
        with suppress(Refusal):  # the first reason is the one to tell
            appliance.close()
        raise
    return appliance


def check_socket(upstream: str, wiring: Wiring) -> None:
    """Raise Refusal for a model server's socket that does not lie in a directory of its own."""
    if directory := roleplan.socket_directory(upstream):
        for one in (directory, directory.resolve()):
            if reason := roleplan.unfit_socket_directory(one, wiring):
                raise Refusal(f"UPSTREAM={upstream}: {reason}")


def _furnish(appliance: Appliance, roles: Sequence[str], say: Say) -> None:
    place = appliance.place
    for party in (TOOLS, *roles):  # one after the other: each is built by a process that fills a core
        identity = _image(party, say=say).identity
        if party == TOOLS:
            place.write(place.wiring.tools.image_file, f"{identity}\n")
    place.write(place.wiring.tools.seccomp, toolhost.SECCOMP.read_text(encoding="utf-8"))
    appliance.fill(say=say)
    appliance.serve_tools()


def _image(party: str, *, say: Say, check: bool = False) -> Archive:
    if party == TOOLS:
        return toolimage.built(say=say, check=check)
    return roleimages.built(party, say=say, check=check)


def _image_of(party: str) -> str:
    return "the tool image" if party == TOOLS else f"the image of {party}"


def _forget(place: Place) -> None:
    """Remove the images of a place whose state is gone, unless something still runs there. What was said stays."""
    if all(_is_empty(place.account(party).storage) for party in place.parties):
        return
    if lock := place.lock():
        with lock:
            empty(place)


def empty(place: Place) -> None:
    """Remove every image and container of a place, under its lock."""
    for store in (_store(place, party) for party in place.parties if place.account(party).storage.is_dir()):
        remains.clear(store)
        # Through Podman: what is in there belongs to ids that only it may act as.
        store.run("unshare", "rm", "-rf", str(store.place.storage), str(store.place.runtime))
        # That asked for the process that keeps the user's namespaces.
        remains.end_processes(store)


def _is_empty(directory: Path) -> bool:
    """Say whether nothing is in it, or it is not there."""
    return not directory.is_dir() or not any(directory.iterdir())


def _store(place: Place, party: str) -> Podman[Account]:
    account = place.account(party)
    return Podman(account, podmanconf.look(account.user.uid))


def _part(role: str, words: Sequence[str]) -> Part:
    return Part(
        name=role,
        argv=tuple(words),
        doing="self-test" if role == "loopd" else f"starting {role}",
        ready_seconds=_LOOPD_READY_SECONDS if role == "loopd" else _READY_SECONDS,
        stop_seconds=_STOP_SECONDS,
        network=False,
    )


def _failure(step: Callable[[], None]) -> str | None:
    """Take a step of the take-down. Returns what went wrong, in words."""
    try:
        step()
    except (Refusal, OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None


def _each(parties: Mapping[str, Podman[Account]], do: Callable[[str], None]) -> None:
    """Do something for every party at once. Raises what the first one raised, after all have ended."""
    with ThreadPoolExecutor(max_workers=len(parties)) as pool:
        for doing in [pool.submit(do, party) for party in parties]:
            doing.result()


def _open_socket(path: Path, *, uid: int) -> None:
    """Let the group write it. It lies where another user writes, so no link is followed."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != uid:
            raise Refusal(f"{path}: not the socket of the tools' container service")
        Path(f"/proc/self/fd/{descriptor}").chmod(_SOCKET_MODE)
    finally:
        os.close(descriptor)
