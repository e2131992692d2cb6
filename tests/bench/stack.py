"""What the bench measures, started as on an owner's machine: each role a process, in a home that is thrown away.

The home lies below .state, because a temporary directory is often in memory, where durable writes
cost nothing. Every context ends what it started.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from deploy.local import configs, plan, toolhost
from deploy.local.configs import Served
from deploy.local.home import Home
from deploy.local.refusal import Refusal
from deploy.local.toolhost import ToolHost
from tests.bench.progress import say
from tests.bench.sizes import Unmeasurable
from tests.process.role import ROOT, Role

SLOTS = 2
MAIN, OTHER = 0, 1
"""loopd's conversations use the one, whoever is compared with it the other."""

SETTINGS = """
[sampling]
temperature = 0
max_tokens = {max_tokens}
"""


@contextmanager
def home() -> Iterator[Home]:
    (ROOT / ".state").mkdir(exist_ok=True)
    # A short name: a socket's address holds 107 bytes.
    made = Home(Path(tempfile.mkdtemp(prefix="b", dir=ROOT / ".state")))
    try:
        made.prepare()
        yield made
    finally:
        shutil.rmtree(made.path)


@contextmanager
def model_server(where: str = "127.0.0.1:0") -> Iterator[str]:
    """Start llama.cpp with the small model and nothing cached; give its address. `where`: host:port, or a socket."""
    launcher = ROOT / "deploy" / "local" / "model_server.py"
    argv = [str(plan.MODEL_PYTHON), "-P", "-s", str(launcher), "--listen", where]
    with _announced(argv) as line:
        said = json.loads(line)
        yield f"unix:{said['socket']}" if "socket" in said else str(said["url"])


@contextmanager
def program(module: str, *arguments: str) -> Iterator[str]:
    """Run one of the bench's own programs; give the line that it prints once it serves."""
    with _announced([sys.executable, "-P", "-s", "-m", module, *arguments]) as line:
        yield line


@contextmanager
def inferproxy(home: Home, upstream: str, *, limits: str = "") -> Iterator[Role]:
    (home.etc / "inferproxy.toml").write_text(configs.inferproxy(home, upstream) + limits, encoding="utf-8")
    with _role("inferproxy", home) as role:
        yield role


@contextmanager
def loopd(home: Home, *, n_ctx: int = plan.SLOT_TOKENS, max_tokens: int = 48, tools: bool = False) -> Iterator[Role]:
    """Start loopd and wait until its self-test has passed. Replies are greedy, hence the same in every run."""
    text = configs.loopd(home, Served(model="", n_ctx=n_ctx, slots=SLOTS), small_model=False, tools=tools)
    (home.etc / "loopd.toml").write_text(text + SETTINGS.format(max_tokens=max_tokens), encoding="utf-8")
    with _role("loopd", home) as role:
        yield role


@contextmanager
def tool_host() -> Iterator[ToolHost]:
    """Start a place where tools run, as the launcher does. It stays, so that the image is loaded once."""
    try:
        host = _free_host()
    except Refusal as refusal:
        raise Unmeasurable(str(refusal)) from refusal
    with host:
        yield host


@contextmanager
def brokerd(home: Home, host: ToolHost) -> Iterator[Role]:
    """Start brokerd and wait until it has checked its log and tried out its containers. The grants are the caller's.

    It denies as fast as it can, so that this can be measured.
    """
    limits = "\n[limits]\ndenials_per_second = 10_000\n"
    (home.etc / "brokerd.toml").write_text(configs.brokerd(home, host) + limits, encoding="utf-8")
    with _role("brokerd", home) as role:
        yield role


def cpu_ns(role: Role) -> int:
    """Processor time of the whole process so far, threads that have ended included."""
    # The kernel's clock of another process: exact, where /proc counts in steps of 10 ms.
    return time.clock_gettime_ns((~role.process.pid << 3) | 2)


def _free_host() -> ToolHost:
    """Start the first one that no other bench uses."""
    for number in count():
        try:
            return toolhost.start(ROOT / ".state" / "bench" / str(number), say=say)
        except toolhost.InUse:
            continue
    raise AssertionError("unreachable")


@contextmanager
def _role(name: str, home: Home) -> Iterator[Role]:
    with Role(name, "--config", str(home.etc / f"{name}.toml"), home=home.log) as role:
        try:
            yield role.wait_ready()
        except AssertionError as fault:
            raise Unmeasurable(str(fault)) from fault


@contextmanager
def _announced(argv: list[str]) -> Iterator[str]:
    environment = plan.environment({}) | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise Unmeasurable(f"{argv[-1]} did not start: exit code {process.wait()}")
        yield line
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
