"""The least that a program in Python can do with a streamed reply: `python -m tests.bench.bare_client URL <BODY`.

Prints the processor time of sending and reading, in nanoseconds, and the number of events.
"""

import json
import sys
import time

import requests


def main() -> None:
    url, body = sys.argv[1], sys.stdin.buffer.read()
    headers = {"Content-Type": "application/json"}
    events, before = 0, time.process_time_ns()
    with requests.post(f"{url}/v1/chat/completions", data=body, headers=headers, stream=True, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith(b"data: {"):
                json.loads(line[6:])
                events += 1
    print(time.process_time_ns() - before, events)


if __name__ == "__main__":
    main()
