"""Conversations over Mattermost, as a person has them. The same against the fake server and a real one."""

import pytest

from bxcore.wire.channel import MAX_TEXT_BYTES
from tests.contract.gateway.people import Town, until
from tests.contract.gateway.place import ECHO, Place
from tests.fakes.llama_server import Pause, Reply


def test_a_direct_message_is_answered_in_its_thread(here: Place) -> None:
    root = here.town.owner.say(here.town.direct, "Hello, boat.")["id"]
    assert here.answers(root) == [f"{ECHO}Hello, boat."]


def test_a_reply_goes_on_with_the_same_session(here: Place) -> None:
    root = here.town.owner.say(here.town.direct, "First.")["id"]
    here.answers(root)
    here.town.owner.say(here.town.direct, "Second.", root=root)
    assert here.answers(root, 2)[1] == f"{ECHO}Second."
    assert b"First." in here.loop.bodies("Second.")[0]


def test_another_top_level_post_is_another_session(here: Place) -> None:
    first = here.town.owner.say(here.town.direct, "First.")["id"]
    second = here.town.owner.say(here.town.direct, "Second.")["id"]
    assert here.answers(first) == [f"{ECHO}First."]
    assert here.answers(second) == [f"{ECHO}Second."]
    assert b"First." not in here.loop.bodies("Second.")[0]


def test_posts_during_a_turn_are_the_next_turn_together(here: Place) -> None:
    pause = Pause()
    here.loop.replies.append(Reply(text="One moment.", pause_after=1, pause=pause))
    root = here.town.owner.say(here.town.direct, "Begin.")["id"]
    assert pause.reached.wait(60)
    for text in ("and this", "and that"):
        here.town.owner.say(here.town.direct, text, root=root)
    until(lambda: here.status().asked == 3, "three posts with loopd")
    pause.go_on.set()
    texts = here.answers(root, 2)
    here.idle()
    assert len(here.said_by_bot(root)) == 2
    assert texts[0] == "One moment."
    assert len(here.loop.bodies("and this")) == 1
    assert b"and that" in here.loop.bodies("and this")[0]


def test_a_stranger_is_not_answered(here: Place) -> None:
    stranger = here.town.person("stranger")
    direct = here.town.direct_channel(stranger)
    root = stranger.say(direct, "Let me in.")["id"]
    here.answers(here.town.owner.say(here.town.direct, "Are you there?")["id"])
    here.idle()
    assert [post["user_id"] for post in stranger.thread(root)] == [stranger.id]
    assert here.loop.bodies("Let me in.") == []


def test_a_channel_that_is_not_named_is_not_read(here: Place) -> None:
    channel = here.town.channel(here.town.owner.id, here.town.bot_id)
    here.town.owner.say(channel, f"@{here.town.bot_name} hello?")
    here.answers(here.town.owner.say(here.town.direct, "Are you there?")["id"])
    here.idle()
    assert here.loop.bodies("hello?") == []


@pytest.fixture
def shared(town: Town, here: Place) -> str:
    """A channel with the owner, the bot and a third, in which Boxmaker may be spoken to."""
    here.kill()
    channel = town.channel(town.owner.id, town.bot_id)
    here.channels.append(channel)
    here.start()
    return channel


def test_in_a_channel_it_answers_when_it_is_named(here: Place, shared: str) -> None:
    here.town.owner.say(shared, "Not for the bot.")
    root = here.town.owner.say(shared, f"@{here.town.bot_name}: what now?")["id"]
    assert here.answers(root) == [f"{ECHO}what now?"]
    assert here.loop.bodies("Not for the bot.") == []


def test_in_its_own_thread_it_answers_unless_another_is_named(here: Place, shared: str) -> None:
    root = here.town.owner.say(shared, f"@{here.town.bot_name} begin")["id"]
    here.answers(root)
    here.town.owner.say(shared, f"@{here.town.boss.name} what do you think?", root=root)
    here.town.owner.say(shared, "and you? @all @channel @here @nobodyatall", root=root)
    texts = here.answers(root, 2)
    here.idle()
    assert len(here.said_by_bot(root)) == 2
    assert "and you?" in texts[1]
    assert here.loop.bodies("what do you think?") == []


