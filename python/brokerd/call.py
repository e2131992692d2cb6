"""A tool call after its arguments were read and its path resolved: what policy judges and what runs."""

import hashlib

import attrs

from bxcore.hosts import Target
from bxcore.ids import Hash32
from bxcore.tools import ToolKind
from bxcore.wire.tools import DataClass, ToolRequest


@attrs.frozen(kw_only=True)
class Labels:
    """Two labels that travel together: of a session (what it has seen) or of a result."""

    data_class: DataClass
    untrusted: bool


UNREADABLE = Labels(data_class=DataClass.SECRET, untrusted=True)
"""What a session counts as whose state cannot be read."""

FRESH = Labels(data_class=DataClass.PRIVATE, untrusted=False)
"""What every session starts as."""


@attrs.frozen(kw_only=True)
class Call:
    """One call. `arguments` is an object of `kind.arguments`, `canonical` its one spelling in bytes.

    `path` is the resolved absolute path that is judged and opened, None for a tool without one;
    `target` the host and port that would be dialled, None for a tool without one.
    """

    request: ToolRequest
    kind: ToolKind
    arguments: object
    canonical: bytes
    path: str | None
    target: Target | None

    @property
    def fingerprint(self) -> Hash32:
        """What an approval is bound to: session, tool, arguments in their one spelling, and the resolved path."""
        parts = (self.request.session, self.request.tool, self.path or "")
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape") + b"\0" + self.canonical)
        return Hash32(digest.hexdigest())
