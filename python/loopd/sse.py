"""A byte stream -> the payloads of its server-sent events, whatever the pieces that it arrives in. Pure.

Reads: what llama-server writes (`data:` lines, blank lines, `:` pings) and what the format allows
beside it: other fields, carriage returns, several data lines. Invariant: memory stays below MAX_LINE
and a piece, and each byte is looked at a bounded number of times.
"""

from loopd.modelfaults import ServerProtocol

MAX_LINE = 8 * 1024 * 1024
MAX_STREAM = 128 * 1024 * 1024
"""Bytes of one whole reply. A context of 131,072 tokens, all generated and with timings on each, makes about 80 MB."""


class EventReader:
    """Cuts a byte stream into the payloads of its events. Keeps one unfinished line and one unfinished event."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._total = 0
        self._data: list[bytes] = []
        self._data_size = 0

    def feed(self, untrusted: bytes) -> list[bytes]:
        """Return the payloads of the events that `untrusted` completes."""
        self._total += len(untrusted)
        if self._total > MAX_STREAM:
            raise ServerProtocol(f"the model server's reply is longer than {MAX_STREAM} bytes")
        whole, newline, tail = untrusted.rpartition(b"\n")
        # Pieces of a long line are kept apart until it ends: joining at each piece is quadratic.
        if newline:
            lines = b"".join((*self._tail, whole)).split(b"\n")
            self._tail, self._tail_size = [], 0
        else:
            lines = []
        if tail:
            self._tail.append(tail)
            self._tail_size += len(tail)
        if self._tail_size > MAX_LINE or any(len(line) > MAX_LINE for line in lines):
            raise ServerProtocol(f"the model server sent a line of more than {MAX_LINE} bytes")
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> bytes | None:
        """Take a line in; return the event's payload where the line ends an event."""
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            self._data_size += len(line)
            if self._data_size > MAX_LINE:
                raise ServerProtocol(f"the model server sent an event of more than {MAX_LINE} bytes")
            return None
        # Pings (":") and the fields event, id and retry say nothing that we need.
        if line or not self._data:
            return None
        event = b"\n".join(self._data)
        self._data, self._data_size = [], 0
        return event
