"""brokerd's open questions in Mattermost: posted, answered by an approver, and told how they ended.

Invariant: of all answers the first one that an approver gave, in the question's own thread, after it could be read,
goes to brokerd, and no other changes anything; what is said of an end is what brokerd said. A question whose posts
were deleted is asked anew. Threads: one worker of gateway.sock for each question, whoever carries out commands or hears
of deleted posts, and the marking one; the table is under one lock, never held while calling out. Writes: notes to be
posted, in the store. Specified in docs/protocol.md, "gateway.sock".
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum

import attrs

from bxcore import logs
from bxcore.errors import BadMessage
from bxcore.ids import MattermostId
from bxcore.server import Handler, PeerGone, Request
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.approvals import ApprovalClosed, ApprovalNoted, ApprovalOpen, ApprovalPosted, ApprovalReply
from bxcore.wire.control import ErrorCode, WireFault
from gatewayd import markdown
from gatewayd.commands import Approve, Deny
from gatewayd.entries import Asking, Incoming, Outgoing
from gatewayd.faults import MattermostDenied, MattermostRefused
from gatewayd.questionposts import Api, Made, Marking, Posting, World

LOOK_MS = 500
"""How often a worker looks whether brokerd is still there."""

UNTOLD_MS = 30_000
"""brokerd says what came of an answer within milliseconds; after this long it is not going to."""

LONGEST_REASON = 300
ASKED_ANEW = 3
"""So often is a question asked again whose posts were deleted: somebody may not want it there."""

REMEMBERED = 1_024
"""So many ends are remembered, for those who answer late."""
RESTARTED = (
    "Closed: this gateway was restarted. If the question is still open, it is asked again below; "
    "if it is not, the turn that asked is over."
)

log = logs.get("questions")


class State(Enum):
    """POSTING: not all can be read (any more). ANSWERED: an answer is with brokerd. OVER: nothing can be answered."""

    POSTING = "posting"
    OPEN = "open"
    ANSWERED = "answered"
    OVER = "over"


MOVES: Mapping[State, frozenset[State]] = {
    State.POSTING: frozenset({State.OPEN, State.OVER}),
    State.OPEN: frozenset({State.POSTING, State.ANSWERED, State.OVER}),
    State.ANSWERED: frozenset({State.OVER}),
    State.OVER: frozenset(),
}


@attrs.frozen(kw_only=True)
class Ended:
    """What is said of an end: `headline` on the post itself, `note` in its thread."""

    headline: str
    note: str


WITHDRAWN = Ended(
    headline="Withdrawn: it can no longer be answered here.",
    note="withdrawn: it can no longer be answered here. Where it is still open, `bxctl approvals` shows it.",
)
DELETED = "Closed: a post of this question, or of its thread, was deleted."
UNTOLD = Ended(
    headline="Closed: an answer was given, and brokerd did not say what came of it.",
    note="an answer was given, and brokerd left before it said what came of it. `bxctl audit show` tells.",
)

_ENDINGS: Mapping[ApprovalEnding, tuple[str, str]] = {
    ApprovalEnding.APPROVED: ("Approved.", "approved; the call runs once"),
    ApprovalEnding.REFUSED: ("Refused.", "refused; nothing runs"),
    ApprovalEnding.EXPIRED: ("Expired: nobody answered in time.", "expired: nobody answered in time; nothing runs"),
    ApprovalEnding.VOID: ("Withdrawn.", "withdrawn, since whoever asked has gone; nothing runs"),
    ApprovalEnding.DENIED_NOW: ("Denied after all.", "denied after all; nothing runs"),
    ApprovalEnding.CHANGED: (
        "Not as shown any more.",
        "what it would do changed while it was being asked about; nothing runs",
    ),
    ApprovalEnding.NOT_PENDING: (
        "Answered elsewhere first.",
        "answered elsewhere first; the answer that was given here came too late and changed nothing",
    ),
}


def ended(message: ApprovalClosed) -> Ended:
    """Return what is said of an end. `detail` may hold anybody's words."""
    headline, note = _ENDINGS[message.ending]
    why = f" ({markdown.quote(message.detail)})" if message.detail else ""
    return Ended(headline=headline, note=f"{note}{why}.")


