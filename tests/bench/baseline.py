"""What stands before the first word of every conversation, in tokens, counted by the server itself."""

import json

import requests

from tests.bench import report, seed, stack
from tests.bench.report import Measure
from tests.bench.sizes import Sizes, Unmeasurable

LIMIT = 1_000
TIMEOUT_SECONDS = 60


def measure(_: Sizes) -> list[Measure]:
    front = seed.front()
    body = {"messages": seed.messages(front, ()), "tools": json.loads(front.tools)}
    with stack.model_server() as url:
        answer = requests.post(f"{url}/v1/chat/completions/input_tokens", json=body, timeout=TIMEOUT_SECONDS)
    if answer.status_code != 200:
        raise Unmeasurable(f"the model server answered HTTP {answer.status_code}: {answer.text[:200]}")
    return [report.at_most("system prompt and tools", int(answer.json()["input_tokens"]), "tokens", LIMIT)]
