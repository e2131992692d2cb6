"""A model server with no model, for both sides: `python -m tests.bench.appliancemodel SOCKET`.

Told to read a file it calls the tool for that, and after any result it says one sentence; it passes loopd's self-test.
It thinks for no time, so that a turn is what Boxmaker takes. Prints its address, then serves until it is killed.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.fakes.llama_server import Call, FakeLlama, Reply

N_CTX = 1_000_000
MODEL = "scripted"

_ORDER = "Read the file "
ANSWER = "There are notes in it."


def order(path: Path) -> str:
    """Return what the owner says, so that this file is read."""
    return f"{_ORDER}{path}"


def answer(messages: list[dict[str, Any]]) -> Reply:
    """Return what the model says next."""
    last = messages[-1]
    said = str(last["content"])
    if str(messages[0]["content"]).startswith("Self-test") and last["role"] == "user":
        return Reply(calls=(Call(name="clock"),))
    if last["role"] != "user" or _ORDER not in said:
        return Reply(text=ANSWER)
    wanted = {"name": "read_file", "arguments": {"path": said.partition(_ORDER)[2].strip()}}
    return Reply(calls=(Call(name="call_tool", arguments=json.dumps(wanted)),))


def main() -> None:
    socket = Path(sys.argv[1])
    # Each role is a user of its own; who may come here, the directory says.
    os.umask(0)
    with FakeLlama(socket, script=answer, n_ctx=N_CTX, model=MODEL):
        print(f"unix:{socket}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
