"""What the bench is doing, on standard error: the table alone goes to standard output."""

import sys


def say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