class _Asked:
    """A question of brokerd. Everything but `changed` is under the lock of Questions."""

    def __init__(self, opened: ApprovalOpen) -> None:
        self.opened = opened
        self.state = State.POSTING
        self.made: Made | None = None
        self.reply: ApprovalReply | None = None
        self.ended = WITHDRAWN
        self.deleted = 0
        """So often were its posts deleted."""
        self.posted = False
        """brokerd was told that it can be read; it wants to hear that once."""
        self.anew = False
        """They are to be made again."""
        self.changed = threading.Event()
        """Set when there is something for the worker: an answer, the end, a question to be asked anew."""

    def move(self, to: State) -> bool:
        """Move on, and say whether that may be."""
        if to not in MOVES[self.state]:
            return False
        self.state = to
        return True


class Questions:
    """All of them. `on_outgoing` is told when the store has a post to be made."""

    def __init__(
        self,
        world: World,
        *,
        approvers: tuple[MattermostId, ...],
        on_outgoing: Callable[[], None],
        look_ms: int = LOOK_MS,
        untold_ms: int = UNTOLD_MS,
    ) -> None:
        self._store = world.store
        self._approvers = approvers
        self._on_outgoing = on_outgoing
        self._look_ms = look_ms
        self._untold_ms = untold_ms
        self._posting = Posting(world, approvers=approvers)
        self._marking = Marking(world)
        self._lock = threading.Lock()
        self._table: dict[int, _Asked] = {}
        self._over: OrderedDict[int, str] = OrderedDict()  # how the latest ended: headlines, which quote nobody
        self._deleted: deque[MattermostId] = deque(
            maxlen=REMEMBERED
        )  # a post may be gone before we know that it is ours
        self._stopping = threading.Event()
        self._clean = threading.Event()
        """Set when nothing of an earlier run looks answerable any more."""

    def start(self) -> None:
        """Mark what an earlier run left, before anything new is posted."""
        for question in self._store.questions():
            self._marking.mark(question, RESTARTED)
        for asking in self._store.asking():
            self._marking.resolve(asking, RESTARTED)
        self._marking.put(lambda _: self._clean.set())
        self._marking.start()

    def stop(self) -> None:
        """Let the workers go; brokerd asks again when we are back."""
        self._stopping.set()
        with self._lock:
            waiting = list(self._table.values())
        for asked in waiting:
            asked.changed.set()
        self._posting.stop()
        self._marking.stop()

    def join(self, milliseconds: int) -> bool:
        return self._marking.join(milliseconds)

    def open_count(self) -> int:
        """Return how many questions can be answered now."""
        with self._lock:
            return sum(asked.state is State.OPEN and asked.opened.answerable for asked in self._table.values())

    def handlers(self) -> Mapping[type, Handler]:
        """Return what gateway.sock understands."""
        return {ApprovalOpen: self._open, ApprovalClosed: self._closed}

    # -- gateway.sock ---------------------------------------------------------------------------

    def _open(self, request: Request) -> None:
        opened = request.message
        assert isinstance(opened, ApprovalOpen)
        if not opened.parts:
            raise BadMessage("parts: expected at least one")
        asked = _Asked(opened)
        self._enter(asked)
        try:
            if self._posted(asked, request):
                self._await(asked, request)
        except PeerGone:
            self._end(asked, UNTOLD if asked.reply is not None else WITHDRAWN)
            raise
        except Exception:
            self._end(asked, WITHDRAWN)
            raise
        if not request.answered and not request.peer_left():
            detail = "gatewayd stops" if self._stopping.is_set() else "the question is closed"
            request.answer(WireFault(code=ErrorCode.NOT_READY, detail=detail), final=True)

    def _enter(self, asked: _Asked) -> None:
        with self._lock:
            before = self._table.get(asked.opened.id)
        if before is not None:  # its connection broke, and that was not noticed yet
            self._end(before, WITHDRAWN)
        with self._lock:
            self._table[asked.opened.id] = asked
        log.info("question id=%d session=%s parts=%d", asked.opened.id, asked.opened.session, len(asked.opened.parts))

    def _posted(self, asked: _Asked, request: Request) -> bool:
        """Post the question; say whether it can be answered now."""

        def wait(milliseconds: int) -> bool:
            return self._gone(asked, request, milliseconds)

        def unknown(asking: Asking) -> None:
            self._marking.resolve(asking, asked.ended.headline)

        while not self._clean.is_set():
            if wait(self._look_ms):
                break
        made = None if wait(0) else self._posting.make(asked.opened, wait=wait, unknown=unknown)
        with self._lock:
            asked.made = made
            is_open = made is not None and asked.move(State.OPEN)
        if made is not None and not is_open:
            self._tell(made, asked.ended)
        if is_open and made is not None:
            log.info("question posted id=%d post=%s", asked.opened.id, made.question.post)
            if not asked.posted:
                request.answer(ApprovalPosted(post=made.question.post), final=False)
            asked.posted = True
            with self._lock:
                gone = next(filter(made.stands_on, self._deleted), None)
            if gone is not None:
                self.deleted(gone)
        elif request.peer_left():
            self._end(asked, WITHDRAWN)
        return is_open

    def _await(self, asked: _Asked, request: Request) -> None:
        """Wait for the answer and pass it on; returns too where the question ended otherwise, or we stop."""
        while not self._gone(asked, request, self._look_ms) or self._asked_anew(asked, request):
            pass
        with self._lock:
            reply = asked.reply if asked.state is State.ANSWERED else None
        if reply is not None and not self._stopping.is_set():
            self._marking.put(lambda _: self._end(asked, UNTOLD), in_ms=self._untold_ms)
            request.answer(reply, final=True)
        elif not self._stopping.is_set() and request.peer_left():
            self._end(asked, WITHDRAWN)

    def _asked_anew(self, asked: _Asked, request: Request) -> bool:
        """Ask again what was deleted; say whether there is something to wait for."""
        with self._lock:
            if not asked.anew or asked.state is not State.POSTING or self._stopping.is_set():
                return False
            asked.anew = False
            asked.changed.clear()
        # With its thread the turn that asked is stopped, and mostly nobody wants to know any more.
        return self._gone(asked, request, self._look_ms) or self._posted(asked, request)

    def _gone(self, asked: _Asked, request: Request, milliseconds: int) -> bool:
        """Wait so long; say whether there is nothing to wait for: an answer, an end, nobody who asks, our own stop."""
        while milliseconds > 0 and not asked.changed.wait(min(milliseconds, self._look_ms) / 1000):
            milliseconds -= self._look_ms
            if request.peer_left():
                return True
        return asked.changed.is_set() or self._stopping.is_set() or request.peer_left()

    def _closed(self, request: Request) -> None:
        message = request.message
        assert isinstance(message, ApprovalClosed)
        with self._lock:
            asked = self._table.get(message.id)
        if asked is not None:
            log.info("question closed id=%d ending=%s", message.id, message.ending.value)
            self._end(asked, ended(message))
        request.answer(ApprovalNoted(), final=True)

    # -- posts that are taken away --------------------------------------------------------------

    def deleted(self, post: MattermostId) -> None:
        """A post was deleted, whosever it was: what cannot be read or answered without it is asked anew. Any thread."""
        with self._lock:
            if post not in self._deleted:
                self._deleted.append(post)
            lost = [(asked, asked.made) for asked in self._table.values() if self._is_lost(asked, post)]
            for asked, _ in lost:
                asked.move(State.POSTING)
                asked.made = None
                asked.deleted += 1
                asked.anew = asked.deleted <= ASKED_ANEW
        for asked, made in lost:
            log.warning("question deleted id=%d post=%s anew=%s", asked.opened.id, post, asked.anew)
            if made is not None:
                self._marking.mark(made.question, DELETED)
            if asked.anew:
                asked.changed.set()

    def _look_for(self, made: Made) -> None:
        """Somebody answers elsewhere: it may be that its post was deleted, and that we did not hear of it."""

        def look(api: Api) -> None:
            try:
                api.post(made.question.post)
            except (MattermostDenied, MattermostRefused):
                self.deleted(made.question.post)

        self._marking.put(look)

    def _is_lost(self, asked: _Asked, post: MattermostId) -> bool:
        return asked.state is State.OPEN and asked.made is not None and asked.made.stands_on(post)

    # -- the end --------------------------------------------------------------------------------

    def _end(self, asked: _Asked, ended: Ended) -> None:
        """End a question once, and say so where it was asked; the second end of one is not said."""
        with self._lock:
            if not asked.move(State.OVER):
                return
            asked.ended = ended
            self._remember(asked.opened.id, ended.headline)
            made = asked.made
            if self._table.get(asked.opened.id) is asked:
                del self._table[asked.opened.id]
        asked.changed.set()
        if made is not None:
            self._tell(made, ended)

    def _remember(self, number: int, headline: str) -> None:
        self._over[number] = headline
        self._over.move_to_end(number)
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)

    def _tell(self, made: Made, ended: Ended) -> None:
        """Say how it ended in the thread, and mark the post."""
        question = made.question
        self._marking.mark(question, ended.headline)
        note = Outgoing(
            key=f"closed:{question.post}",
            channel=question.channel,
            root=made.thread,
            message=f"Approval {question.id}: {ended.note}",
        )
        self._store.add([note])
        self._on_outgoing()

    # -- answers --------------------------------------------------------------------------------

    def answer(self, incoming: Incoming, command: Approve | Deny) -> str | None:
        """Take an answer from a post; return what is said against it, None where it is on its way to brokerd."""
        if incoming.user not in self._approvers:
            return "You are not among those who may answer this question."
        reason = _one_line(command.reason) if isinstance(command, Deny) else None
        reply = ApprovalReply(
            approve=isinstance(command, Approve), approver=incoming.user, post=incoming.id, reason=reason
        )
        with self._lock:
            asked = self._table.get(command.id)
            refusal = _refusal(asked, incoming, command.id, self._over.get(command.id))
            if asked is not None and refusal is None:
                asked.move(State.ANSWERED)
                asked.reply = reply
            made = asked.made if asked is not None else None
        if asked is None or refusal is not None:
            log.info("answer refused id=%d post=%s", command.id, incoming.id)
            if made is not None and incoming.thread != made.thread:
                self._look_for(made)
            return refusal
        log.info("question answered id=%d post=%s", command.id, incoming.id)
        asked.changed.set()
        return None


def _refusal(asked: _Asked | None, incoming: Incoming, number: int, over: str | None) -> str | None:
    """Return why a post does not answer the question. `over` is how it ended, where that is known."""
    if asked is None or asked.state is State.OVER:
        if over is not None:
            return f"Approval {number} is not open any more, so this answer changed nothing. {over}"
        return f"No approval {number} is open here: it was answered, it lapsed, or there never was one."
    made = asked.made
    if made is not None and incoming.thread != made.thread:
        return (
            f"Approval {number} can only be answered in the thread where it was asked;"
            " at the machine, `bxctl approvals` shows it."
        )
    if asked.state is State.ANSWERED:
        return f"Approval {number} was answered a moment ago; the first answer counts."
    if made is None and asked.deleted:
        return (
            f"The post of approval {number} was deleted. `bxctl approvals` shows it, where it is not asked again here."
        )
    if made is None or incoming.create_at < made.create_at:
        return f"You wrote that before approval {number} could be read here. Read it, and answer again."
    if not asked.opened.answerable:
        return f"Approval {number} is too long to be answered here: `bxctl approve {number}` shows all of it."
    return None


def _one_line(reason: str | None) -> str | None:
    words = " ".join((reason or "").split())
    return words[:LONGEST_REASON] or None
