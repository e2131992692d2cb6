"""Nothing but policy makes a Decision, and each is good for one run."""

import copy
import pickle
import threading
from collections.abc import Callable

import attrs
import pytest

from brokerd import policy
from brokerd.call import FRESH, Call
from brokerd.policy import Ask, Decision, Denial, Outcome, SealError
from bxcore import convert
from bxcore.grants import Mode
from bxcore.timestamp import Timestamp
from tests.fakes import calls

ROUNDS = 1_000
NOW = Timestamp(1)
AUTO = calls.grant_set(calls.grant("a", Mode.AUTO))
ASK = calls.grant_set(calls.grant("a", Mode.ASK))


def decision() -> Decision:
    made = policy.decide(AUTO, calls.call(), FRESH, NOW)
    assert isinstance(made, Decision)
    return made


def ask() -> Ask:
    made = policy.decide(ASK, calls.call(), FRESH, NOW)
    assert isinstance(made, Ask)
    return made


def denial() -> Denial:
    made = policy.decide(calls.grant_set(), calls.call(), FRESH, NOW)
    assert isinstance(made, Denial)
    return made


def test_a_decision_is_spent_once() -> None:
    call = calls.call()
    made = policy.decide(AUTO, call, FRESH, NOW)
    assert isinstance(made, Decision)
    assert policy.spend(made) is call
    with pytest.raises(SealError):
        policy.spend(made)


def test_an_ask_becomes_one_decision() -> None:
    asked = ask()
    made = policy.redecide(asked, ASK, calls.call(), FRESH, NOW)
    assert isinstance(made, Decision)
    assert policy.spend(made) is asked.call
    with pytest.raises(SealError):
        policy.redecide(asked, ASK, calls.call(), FRESH, NOW)


def test_an_ask_that_came_to_a_denial_is_used_up_too() -> None:
    asked = ask()
    assert isinstance(policy.redecide(asked, calls.grant_set(), calls.call(), FRESH, NOW), Denial)
    with pytest.raises(SealError):
        policy.redecide(asked, ASK, calls.call(), FRESH, NOW)


def forged_ask() -> object:
    other = ask()
    object.__setattr__(other, "__class__", Decision)
    return other


FORGERIES: dict[str, Callable[[], object]] = {
    "an empty shell": lambda: object.__new__(Decision),
    "an ask of another class": forged_ask,
    "an ask": ask,
    "a denial": denial,
    "the call": calls.call,
    "nothing": lambda: None,
    "the class": lambda: Decision,
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_nothing_but_an_unspent_decision_can_be_spent(forge: Callable[[], Decision]) -> None:
    with pytest.raises(SealError):
        policy.spend(forge())


def test_a_denial_cannot_even_be_relabelled() -> None:
    with pytest.raises(TypeError):
        object.__setattr__(denial(), "__class__", Decision)


def test_a_shell_of_an_ask_cannot_be_answered() -> None:
    with pytest.raises(SealError):
        policy.redecide(object.__new__(Ask), ASK, calls.call(), FRESH, NOW)


def test_what_runs_is_what_policy_remembers() -> None:
    made, other = decision(), calls.call(path="/etc/shadow")
    object.__setattr__(made, "call", other)
    object.__setattr__(made, "request", other.request)
    assert policy.spend(made).path == "/data/a"


def test_what_was_asked_about_is_what_policy_remembers() -> None:
    asked, other = ask(), calls.call(path="/etc/shadow")
    object.__setattr__(asked, "call", other)
    object.__setattr__(asked, "request", other.request)
    object.__setattr__(asked, "grant", "b")
    made = policy.redecide(asked, ASK, calls.call(), FRESH, NOW)
    assert isinstance(made, Decision)
    assert made.call.path == "/data/a"


OUTCOMES: dict[str, Callable[[], Outcome]] = {"decision": decision, "ask": ask, "denial": denial}


@pytest.mark.parametrize("make", OUTCOMES.values(), ids=OUTCOMES.keys())
def test_an_outcome_cannot_be_changed_copied_or_stored(make: Callable[[], Outcome]) -> None:
    made = make()
    shown = made.grant
    attempts: list[Callable[[], object]] = [
        lambda: setattr(made, "grant", "b"),
        lambda: setattr(made, "note", "b"),
        lambda: setattr(made, "__class__", Decision),
        lambda: delattr(made, "grant"),
        lambda: copy.copy(made),
        lambda: copy.deepcopy(made),
        lambda: copy.deepcopy([made]),
        lambda: pickle.dumps(made),
        lambda: pickle.dumps(made, protocol=0),
        lambda: type(made)(object(), request=made.request),
        lambda: type("Sub", (type(made),), {}),
    ]
    for attempt in attempts:
        with pytest.raises(SealError):
            attempt()
    assert made.grant == shown
    with pytest.raises(attrs.exceptions.NotAnAttrsClassError):
        attrs.evolve(made, grant="b")  # type: ignore[misc]  # that is what is tried


@pytest.mark.parametrize("kind", [Outcome, Decision, Ask, Denial])
def test_no_frame_and_no_file_becomes_an_outcome(kind: type) -> None:
    with pytest.raises(TypeError):
        convert.structure({}, kind)


@pytest.mark.parametrize("make", OUTCOMES.values(), ids=OUTCOMES.keys())
def test_no_outcome_is_written(make: Callable[[], Outcome]) -> None:
    with pytest.raises(TypeError):
        convert.unstructure(make())


def test_what_is_thrown_away_is_forgotten() -> None:
    before = len(policy._unspent), len(policy._open_asks)
    for _ in range(100):
        decision()
        ask()
    assert (len(policy._unspent), len(policy._open_asks)) == before


def test_no_outcome_shows_its_call_in_a_log() -> None:
    assert "data" not in repr(decision()) + str(ask())


# -- two at once --------------------------------------------------------------------------------


def winners(attempt: Callable[[], object]) -> int:
    """Let two threads do the same at the same moment, and count those that were let."""
    together, won = threading.Barrier(2), []

    def run() -> None:
        together.wait()
        try:
            won.append(attempt())
        except SealError:
            pass  # the other one was first

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(won)


def test_of_two_that_spend_one_decision_one_may() -> None:
    for _ in range(ROUNDS):
        made = decision()
        assert winners(lambda made=made: policy.spend(made)) == 1  # type: ignore[misc]  # bound now, not later


def test_of_two_that_answer_one_ask_one_may() -> None:
    call: Call = calls.call()
    for _ in range(ROUNDS):
        asked = ask()
        assert winners(lambda asked=asked: policy.redecide(asked, ASK, call, FRESH, NOW)) == 1  # type: ignore[misc]  # as above
