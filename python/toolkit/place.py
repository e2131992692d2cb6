"""What a tool's program finds around it: the mounts, the way out, the leash, and how much it may say."""

import attrs

from toolkit.beneath import Root
from toolkit.leash import Leash


@attrs.frozen(kw_only=True)
class Place:
    """Handed to every tool. `proxy` is the socket of the egress proxy, None for a tool without hosts.

    `most_chars` is where the text of the tool will be cut; one that knows better where to cut does it before.
    """

    roots: tuple[Root, ...]
    proxy: str | None
    leash: Leash
    most_chars: int
