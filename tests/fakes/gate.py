"""gatewayd's questions behind a real gateway.sock, and brokerd's side of it; the server is a Postbox."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bxcore import listener
from bxcore.client import Connection
from bxcore.deadline import SystemClock
from bxcore.envelope import Envelope
from bxcore.ids import MattermostId, SessionId
from bxcore.server import Door, Server
from bxcore.timestamp import Timestamp
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.approvals import ApprovalClosed, ApprovalNoted, ApprovalOpen, ApprovalPosted, ApprovalReply
from gatewayd.commands import Approve, Deny
from gatewayd.condition import Condition
from gatewayd.entries import Incoming, Kind
from gatewayd.faults import MattermostAway
from gatewayd.posts import Post
from gatewayd.questionposts import World
from gatewayd.questions import Questions
from gatewayd.store import Store
from tests.fakes.postbox import BOT, Postbox, an_id, direct

CLOCK = SystemClock()
ALICE, BOB, EVE = an_id("alice"), an_id("bob"), an_id("eve")
ROOT, CHANNEL = an_id("root"), an_id("channel")
DIRECT = direct(BOT.id, ALICE).id
S = SessionId("s")
PATIENCE_SECONDS, PATIENCE_MS = 60, 60_000
AWAY = MattermostAway("no connection")


class Gate:
    """Questions behind a real gateway.sock. `opened` asks as brokerd does, on a connection of its own."""

    def __init__(self, home: Path, *, untold_ms: int = PATIENCE_MS) -> None:
        self.postbox = Postbox()
        (home / "state").mkdir(exist_ok=True)
        self.store = Store.open(home / "state", CLOCK)
        self.woken = threading.Event()
        self.condition = Condition(CLOCK)
        world = World(
            store=self.store,
            api=self.postbox.api,
            condition=self.condition,
            clock=CLOCK,
            retry_most_ms=1,
            bot=lambda: BOT.id,
        )
        self.questions = Questions(
            world, approvers=(ALICE, BOB), on_outgoing=self.woken.set, look_ms=5, untold_ms=untold_ms
        )
        (home / "gateway").mkdir(mode=0o750, exist_ok=True)
        self._listening = listener.open_socket(home / "gateway" / "gateway.sock")
        door = Door(listening=self._listening, name="gateway", handlers=self.questions.handlers())
        self._server = Server([door], clock=CLOCK)
        self._thread = threading.Thread(target=self._serve)
        self._times = itertools.count()

    def _serve(self) -> None:
        self._server.serve(before_drain=self.questions.stop)

    def __enter__(self) -> "Gate":
        self.questions.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        assert self.questions.join(PATIENCE_MS)
        self._listening.close()
        self.store.close()
        assert self.postbox.opened == 0  # every connection to the server was given back

    def dial(self) -> Connection:
        return Connection(self._listening.path, clock=CLOCK)

    @contextmanager
    def asking(self, message: ApprovalOpen | None = None) -> Iterator[tuple[Connection, Iterator[Envelope]]]:
        with self.dial() as connection:
            yield connection, connection.request(message or opened(), idle_ms=PATIENCE_MS)

    @contextmanager
    def asked(self, message: ApprovalOpen | None = None) -> Iterator["Asked"]:
        """A question that can be read."""
        with self.asking(message) as (connection, answers):
            posted = next(answers).msg
            assert isinstance(posted, ApprovalPosted)
            [post] = [one for one in self.postbox.made if one.id == posted.post]
            yield Asked(connection, answers, post)

    def closed(self, ending: ApprovalEnding, detail: str = "", *, number: int = 7) -> None:
        """brokerd says on a second connection how a question ended."""
        with self.dial() as connection:
            tell(connection, ending, detail, number=number)

    def say(
        self, text: Approve | Deny, post: Post, *, user: MattermostId = ALICE, before: int = 0, thread: str = ""
    ) -> str | None:
        """Answer in the thread of a post; return what is said against it."""
        number = next(self._times)
        incoming = Incoming(
            id=an_id(f"say{number}x"),
            channel=post.channel,
            thread=an_id(thread) if thread else post.thread,
            user=user,
            create_at=Timestamp(post.create_at - before),
            kind=Kind.COMMAND,
            direct=True,
            text="",
        )
        return self.questions.answer(incoming, text)

    def note(self) -> str:
        """Return the one thing that is to be said in a thread, waiting for it."""
        assert self.woken.wait(PATIENCE_SECONDS)
        [unsent] = self.store.unsent()
        return unsent.outgoing.message

    def marked(self, post: MattermostId) -> str:
        """Return what a post says once it says that it is over."""
        self.postbox.until(lambda: "patch_post" in self.postbox.calls)
        self.settled()
        return self.postbox.message(post)

    def settled(self) -> None:
        """Wait until all that was begun in the background is done."""
        done = threading.Event()
        self.questions._marking.put(lambda _: done.set())
        assert done.wait(PATIENCE_SECONDS)


class Asked:
    def __init__(self, connection: Connection, answers: Iterator[Envelope], post: Post) -> None:
        self.connection, self.answers, self.post = connection, answers, post

    def reply(self) -> ApprovalReply:
        answer = next(self.answers)
        assert isinstance(answer.msg, ApprovalReply)
        assert answer.final
        assert list(self.answers) == []
        return answer.msg

    def tell(self, ending: ApprovalEnding, detail: str = "") -> None:
        tell(self.connection, ending, detail)


def tell(connection: Connection, ending: ApprovalEnding, detail: str, *, number: int = 7) -> None:
    [noted] = connection.request(ApprovalClosed(id=number, ending=ending, detail=detail), idle_ms=PATIENCE_MS)
    assert isinstance(noted.msg, ApprovalNoted)
    assert noted.final


def opened(*parts: str, number: int = 7, session: SessionId = S, answerable: bool = True) -> ApprovalOpen:
    return ApprovalOpen(
        id=number,
        session=session,
        opened=CLOCK.now_ms(),
        expires=CLOCK.now_ms(),
        parts=parts or ("May this run?",),
        answerable=answerable,
    )
