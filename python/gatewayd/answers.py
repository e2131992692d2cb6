"""A turn's end -> the posts that say it; and the sentences that gatewayd itself says of a turn. Pure.

Invariant: what a model or a server wrote becomes part of a post only through gatewayd.split and gatewayd.markdown.
"""

from collections.abc import Mapping, Sequence

from bxcore.hosts import HostRule
from bxcore.ids import SessionId
from bxcore.wire.control import ErrorCode
from gatewayd import markdown, split
from gatewayd.entries import Incoming, OpenTurn, Outgoing

SMALLEST_POST = 4_000
"""Every server that was ever released takes so many characters."""

_LONGEST_SENTENCE = 600

UNPREPARED = "The answer could not be prepared for Mattermost. `bxctl sessions show {session}` shows it."
_NOTHING_SAID = "The turn ended without an answer."
_LOST: Mapping[str, str] = {
    ErrorCode.NO_SESSION.value: "The record of this conversation is gone, so there is no answer. Please say it again.",
    ErrorCode.NO_TURN.value: "The record of this turn is gone, so there is no answer. Please say it again.",
    ErrorCode.SESSION_DAMAGED.value: "The record of this conversation is damaged, so the answer cannot be read.",
}
_UNREADABLE = "The answer could not be read ({code})."
_NOT_SAID: Mapping[str, str] = {
    ErrorCode.TEXT_TOO_LONG.value: "This message is longer than Boxmaker takes, so nothing was done about it.",
    ErrorCode.SESSION_DAMAGED.value: "The record of this conversation is damaged, so it cannot go on in this thread."
    " Please begin a new one.",
}
_UNSAID = "Boxmaker could not take this message ({code}), so nothing was done about it."


class PostSize:
    """How many characters one post may have, as the server last said. Threads: any; one number, replaced whole."""

    def __init__(self, characters: int = SMALLEST_POST) -> None:
        self.characters = characters

    def lower(self, characters: int) -> None:
        """The server takes no more than this; below what can be split at all, its posts are refused and told."""
        self.characters = max(split.SHORTEST, min(self.characters, characters))


def prefix(session: SessionId, turn: int) -> str:
    """Return how the keys of a turn's posts begin."""
    return f"{session}:{turn}:"


def answer_of(key: str) -> tuple[SessionId, str] | None:
    """Return the session and the prefix of the answer that a post's key belongs to; None where it is no answer."""
    session, colon, rest = key.partition(":")
    turn, second, _ = rest.partition(":")
    if not (session.startswith("mm-") and colon and second and turn.isdecimal()):
        return None
    return SessionId(session), f"{session}:{turn}:"


def posts(
    turn: OpenTurn, text: str, sentence: str | None, *, limit: int, hosts: Sequence[HostRule]
) -> tuple[Outgoing, ...]:
    """Return the posts of a turn's end, in order: the text, and the sentence where there is one."""
    parts = split.parts(text, limit=limit, hosts=hosts) if text.strip() else ()
    if sentence is not None or not parts:
        parts = _with_sentence(parts, _in_italics(sentence or _NOTHING_SAID, hosts), limit=limit)
    return numbered(turn, parts)


def own_words(turn: OpenTurn, sentence: str) -> tuple[Outgoing, ...]:
    """Return the post of a turn that gatewayd ends in its own words."""
    return numbered(turn, (f"*{sentence}*",))


def numbered(turn: OpenTurn, parts: Sequence[str]) -> tuple[Outgoing, ...]:
    """Return parts as the posts of a turn."""
    begin = prefix(turn.session, turn.turn)
    return tuple(
        Outgoing(key=f"{begin}{number}", channel=turn.channel, root=turn.thread, message=part)
        for number, part in enumerate(parts, 1)
    )


def lost(code: str) -> str:
    """Return what is said where loopd cannot tell a turn's end any more."""
    return _LOST.get(code) or _UNREADABLE.format(code=code)


def not_said(post: Incoming, code: str) -> Outgoing:
    """Return what is said where loopd does not take a post."""
    words = _NOT_SAID.get(code) or _UNSAID.format(code=code)
    return Outgoing(key=f"unsaid:{post.id}", channel=post.channel, root=post.thread, message=f"*{words}*")


def _in_italics(sentence: str, hosts: Sequence[HostRule]) -> str:
    """Return a sentence as one line. It may end with the words of a model server, which may be of any length."""
    line = " ".join(sentence.split())
    shown = line if len(line) <= _LONGEST_SENTENCE else f"{line[:_LONGEST_SENTENCE]}…"
    return markdown.harmless(f"*{shown}*", hosts=hosts)


def _with_sentence(parts: Sequence[str], sentence: str, *, limit: int) -> tuple[str, ...]:
    if parts and len(parts[-1]) + 2 + len(sentence) <= limit:
        return (*parts[:-1], f"{parts[-1]}\n\n{sentence}")
    return (*parts, sentence)
