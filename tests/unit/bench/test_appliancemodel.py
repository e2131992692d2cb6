import json
from pathlib import Path
from typing import Any

from tests.bench import appliancemodel
from tests.fakes.llama_server import Call, Reply

SYSTEM = {"role": "system", "content": "You are helpful."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_an_order_becomes_one_call_and_its_result_an_answer() -> None:
    told = [SYSTEM, user(appliancemodel.order(Path("/a b/c.txt")))]
    (call,) = appliancemodel.answer(told).calls
    assert (call.name, json.loads(call.arguments)) == (
        "call_tool",
        {"name": "read_file", "arguments": {"path": "/a b/c.txt"}},
    )
    assert appliancemodel.answer([*told, {"role": "tool", "content": "x"}]).text == appliancemodel.ANSWER


def test_the_self_test_passes() -> None:
    asked = appliancemodel.answer([{"role": "system", "content": "Self-test. Call clock."}, user("Call clock.")])
    assert asked.calls == Reply(calls=(Call(name="clock"),)).calls
