"""The model of the VM test: the tests' fake llama-server, which calls the tool that the owner's words name.

python -m nix.checks.model PORT: serves on every address of its machine, until it is killed. "read" in the owner's
message reads the notes, "write" writes a file beside them; the answer then begins with what the tool said. Passes
loopd's self-test.
"""

import json
import signal
import sys
from typing import Any

from tests.fakes.llama_server import Call, FakeLlama, Reply

N_CTX = 65_536

CALLS = {
    "read": {"name": "read_file", "arguments": {"path": "/srv/notes/shopping.txt"}},
    "write": {"name": "write_file", "arguments": {"path": "/srv/notes/new.txt", "content": "bread\n"}},
}


def answer(messages: list[dict[str, Any]]) -> Reply:
    """Return what the model does next."""
    last = messages[-1]
    if str(messages[0]["content"]).startswith("Self-test"):
        return Reply(calls=(Call(name="clock"),)) if last["role"] == "user" else Reply(text="Noon.")
    if last["role"] == "tool":
        return Reply(text=f"It says: {last['content']}")
    for word, call in CALLS.items():
        if word in str(last["content"]):
            return Reply(calls=(Call(name="call_tool", arguments=json.dumps(call)),))
    return Reply(text="I am here.")


def main() -> None:
    """Serve."""
    with FakeLlama(("0.0.0.0", int(sys.argv[1])), script=answer, n_ctx=N_CTX):  # noqa: S104  # a machine of its own
        signal.pause()


if __name__ == "__main__":
    main()
