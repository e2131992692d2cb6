"""INV-8 in a chat: a question is posted whole, in few parts, or it cannot be answered there."""

import json
import re

import pytest

from brokerd import approvalposts, approvaltext
from brokerd.approvaltext import MountShown, Question, Terms
from brokerd.call import Labels
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from tests.fakes import calls

TERMS = Terms(
    mounts=(MountShown(path="/srv/boat", writable=True),),
    hosts=(),
    image="0f3a" * 16,
    limits=("memory 512 MiB",),
    session=Labels(data_class=DataClass.PRIVATE, untrusted=False),
    result=Labels(data_class=DataClass.SECRET, untrusted=True),
)
LIMIT = 4_000
PART = re.compile(r"\*\*Approval 17\*\*(, part \d of \d)?(, within a line)?\n\n(`{3,})\n(.*)\n\3\n(.*)", re.DOTALL)


def question(content: str) -> Question:
    text = json.dumps({"path": "/srv/boat/log.md", "content": content}, ensure_ascii=False)
    return Question(
        id=17,
        call=calls.call("write_file", text=text),
        grant="boat-notes",
        terms=TERMS,
        opened=Timestamp(1_789_632_300_000),
        expires=Timestamp(1_789_632_900_250),
    )


def posted(content: str, limit: int = LIMIT) -> tuple[str, ...]:
    texts, answerable = approvalposts.parts(question(content), limit=limit)
    assert answerable
    return texts


def joined(texts: tuple[str, ...]) -> str:
    """Return the block, as its parts show it."""
    whole = ""
    for text in texts:
        found = PART.fullmatch(text)
        assert found
        whole += ("" if found[2] or not whole else "\n") + found[4]
    return f"{whole}\n"


def test_a_short_question_is_one_part_that_says_how_to_answer() -> None:
    asked = question("Fair wind.")
    (text,) = posted("Fair wind.")
    assert text == (
        f"**Approval 17**\n\n```\n{approvaltext.block(asked)}```\n\nApproval 17 is the block above,"
        f" fingerprint (SHA-256) `{asked.call.fingerprint}`."
        " A phone shows four lines of a block until you tap it."
        " To answer, write in this thread `!approve 17` or `!deny 17 reason`.\n"
    )


LONG = {
    "lines": "a line of the log\n" * 400,
    "one line": "x" * 9_000,
    "escapes": '"\\\u202e' * 900,
    "counted blanks": (" " * 20 + "x") * 700,
}


@pytest.mark.parametrize("content", LONG.values(), ids=LONG.keys())
def test_a_long_question_is_shown_whole_in_numbered_parts(content: str) -> None:
    texts = posted(content, limit=8_000)
    assert 1 < len(texts) <= approvalposts.MOST_PARTS
    assert joined(texts) == approvaltext.block(question(content))
    assert all(len(text) <= 8_000 for text in texts)
    assert all(f", part {number} of {len(texts)}" in text for number, text in enumerate(texts, 1))
    fingerprint = str(question(content).call.fingerprint)
    assert f"all {len(texts)} parts above, fingerprint (SHA-256) `{fingerprint}`" in texts[-1]


@pytest.mark.parametrize("shift", range(9))
@pytest.mark.parametrize("mark", ["\u202e", '"', "\\", " " * 20 + "x"], ids=ascii)
def test_no_part_ends_within_an_escape(mark: str, shift: int) -> None:
    for text in posted("x" * shift + mark * 600, limit=4_000):
        found = PART.fullmatch(text)
        assert found
        assert re.fullmatch(r'(?:[^\\]|\\u\{[^}]*\}|\\["\\])*', found[4])


def test_more_than_four_parts_are_one_that_says_where_to_answer() -> None:
    (text,), answerable = approvalposts.parts(question("x" * 20_000), limit=LIMIT)
    assert not answerable
    assert len(text) <= LIMIT
    assert "too long for a chat" in text
    assert "!approve" not in text
    assert all(f"`bxctl {words}`" in text for words in ("approvals", "approve 17", "deny 17"))


def test_a_fence_that_would_be_too_long_is_too_long_for_a_chat() -> None:
    assert not approvalposts.parts(question("`" * 200), limit=LIMIT)[1]
    assert posted("`" * 20)[0].startswith(f"**Approval 17**\n\n{'`' * 21}\n")


def test_a_picture_of_a_line_end_is_spelled_out() -> None:
    """G12: the web app makes a line end of U+2424, and what follows would look like a row of the block."""
    (text,) = posted('ls\u2424  grant           "mine"')
    assert "\u2424" not in text
    assert "ls\\u{2424}  grant" in text
