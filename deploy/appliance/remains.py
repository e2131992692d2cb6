"""What a party's Podman leaves when it ends, and its end: containers, and the processes that keep them.

Invariant: only processes whose command lines name this party's own directories are touched.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.local import podman
from deploy.local.podman import Account, Podman

_PATIENCE_SECONDS = 3.0
_LOOK_SECONDS = 0.01


def clear(store: Podman[Account]) -> None:
    """End every container of this party, and every process that Podman started for it."""
    store.run("rm", "--all", "--force", "--time=0")
    podman.end_leftovers(store.place.api_socket)
    podman.end_pause_process(store.place)
    until = time.monotonic() + _PATIENCE_SECONDS
    while found := list(processes(store.place)):
        if time.monotonic() > until:
            for number in found:
                _kill(number)
        time.sleep(_LOOK_SECONDS)


def processes(account: Account) -> Iterator[int]:
    """Yield the processes of this party's user that name its directories."""
    directories = (os.fsencode(account.storage), os.fsencode(account.runtime))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            ours = entry.stat().st_uid == account.user.uid and (entry / "cmdline").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if ours and any(directory in ours for directory in directories):
            yield int(entry.name)


def _kill(number: int) -> None:
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass  # ended meanwhile
