"""Tokens that a server had to read again. Pure.

Counted from the server's own figures in the same way for everybody, and not taken from loopd's records.
"""

from collections.abc import Iterable

import attrs

OVERLAP = 1
"""The newest token is generated but not computed, so every server reads it once more."""


@attrs.frozen(kw_only=True)
class Request:
    """What the server said of one request, in tokens."""

    prompt: int
    cached: int
    output: int


def reread(conversation: Iterable[Request]) -> int:
    """Return how many tokens the server had after a request and read again in the next, summed up."""
    total = known = 0
    for request in conversation:
        total += max(0, known - OVERLAP - request.cached)
        known = request.prompt + request.output
    return total
