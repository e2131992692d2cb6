"""What a turn looks like: streaming, thinking, tools, waiting, coming back, the end."""

import json
import re
import unicodedata

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore.wire import channel
from bxcore.wire.channel import TurnEnding, TurnState, WaitReason
from bxctl import blocks
from bxctl.events import JsonView, TurnView, Wishes
from bxctl.render import Screen
from tests.fakes import loopd
from tests.fakes.clocks import HandClock
from tests.fakes.loopd import ended, part, progress, text, thought
from tests.fakes.screens import FakeTerminal

OVER = channel.TurnSnapshot(turn=1, state=TurnState.ENDED, step=0, reasoning="", text="")
OURS = re.compile(r"\r?\x1b\[K|\r?\x1b\[[0-9;]*m")


@attrs.define
class Watched:
    """A view of one turn on a terminal (or not), and what it wrote."""

    stream: FakeTerminal
    view: TurnView
    clock: HandClock

    def show(self, *events: object) -> str:
        for event in events:
            self.view.show(event)
        return self.plain()

    def plain(self) -> str:
        """What stands there once colours and redrawing are taken away."""
        return OURS.sub("", self.stream.getvalue())


def watched(*, terminal: bool = True, term: str = "xterm", **wishes: bool) -> Watched:
    clock, stream = HandClock(), FakeTerminal(terminal=terminal)
    screen = Screen(stream, {"TERM": term})
    chosen = Wishes(**{"usage": False, **wishes})
    return Watched(stream, TurnView(answer=screen, aside=screen, clock=clock, wishes=chosen), clock)


# -- text ----------------------------------------------------------------------------------------------


def test_line_breaks_around_a_text_are_not_shown_and_those_inside_are() -> None:
    seen = watched().show(
        thought("\n\nOne\n"), thought("\ntwo\n\n"), text("\n\nAns"), text("wer\n\n"), ended("\n\nAnswer\n\n")
    )
    assert seen == "~ One\n~ \n~ two\nAnswer\n"


def test_the_final_text_is_not_said_twice() -> None:
    assert watched().show(text("Hello."), ended("Hello.")) == "Hello.\n"


def test_what_never_streamed_is_shown_at_the_end() -> None:
    assert watched().show(text("Hel"), ended("Hello.")) == "Hello.\n"
    assert watched().show(ended("Hello.")) == "Hello.\n"


def test_a_long_answer_that_streamed_is_not_said_again_by_its_parts() -> None:
    seen = watched().show(text("0123456789"), text("abcde"), part("01234"), part("56789"), ended("abcde"))
    assert seen == "0123456789abcde\n"


def test_a_long_answer_that_did_not_stream_is_shown_whole() -> None:
    assert watched().show(part("01234"), part("56789"), ended("abcde")) == "0123456789abcde\n"


def test_into_a_pipe_a_long_answer_goes_whole_and_once() -> None:
    pipe = watched(terminal=False)
    assert pipe.show(text("0123456789abcde"), part("0123456789"), ended("abcde")) == "0123456789abcde\n"


def test_the_parts_of_a_connection_that_broke_do_not_count() -> None:
    pipe = watched(terminal=False)
    assert pipe.show(part("01234"), OVER, part("01234"), part("56789"), ended("abcde")) == "0123456789abcde\n"


def test_hushed_words_do_not_cost_a_long_answer_its_front() -> None:
    pipe = watched(terminal=False)
    pipe.view.hush()
    assert pipe.show(text("0123456789abcde"), OVER, part("0123456789"), ended("abcde")) == "0123456789abcde\n"


def test_the_text_of_an_earlier_step_is_not_said_again() -> None:
    events = (text("Let me look."), loopd.called("clock", "{}"), loopd.returned("clock", "noon"), text("Noon.", step=2))
    assert watched().show(*events, ended("Noon.")) == "Let me look.\n· clock {} → 4 B\nNoon.\n"


