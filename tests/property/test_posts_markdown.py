"""C7, C9, neighbours 19 and 24: whatever the model writes, its posts fetch nothing, name nobody, and lose nothing.

Three readers judge each post: CommonMark (markdown-it), the same with tables and ~~, and one that is as careless as
the web app and more so: for it any emphasis goes before code. What the server takes for a name is looked for by the
server's own rule.
"""

import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bxcore import hosts
from gatewayd import fences, markdown, split
from gatewayd.fences import Code

HOSTS = (hosts.rule("example.com"), hosts.rule("*.a.example.com"))
FRAGMENTS = (
    *(
        "![x](https://example.org/a)",
        "[x](https://example.org/b_c*d)",
        "[l](https://example.com/p_q?a=1)",
        "![r]",
        "[r][r]",
    ),
    *(
        "[![x](https://example.org/a)](https://example.com/)",
        "![x](data:image/png;base64,AA)",
        "](https://example.org/c)",
    ),
    *(
        "[r]: https://example.org/r",
        "\n[r]: https://example.org/r\n",
        "<https://example.org/d>",
        "<img src=https://example.org/i>",
    ),
    *(
        "<div>",
        "</div>",
        "<!--",
        "-->",
        "<a@example.org>",
        "https://example.com/a",
        "https://b.a.example.com/b.",
        "a@example.org",
    ),
    *(
        "https://example.org/e_f",
        "http://",
        "https:/example.org",
        "https:example.org",
        "www.example.org",
        "example.org/g",
        "tel:1",
    ),
    *(
        "https://example.com@example.org/",
        "https://example.com\\@example.org",
        "https://example.com.example.org/",
        "slack:a",
    ),
    *(
        '"q r"@example.org',
        "mailto:q@example.org",
        "@all",
        "@here",
        "\\@channel",
        "&#64;all",
        "&commat;all",
        "foo.@all",
        "@",
    ),
    *(
        "`",
        "``",
        "```",
        "````",
        "~~~",
        "~~",
        "~",
        "*",
        "**",
        "_",
        "__",
        "$",
        "|",
        "\\",
        "\\\\",
        "!",
        "[",
        "]",
        "(",
        ")",
    ),
    *("<", ">", "&", "# ", "- ", "* ", "1. ", "2) ", "> ", " ", "  ", "    ", "\t", "\n", "\n\n", "- \n\n", "---\n"),
    *("\n```\n", "\n```py\n", "\n~~~\n", "\n   ```\n", "\n> ```\n", "\n- ```\n", "```~~~\n", "\n|--|--|\n", "--|--\n"),
    *(
        "a",
        "b c",
        "word",
        "\u00e9",
        "\u8bf7\u770b",
        "\u3002",
        "\U0001f600",
        "\U0001f468\u200d\U0001f469\u200d\U0001f466",
    ),
    *("\U0001f1e9\U0001f1ea", "e\u0301", "\u00a0", "\u2424", "\u200b", "\u2028", "\r", "\r\n", "\x0b", "\0", "\u202e"),
    *("\u00ad", "\u2060", "\U000e0061", "\U000e0101"),
    *(":", ":(", "-(", "'", '"', ".", ",", "{", "^", "=", "/", "\ufeff", "/cmd"),
)
FRAGMENT = st.sampled_from(FRAGMENTS)
TEXT = st.one_of(
    st.lists(FRAGMENT, max_size=30).map("".join),
    st.lists(st.one_of(FRAGMENT, st.text(max_size=4)), max_size=20).map("".join),
    st.lists(
        st.sampled_from(("`", "``", "*", "_", "~~", "$", "|", "\n", "\\", "![x](https://example.org/)", "a ")),
        max_size=25,
    ).map("".join),
)
LONG = st.lists(st.tuples(FRAGMENT, st.sampled_from((1, 1, 3, 40, 400))), min_size=5, max_size=25).map(
    lambda parts: "".join(fragment * times for fragment, times in parts)
)
READERS = {
    "commonmark": MarkdownIt("commonmark"),
    "tables": MarkdownIt("commonmark").enable(["table", "strikethrough"]),
}
LIVE = re.compile(
    r"(?i:[a-z][a-z0-9.+-]+:/\S*|\bwww\.\S*|(?:https?|ftp|tel|mailto):[\w%]\S*)|[\w.-]+\.[^\W\d_]{2,4}/|\S@[\w.-]+\.\w{2}"
)
CLOSING = {"`": "(?<!`){}(?!`)", "_": r"{}(?![^\W_])", "*": "{}", "~": "{}", "$": "{}"}
"""What ends code, and emphasis; that of `_` never within a word."""
TABLE = re.compile(r"(?:.+\n)*(?m:^)(?:[ \t>]|[+*][ \t]|\d{1,9}[.)][ \t])*[ \t|:-]*-[ \t|:-]*(?![^\n])(?:\n.+)*")
"""Lines around one that could stand below the head of a table, also in a list or a quote."""
ESCAPE = re.compile(r"\\[!-/:-@\[-`{-~]|&(?:lt|amp|quot|#\d+);")


