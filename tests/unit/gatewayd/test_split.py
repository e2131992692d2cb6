"""C7: a long answer is cut where a reader would cut it, and nothing of it is lost."""

import pytest

from gatewayd import split


def parts(text: str, limit: int = 1_000) -> tuple[str, ...]:
    return split.parts(text, limit=limit, hosts=())


@pytest.mark.parametrize("length", [1, 999, 1_000, 16_383])
def test_what_fits_is_one_part(length: int) -> None:
    assert parts("a" * length, limit=max(length, 1_000)) == ("a" * length,)


@pytest.mark.parametrize("length", [16_384, 200_000, 300_000])
def test_one_line_of_any_length_is_cut(length: int) -> None:
    posts = parts("a" * length, limit=16_383)
    assert "".join(posts) == "a" * length
    assert [len(post) for post in posts[:-1]] == [16_383] * (len(posts) - 1)


@pytest.mark.parametrize("text", ["", " ", "\n\n \t\n", "\u3000" * 3_000, " " * 5_000])
def test_blanks_alone_are_no_part(text: str) -> None:
    assert parts(text) == ()


def test_blanks_in_between_are_no_part() -> None:
    assert parts("a" + "\u3000" * 3_000 + "b" + "\n" * 3_000 + " " * 3_000 + "c") == ("a", "b", "c")


def test_it_is_cut_between_paragraphs_then_lines_then_words() -> None:
    paragraphs = "\n\n".join(["word " * 60 + "end"] * 5)
    assert all(post.endswith("end") for post in parts(paragraphs))
    lines = "\n".join(["word " * 60 + "end"] * 5)
    assert all(post.endswith("end") for post in parts(lines))
    assert all(post.endswith("word") for post in parts("word " * 1_000))


def test_a_block_of_code_that_fits_is_not_cut() -> None:
    block = "```py\n" + "\n".join(["code"] * 120) + "\n```"
    assert parts("a\n" * 300 + "\n" + block + "\n\nb") == ("a\n" * 299 + "a", block + "\n\nb")


def test_a_block_of_code_that_is_cut_is_closed_and_opened_again() -> None:
    posts = parts("````py\n" + "\n".join(f"line {number}\n```" for number in range(200)) + "\n````")
    assert all(post.startswith("````py\n") and post.endswith("\n````") for post in posts)
    assert "\n".join(post.removeprefix("````py\n").removesuffix("\n````") for post in posts) == "\n".join(
        f"line {number}\n```" for number in range(200)
    )


def test_empty_lines_of_code_stay() -> None:
    posts = parts("```\n" + "\n\n\n".join(["x" * 50] * 40) + "\n```")
    assert "\n".join(post[4:-4] for post in posts) == "\n\n\n".join(["x" * 50] * 40)


WHOLE = {
    "4-byte emoji": "\U0001f600",
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "flag": "\U0001f1e9\U0001f1ea",
    "accent": "e\u0301\u0302",
    "shade of skin": "\U0001f44d\U0001f3fd",
    "variant": "\u2603\ufe0f",
    "escape": "\\*",
    "escaped bracket": "\\[",
    "backslashes": "\\\\",
    "entity": "&lt;",
    "code": "`code`x",
    "address": "`https://example.org/a`x",
    "name": "@\u200ba",
}


@pytest.mark.parametrize("mark", WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.parametrize("shift", range(7))
def test_a_cut_is_within_nothing(mark: str, shift: int) -> None:
    source = (
        mark.replace("&lt;", "<").replace("\u200b", "").replace("\\[", "[").replace("`https://example.org/a`x", "`b`y")
    )
    shown = "`b`y" if mark.startswith("`https") else mark
    posts = parts("x" * shift + source * 700)
    assert "".join(posts) == "x" * shift + shown * 700
    assert sum(post.count(shown.rstrip("axy")) for post in posts) == 700


def test_a_mark_that_is_longer_than_a_part_is_cut() -> None:
    assert "".join(parts("e" + "\u0301" * 5_000)) == "e" + "\u0301" * 5_000


def test_code_that_is_longer_than_a_part_is_closed_and_opened_again() -> None:
    posts = parts("`" + "c" * 5_000 + "`")
    assert all(post[0] == post[-1] == "`" for post in posts)
    assert "".join(post[1:-1] for post in posts) == "c" * 5_000


@pytest.mark.parametrize("inside", ["`` ", "``", "`` a "], ids=repr)
def test_code_of_backticks_is_cut_so_that_no_piece_closes_itself(inside: str) -> None:
    posts = parts("` a" + inside * 1_500 + "b `")
    assert all(post.startswith("` ") or post[1] != "`" for post in posts)
    assert "".join(post[1:-1] for post in posts).replace(" ", "") == ("a" + inside * 1_500 + "b").replace(" ", "")


def test_a_part_does_not_begin_with_a_slash() -> None:
    """C9: no part is a command."""
    posts = parts("\n\n".join(["/word " * 100] * 4))
    assert all(post.startswith("&#47;word") for post in posts)
    assert all(len(post) <= 1_000 for post in posts)


def test_a_limit_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1000"):
        parts("a", limit=999)