def test_where_the_answer_goes_into_a_pipe_it_comes_once_and_whole() -> None:
    clock, pipe, terminal = HandClock(), FakeTerminal(terminal=False), FakeTerminal()
    view = TurnView(
        answer=Screen(pipe, {}), aside=Screen(terminal, {}), clock=clock, wishes=Wishes(reasoning=True, usage=False)
    )
    for event in (thought("Hm."), text("A\x1b"), text("B"), ended("A\x1bB\n")):
        view.show(event)
    assert pipe.getvalue() == "A\x1bB\n"
    assert terminal.getvalue() == "~ Hm.\n"


def test_hidden_thinking_still_shows_that_it_goes_on() -> None:
    turn = watched(reasoning=False)
    turn.show(thought("secret"))
    turn.clock.wind(5_000)
    turn.view.tick()
    assert "thinking (5.0 s)" in turn.plain()
    assert "secret" not in turn.show(text("Four."), ended("Four."))


def test_a_tick_in_the_middle_of_a_text_changes_nothing() -> None:
    turn = watched()
    turn.show(progress(1), text("One"))
    turn.view.tick()
    assert turn.show(text(" two.")).endswith("One two.")


# -- tools ---------------------------------------------------------------------------------------------


def test_a_call_that_was_not_carried_out_says_why() -> None:
    seen = watched().show(loopd.called("rm", "{}"), loopd.returned("rm", "no such tool", ok=False))
    assert seen == "· rm {}\n  → not carried out: no such tool\n"


LONG = {
    "path": ("path …" + "d" * 27 + "/notes.txt", {"content": "x" * 99, "path": "/srv/" + "d" * 60 + "/notes.txt"}),
    "command": ("ls -la /srv", {"directory": "/srv", "command": "ls -la /srv", "milliseconds": 5, "more": "x" * 99}),
    "no telling one": ('{"a": "xxx', {"a": "x" * 99}),
    "no text": ('{"path": [', {"path": ["x" * 99]}),
}


@pytest.mark.parametrize(("shown", "arguments"), LONG.values(), ids=LONG.keys())
def test_a_long_call_shows_what_tells_most(shown: str, arguments: dict[str, object]) -> None:
    seen = watched().show(loopd.called("write_file", json.dumps(arguments)))
    assert shown in seen
    assert len(seen) < 80 - len(" → 16.0 kB, cut")


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"path": "' + "x" * 99, '["' + "x" * 99 + '"]'])
def test_a_call_that_is_no_object_is_shown_cut_in_the_middle(arguments: str) -> None:
    seen = watched().show(loopd.called("read_file", arguments))
    assert seen.startswith(f"· read_file {arguments[:8]}")
    assert seen.endswith(arguments[-4:])
    assert len(seen) < 80


def test_a_denial_ends_in_its_entry_of_the_runbook_however_long_it_is() -> None:
    denied = loopd.returned("rm", "denied: no_grant (no grant is for " + "x" * 400 + ")", ok=False)
    assert watched().show(loopd.called("rm", "{}"), denied).split()[-1] == "[no_grant]"
    bare = loopd.returned("rm", "denied: approval_refused", ok=False)
    assert watched().show(bare) == "· rm → not carried out: denied [approval_refused]\n"


def test_why_a_call_was_not_carried_out_is_told_whole() -> None:
    why = "stopped by the owner: not run, unless question 42 had already been approved; the rest is not known"
    seen = watched().show(loopd.returned("write_file", why, ok=False))
    assert all(len(line) < 80 for line in seen.splitlines())
    assert " ".join(seen.split()) == f"· write_file → not carried out: {why}"


def test_results_that_come_in_another_order_name_their_tool() -> None:
    seen = watched().show(
        loopd.called("a", "{}", call=1),
        loopd.called("b", "{}", call=2),
        loopd.returned("a", "1", call=1),
        loopd.returned("b", "22", call=2),
    )
    assert seen == "· a {}\n· b {}\n· a → 1 B\n· b → 2 B\n"


def test_a_call_never_fills_more_than_its_line() -> None:
    seen = watched().show(loopd.called("write", json.dumps({"text": "x\n" * 5_000})), loopd.returned("write", "ok"))
    assert seen.count("\n") == 1
    assert len(seen) <= 80


def test_a_name_that_the_model_made_up_does_not_fill_the_screen() -> None:
    assert watched().show(loopd.called("x" * 5_000, "{}")) == "· " + "x" * 39 + "… {}"


