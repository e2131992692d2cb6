import pytest

from bxcore.ids import CallId, MessageKey
from bxcore.sessionrecords import Record
from bxcore.wire.channel import TurnEnding
from loopd.history import REREAD_OVERLAP, History
from tests.fakes.records import call, end, result, said, start, usage, user


def after(*records: Record) -> History:
    return then(History("You are Boxmaker."), *records)


def then(history: History, *records: Record) -> History:
    for record in records:
        history.add(record)
    return history


def key(text: str) -> MessageKey:
    return MessageKey(text)


# -- turns and messages ---------------------------------------------------------------------------


def test_a_new_session_has_no_turn_and_nothing_open() -> None:
    history = after()
    assert (history.turn, history.open_turn, history.waiting, history.last_end) == (0, None, [], None)
    assert history.next_call() == CallId(1)


def test_a_message_belongs_to_the_turn_that_will_name_it() -> None:
    history = after(user("k1"))
    assert history.turn_of(key("k1")) == 1
    assert history.waiting == ["k1"]
    history.add(start(1, "k1"))
    assert (history.turn_of(key("k1")), history.waiting) == (1, [])


def test_a_message_during_a_turn_belongs_to_the_next() -> None:
    history = after(user("k1"), start(1, "k1"), user("k2"), user("k3"))
    assert (history.turn_of(key("k2")), history.turn_of(key("k3"))) == (2, 2)
    assert history.waiting == ["k2", "k3"]
    history.add(end())
    history.add(start(2, "k2", "k3"))
    assert history.waiting == []
    assert history.turn_of(key("k3")) == 2


def test_a_key_that_was_never_seen_has_no_turn() -> None:
    assert after(user("k1")).turn_of(key("K1")) is None


def test_a_turn_is_open_until_its_end() -> None:
    assert after(user("k1"), start(1, "k1")).open_turn == 1
    closing = end(TurnEnding.CANCELLED, sentence="Stopped.")
    history = after(user("k1"), start(1, "k1"), closing)
    assert history.open_turn is None
    assert history.last_end is closing
    assert history.turn == 1


def test_the_last_text_is_that_of_the_newest_reply_of_the_newest_turn() -> None:
    history = after(user("k1"), start(1, "k1"), said("one"), said("two"))
    assert history.last_text == "two"
    history.add(said(None))
    assert history.last_text == ""
    history.add(said("three"))
    history.add(end())
    assert history.last_text == "three"
    history.add(user("k2"))
    history.add(start(2, "k2"))
    assert history.last_text == ""


def test_calls_are_unanswered_in_their_order_until_their_result() -> None:
    asked = said("", calls=(call("a", "clock"), call("b", "find_tool"), call("c", "clock")))
    history = after(user("k1"), start(1, "k1"), asked, result("b"))
    assert list(history.unanswered_calls()) == [("a", "clock"), ("c", "clock")]
    history.add(result("a"))
    history.add(result("c"))
    assert list(history.unanswered_calls()) == []


def test_two_calls_of_one_name_and_id_want_two_results() -> None:
    """A server that repeats an id must not hide an orphan from the restart that completes it."""
    asked = said("", calls=(call("a", "clock"), call("a", "find_tool")))
    history = after(user("k1"), start(1, "k1"), asked)
    assert list(history.unanswered_calls()) == [("a", "clock"), ("a", "find_tool")]
    history.add(result("a"))
    assert list(history.unanswered_calls()) == [("a", "find_tool")]
    history.add(result("a"))
    assert list(history.unanswered_calls()) == []


def test_only_the_newest_reply_has_open_calls() -> None:
    history = after(user("k1"), start(1, "k1"), said("", calls=(call("a"),)), result("a"), said("done"))
    assert list(history.unanswered_calls()) == []


def test_call_numbers_go_on_over_turns_and_never_back() -> None:
    history = after(user("k1"), start(1, "k1"), said("", calls=(call("a"),)), result("a", number=7), end())
    assert history.next_call() == 8
    history.add(result("late", number=3))
    assert history.next_call() == 8


# -- tokens -----------------------------------------------------------------------------------------


def first_turn(*, prompt: int = 100, output: int = 20) -> History:
    return after(user("k1"), start(1, "k1"), said("a"), usage(prompt=prompt, cached=0, output=output), end())


def test_the_first_request_reads_nothing_again() -> None:
    assert after(user("k1"), start(1, "k1")).reread(prompt=5_000, cached=0) == 0


def test_a_strict_extension_reads_nothing_again() -> None:
    assert first_turn().reread(prompt=140, cached=120 - REREAD_OVERLAP) == 0
    assert first_turn().reread(prompt=140, cached=120) == 0


def test_what_lies_beyond_the_request_before_is_new() -> None:
    assert first_turn().reread(prompt=5_000, cached=0) == 120 - REREAD_OVERLAP


