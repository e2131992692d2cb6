"""Exactly one gets a question, places are counted, and a refused call is not asked about again."""

import threading

import attrs

from brokerd import pendingtable
from brokerd.claims import SESSIONS, WINDOW, Claims
from brokerd.pendingtable import MINUTE_MS, PendingTable
from bxcore.ids import CallId, Hash32, SessionId
from bxcore.settings.brokerd import Approvals
from tests.fakes.clocks import HandClock

HOUR_MS = 3_600_000


def digest(number: int) -> Hash32:
    return Hash32(f"{number:064x}")


GRANTS = digest(0)


@attrs.frozen
class Entry:
    id: int


def table(clock: HandClock | None = None, **limits: int) -> PendingTable[Entry]:
    return PendingTable(Approvals(**limits), clock or HandClock())


def test_of_two_who_take_a_question_exactly_one_gets_it() -> None:
    """Double approval, a thousand rounds."""
    questions: PendingTable[Entry] = table(per_minute=10_000)
    for number in range(1000):
        assert questions.admit(digest(number), GRANTS) is None
        entry = Entry(number)
        questions.put(entry)
        together, got = threading.Barrier(2), list[bool]()

        def take(entry: Entry = entry, together: threading.Barrier = together, got: list[bool] = got) -> None:
            together.wait()
            got.append(questions.take(entry))

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == [False, True]
    assert questions.entries() == []


def test_an_entry_that_is_not_the_one_of_that_number_takes_nothing() -> None:
    questions = table()
    questions.admit(digest(1), GRANTS)
    questions.put(Entry(1))
    assert not questions.take(Entry(1))
    assert questions.find(1) is not None


def test_only_so_many_are_open_kept_places_included() -> None:
    questions = table(open=2)
    assert [questions.admit(digest(number), GRANTS) for number in range(3)] == [
        None,
        None,
        "too many questions are open",
    ]
    questions.give_back()
    assert questions.admit(digest(4), GRANTS) is None
    first, second = Entry(1), Entry(2)
    questions.put(first)
    questions.put(second)
    assert questions.admit(digest(5), GRANTS) == "too many questions are open"
    assert questions.take(first)
    assert questions.admit(digest(6), GRANTS) is None
    assert questions.entries() == [second]


def test_a_thousand_questions_in_a_minute_are_cut_to_the_rate() -> None:
    """G14."""
    clock = HandClock()
    questions = table(clock, per_minute=20, open=1024)

    def asked() -> int:
        return sum(questions.admit(digest(number), GRANTS) is None for number in range(1000))

    assert asked() == 20
    clock.wind(MINUTE_MS - 1)
    assert asked() == 0
    clock.wind(1)
    assert asked() == 20


def test_a_refused_call_is_refused_again_until_time_or_the_grants_have_changed() -> None:
    """G14: the identical repeat is answered from the denial."""
    clock = HandClock()
    questions = table(clock, ttl_ms=HOUR_MS)
    questions.refuse(digest(1), GRANTS)
    assert questions.admit(digest(1), GRANTS) == "the owner refused this very call before"
    assert questions.admit(digest(2), GRANTS) is None
    assert questions.admit(digest(1), digest(9)) is None
    clock.set_wall(2 * HOUR_MS)
    assert questions.admit(digest(1), GRANTS) is not None
    clock.wind(HOUR_MS)
    assert questions.admit(digest(1), GRANTS) is None


def test_what_is_remembered_of_refusals_is_bounded() -> None:
    questions = table(per_minute=10_000, open=1024)
    for number in range(pendingtable.REFUSALS + 1):
        questions.refuse(digest(number), GRANTS)
    assert questions.admit(digest(0), GRANTS) is None
    assert questions.admit(digest(pendingtable.REFUSALS), GRANTS) is not None


# -- claims -------------------------------------------------------------------------------------

S = SessionId("s")


def test_a_number_is_taken_once_in_whatever_order_they_come() -> None:
    claims = Claims()
    assert all(claims.take(S, CallId(number)) for number in (3, 1, 2, 9))
    assert not any(claims.take(S, CallId(number)) for number in (1, 2, 3, 9))
    assert claims.take(SessionId("t"), CallId(3))


def test_far_below_the_newest_every_number_counts_as_taken() -> None:
    claims = Claims()
    for number in range(10, 10 + 4 * WINDOW):
        assert claims.take(S, CallId(number))
    assert not claims.take(S, CallId(9))
    assert not any(claims.take(S, CallId(number)) for number in range(10, 10 + 4 * WINDOW))
    assert claims.take(S, CallId(1000))


def test_the_sessions_that_spoke_last_are_remembered() -> None:
    claims = Claims()
    for number in range(SESSIONS + 1):
        claims.take(SessionId(f"s{number}"), CallId(1))
    assert not claims.take(SessionId("s1"), CallId(1))
    assert claims.take(SessionId("s0"), CallId(1))


def test_two_who_send_the_same_call_at_once_are_told_apart() -> None:
    claims, got = Claims(), list[bool]()
    for number in range(1, 1001):
        together = threading.Barrier(2)

        def take(number: int = number, together: threading.Barrier = together) -> None:
            together.wait()
            got.append(claims.take(S, CallId(number)))

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (got.count(True), got.count(False)) == (1000, 1000)
