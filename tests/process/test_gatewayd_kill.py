"""kill -9 at every step, and at random moments under load: no post is lost, no turn and no answer is doubled."""

import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.contract.gateway.people import Town, until
from tests.contract.gateway.place import Place, place
from tests.contract.gateway.served import fake_server
from tests.process import loopd_stack

KILLS = 100
DROPS = 100
MOST_STEPS = 40
"""No conversation of one post has so many; the test ends where a gatewayd survives all that there are."""


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with fake_server() as url:
        yield url


@pytest.fixture
def here(server_url: str) -> Iterator[Place]:
    """gatewayd, not started yet, with a loopd that answers."""
    town = Town(server_url)
    with place(town) as made:
        yield made
    town.close()


class Load:
    """The owner, talking in several threads until told to stop. `said` is every text that the server has."""

    def __init__(self, place: Place, *, seed: int) -> None:
        self._place = place
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self.said: list[str] = []
        self.roots: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _talk(self) -> None:
        owner, direct = self._place.town.owner, self._place.town.direct
        while not self._stop.wait(self._random.uniform(0.05, 0.4)):
            text = f"number {len(self.said)}."
            if self.roots and self._random.random() < 0.5:
                owner.say(direct, text, root=self._random.choice(self.roots[-5:]))
            else:
                self.roots.append(owner.say(direct, text)["id"])
            self.said.append(text)


def judge(here: Place, said: list[str]) -> None:
    """Wait until all is said and done; then each text is in one turn and in one answer."""
    for _ in said:  # each time the whole patience, since a machine with other work takes its time over hundreds
        had = len(answered(here))
        if had >= len(said):
            break
        until(lambda had=had: len(answered(here)) > had, f"more than {had} of {len(said)} answers")  # type: ignore[misc]
    here.idle()
    assert sorted(answered(here)) == sorted(said)
    posts = here.town.owner.channel(here.town.direct)
    keys = [post["props"]["boxmaker"] for post in posts if post["user_id"] == here.town.bot_id]
    assert len(set(keys)) == len(keys)
    records = [record for folder in (here.loop.state / "sessions").iterdir() if not folder.name.startswith(".")
               for record in here.loop.records(folder.name)]  # fmt: skip
    heard = [record["key"] for record in loopd_stack.of(records, "user")]
    turned = [key for record in loopd_stack.of(records, "turn_start") for key in record["keys"]]
    assert len(set(heard)) == len(heard) == len(said)
    assert sorted(turned) == sorted(heard)


def answered(here: Place) -> list[str]:
    """What the bot's answers repeat."""
    posts = here.town.owner.channel(here.town.direct)
    answers = [post["message"] for post in posts if post["user_id"] == here.town.bot_id]
    return [line for text in answers for line in text.removeprefix("You said: ").split("\n\n")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_each_step_loses_and_doubles_nothing(here: Place, when: str) -> None:
    here.module = ("tests.process.broken_gatewayd",)
    said = []
    for step in range(1, MOST_STEPS):
        role = here.start()
        here.configure().with_name("break").write_text(f"{when} {step}")
        said.append(f"killed {when} step {step}")
        here.town.owner.say(here.town.direct, said[-1])
        until(lambda role=role: role.process.poll() is not None or _idle(here, said), "dead or done")  # type: ignore[misc]
        survived = role.process.poll() is None
        here.kill()
        here.configure().with_name("break").unlink(missing_ok=True)
        if survived:
            break
    assert survived, "a conversation of one post has more steps than this test knows"
    assert step > 5, "the order to die was not followed"
    here.start()
    judge(here, said)


def _idle(here: Place, said: list[str]) -> bool:
    try:
        report = here.status()
    except Exception:  # noqa: BLE001 - it may have died while it was asked
        return False
    if report.waiting or report.asked or report.outgoing:
        return False
    return any(said[-1] in post["message"] for post in here.town.owner.channel(here.town.direct)
               if post["user_id"] == here.town.bot_id)  # fmt: skip


def test_a_hundred_kills_under_load(here: Place) -> None:
    chance = random.Random(5)
    here.start()  # what was said before a queue was first opened is nobody's
    here.kill()
    with Load(here, seed=6) as load:
        for _ in range(KILLS):
            role = here.start(wait=False)
            # Now and then before the queue is open; mostly while it catches up, says, follows and posts.
            if chance.random() < 0.8:
                role.wait_ready()
            time.sleep(chance.uniform(0.0, 0.4))
            here.kill()
    here.start()
    judge(here, load.said)
    assert len(load.said) > KILLS / 2


def test_a_hundred_disconnects_under_load(here: Place) -> None:
    chance = random.Random(7)
    here.start()
    with Load(here, seed=8) as load:
        dropped = 0
        while dropped < DROPS:
            time.sleep(chance.uniform(0.05, 0.6))
            dropped += bool(here.proxy.drop())
    judge(here, load.said)
    assert len(load.said) > DROPS / 4


@pytest.mark.parametrize("part", ["loopd", "inferproxy"])
def test_kills_of_the_parts_behind_it(here: Place, part: str) -> None:
    here.start()
    with Load(here, seed=9) as load:
        for _ in range(5):
            time.sleep(1)
            here.loop.kill(part)
            here.loop.start_again(part)
    here.idle()
    posts = here.town.owner.channel(here.town.direct)
    keys = [post["props"]["boxmaker"] for post in posts if post["user_id"] == here.town.bot_id]
    assert len(set(keys)) == len(keys)
    answered = {post["root_id"] for post in posts if post["user_id"] == here.town.bot_id}
    assert answered == set(load.roots)
