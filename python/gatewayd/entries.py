"""What is in the queue: posts that came in, threads, posts that go out, open questions. Pure.

A thread of Mattermost is a session of loopd: `mm-` and the id of the thread's first post. A post's id is the key
under which it is said, so that loopd holds it once however often it is said.
"""

from enum import Enum

import attrs

from bxcore import ids
from bxcore.ids import MattermostId, MessageKey, SessionId
from bxcore.timestamp import Timestamp
from bxcore.wire.channel import GATEWAY_SESSIONS


class Kind(Enum):
    """MESSAGE goes to the model; a COMMAND never does."""

    MESSAGE = "message"
    COMMAND = "command"


class State(Enum):
    """WAITING: accepted. ASKED: loopd has it. DONE: nothing is left to do. PARKED: set aside, and told.

    OLD: will not be acted upon, and its author is to be told; LISTED: was told.
    """

    WAITING = "waiting"
    ASKED = "asked"
    DONE = "done"
    PARKED = "parked"
    OLD = "old"
    LISTED = "listed"


@attrs.frozen(kw_only=True)
class Incoming:
    """An accepted post. `text` has no leading mention of the bot; `thread` is the post itself where it begins one."""

    id: MattermostId
    channel: MattermostId
    thread: MattermostId
    user: MattermostId
    create_at: Timestamp
    kind: Kind
    direct: bool
    text: str
    attempts: int = 0

    @property
    def first(self) -> bool:
        """Whether it begins its thread."""
        return self.id == self.thread

    @property
    def session(self) -> SessionId:
        return session_of(self.thread)

    @property
    def key(self) -> MessageKey:
        return ids.message_key(self.id)


@attrs.frozen(kw_only=True)
class Taken:
    """A post as it is taken over: to be handled (WAITING), to be listed (OLD), or answered at once (DONE).

    `edited`: it was changed before it was seen. `outgoing` is posted if the post is new, and only then.
    """

    post: Incoming
    state: State = State.WAITING
    edited: bool = False
    outgoing: "tuple[Outgoing, ...]" = ()


@attrs.frozen(kw_only=True)
class Old:
    """A post in state OLD."""

    post: Incoming
    edited: bool


@attrs.frozen(kw_only=True)
class Thread:
    """A thread that Boxmaker takes part in; `user` is whoever spoke first in it."""

    root: MattermostId
    channel: MattermostId
    direct: bool
    user: MattermostId


@attrs.frozen(kw_only=True)
class OpenTurn:
    """A turn whose answer is to come. `first`: it is the first of a thread that a user began."""

    session: SessionId
    turn: int
    channel: MattermostId
    thread: MattermostId
    since: Timestamp
    first: bool


@attrs.frozen(kw_only=True)
class Outgoing:
    """A post to be made: in the thread of `root`, or at the top level. `key` makes it unique, here and in its props."""

    key: str
    channel: MattermostId
    root: MattermostId | None
    message: str


@attrs.frozen(kw_only=True)
class Unsent:
    """An Outgoing in the queue. `tried`: the server may have it already, so it is looked up first."""

    number: int
    outgoing: Outgoing
    tried: bool
    attempts: int
    made: Timestamp


@attrs.frozen(kw_only=True)
class Question:
    """A post that looks answerable: the last part of brokerd's question `id`, as it was posted."""

    post: MattermostId
    id: int
    channel: MattermostId
    root: MattermostId | None
    message: str


@attrs.frozen(kw_only=True)
class Asking:
    """A post that will look answerable, and may be there already under its `key`: noted before it is made."""

    key: str
    id: int
    channel: MattermostId
    root: MattermostId | None
    message: str
    made: Timestamp


@attrs.frozen(kw_only=True)
class Counts:
    """How many posts are where; see GatewayStatusReport."""

    waiting: int
    asked: int
    listed: int
    parked: int
    outgoing: int


def session_of(thread: MattermostId) -> SessionId:
    """Return the session that a thread is."""
    return SessionId(f"{GATEWAY_SESSIONS}{thread}")


def thread_of(session: SessionId) -> MattermostId | None:
    """Return the thread that a session is; None where it is no session of Mattermost."""
    try:
        return (
            ids.mattermost_id(session.removeprefix(GATEWAY_SESSIONS)) if session.startswith(GATEWAY_SESSIONS) else None
        )
    except ValueError:
        return None
