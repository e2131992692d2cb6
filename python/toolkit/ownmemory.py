"""Closes this process to what it starts: its memory, its descriptors and its environment, as /proc shows them.

In a container the tool and the command that it runs are one user, and /proc/1/mem can be written by whoever may trace
number 1. A command that could would decide what the tool says of it, and how it ends.
"""

import ctypes
import os

_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def close() -> None:
    """Do it, for as long as this process runs no other program. Raises OSError."""
    if _libc.prctl(_SET_DUMPABLE, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault))
