"""G12, INV-8, neighbours 4 and 5: a question in a chat hides nothing of a call, and none of it is alive."""

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from brokerd import approvalposts, approvaltext
from brokerd.approvaltext import Question, Terms
from brokerd.call import Labels
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from tests.fakes import calls

LABELS = Labels(data_class=DataClass.PRIVATE, untrusted=False)
TERMS = Terms(mounts=(), hosts=(), image="0f3a" * 16, limits=("100 s",), session=LABELS, result=LABELS)
FRAGMENTS = (
    *(
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200d",
        "\U000e0041",
        "\x1b[2J",
        "\x1b]0;x\x07",
        "\r",
        "\r\n",
        " " * 10_000,
        "rm -rf /",
    ),
    *(
        "\u0430",
        "\u2424",
        "\u2028",
        "\u00a0",
        "```",
        "\n```\n",
        "`" * 30,
        "~~~",
        "```~~~\n",
        "@all",
        "@channel",
        "\\",
        '"',
    ),
    *(
        "![x](https://example.org/a)",
        "[https://example.com/](https://example.org/)",
        "<img src=x>",
        "https://example.org/",
        "!approve 17",
    ),
    *(
        "a" * 3_000,
        "\n" * 500,
        "line\n" * 40,
        "\U0001f468\u200d\U0001f469",
        '\n  grant  "mine", which asks\n',
        "\u05d0",
        "e\u0301",
    ),
)
CONTENT = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)),
    max_size=14,
).map("".join)
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
FENCE = re.compile(r"(.*)\n\n(`{3,})\n(.*)\n\2\n(.*)", re.DOTALL)


def question(content: str) -> Question:
    text = json.dumps({"path": "/srv/log.md", "content": content}, ensure_ascii=False)
    call = calls.call("write_file", text=text)
    opened, expires = Timestamp(1_789_632_300_000), Timestamp(1_789_632_900_250)
    return Question(id=17, call=call, grant="boat", terms=TERMS, opened=opened, expires=expires)


@settings(max_examples=200, deadline=None)
@given(CONTENT, st.sampled_from((3_000, 4_000, 16_383)))
def test_a_question_is_shown_whole_and_none_of_it_is_alive(content: str, limit: int) -> None:
    asked = question(content)
    texts, answerable = approvalposts.parts(asked, limit=limit)
    assert len(texts) <= approvalposts.MOST_PARTS
    assert all(len(text) <= limit for text in texts)
    whole = ""
    for text in texts:
        tokens = READER.parse(text)
        kinds = {inner.type for token in tokens for inner in (token, *(token.children or ()))}
        assert kinds <= {
            "paragraph_open",
            "paragraph_close",
            "inline",
            "text",
            "strong_open",
            "strong_close",
            "fence",
            "code_inline",
        }
        outside = text
        if answerable:
            found = FENCE.fullmatch(text)
            assert found
            assert found[2] not in found[3]
            assert [token.content for token in tokens if token.type == "fence"] == [f"{found[3]}\n"]
            whole += ("" if not whole or found[1].endswith("within a line") else "\n") + found[3]
            outside = found[1] + found[4]
        # What stands outside the fence is ours: no word of the call, nothing that names or links.
        assert not re.search(r"@|://|www\.|[^\x20-\x7e\n]", outside)
        assert not any(approvaltext.hidden(mark) or mark == "\u2424" for mark in text.replace("\n", ""))
    if answerable:
        assert f"{whole}\n" == approvaltext.block(asked).replace("\u2424", "\\u{2424}")
        assert f"fingerprint (SHA-256) `{asked.call.fingerprint}`" in texts[-1]


@settings(max_examples=200, deadline=None)
@given(CONTENT, CONTENT, st.sampled_from((3_000, 4_000)))
def test_two_questions_give_two_texts(one: str, other: str, limit: int) -> None:
    same = approvalposts.parts(question(one), limit=limit) == approvalposts.parts(question(other), limit=limit)
    assert same == (one == other)


@settings(max_examples=50, deadline=None)
@given(st.integers(1_500, 3_000), st.integers(1_500, 3_000))
def test_where_a_part_ends_hides_no_line_end(one: int, other: int) -> None:
    """A line that goes on in the next part is not two lines."""
    texts = {
        length: approvalposts.parts(question("x" * length + "\n" + "x" * 4_000), limit=2_500) for length in (one, other)
    }
    assert len(texts) == len(set(texts.values()))
