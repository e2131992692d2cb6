"""Both sides of the group `appliance`: the roles in containers, and the same roles as processes.

One scripted model server for both, one image of the tools, the same grants; each side has its own home and
its own service for tools. Every context ends what it started.
"""

import select
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from deploy.appliance import host, roleconfigs
from deploy.appliance.appliance import SPEAKER
from deploy.appliance.host import Appliance
from deploy.local import configs, starter
from deploy.local.configs import Served
from deploy.local.home import Home
from deploy.local.refusal import Refusal
from deploy.local.toolhost import ToolHost
from tests.bench import appliancemodel, stack
from tests.bench.progress import say
from tests.bench.sizes import Unmeasurable
from tests.process.role import ROOT

ORDER = ("inferproxy", "brokerd", "loopd")
"""Each role gets ready when those before it are there."""

STATES = ROOT / ".state" / "bench"
NOTHING = ("/usr/bin/python3", "-I", "-S", "-c", "pass")
FILE = "notes.txt"
TEXT = "A line of notes, as long as lines of notes are.\n" * 20

_SERVED = Served(model=appliancemodel.MODEL, n_ctx=appliancemodel.N_CTX, slots=stack.SLOTS)
_READY_SECONDS = 120
_LOOK_SECONDS = 0.5
_TOKENS = 1_000
"""Of one reply: a call with a path in it has to fit."""


class Processes:
    """The roles as `make chat` runs them."""

    def __init__(self, home: Home, tools: ToolHost, upstream: str) -> None:
        self._contexts = {
            "inferproxy": lambda: stack.inferproxy(home, upstream),
            "brokerd": lambda: stack.brokerd(home, tools),
            "loopd": lambda: stack.loopd(home, n_ctx=appliancemodel.N_CTX, max_tokens=_TOKENS, tools=True),
        }
        self._running: dict[str, ExitStack] = {}
        self.loop_socket = home.loop_socket
        folder = _folder(tools)
        self.file = folder / FILE
        home.grants.mkdir(mode=0o700)
        for name, text in starter.grants(folder).items():
            (home.grants / name).write_text(text, encoding="utf-8")

    def started(self, role: str) -> float:
        began = time.perf_counter()
        self._running[role] = held = ExitStack()
        held.callback(held.enter_context(self._contexts[role]()).terminate)
        return (time.perf_counter() - began) * 1000

    def stop(self, role: str) -> None:
        self._running.pop(role).close()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for role in reversed(list(self._running)):
            self.stop(role)


class Containers:
    """The roles as `make appliance` runs them."""

    def __init__(self, appliance: Appliance, state: Path) -> None:
        self.appliance = appliance
        self.state = state
        self.loop_socket = appliance.wiring.socket("loop-owner")
        folder = _folder(appliance)
        self.file = folder / FILE
        place, wiring = appliance.place, appliance.wiring
        for name, text in starter.grants(folder).items():
            place.write_grant(name, text)
        for role, text in {
            "inferproxy": roleconfigs.inferproxy(wiring, appliance.settings.upstream),
            "brokerd": roleconfigs.brokerd(wiring, egress_network=appliance.egress_network),
            "loopd": roleconfigs.loopd(wiring, _SERVED, small_model=False),
        }.items():
            # Marked as `make appliance` marks them, which later writes its own in their place.
            configs.write(place.etc / f"{role}.toml", text, writer=SPEAKER)
            place.give(wiring.roles[role].config)

    def started(self, role: str) -> float:
        began = time.perf_counter()
        container = self.appliance.start(role)
        until = time.monotonic() + _READY_SECONDS
        # Not container.ready(), which looks every now and then: the other side is told at once.
        while not container.news.ready:
            select.select(container.news.descriptors(), (), (), _LOOK_SECONDS)
            container.news.read()
            if not container.alive or time.monotonic() > until:
                raise Unmeasurable(f"{role} does not get ready in its container; its log is {container.log}")
        return (time.perf_counter() - began) * 1000

    def stop(self, role: str) -> None:
        self.appliance.stop(role)

    def bare(self, role: str) -> float:
        """Run an interpreter that does nothing, from the role's image in a bare container; return the milliseconds."""
        # The one that is there: a commit would make another of the present sources.
        image = self.appliance.podman(role, "images", "--quiet", "--no-trunc")
        began = time.perf_counter()
        self.appliance.podman(role, "run", "--rm", "--pull=never", "--network=none", image, *NOTHING)
        return (time.perf_counter() - began) * 1000


def _folder(sharing: starter.Sharing) -> Path:
    """Return a folder that tools may see, made anew, with one file in it."""
    folder = sharing.shared_dir / "bench-turns"
    shutil.rmtree(folder, ignore_errors=True)
    starter.give_folder(folder, {FILE: TEXT}, sharing)
    return folder


def _forget(appliance: Appliance) -> None:
    """Take away what an earlier bench left; the images stay loaded."""
    kept = [appliance.wiring.at(path) for role in appliance.wiring.roles.values() for path in role.keeps]
    for old in (each for directory in (*kept, appliance.place.grants) for each in directory.iterdir()):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for role in appliance.wiring.roles.values():
        appliance.wiring.at(role.config).unlink(missing_ok=True)


@contextmanager
def model() -> Iterator[str]:
    """Start the scripted model server where the users of both sides may come; give its address."""
    with passable() as directory, stack.program("tests.bench.appliancemodel", str(directory / "model.sock")) as address:
        yield address


@contextmanager
def passable() -> Iterator[Path]:
    """A directory that every role's user may enter."""
    with tempfile.TemporaryDirectory(prefix="bxbench-", dir="/var/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@contextmanager
def processes(upstream: str) -> Iterator[Processes]:
    with stack.tool_host() as tools, stack.home() as home, Processes(home, tools, upstream) as side:
        yield side


@contextmanager
def containers(upstream: str) -> Iterator[Containers]:
    """Give the containers of an appliance that no other bench uses. It keeps its images for the next time."""
    try:
        appliance, state = _free(upstream)
        with appliance:
            _forget(appliance)
            yield Containers(appliance, state)
    except Refusal as refusal:
        raise Unmeasurable(str(refusal)) from refusal


def _free(upstream: str) -> tuple[Appliance, Path]:
    for state in (STATES / f"appliance-{number}" for number in count()):
        try:
            return host.start(state, say=say, upstream=upstream), state
        except host.InUse:
            continue
    raise AssertionError("unreachable")
