"""Become another program, which dies with the launcher and, where asked, has no network.

    isolation.py PARENT SIGNAL (network|no-network|only-no-network) PROGRAM [ARGUMENT...]

Run between fork and exec as a program of its own, since nothing but exec is safe there in Python.
Invariant: the program starts as asked or not at all (exit 125). Standard library only, few imports:
every process of `make chat` passes through here.
"""

import ctypes
import os
import sys
from collections.abc import Sequence

REFUSED = 125

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000

_libc = ctypes.CDLL(None, use_errno=True)


def command(argv: Sequence[str], *, dies_by: int, network: bool, powers: bool = False) -> list[str]:
    """Return the command line that runs `argv` as a child of this process under these conditions.

    `powers`: root stays root over everything outside too; without, it has no power over what other users own.
    """
    wanted = "network" if network else "only-no-network" if powers else "no-network"
    conditions = [str(os.getpid()), str(int(dies_by)), wanted]
    # -I and -S: nothing of the caller's may reach into these lines, and they need no packages.
    return [sys.executable, "-I", "-S", __file__, *conditions, *argv]


def main(argv: Sequence[str]) -> int:
    """Return only where the program could not be started."""
    parent, number, network, *program = argv
    try:
        if network != "network":
            leave_network(powers=network == "only-no-network")
        # After the namespaces: a change of credentials may clear it.
        die_with(int(parent), by=int(number))
        os.execve(program[0], program, os.environ)
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.filename or 'cannot start'}: {error.strerror}\n")
    return REFUSED


def die_with(parent: int, *, by: int) -> None:
    """Have the kernel send the signal `by` to this process when `parent` ends, however it ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, by, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it died before we asked
        sys.exit(REFUSED)


def leave_network(*, powers: bool = False) -> None:
    """Move to a network that has nothing but its own loopback, which is down. Unix sockets stay.

    As an ordinary user this needs a user namespace, in which we stay who we are; as root it takes the powers
    over other users' files away, unless `powers` asks for them.
    """
    uid, gid = os.geteuid(), os.getegid()
    if powers and uid == 0:
        _check(_libc.unshare(CLONE_NEWNET), "unshare(net)")
        return
    try:
        _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNET), "unshare(user, net)")
    except OSError:
        if uid != 0:
            raise
        # No user namespaces here, but root may need none.
        _check(_libc.unshare(CLONE_NEWNET), "unshare(net)")
        return
    _write("/proc/self/setgroups", "deny")  # or the kernel refuses the next line to ordinary users
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
