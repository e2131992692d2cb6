"""The scripted model does what the chapter says, move by move, and its calls are calls that could be made."""

import json
from pathlib import Path

import pytest

from bxcore import tools
from deploy.local import story
from deploy.local.story import Chapter, Say, Setting, Use

SETTING = Setting(sample=Path("/srv/sample"), private=Path("/srv/private"), canary_port=4443)
STORY = story.chapters(SETTING)


def said(chapter: Chapter, *results: str) -> list[dict[str, str]]:
    tool = [{"role": "tool", "content": result} for result in results]
    return [{"role": "system", "content": "…"}, {"role": "user", "content": chapter.says}, *tool]


@pytest.mark.parametrize("chapter", STORY, ids=lambda chapter: chapter.title)
def test_a_chapter_is_played_to_its_last_word(chapter: Chapter) -> None:
    moves = [story.next_move(STORY, said(chapter, *["x"] * count)) for count in range(len(chapter.moves))]
    assert all(isinstance(move, Use) for move in moves[:-1])
    assert isinstance(moves[-1], Say)


@pytest.mark.parametrize("chapter", STORY, ids=lambda chapter: chapter.title)
def test_every_call_of_the_story_has_arguments_that_its_tool_takes(chapter: Chapter) -> None:
    for move in chapter.moves:
        if isinstance(move, Use):
            called = json.loads(story.call_arguments(move))
            tools.parse(called["name"], json.dumps(called["arguments"]))


def test_the_answer_is_made_of_what_the_tool_returned() -> None:
    assert story.next_move(STORY, said(STORY[0], "coffee\ntwo lemons\n")) == Say(text="It says: coffee, two lemons.")


def test_the_letter_names_what_the_model_then_tries_to_steal() -> None:
    letter = story.LETTER.format(private=SETTING.private)
    tried = [move.arguments for move in STORY[-1].moves if isinstance(move, Use)]
    assert f"{SETTING.private}/keys.txt" in letter
    assert {"path": f"{SETTING.private}/keys.txt"} in tried


def test_what_is_no_part_of_the_story_gets_an_answer_too() -> None:
    assert isinstance(story.next_move(STORY, [{"role": "user", "content": "Hello"}]), Say)
