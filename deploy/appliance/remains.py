"""What a party's Podman leaves when it ends, and its end: containers, and the processes that keep them.

Invariant: only processes whose command lines or environments name this party's own directories are touched.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deploy.local import podman
from deploy.local.podman import Account, Podman

_PATIENCE_SECONDS = 3.0
_LOOK_SECONDS = 0.01
# Podman waits itself where catatonit is not installed, which Debian 13 only recommends.
_PAUSES = (b"catatonit\0-P\0", b"podman\0")


def clear(store: Podman[Account]) -> None:
    """End every container of this party, and every process that Podman started for it."""
    with suppress(subprocess.TimeoutExpired):  # somebody of that user holds its store; they end below
        store.run("rm", "--all", "--force", "--time=0")
    podman.end_leftovers(store.place.api_socket)
    end_processes(store)


def end_processes(store: Podman[Account]) -> None:
    """End what Podman left running for this party, without asking it anything."""
    podman.end_pause_process(store.place)
    until = time.monotonic() + _PATIENCE_SECONDS
    while found := list(processes(store.place)):
        for number in found:
            # Those that only keep namespaces wait for nothing.
            if time.monotonic() > until or is_pause(number):
                _kill(number)
        time.sleep(_LOOK_SECONDS)


def processes(account: Account) -> Iterator[int]:
    """Yield the processes of this party's user that name its directories, on their command line or around it.

    A killed Podman's pause process has them in its environment alone, and its number in no file once another has begun.
    """
    directories = (os.fsencode(account.storage), os.fsencode(account.runtime))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if entry.stat().st_uid != account.user.uid:
                continue
            told = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile, or closed to us
        if any(directory in told for directory in directories):
            yield int(entry.name)


def is_pause(number: int) -> bool:
    """Say whether it only keeps a user's namespaces: one such is there as long as nobody ends it."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes() in _PAUSES
    except OSError:
        return False  # ended meanwhile


def _kill(number: int) -> None:
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass  # ended meanwhile
