"""What makes a process a daemon: exit codes, signals, and a word to the service manager.

Exit codes: 0 stopped as asked, 74 a file of ours failed, 78 a file of the owner's is wrong, 1 a fault
of ours. Standard library only: inferproxy imports this module.
"""

import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

from bxcore import logs
from bxcore.errors import EXIT_CONFIG, EXIT_STATE, BoxmakerError, ConfigError, StateError

EXIT_FAULT = 1
READY = "READY=1"
_READY_SECONDS = 1.0

log = logs.get("daemon")


def run(main: Callable[[], int], *, role: str) -> int:
    """Run `main` and return the exit code of the process. The owner's errors are lines, not traces."""
    logs.configure(role)
    try:
        return main()
    except ConfigError as error:
        return _say(role, error, EXIT_CONFIG)
    except StateError as error:
        return _say(role, error, EXIT_STATE)
    except KeyboardInterrupt:  # before stop_on_signal took SIGINT over: nothing runs yet
        return 0
    except Exception:
        log.exception("stopped code=internal exit=%d", EXIT_FAULT)
        return EXIT_FAULT


def stop_on_signal(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, SIGINT and SIGHUP. Main thread only; `stop` may be called more than once."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        # No logging here: the handler may have interrupted a write to stderr half way.
        notify("STOPPING=1")
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    # The terminal that we were started from is gone. Ignored already: nohup asked to outlive it.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, on_signal)


def notify(state: str) -> None:
    """Tell the service manager `READY=1`, `STATUS=...` or `STOPPING=1`, if it asked to be told.

    A manager that has no room is not waited for, except a little with READY: without it we would be taken for dead.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(_READY_SECONDS if state == READY else 0)
        try:
            # Connected, since only then does a wait for room end when there is some; else it is a loop at full speed.
            manager.connect(address)
            manager.send(state.encode())
        except OSError as error:  # a manager that does not listen must not stop the service
            # os.write, since this may run inside a signal handler that interrupted a print.
            os.write(2, f"level=warning notify failed errno={error.errno}\n".encode())


def _say(role: str, error: BoxmakerError, code: int) -> int:
    """Print `error`, which may hold several faults, one line each."""
    for line in str(error).splitlines():
        sys.stderr.write(f"{role}: {logs.escape(line)}\n")
    sys.stderr.flush()
    return code