def allowed(url: str) -> bool:
    try:
        target = hosts.target(url.rstrip(".,;:!?'\"*_~)"))
    except hosts.BadHost:
        return False
    return any(rule.covers(target) for rule in HOSTS)


def named(text: str) -> list[str]:
    """Return what the server would take for a name, by how it splits a text."""
    words = re.split(r"[^\w:.@-]+", text)
    parts = [part for word in words for part in (word.lstrip(":.-_"), *re.split(r"[.:-]", word))]
    return [part for part in parts if re.match(r"@[A-Za-z0-9._-]", part)]


# -- readers ----------------------------------------------------------------------------------------


def flat(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from flat(token.children or ())


def faults_of(reader: MarkdownIt, post: str) -> Iterator[str]:
    inside_link = False
    for token in flat(reader.parse(post)):
        if token.type in {"image", "html_inline", "html_block"}:
            yield token.type
        if token.type == "link_open":
            inside_link = True
            if not allowed(str(token.attrs["href"])):
                yield f"link {token.attrs['href']}"
        inside_link = inside_link and token.type != "link_close"
        if token.type == "text":
            yield from (f"name {name}" for name in named(token.content))
            yield from (f"address {url}" for url in LIVE.findall(token.content) if not inside_link and not allowed(url))


def prose(post: str) -> Iterator[str]:
    """Yield the lines outside blocks of code. A block begins at the margin, behind an empty line."""
    fence, before = "", ""
    for line in post.split("\n"):
        opening = re.fullmatch(r"(`{3,}|~{3,})[^`~]*", line)
        if fence:
            fence = "" if line == fence else fence
        elif opening and not before:
            fence = opening[1]
        else:
            yield line
        before = line


def exposed(post: str) -> Iterator[str]:
    """Yield all that could be read as text by somebody for whom emphasis and cells go before code."""
    run: list[str] = []
    for line in [*prose(post), ""]:
        if line and not (run and re.match(r" *([-+*]|\d+\.) +\S", line)):
            run.append(line)
            continue
        yield from text_of("\n".join(run))
        run = [line] if line else []
    for table in TABLE.findall("\n".join(prose(post))):
        yield from (part for cell in re.split(r"(?<!\\)\||\n", table) for part in text_of(cell))


def text_of(text: str) -> Iterator[str]:
    at, shown = 0, ""
    while at < len(text):
        link = re.match(r"\[[^\[\]`]*\]\((https://[^()\s]+)\)", text[at:])
        if link and allowed(link[1]):
            at += len(link[0])
            continue
        mark = re.match(r"\\[!-/:-@\[-`{-~]|`+|\*\*?|__?|~~|\$", text[at:])
        if mark is None or mark[0].startswith("\\"):
            size = len(mark[0]) if mark else 1
            shown += text[at : at + size]
            at += size
            continue
        after = at + len(mark[0])
        closing = re.compile(CLOSING[mark[0][0]].format(re.escape(mark[0]))).search(text, after)
        if closing is None:
            shown += mark[0]
            at = after
            continue
        if mark[0][0] != "`":
            yield from text_of(text[after : closing.start()])
            shown += " "
        else:
            yield shown
            shown = ""
        at = closing.end()
    yield shown


def careless_faults_of(post: str) -> Iterator[str]:
    for text in exposed(post):
        bare = ESCAPE.sub("\0", text)
        yield from (f"careless {found}" for found in re.findall(r"\[.{0,9}|<\S", bare))
        yield from (
            f"careless {url}" for url in re.findall(r"[a-z][a-z0-9.+-]+:/\S*|www\.\S*", bare) if not allowed(url)
        )


def faults(post: str) -> list[str]:
    return [
        *(fault for reader in READERS.values() for fault in faults_of(reader, post)),
        *careless_faults_of(post),
        *(["hidden"] if re.search("[\u00ad\u2060\ufeff\U000e0000-\U000e0fff]", post) else []),
        *(["slash"] if post.lstrip().startswith("/") else []),
        *(["control"] if re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2424\u2028]", post) else []),
    ]


# -- what holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "live",
    [
        *(
            "![x](https://example.org/a)",
            "a\n\n[r]: https://example.org/\n\n![r]",
            "<https://example.org/>",
            "<b>",
            "www.example.org",
        ),
        *(
            "*a `b* ![x](https://example.org/)`",
            "| `a | ![x](https://example.org/)` |\n|--|--|",
            "\\@all",
            "&#64;all",
            "foo.@all",
        ),
        *(
            "> `a\n> ![x](https://example.org/)",
            "[x](https://example.com.example.org/)",
            "https://example.org/",
            "\\\\![x](/a)",
        ),
    ],
    ids=str,
)
def test_the_readers_see_what_is_live(live: str) -> None:
    assert faults(live)