def test_a_cut_result_says_so() -> None:
    returned = attrs.evolve(loopd.returned("read", "x" * 2_000), truncated=True)
    assert watched().show(loopd.called("read", "{}"), returned) == "· read {} → 2.0 kB, cut\n"


# -- waiting -------------------------------------------------------------------------------------------


def test_a_prompt_that_is_read_fast_shows_no_bar() -> None:
    turn = watched()
    turn.show(progress(100))
    turn.clock.wind(299)
    turn.show(progress(900), text("Done."))
    assert turn.plain() == "Done."


def test_the_bar_counts_only_what_was_not_cached_and_says_how_long_it_will_take() -> None:
    turn = watched()
    turn.show(progress(800, cached=800))
    turn.clock.wind(6_000)
    turn.show(progress(950, cached=800))
    assert "reading  75% " + "█" * 18 + "░" * 6 + " of 200 tokens (6.0 s, about 2.0 s left)" in turn.plain()


def test_a_second_prompt_of_the_turn_has_a_bar_of_its_own() -> None:
    turn = watched()
    turn.show(progress(100))
    turn.clock.wind(5_000)
    turn.show(progress(900), progress(10, step=2))
    turn.clock.wind(200)
    turn.view.tick()
    assert "of 1,000 tokens (5.0 s" in turn.plain()
    assert turn.plain().count("reading") == 1


def waiting(waited_ms: int, reason: WaitReason = WaitReason.SLOT_BUSY) -> channel.TurnWaiting:
    return channel.TurnWaiting(turn=1, reason=reason, waited_ms=waited_ms, limit_ms=600_000)


def test_waiting_counts_on_between_two_events() -> None:
    turn = watched()
    turn.show(waiting(2_000))
    turn.clock.wind(1_500)
    turn.view.tick()
    assert turn.plain().endswith("which answers somebody else (3.5 s)")


def test_where_nothing_can_be_redrawn_waiting_is_told_now_and_then() -> None:
    turn = watched(term="dumb")
    for waited_ms in range(0, 21_000, 500):
        turn.show(waiting(waited_ms))
        turn.clock.wind(500)
    turn.show(waiting(0, WaitReason.MODEL_LOADING))
    lines = turn.plain().splitlines()
    assert [line.split(" (")[-1] for line in lines[:3]] == [lines[0], "10 s)", "20 s)"]
    assert lines[3].startswith("waits for the model to load")


def test_a_queued_message_says_what_comes_first() -> None:
    accepted = channel.MessageAccepted(
        session=loopd.session("s"), key=attrs.evolve(loopd.started("k")).keys[0], turn=2, queued=True, duplicate=False
    )
    assert "waits for the turn before it" in watched().show(accepted)


@pytest.mark.parametrize("reason", WaitReason)
def test_every_reason_to_wait_has_words(reason: WaitReason) -> None:
    assert watched().show(waiting(9_000, reason)).endswith(f"{blocks.WAITING[reason]} (9.0 s)")


def test_a_limit_is_told_when_it_is_near() -> None:
    turn = watched()
    assert "gives up" not in turn.show(waiting(470_000))
    turn.clock.wind(10_000)
    turn.view.tick()
    assert turn.plain().endswith("(8 min), gives up in 2 min")


# -- a cancel ------------------------------------------------------------------------------------------


def cancelled(words: str) -> channel.TurnEnded:
    return ended(words, ending=TurnEnding.CANCELLED, sentence="You stopped it.")


def test_text_that_comes_after_a_cancel_is_not_shown() -> None:
    turn = watched()
    turn.show(thought("Hm."), text("One, two"))
    turn.view.hush()
    seen = turn.show(text(", three"), thought("more", step=2), cancelled("One, two, three"))
    assert seen == "~ Hm.\nOne, two\n! You stopped it. [cancelled]\n"


def test_a_turn_that_goes_on_after_all_shows_what_was_hushed() -> None:
    turn = watched()
    turn.show(text("One, two"))
    turn.view.hush()
    turn.show(text(", three"))
    turn.view.resume()
    assert turn.show(text(", four."), ended("One, two, three, four.")) == "One, two, three, four.\n"


