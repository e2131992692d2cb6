"""How long one waits before anything happens: `bxctl --help`, and loopd in front of a model that is loaded."""

import subprocess
import sys
import time
from statistics import median

import requests

from deploy.local import plan
from tests.bench import pairs, report, seed, stack
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable
from tests.process.role import ROOT

HELP_MS = 150
READY_SECONDS = 1
TIMEOUT_SECONDS = 60
QUESTION = "Call clock."


def measure(sizes: Sizes) -> list[Measure]:
    return [*_help(sizes), *_ready(sizes)]


def _help(sizes: Sizes) -> list[Measure]:
    def timed(*arguments: str) -> float:
        argv = [sys.executable, "-P", "-s", *arguments]
        environment = plan.environment({}) | {"PYTHONPATH": str(ROOT / "python")}
        began = time.perf_counter()
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, env=environment)
        return (time.perf_counter() - began) * 1000

    def helped() -> float:
        return timed("-m", "bxctl", "--help")

    helped()  # once to compile what is not compiled yet
    taken = pairs.alternated(sizes.help_runs, ours=helped, other=lambda: timed("-c", "pass"))
    return [
        report.below("bxctl --help", median(pair.ours for pair in taken), "ms", HELP_MS),
        report.to_read("bxctl --help, over python -c pass", pairs.median_ratio(taken), "x"),
    ]


def _ready(sizes: Sizes) -> list[Measure]:
    with stack.home() as home, stack.model_server() as url, stack.inferproxy(home, url):
        starts = []
        for number in range(1 + sizes.starts):
            began = time.perf_counter()
            with stack.loopd(home) as loopd:
                starts.append(time.perf_counter() - began)
                loopd.terminate()
            say(f"loopd ready after {starts[-1]:.2f} s ({'cold' if number == 0 else 'warm'})")
        replies = [_tool_call_seconds(url) for _ in range(1 + sizes.starts)]
    return [
        report.below("loopd ready, model warm", median(starts[1:]), "s", READY_SECONDS),
        report.to_read("one cached tool call, asked of the server directly", median(replies[1:]), "s"),
        report.to_read("loopd ready, self-test not cached", starts[0], "s"),
    ]


def _tool_call_seconds(url: str) -> float:
    """Ask for what the self-test asks for, in the same words but its system prompt; return what it took."""
    front = seed.front()
    messages = [*seed.messages(front, seed.clock_rounds(QUESTION)), {"role": "user", "content": QUESTION}]
    began = time.perf_counter()
    answer = requests.post(
        f"{url}/v1/chat/completions",
        data=seed.body(front, messages, slot=stack.OTHER),
        headers={"Content-Type": "application/json"},
        timeout=TIMEOUT_SECONDS,
    )
    if b'"tool_calls"' not in answer.content:
        raise Unmeasurable("the model made no tool call")
    return time.perf_counter() - began