@settings(max_examples=400, deadline=None)
@given(TEXT)
@example("*a `b* ![x](https://example.org/)`")
@example("| `a | ![x](https://example.org/)` |\n|--|--|")
@example("- \n\n```\n- ![x](https://example.org/)\n```")
@example("https://example.com/a[\n[x](https://example.org/)")
@example("https://example.com/`![x](https://example.org/)`")
def test_a_post_fetches_nothing_and_names_nobody(text: str) -> None:
    assert faults(markdown.harmless(text, hosts=HOSTS)) == []


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_foreign_text_quoted_is_one_line_of_nothing(text: str) -> None:
    quoted = markdown.quote(text)
    assert "\n" not in quoted
    assert [fault for fault in faults(f"x {quoted}") if not fault.startswith("address")] == []
    assert not LIVE.search(quoted)
    assert [
        token
        for token in flat(READERS["tables"].parse(f"x {quoted}"))
        if token.type.startswith(("em", "strong", "code"))
    ] == []


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_the_words_of_a_post_are_those_of_the_model(text: str) -> None:
    """Nothing is lost: letters and digits are all there, in order."""
    text = text.replace("&", "+")
    posted = re.sub(r"&(?:lt|quot|#36|#47);", " ", markdown.harmless(text, hosts=HOSTS))
    assert [mark for mark in posted if mark.isalnum()] == [mark for mark in text if mark.isalnum()]


@settings(max_examples=150, deadline=None)
@given(LONG, st.integers(1_000, 1_300))
def test_each_part_of_an_answer_is_harmless_and_within_the_limit(text: str, limit: int) -> None:
    for post in split.parts(text, limit=limit, hosts=HOSTS):
        assert faults(post) == []
        assert post.strip()
        assert len(post) <= limit


@settings(max_examples=150, deadline=None)
@given(LONG, st.integers(1_000, 1_300))
def test_the_parts_without_what_was_added_are_the_answer(text: str, limit: int) -> None:
    """C7. Added are only fences and backticks that close and open code again; left out are only blanks at a cut."""
    pieces = split.pieces(text, limit=limit, hosts=HOSTS)
    assert all(re.fullmatch(r"(`{3,}|~{3,})[^`~\n]*\n|`{0,16} ?", piece.before) for piece in pieces)
    assert all(re.fullmatch(r"\n(`{3,}|~{3,})| ?`{0,16}", piece.after) for piece in pieces)
    assert not "".join(piece.gap for piece in pieces).strip()
    joined = "".join(piece.body + piece.gap for piece in pieces)
    whole = "\n".join(
        line
        for block in markdown.blocks(text, HOSTS)
        for line in (
            (block.opening, *block.lines, block.fence)
            if isinstance(block, Code)
            else ("".join(atom.text for atom in line) for line in block)
        )
    )
    assert whole.endswith(joined)
    assert not whole.removesuffix(joined).strip()
    assert markdown.leading(whole) == markdown.harmless(text, hosts=HOSTS)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="`~\r", exclude_categories=("C", "Z")), max_size=30).filter(
            lambda line: fences.clean(line) == line
        ),
        max_size=60,
    )
)
def test_code_is_left_as_it_is(lines: list[str]) -> None:
    """Byte for byte, also over cuts, but for what cannot be seen."""
    code = "\n".join(lines * 10)
    posts = split.parts(f"```py\n{code}\n```", limit=1_000, hosts=())
    shown = [token.content for post in posts for token in READERS["commonmark"].parse(post) if token.type == "fence"]
    assert "".join(shown) == f"{code}\n"
