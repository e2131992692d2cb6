"""The list that an author gets of posts that nothing was done about: seen too late, or edited before. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd import markdown
from gatewayd.entries import Old, Outgoing

LINES = 50
SHOWN_CHARACTERS = 80
_BEGIN = "I did nothing about these posts of yours: I saw them too late, or they had been edited before I saw them. "
_ASK = "Please say again what still holds."
_ROOM_FOR_MORE = 40
_LATEST_MS = 253_402_300_799_000
"""The end of 9999: a server may say anything."""


def a_list(
    newest: Sequence[Old], *, count: int, channel: MattermostId, places: Mapping[MattermostId, str], limit: int
) -> Outgoing:
    """Return the post for one author's direct channel, `channel`: one line for each of `newest`, which is in order.

    `count` is how many there are in all. Lines are left away from the oldest on, until the post has no more than
    `limit` characters. `places` has the names of other channels.
    """
    room = limit - len(_BEGIN) - len(_ASK) - _ROOM_FOR_MORE
    lines: list[str] = []
    for old in reversed(newest[-LINES:]):
        line = _line(old, channel, places)
        room -= len(line) + 1
        if room < 0:
            break
        lines.insert(0, line)
    more = count - len(lines)
    left_out = [f"… and {more} older ones." if more > 1 else "… and one older."] if more else []
    message = "\n".join([_BEGIN + _ASK, "", *lines, *([""] if left_out and lines else []), *left_out])
    return Outgoing(key=f"old-{newest[-1].post.id}", channel=channel, root=None, message=message)


def clock_time(when: Timestamp) -> str:
    """Return HH:MM, UTC."""
    return _moment(when).strftime("%H:%M")


def _line(old: Old, channel: MattermostId, places: Mapping[MattermostId, str]) -> str:
    post = old.post
    name = places.get(post.channel)
    where = "here" if post.channel == channel else f"in {markdown.quote(name)}" if name else "elsewhere"
    edited = ", edited" if old.edited else ""
    return f"- {_moment(post.create_at):%Y-%m-%d %H:%M} (UTC), {where}{edited}: {_shown(post.text)}"


def _shown(text: str) -> str:
    words = " ".join(text.split())
    if not words:
        return "(no text)"
    return markdown.quote(words[:SHOWN_CHARACTERS]) + ("…" if len(words) > SHOWN_CHARACTERS else "")


def _moment(when: Timestamp) -> datetime:
    return datetime.fromtimestamp(min(when, _LATEST_MS) / 1000, UTC)
