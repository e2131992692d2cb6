"""A daemon that does what a test asks of it, in the order of the words on its command line.

    name=NAME home=DIR             what it is called, and by what a test finds it
    status=TEXT ready line=TEXT log=TEXT sleep=SECONDS exit=CODE   as they say; exit ends it
    note=FILE                      from now on, write the signals that come to FILE, with this part's name
    stubborn                       from now on, ignore SIGTERM
    child                          start a process that sleeps and ignores SIGTERM
    user                           log the user that this process takes itself for
    devices                        log the names of the network devices that this process sees

Without exit it then waits for SIGTERM and ends with 0.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType


def notify(state: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(state.encode(), os.environ["NOTIFY_SOCKET"])


def note(path: str) -> None:
    name = next(word.removeprefix("name=") for word in sys.argv if word.startswith("name="))

    def on_signal(number: int, _frame: FrameType | None) -> None:
        with Path(path).open("a") as file:
            file.write(f"{name} {signal.Signals(number).name}\n")
        if number == signal.SIGTERM:
            sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
        signal.signal(number, on_signal)


def start_child() -> None:
    # What is ignored stays ignored in a child.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[1:]])
    signal.signal(signal.SIGTERM, before)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def devices() -> str:
    return " ".join(line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:])


ACTIONS: Mapping[str, Callable[[str], object]] = {
    "name": lambda _: None,
    "home": lambda _: None,
    "status": lambda text: notify(f"STATUS={text}"),
    "ready": lambda _: notify("READY=1"),
    "line": lambda text: print(text, flush=True),
    "log": log,
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "exit": lambda code: sys.exit(int(code)),
    "note": note,
    "stubborn": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "child": lambda _: start_child(),
    "user": lambda _: log(f"user {os.geteuid()}"),
    "devices": lambda _: log(f"devices {devices()}"),
}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        ACTIONS[name](value)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