def test_a_cancel_that_came_too_late_hides_nothing() -> None:
    turn = watched()
    turn.view.hush()
    assert turn.show(text("Done"), text("."), ended("Done.")) == "Done.\n"


def test_a_pipe_gets_what_there_is_of_a_cancelled_answer() -> None:
    pipe = watched(terminal=False)
    pipe.view.hush()
    assert pipe.show(text("One"), cancelled("One")) == "One\n! You stopped it. [cancelled]\n"


# -- coming back ---------------------------------------------------------------------------------------


def snapshot(reasoning: str, words: str, state: TurnState = TurnState.RUNNING, step: int = 1) -> channel.TurnSnapshot:
    return channel.TurnSnapshot(turn=1, state=state, step=step, reasoning=reasoning, text=words)


def test_a_turn_found_again_shows_only_what_was_missed() -> None:
    seen = watched().show(thought("Hm"), snapshot("Hm, so", "It is"), text(" noon."), ended("It is noon."))
    assert seen == "~ Hm, so\nIt is noon.\n"


def test_a_turn_found_again_in_a_later_step_shows_that_step_whole() -> None:
    events = (text("First"), snapshot("", "Second", step=3), text(" step.", step=3), ended("Second step."))
    assert watched().show(*events) == "First\nSecond step.\n"


def test_a_turn_that_is_over_when_it_is_found_again_shows_its_end() -> None:
    end = ended("Half", ending=TurnEnding.INTERRUPTED, sentence="loopd was stopped.")
    seen = watched().show(text("Half"), snapshot("", "", TurnState.ENDED, step=0), end)
    assert seen == "Half\n! loopd was stopped. [interrupted]\n"


# -- the end -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [ending for ending in TurnEnding if ending is not TurnEnding.ANSWERED])
def test_every_other_ending_is_visible(ending: TurnEnding) -> None:
    assert f"! Why. [{ending.value}]" in watched().show(ended("", ending=ending, sentence="Why."))
    assert f"[{ending.value}]" in watched().show(ended("", ending=ending, sentence=None))


def test_the_usage_line_tells_what_was_re_read() -> None:
    usage = channel.StepUsage(turn=1, step=1, prompt=120, cached=100, read=20, reread=15, output=7, reasoning=0)
    seen = watched(usage=True).show(text("Hi."), usage, ended("Hi."))
    assert seen.endswith("  read 20 tokens (15 re-read), 100 from the cache; wrote 7; 1.2 s\n")


def test_a_turn_that_never_reached_the_model_has_no_usage_line() -> None:
    end = attrs.evolve(ended("", ending=TurnEnding.SERVER_LOST, sentence="Gone."), prompt=0)
    assert watched(usage=True).show(end) == "! Gone. [server_lost]\n"


# -- what a model may not do ---------------------------------------------------------------------------

POISON = st.text(st.one_of(st.characters(), st.sampled_from("\x1b\x9b\r\x07\b\u202e\u2066\u200b\ufeff\U000e0041\n")))


@given(POISON, st.booleans())
def test_nothing_from_outside_steers_the_terminal(poison: str, reasoning: bool) -> None:
    turn = watched(reasoning=reasoning, usage=True)
    seen = turn.show(
        thought(poison),
        text(poison),
        loopd.called(poison, poison),
        loopd.returned(poison, poison),
        loopd.returned(poison, poison, call=2, ok=False),
        loopd.notice(poison, poison),
        snapshot(poison + "a", poison + "b"),
        ended(poison + "c", ending=TurnEnding.INTERNAL, sentence=poison),
    )
    hidden = {character for character in seen if unicodedata.category(character) in ("Cc", "Cf", "Co", "Zl", "Zp")}
    assert hidden <= {"\n", "\t"}


# -- events for programs -------------------------------------------------------------------------------


@given(st.text())
def test_json_lines_are_one_line_of_ascii_with_the_wires_own_fields(words: str) -> None:
    stream = FakeTerminal(terminal=False)
    view = JsonView(stream)
    view.tick()
    view.tell("not an event")
    view.show(text(words))
    assert stream.getvalue().isascii()
    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue()) == {"kind": "text_delta", "turn": 1, "step": 1, "text": words}
