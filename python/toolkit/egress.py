"""The egress proxy of one tool call as a program: `python3 -I -m toolkit.egress`, in a container of its own.

Reads one line of JSON from stdin (egressorder.Order), which then is a leash: when it ends, so does the proxy.
Writes one line of JSON for each connection to stdout (egressorder.Dialled). Exit 0 done, 2 wrong order.
"""

import os
import socket
import sys
import threading
from pathlib import Path

from bxcore.deadline import SystemClock
from toolkit import dialling, egressorder
from toolkit.egressorder import BadOrder, Dialled
from toolkit.egressproxy import CONNECTIONS, Proxy

MODE = 0o666
"""The socket's mode once it takes connections, and not before: whoever waits for the proxy waits for this."""

_MOST_ORDER = 4_096
_STDIN, _STDOUT = 0, 1


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path`, in a directory that only this call's containers see."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no thread runs yet
    try:
        listener.bind(str(path))
        listener.listen(CONNECTIONS)
        path.chmod(MODE)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def main() -> int:
    """Serve one call."""
    try:
        order = egressorder.parse_order(sys.stdin.buffer.readline(_MOST_ORDER))
    except BadOrder as error:
        sys.stderr.write(f"egress: {error}\n")
        return 2
    lock = threading.Lock()

    def report(dialled: Dialled) -> None:
        with lock:
            try:
                os.write(_STDOUT, dialled.line())
            except OSError:
                pass  # nobody reads us any more, so the leash has ended as well

    proxy = Proxy(order, resolve=dialling.resolve, dial=dialling.dial, report=report, clock=SystemClock())
    proxy.serve(listen(Path(order.socket)), _STDIN)
    return 0


if __name__ == "__main__":
    # Threads that still wait for the resolver are daemons and do not hold the process.
    sys.exit(main())
