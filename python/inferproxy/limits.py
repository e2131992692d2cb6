"""How often a connection may be accepted: a token bucket (pure)."""


class TokenBucket:
    """Starts with `burst` tokens and gains `per_second`, never holding more than `burst`.

    Not thread-safe: the accepting thread alone uses it.
    """

    def __init__(self, *, burst: int, per_second: int, now_ms: int) -> None:
        self._burst = burst
        self._per_ms = per_second / 1000
        self._tokens = float(burst)
        self._at_ms = now_ms

    def take(self, now_ms: int) -> float:
        """Take one token; return the milliseconds to wait until it is there (0: it was)."""
        gained = max(0, now_ms - self._at_ms) * self._per_ms
        self._tokens = min(self._burst, self._tokens + gained) - 1
        self._at_ms = now_ms
        return max(0.0, -self._tokens / self._per_ms)
