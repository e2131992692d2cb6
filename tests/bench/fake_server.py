"""The fake llama-server as a process: `python -m tests.bench.fake_server WORDS PACE_MS`.

Answers every question with so many words, one event each, and passes loopd's self-test. Prints its
address, then serves until it is killed.
"""

import signal
import sys
from typing import Any

from tests.fakes.llama_server import Call, FakeLlama, Reply

N_CTX = 65_536


def main() -> None:
    words, pace_ms = int(sys.argv[1]), float(sys.argv[2])
    # All different: loopd ends a reply that repeats itself.
    story = Reply(text=" ".join(f"w{number}" for number in range(words)), token_delay=pace_ms / 1000)

    def answer(messages: list[dict[str, Any]]) -> Reply:
        tested = str(messages[0]["content"]).startswith("Self-test")
        return Reply(calls=(Call(name="clock"),)) if tested else story

    with FakeLlama(script=answer, n_ctx=N_CTX) as fake:
        print(fake.url, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