def test_a_shorter_prompt_cannot_reread_more_than_it_has() -> None:
    assert first_turn().reread(prompt=50, cached=10) == 50 - REREAD_OVERLAP - 10


def test_a_turn_that_was_taken_back_is_not_read_again() -> None:
    """The messages of a refused turn are gone, so those that follow in their place are new."""
    history = first_turn()
    refused = end(TurnEnding.CONTEXT_FULL, turn=2, sentence="Too long.", dropped=True)
    then(history, user("k2"), start(2, "k2"), said("", calls=(call("a"),), turn=2))
    then(history, usage(turn=2, prompt=900, cached=119, output=10), result("a", turn=2), refused)
    assert history.reread(prompt=400, cached=119) == 0


def test_a_second_turn_that_finds_its_cache_has_lost_nothing() -> None:
    history = first_turn()
    history.add(user("k2"))
    history.add(start(2, "k2"))
    assert history.lost(cached=119) is None


def test_a_cache_that_is_gone_is_lost_to_the_last_token() -> None:
    history = first_turn()
    history.add(user("k2"))
    history.add(start(2, "k2"))
    assert history.lost(cached=0) == 120


def test_nothing_is_lost_before_there_was_anything() -> None:
    history = after(user("k1"), start(1, "k1"))
    assert history.lost(cached=0) is None


def test_reading_the_last_turn_again_is_the_price_of_a_template_and_no_loss() -> None:
    """Such a template drops the thinking of a turn as soon as the next one begins."""
    history = first_turn(prompt=1_000, output=20)
    then(history, user("k2"), start(2, "k2"), said("b", turn=2), usage(turn=2, prompt=1_050, cached=1_000, output=900))
    then(history, end(turn=2), user("k3"), start(3, "k3"))
    assert history.lost(cached=1_050) is None
    assert history.lost(cached=1_040) is None  # such a template may render the generation prompt otherwise, too
    assert history.lost(cached=1_000) == 1_950


@pytest.mark.parametrize("uncounted", [1, 3])
def test_turns_without_usage_hide_no_loss_after_them(uncounted: int) -> None:
    """Interrupted, or the server was away: what it had before such a turn it should still have."""
    history = first_turn(prompt=1_000, output=20)
    then(history, user("k2"), start(2, "k2"), said("b", turn=2), usage(turn=2, prompt=1_050, cached=1_019, output=50))
    history.add(end(turn=2))
    for turn in range(3, 3 + uncounted):
        then(
            history, user(f"k{turn}"), start(turn, f"k{turn}"), end(TurnEnding.INTERRUPTED, turn=turn, sentence="Cut.")
        )
    last = 3 + uncounted
    then(history, user("last"), start(last, "last"))
    assert history.lost(cached=0) == 1_100
    assert history.lost(cached=630) == 1_100
    assert history.lost(cached=1_050) is None


def test_a_turn_that_follows_one_without_usage_counts_from_its_own_prompt() -> None:
    history = first_turn(prompt=1_000, output=20)
    then(history, user("k2"), start(2, "k2"), end(TurnEnding.SERVER_AWAY, turn=2, sentence="Away."))
    then(history, user("k3"), start(3, "k3"), said("c", turn=3), usage(turn=3, prompt=2_000, cached=1_019, output=900))
    then(history, end(turn=3), user("k4"), start(4, "k4"))
    assert history.lost(cached=2_000) is None  # the ordinary price of the last turn
    assert history.lost(cached=1_020) == 2_900


def test_far_less_than_expected_within_a_turn_is_a_loss() -> None:
    history = after(user("k1"), start(1, "k1"), said("", calls=(call("a"),)))
    history.add(usage(prompt=2_000, cached=0, output=50))
    assert history.lost(cached=1_990) is None
    assert history.lost(cached=1_000) == 2_050


def test_the_counts_of_an_opened_log_are_those_of_the_live_session() -> None:
    """The same fold for both: record by record, or all at once."""
    records: list[Record] = [user("k1"), start(1, "k1"), said("", calls=(call("a"), call("b"))), usage(prompt=50)]
    live = History("You are Boxmaker.")
    for count, record in enumerate(records, 1):
        live.add(record)
        reopened = after(*records[:count])
        assert reopened.prompt.body(b"[") == live.prompt.body(b"[")
        assert list(reopened.unanswered_calls()) == list(live.unanswered_calls())
        assert reopened.reread(prompt=60, cached=1) == live.reread(prompt=60, cached=1)


@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "taken back"])
def test_a_key_of_an_ended_turn_is_still_known(dropped: bool) -> None:
    history = after(user("k1"), start(1, "k1"), end(TurnEnding.SERVER_REFUSED, sentence="No.", dropped=dropped))
    assert history.turn_of(key("k1")) == 1
    assert history.waiting == []