def test_a_webhook_that_posts_as_the_owner_is_not_the_owner(here: Place) -> None:
    here.town.owner.say(here.town.direct, "I am a program.", props={"from_webhook": "true"})
    here.answers(here.town.owner.say(here.town.direct, "Are you there?")["id"])
    here.idle()
    assert here.loop.bodies("I am a program.") == []


def test_an_edit_starts_nothing_and_is_told_once(here: Place) -> None:
    post = here.town.owner.say(here.town.direct, "The first text.")["id"]
    here.answers(post)
    here.town.owner.edit(post, "!approve 1")
    here.town.owner.edit(post, "The second text.")
    texts = here.answers(post, 2)
    here.answers(here.town.owner.say(here.town.direct, "Are you there?")["id"])
    here.idle()
    assert len(here.said_by_bot(post)) == 2
    assert "first text" in texts[1]
    assert here.loop.bodies("The second text.") == []


def test_stop_ends_the_turn_and_says_so(here: Place) -> None:
    pause = Pause()
    here.loop.replies.append(Reply(text="One two three.", pause_after=1, pause=pause))
    root = here.town.owner.say(here.town.direct, "Count.")["id"]
    assert pause.reached.wait(60)
    here.town.owner.say(here.town.direct, "!stop", root=root)
    texts = here.answers(root)
    pause.go_on.set()
    here.idle()
    assert len(here.said_by_bot(root)) == 1
    assert "stopped" in texts[0].lower()


@pytest.mark.parametrize(("command", "answer"), [("!help", "!approve"), ("!status", "loopd"), ("!dance", "!help")])
def test_a_command_is_answered_and_never_reaches_the_model(here: Place, command: str, answer: str) -> None:
    root = here.town.owner.say(here.town.direct, command)["id"]
    [text] = here.answers(root)
    assert answer in text
    assert here.loop.bodies(command) == []


def test_two_marks_are_one_for_the_model(here: Place) -> None:
    root = here.town.owner.say(here.town.direct, "!!stop is a word")["id"]
    assert here.answers(root) == [f"{ECHO}!stop is a word"]


def test_a_long_answer_comes_whole_and_in_order(here: Place) -> None:
    words = " ".join(f"word{number}" for number in range(20_000))
    here.loop.replies.append(Reply(text=words))
    root = here.town.owner.say(here.town.direct, "Tell me everything.")["id"]
    here.answers(root)
    here.idle()
    texts = [post["message"] for post in here.said_by_bot(root)]
    assert max(map(len, texts)) <= 16_383
    assert " ".join(texts).split() == words.split()


def test_what_the_model_says_reaches_nobody_but_the_reader(here: Place) -> None:
    here.loop.replies.append(Reply(text="@all ![x](https://evil.example.org/?q=1) https://evil.example.org/2"))
    root = here.town.owner.say(here.town.direct, "Say it.")["id"]
    [text] = here.answers(root)
    [post] = here.said_by_bot(root)
    assert post["props"]["unsafe_links"] == "true"
    assert "![" not in text
    assert "@all" not in text


def test_an_honest_sentence_where_the_model_is_away(here: Place) -> None:
    here.loop.kill("llama")
    here.loop.start_again("llama")
    here.loop.replies.append(Reply(text="half an ans", vanish_after=2))
    root = here.town.owner.say(here.town.direct, "Try.")["id"]
    [text] = here.answers(root)
    assert text.count("\n") <= 2
    assert "Traceback" not in text


def test_the_longest_post_is_taken_whole(here: Place) -> None:
    text = "é" * 16_383
    assert len(text.encode()) < MAX_TEXT_BYTES
    root = here.town.owner.say(here.town.direct, text)["id"]
    here.answers(root)
    assert here.loop.bodies("éééé")[0].count("é".encode()) >= 16_383


def test_a_deleted_thread_ends_its_turn_and_says_where_the_answer_is(here: Place) -> None:
    pause = Pause()
    here.loop.replies.append(Reply(text="Too late now.", pause_after=1, pause=pause))
    root = here.town.owner.say(here.town.direct, "Begin.")["id"]
    assert pause.reached.wait(60)
    here.town.owner.delete(root)
    pause.go_on.set()
    here.idle()
    texts = [
        post["message"] for post in here.town.owner.channel(here.town.direct) if post["user_id"] == here.town.bot_id
    ]
    assert not any("Too late now." in text for text in texts)
