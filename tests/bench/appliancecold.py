"""From nothing to the first answer, the model being warm: `make appliance` beside `make chat`, as a person types them.

Neither starts the model server, and both have talked to it before, so its cache holds what they send first.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from deploy.appliance import roleconfigs
from deploy.local import configs, plan
from deploy.local.configs import Served
from deploy.local.home import Home
from tests.bench import applianceside, pairs, report, stack
from tests.bench.applianceside import Containers
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable
from tests.process.role import ROOT

SAYING = "Say hello."
TOKENS = 48
"""Enough for the self-test's call."""

APPLIANCE, CHAT = "deploy/appliance/start.py", "deploy/local/chat.py"


def measure(sizes: Sizes, containers: Containers) -> list[Measure]:
    """`containers`: of an appliance whose images are loaded, and that does not run now."""
    home = Home(containers.state / "chat")
    with (
        applianceside.passable() as directory,
        stack.model_server(str(directory / "model.sock")) as upstream,
    ):
        # The server made it by our umask; each role is a user of its own.
        (directory / "model.sock").chmod(0o666)
        _settle(home, containers)
        ours, other = _first_answer(APPLIANCE, containers.state, upstream), _first_answer(CHAT, home.path, upstream)
        ours(), other()
        taken = pairs.alternated(sizes.cold_starts, ours=ours, other=other)
    name = "from nothing to the first answer, model warm"
    return [
        report.to_read(f"{name}: make appliance", median(pair.ours for pair in taken), "s"),
        report.to_read(f"{name}: make chat", pairs.median_of_other(taken), "s"),
        report.to_read(f"{name}: the one over the other", pairs.median_ratio(taken), "x"),
    ]


def _settle(home: Home, containers: Containers) -> None:
    """Give both loopd a file that looks changed by hand, so that it stays: greedy and short, the same in every run."""
    served = Served(model="", n_ctx=plan.SLOT_TOKENS, slots=stack.SLOTS)
    settings, place = stack.SETTINGS.format(max_tokens=TOKENS), containers.appliance.place
    home.prepare()
    (home.etc / "loopd.toml").write_text(configs.loopd(home, served, small_model=False, tools=True) + settings)
    text = roleconfigs.loopd(place.wiring, served, small_model=False)
    place.write(place.wiring.roles["loopd"].config, text + settings)


def _first_answer(launcher: str, home: Path, upstream: str) -> Callable[[], float]:
    argv = [sys.executable, "-P", "-s", str(ROOT / launcher), "--home", str(home), "--upstream", upstream]

    def taken() -> float:
        began = time.perf_counter()
        with subprocess.Popen(
            [*argv, "--say", SAYING],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=plan.environment({}),
        ) as launched:
            assert launched.stdout is not None
            assert launched.stderr is not None
            answered = launched.stdout.read(1)
            took = time.perf_counter() - began
            launched.stdout.read()
            complaint = launched.stderr.read().decode(errors="replace").strip()
        if not answered:
            raise Unmeasurable(f"{launcher} gave no answer: {complaint}")
        whole = time.perf_counter() - began
        say(f"{launcher}: the first answer began after {took:.1f} s, all had ended after {whole:.1f} s")
        return took

    return taken
