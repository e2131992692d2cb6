"""Ids for containers: the lines of /etc/subuid and /etc/subgid. Pure.

A user's Podman needs a range of its own in both. Who has one keeps it.
"""

from collections.abc import Mapping

COUNT = 65_536
_FIRST = 100_000


def added(text: str, users: Mapping[str, int]) -> str:
    """Return the file with a range for each of the users that has none, above everybody's."""
    lines = text.splitlines()
    held = [line.split(":") for line in lines]
    ranges = [(int(begin), int(count)) for _, begin, count in _whole(held)]
    first = max([_FIRST, *(begin + count for begin, count in ranges)])
    for user, uid in users.items():
        if not any(fields[0] in (user, str(uid)) for fields in held):
            lines.append(f"{user}:{first}:{COUNT}")
            first += COUNT
    return "".join(f"{line}\n" for line in lines)


def _whole(held: list[list[str]]) -> list[tuple[str, str, str]]:
    return [
        (name, begin, count) for name, begin, count in (f for f in held if len(f) == 3) if (begin + count).isdecimal()
    ]
