"""The queue against a naive model of it: any steps in any order, and a kill between any two of them."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bxcore.ids import MattermostId
from bxcore.timestamp import Timestamp
from gatewayd.entries import Incoming, Kind, State, Taken, session_of
from gatewayd.store import Store
from tests.fakes.clocks import HandClock
from tests.fakes.queued import DIRECT, TOWN, an_id, incoming, outgoing

POSTS = st.integers(0, 7)
TURNS = st.integers(1, 3)
THREADS = [an_id("one"), an_id("two")]


def a_post(number: int) -> Incoming:
    """Post 0 and 1 begin the two threads; the others reply, later ones not always later."""
    thread = THREADS[number % 2]
    id_ = thread if number < 2 else an_id("reply", number)
    kind = Kind.COMMAND if number == 5 else Kind.MESSAGE
    return incoming(id=id_, thread=thread, kind=kind, after_ms=number * 7 % 5, text=f"text {number}")


class Model:
    """What should be there: each post's state and turn, what is told of it, and what is to be posted."""

    def __init__(self) -> None:
        self.states: dict[MattermostId, State] = {}
        self.posts: dict[MattermostId, Incoming] = {}
        self.turns: dict[MattermostId, tuple[str, int]] = {}
        self.marks: dict[MattermostId, int] = {}
        self.keys: list[str] = []
        self.sent: set[str] = set()
        self.told: set[MattermostId] = set()

    def add(self, *keys: str) -> None:
        self.keys.extend(key for key in keys if key not in self.keys)

    def to_be_posted(self) -> list[str]:
        return [key for key in self.keys if key not in self.sent]


class QueueMachine(RuleBasedStateMachine):
    """Each rule does one thing to both. `kill` copies the files of the living store and goes on with the copy."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="queue-"))
        self.lives = 0
        self.clock = HandClock()
        self.model = Model()
        (self.root / "0").mkdir()
        self.store = Store.open(self.root / "0", self.clock)

    @rule(
        numbers=st.lists(POSTS, max_size=4), state=st.sampled_from([State.WAITING, State.OLD, State.DONE]), mark=POSTS
    )
    def take(self, numbers: list[int], state: State, mark: int) -> None:
        taken = [
            Taken(
                post=a_post(number), state=state, outgoing=(outgoing(f"taken{number}"),) if state is State.DONE else ()
            )
            for number in numbers
        ]
        new = self.store.take(taken, {DIRECT: Timestamp(mark), TOWN: Timestamp(7 - mark)})
        expected = []
        for number in dict.fromkeys(numbers):
            post = a_post(number)
            if post.id not in self.model.states:
                self.model.states[post.id], self.model.posts[post.id] = state, post
                expected.append(post.id)
                if state is State.DONE:
                    self.model.told.add(post.id)
                    self.model.add(f"taken{number}")
        for channel, at in ((DIRECT, mark), (TOWN, 7 - mark)):
            self.model.marks[channel] = max(at, self.model.marks.get(channel, at))
        assert [post.id for post in new] == expected

    @rule(number=POSTS, turn=TURNS)
    def asked(self, number: int, turn: int) -> None:
        post = a_post(number)
        self.store.asked(post.id, session_of(post.thread), turn)
        if self.model.states.get(post.id) in (State.WAITING, State.ASKED, State.DONE):
            self.model.states[post.id] = State.ASKED
            self.model.turns[post.id] = (session_of(post.thread), turn)

    @rule(thread=st.sampled_from(THREADS), turn=TURNS, parts=st.integers(0, 2))
    def answered(self, thread: MattermostId, turn: int, parts: int) -> None:
        session = session_of(thread)
        keys = [f"{session}:{turn}:{part}" for part in range(parts)]
        self.store.answered(session, turn, [outgoing(key) for key in keys])
        for id_, state in self.model.states.items():
            if state is State.ASKED and self.model.turns[id_] == (session, turn):
                self.model.states[id_] = State.DONE
        if keys and keys[0] not in self.model.keys:
            self.model.add(*keys)

    @rule(number=POSTS, state=st.sampled_from([State.DONE, State.PARKED]))
    def settle(self, number: int, state: State) -> None:
        post = a_post(number)
        waited = self.model.states.get(post.id) is State.WAITING
        assert self.store.settle(post.id, state, [outgoing(f"settled{number}")]) is waited
        if waited:
            self.model.states[post.id] = state
            self.model.add(f"settled{number}")

    @rule(number=POSTS)
    def take_back(self, number: int) -> None:
        id_ = a_post(number).id
        sessions = self.store.take_back(id_)
        gone = [one for one in self.model.posts.values() if id_ in (one.id, one.thread)]
        for post in gone:
            if self.model.states[post.id] in (State.WAITING, State.OLD):
                self.model.states[post.id] = State.DONE
        at_work = {self.model.turns[post.id][0] for post in gone if self.model.states[post.id] is State.ASKED}
        assert set(sessions) == (at_work if number < 2 else set())

    @rule(number=POSTS, same=st.booleans())
    def edited(self, number: int, same: bool) -> None:
        post = a_post(number)
        told = self.store.text_told(post.id, post.text if same else "another", [outgoing(f"edited{number}")])
        used = self.model.states.get(post.id) not in (None, State.OLD, State.LISTED)
        assert told is (used and not same and post.id not in self.model.told)
        if told:
            self.model.told.add(post.id)
            self.model.add(f"edited{number}")

    @rule()
    def list_old(self) -> None:
        old = [id_ for id_, state in self.model.states.items() if state is State.OLD]
        for user, count in self.store.old_authors().items():
            assert count == len(old)
            self.store.list_old(user, [outgoing(f"list{len(self.model.keys)}")])
            self.model.add(f"list{len(self.model.keys)}")
        self.model.states.update(dict.fromkeys(old, State.LISTED))

    @rule()
    def post(self) -> None:
        for unsent in self.store.unsent(1):
            self.store.trying(unsent.number)
            self.store.sent(unsent.number, an_id("made", unsent.number))
            self.model.sent.add(unsent.outgoing.key)

    @rule()
    def kill(self) -> None:
        self.lives += 1
        shutil.copytree(self.root / str(self.lives - 1), self.root / str(self.lives))
        self.store.close()
        self.store = Store.open(self.root / str(self.lives), self.clock)

    @invariant()
    def both_are_the_same(self) -> None:
        model = self.model
        for number in range(8):
            id_ = a_post(number).id
            assert self.store.known(id_) is model.states.get(id_)
        waiting = [model.posts[id_] for id_, state in model.states.items() if state is State.WAITING]
        assert self.store.waiting() == tuple(sorted(waiting, key=lambda post: (post.create_at, post.id)))
        open_turns = {model.turns[id_] for id_, state in model.states.items() if state is State.ASKED}
        assert [(turn.session, turn.turn) for turn in self.store.open_turns()] == sorted(open_turns)
        assert [unsent.outgoing.key for unsent in self.store.unsent()] == model.to_be_posted()
        assert self.store.marks() == model.marks
        counts, states = self.store.counts(), list(model.states.values())
        assert (counts.waiting, counts.asked) == (states.count(State.WAITING), states.count(State.ASKED))
        assert counts.listed == states.count(State.OLD) + states.count(State.LISTED)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
