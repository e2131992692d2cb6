import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import webtext

URL = "https://www.example.org/a/b.html"

PAGE = """<!DOCTYPE html><html><head><title>A  page</title><style>p { color: red }</style>
<script>alert("no")</script><meta charset="utf-8"></head>
<body><!-- a comment --><nav><a href="/">Home</a> <a href="#top">Top</a></nav>
<h1>Head
line</h1><p>One <b>bold</b>, <i>two</i>&amp;three.<br>A new line</p>
<ul><li>First</li><li><p>Second</p><ol><li>Inner</li><li>Other</li></ol></li></ul>
<h2>Links</h2><p>See <a href="other.html?x=1">the other</a>, <a href="javascript:alert(1)">no link</a>,
<a href="https://www.example.org/full">https://www.example.org/full</a> or
<a href="mailto:me@example.org">write</a>.</p>
<table><tr><th>Name</th><th>Size</th></tr><tr><td>a</td><td>1</td></tr></table>
<pre>  x = 1
    y = 2</pre><hr><img src="x.png" alt="A tree"><img src="y.png">
<p hidden>Never seen 1</p><p style="display: none">Never seen 2</p><div aria-hidden="true">Never seen 3</div>
<template>Never seen 4</template><p style="visibility:hidden">Never seen 5</p><input value="Never seen 6">
<noscript>Without scripts</noscript></body></html>"""

TEXT = """Title: A page

Home (https://www.example.org/) Top

# Head line

One bold, two&three.
A new line

- First
- Second
  1. Inner
  2. Other

## Links

See the other (https://www.example.org/a/other.html?x=1), no link, https://www.example.org/full or write\
 (mailto:me@example.org).

Name | Size
a | 1

  x = 1
    y = 2

---
[image: A tree]
Without scripts"""


def test_a_page_reads_like_the_page() -> None:
    assert webtext.readable(PAGE, URL) == TEXT


PIECES = {
    "nothing": ("", "(a page without text)"),
    "only a script": ("<script>x</script>", "(a page without text)"),
    "plain text": ("hello", "hello"),
    "an unclosed tag": ("<p>one<p>two<b>three", "one\n\ntwothree"),
    "an item without a list": ("<li>one<li>two", "- one\n- two"),
    "an empty item": ("<ul><li></li><li>x</li></ul>", "- x"),
    "an end without a beginning": ("</ul></pre></ol>x", "x"),
    "a link without text": ('<a href="/x"></a>', "(https://www.example.org/x)"),
    "a base": ('<base href="https://example.org/z/"><a href="x">y</a>', "y (https://example.org/z/x)"),
    "a broken base": ('<base href="http://[x"><a href="x">y</a>', "y (https://www.example.org/a/x)"),
    "a broken link": ('<a href="http://[x">y</a>', "y"),
    "a link of data": ('<a href="data:text/html,x">y</a>', "y"),
    "a link to a file": ('<a href="file:///etc/passwd">y</a>', "y"),
    "a link with a newline": ('<a href="/x\u2028y z">y</a>', "y (https://www.example.org/x%20y%20z)"),
    "a very long link": (f'<a href="/{"x" * 600}">y</a>', "y"),
    "a CDATA section": ("<p>a<![CDATA[b]]>c</p>", "ac"),
    "words across tags": ("<p>a<b>b</b>c <i> d </i> e</p>", "abc d e"),
}


@pytest.mark.parametrize(("html", "text"), PIECES.values(), ids=PIECES.keys())
def test_a_piece_of_a_page(html: str, text: str) -> None:
    assert webtext.readable(html, URL) == text


@pytest.mark.parametrize("tag", ["div", "a href='/x'", "ul", "li", "b", "pre", "table", "blockquote"])
def test_a_page_nested_without_end_is_read(tag: str) -> None:
    assert "deep" in webtext.readable(f"<{tag}>" * 20_000 + "deep", URL)


@given(st.one_of(st.text(), st.lists(st.sampled_from([*"<>/=\"'& ", "<p>", "</p>", "<ul>", "<li>", "<a href=x>",
    "</a>", "<pre>", "</pre>", "<!--", "-->", "<![CDATA[", "<?x", "text", "\n", "&#0;", "&#xd800;", "<td>"]))
    .map("".join)))  # fmt: skip
def test_any_text_is_a_page_and_holds_no_more_than_two_newlines_outside_of_what_is_exact(html: str) -> None:
    text = webtext.readable(html, URL)
    assert text
    if "<pre" not in html.lower():
        assert "\n\n\n" not in text
