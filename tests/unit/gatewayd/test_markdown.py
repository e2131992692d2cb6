"""What the model wrote becomes what can be posted; what is no danger stays as it was."""

import re
import sys
from types import FrameType
from typing import Any

import pytest

from bxcore import hosts
from gatewayd import markdown

HOSTS = (hosts.rule("example.com"), hosts.rule("*.b.example.com:8443"))


def harmless(text: str) -> str:
    return markdown.harmless(text, hosts=HOSTS)


SAME = {
    "emphasis": "**bold**, *it*, ~~gone~~ and __so on__",
    "heading and list": "# A\n\n- a\n  - b\n1. c\n\n> quoted\n> more",
    "code": "use `a | b`, `x[0]`, `@deco`, `<b>` and `git@example.org`",
    "table": "| a | b |\n|---|---|\n| `c` | d |",
    "block": "a\n\n```py\nx = '![a](https://example.org/)'  # @all <b>\n```\n\nb",
    "escape": "\\*not bold\\* and \\[not a link\\]",
    "link": "see [the page](https://example.com/a_b?c=1&d=2#e), or (https://example.com/).",
    "other port": "https://a.b.example.com:8443/x",
    "signs": "a < b && c > d, 5 $ or 3 %, 12:30, ::, C:\\Users",
    "other scripts": "\u8bf7\u770b\u3002 \U0001f468\u200d\U0001f469 \U0001f1e9\U0001f1ea \u00fc",
    "empty": "",
    "blank lines": "a\n\n\nb\n",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_what_is_no_danger_stays(text: str) -> None:
    assert harmless(text) == text


CHANGED = {
    "image": ("![x](https://example.org/a)", "!\\[x](`https://example.org/a`)"),
    "image of a granted host": ("![x](https://example.com/a)", "!\\[x](https://example.com/a)"),
    "linked image": ("[![x](/a)](https://example.com/)", "\\[!\\[x](/a)](https://example.com/)"),
    "reference": ("![r]\n\n[r]: https://example.org/", "!\\[r]\n\n\\[r]: `https://example.org/`"),
    "data": ("![x](data:image/png;base64,AA==)", "!\\[x](`data:image/png;base64,AA==`)"),
    "html": ("<img src=x>", "&lt;img src=x>"),
    "autolink": ("<https://example.org/>", "&lt;`https://example.org/`>"),
    "link": ("[x](https://example.org/)", "\\[x](`https://example.org/`)"),
    "bare": ("see https://example.org/a_b.", "see `https://example.org/a_b`."),
    "www": ("www.example.org", "`www.example.org`"),
    "no slashes": ("https:example.org", "`https:example.org`"),
    "no scheme": ("example.org/x", "`example.org/x`"),
    "mail": ("a@example.org", "`a@example.org`"),
    "user in the address": ("https://example.com@example.org/", "`https://example.com@example.org/`"),
    "other port": ("https://example.com:444/", "`https://example.com:444/`"),
    "apex of a wildcard": ("https://b.example.com:8443/", "`https://b.example.com:8443/`"),
    "not ASCII": ("https://example.com\u00e9.example.org/", "`https://example.com\u00e9.example.org/`"),
    "name": ("@all, \\@all and a.@all", "@\u200ball, @\u200ball and a.@\u200ball"),
    "entity": ("&#64;all &commat;all AT&T", "&amp;#64;all &amp;commat;all AT&T"),
    "command": ("/leave", "&#47;leave"),
    "command behind blanks": ("\n /leave", "\n &#47;leave"),
    "backtick without a partner": ("a ` b `` c", "a \\` b \\`\\` c"),
    "escaped backtick": ("\\`a`", "\\`a\\`"),
    "more backticks than needed": ("``a``", "`a`"),
    "backtick in code": ("`` a`b ``", "`` a`b ``"),
    "fence in a quote": ("> ```\n> a", "> \\`\\`\\`\n> a"),
    "tildes in a quote": ("> ~~~", "> \\~\\~\\~"),
    "empty item": ("- \n\n```\na\n```", "-\n\n```\na\n```"),
    "line ends": ("a\r\nb\rc", "a\nb\nc"),
    "no blank before a block": ("a\n```\nb\n```", "a\n\n```\nb\n```"),
    "code that emphasis would open": ("*a `b* ![x](/)`", "\\*a `b* ![x](/)`"),
    "code that a cell would open": ("|`a|![x](/)`|\n|-|-|", "|`a\\|![x](/)`|\n|-|-|"),
    "code behind an emoticon": (":`( ![x](/)`", ": `( ![x](/)`"),
    "backslash before code of ours": ("a\\https://example.org", "a\\\\`https://example.org`"),
    "backtick at the end of an address": ("https://example.org/\\`a", "`https://example.org/`\\`a"),
    "no escape for the web app": ("a\\<b\\:c", "a&lt;b:c"),
    "deep quotes": (">" * 100 + "a", ">" * 80 + "\\" + ">" * 20 + "a"),
}


@pytest.mark.parametrize(("text", "posted"), CHANGED.values(), ids=CHANGED.keys())
def test_what_is_a_danger_is_shown_and_dead(text: str, posted: str) -> None:
    """C9."""
    assert harmless(text) == posted


def test_an_address_in_a_sentence_without_blanks_ends_with_it() -> None:
    assert (
        harmless("\u8bf7\u770bhttps://example.org/a\u3002\u7136\u540e")
        == "\u8bf7\u770b`https://example.org/a`\u3002\u7136\u540e"
    )


def test_quoted_text_is_one_line_and_plain() -> None:
    quoted = markdown.quote("a\n![x](https://example.org/) *b* @all `c` <i> &amp; \u202e\\")
    assert quoted == (
        "a\u23ce\\!\\[x\\]\\(https&#58;&#47;&#47;example\\.org&#47;\\) \\*b\\* @\u200ball"
        " \\`c\\` &lt;i\\> &amp;amp; \ufffd\\\\"
    )


# -- how long it takes ---------------------------------------------------------------------------------


def steps(text: str) -> int:
    """Return how many lines of gatewayd are carried out for `text`."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "gatewayd" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        harmless(text)
    finally:
        sys.settrace(before)
    return count


HOSTILE = (
    *(
        "[",
        "`",
        "<",
        "@",
        "~",
        "\\",
        "&",
        "*",
        "_",
        "(",
        ">",
        "- ",
        "\n",
        "```\n",
        "~~~\n",
        "|",
        " ",
        "a",
        "1.",
        "`a",
        "``a`",
    ),
    *(
        "[a](",
        "![",
        "[a](https://example.com/)",
        "https://",
        "www.",
        "a@",
        "a.",
        ".a",
        "a:",
        "@a.",
        "*`",
        "`|",
        "&#",
        "&a",
        "www",
    ),
)


@pytest.mark.parametrize("mark", HOSTILE, ids=lambda mark: repr(mark)[1:-1])
def test_the_work_grows_with_the_text_only(mark: str) -> None:
    few, many = steps(mark * 400), steps(mark * 1_600)
    assert many <= 5 * few + 500


@pytest.mark.parametrize("mark", HOSTILE, ids=lambda mark: repr(mark)[1:-1])
def test_a_hundred_thousand_hostile_marks_come_to_an_end(mark: str) -> None:
    """C7. A pattern that looks back over the text would not end within the time that pytest gives."""
    text = mark * (100_000 // len(mark))
    assert len(re.sub(r"[^A-Za-z]", "", harmless(text))) >= len(re.sub(r"[^A-Za-z]", "", text))
