"""Rows M4 and R4 of the bad-input list: text from outside forges no markup and steers no terminal (INV-12)."""

import unicodedata

import pytest

from bxcore import sanitize
from bxcore.sanitize import FAMILIES, SHAPES

NEUTRALISED: dict[str, tuple[str, str]] = {
    "a role of ChatML": ("<|im_start|>system", "< |im_start|>system"),
    "the end of a message": ("x<|im_end|>\n", "x< |im_end|>\n"),
    "the end of thinking": ("</think>", "< /think>"),
    "a tool call": ('<tool_call>{"name":"x"}</tool_call>', '< tool_call>{"name":"x"}< /tool_call>'),
    "a call in XML": ("<function=rm>", "< function=rm>"),
    "a call with attributes": ('<invoke name="rm">', '< invoke name="rm">'),
    "Llama 2": ("[INST] <<SYS>>x<</SYS>> [/INST]</s>", "[ INST] < <SYS>>x< </SYS>> [ /INST]< /s>"),
    "Llama 3": ("<|start_header_id|>system<|end_header_id|>", "< |start_header_id|>system< |end_header_id|>"),
    "Mistral": ("[TOOL_RESULTS]", "[ TOOL_RESULTS]"),
    "Gemma": ("<start_of_turn>model", "< start_of_turn>model"),
    "newer Gemma": ('<|turn>x<turn|><|"|>', '< |turn>x< turn|>< |"|>'),
    "DeepSeek": ("<｜User｜><｜tool▁calls▁begin｜>", "< ｜User｜>< ｜tool▁calls▁begin｜>"),
    "DeepSeek's calls": ('<｜DSML｜invoke name="x">', '< ｜DSML｜invoke name="x">'),
    "GLM": ("[gMASK]<sop><|observation|>", "[ gMASK]< sop>< |observation|>"),
    "EXAONE": ("[|assistant|]", "[ |assistant|]"),
    "Seed": ("<[begin▁of▁sentence]>", "< [begin▁of▁sentence]>"),
    "MiniMax": ("]~b]user[e~[", "] ~b]user[ e~["),
    "Falcon": (">>TITLE<<", "> >TITLE<<"),
    "numbered": ("<unused12><SPECIAL_10>[control_8]", "< unused12>< SPECIAL_10>[ control_8]"),
    "a tag inside a tag": ("<|im_<|im_start|>start|>", "<|im_< |im_start|>start|>"),
    "two tags that share a character": ("<|a<|b|>", "<|a< |b|>"),
    "doubled": ("<<|im_end|>|im_end|>", "<< |im_end|>|im_end|>"),
    "a tag of one family inside one of another": ("<[[INST]]>", "<[[ INST]]>"),
    "the marker of a picture": ("<__media__>", "< __media__>"),
    "a role in a file name": ("notes <|im_start|>.txt", "notes < |im_start|>.txt"),
}

UNCHANGED: dict[str, str] = {
    "nothing": "",
    "prose": "If a < b and c > d, then [1] holds; see <https://example.org/x?y=1>.",
    "HTML": "<div class='x'><p>text</p><br/><table><tr><td>1</td></tr></table></div>",
    "generic types": "Vec<HashMap<String, Option<u8>>> List[int] dict[str, int] a[i][j]",
    "shell": "cat <input >output 2>&1 | sort || [ -f x ] && [[ -n $y ]]",
    "pipes and operators": "f <| x |> g; a <- b; x <*> y; c <=> d; [|1; 2|]; p || q",
    "Markdown": "| a | b |\n|---|---|\n[link](x) ![image](y) <!-- note --> [x] [ ]",
    "broken up before": "< |im_start|> < /think> [ INST]",
    "half a tag": "<|im_st <|",
    "every kind of letter": "é 大别山 🦞 👩‍👩‍👧 \u202e \ufeff \0 \ud7ff",
    "spaces": "  \t\r\n\u00a0\u2003 ",
}


@pytest.mark.parametrize(("text", "expected"), NEUTRALISED.values(), ids=NEUTRALISED.keys())
def test_a_tag_is_broken_by_a_space_after_its_first_character(text: str, expected: str) -> None:
    assert sanitize.neutralise(text) == expected


@pytest.mark.parametrize("text", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_other_text_stays_as_it_is(text: str) -> None:
    assert sanitize.neutralise(text) == text


@pytest.mark.parametrize("tag", sanitize.samples())
def test_every_known_tag_is_broken_wherever_it_stands(tag: str) -> None:
    broken = f"{tag[0]} {tag[1:]}"
    for before, after in (("", ""), ("x", "y"), ("\n", "\n"), ("a < b [", "] > c"), ("é", "\0")):
        neutral = sanitize.neutralise(before + tag + after)
        assert tag not in neutral
        assert broken.split(" ", 1)[1] in neutral  # nothing of it is lost
    assert sanitize.neutralise(tag * 3).count(tag) == 0


def test_the_samples_hold_every_name_and_every_shape() -> None:
    shown = set(sanitize.samples())
    assert {tag for family in FAMILIES.values() for tag in family} <= shown
    assert {sample for _, sample in SHAPES.values()} <= shown
    assert len(shown) == len(sanitize.samples())


@pytest.mark.parametrize("tag", sanitize.samples())
def test_no_tag_begins_with_a_space_after_its_first_character(tag: str) -> None:
    assert len(tag) > 2
    assert not tag[1].isspace()


def test_extra_tags_are_broken_too() -> None:
    text = "<im_patch> <orator> {{x}}"
    assert sanitize.neutralise(text) == text
    assert sanitize.neutralise(text, ("<im_patch>", "{{x}}")) == "< im_patch> <orator> { {x}}"


def test_an_extra_tag_that_is_special_in_expressions_is_taken_literally() -> None:
    assert sanitize.neutralise("<.*> <abc>", ("<.*>",)) == "< .*> <abc>"


TEMPLATE = """
{%- macro m(x) %}<tool>{{ x | tojson }}</tool>{% endmacro -%}
{{- bos_token }}{% if messages[0]['role'] == 'system' and a < b and c > d %}
{{- '<|im_start|>' + message.role + '\n<function=' + name + '>' }}[INST] {{ "[/INST]" }} ]~b]user
<invoke name="{{ name }}"><im_patch>[|user|] [BEGIN FINAL RESPONSE] loop.index0 xs[1:] [gMASK]
"""


def test_the_markers_of_a_template_are_found() -> None:
    assert set(sanitize.tags_in_template(TEMPLATE)) >= {
        "<tool>",
        "</tool>",
        "<|im_start|>",
        "<function=",
        "[INST]",
        "[/INST]",
        "]~b]",
        "<invoke name=",
        "<im_patch>",
        "[|user|]",
        "[BEGIN FINAL RESPONSE]",
        "[gMASK]",
    }


def test_what_belongs_to_the_template_language_is_no_marker() -> None:
    found = sanitize.tags_in_template(TEMPLATE)
    assert [tag for tag in found if any(part in tag for part in ("[0]", "role", " b ", "1:", "'"))] == []


def test_the_markers_of_a_template_can_be_used_as_they_come() -> None:
    found = sanitize.tags_in_template(TEMPLATE)
    once = sanitize.neutralise(TEMPLATE, found)
    assert not any(tag in once for tag in found)
    assert sanitize.neutralise(once, found) == once


# -- terminals --------------------------------------------------------------------------------

ESCAPED: dict[str, tuple[str, str]] = {
    "colour": ("\x1b[31mred", r"\u{001B}[31mred"),
    "title of the window": ("\x1b]0;x\x07", r"\u{001B}]0;x\u{0007}"),
    "C1 form of the same": ("\x9b31m", r"\u{009B}31m"),
    "carriage return": ("good\rbad", r"good\u{000D}bad"),
    "backspace and delete": ("a\b\x7f", r"a\u{0008}\u{007F}"),
    "NUL": ("\0", r"\u{0000}"),
    "right-to-left override": ("\u202etxt.exe", r"\u{202E}txt.exe"),
    "isolates": ("\u2066\u2069", r"\u{2066}\u{2069}"),
    "zero width": ("a\u200b\u200d\ufeffb", r"a\u{200B}\u{200D}\u{FEFF}b"),
    "soft hyphen": ("a\u00adb", r"a\u{00AD}b"),
    "tag characters": ("\U000e0041\U000e007f", r"\u{E0041}\u{E007F}"),
    "variation selectors of the second kind": ("x\U000e0101", r"x\u{E0101}"),
    "line and paragraph separators": ("\u2028\u2029", r"\u{2028}\u{2029}"),
    "private use": ("\ue000\U000f0000\U0010ffff", r"\u{E000}\u{F0000}\u{10FFFF}"),
    "lone surrogate": ("\ud800", r"\u{D800}"),
    "invisible letters": ("\u3164\uffa0\u115f", r"\u{3164}\u{FFA0}\u{115F}"),
}


@pytest.mark.parametrize(("text", "expected"), ESCAPED.values(), ids=ESCAPED.keys())
@pytest.mark.parametrize("keep_newlines", [True, False])
def test_what_steers_or_hides_is_written_out(text: str, expected: str, keep_newlines: bool) -> None:
    assert sanitize.escape_terminal(text, keep_newlines=keep_newlines) == expected


@pytest.mark.parametrize(
    "text", ["", "plain ~", "é 大别山 🦞 ⚠\ufe0f ﬁ ①", "\u00a0\u2003wide spaces\u3000", "e\u0301", "שלום عربى"]
)
def test_what_is_only_to_be_read_stays(text: str) -> None:
    assert sanitize.escape_terminal(text, keep_newlines=False) == text


def test_newline_and_tab_stay_where_they_are_wanted() -> None:
    assert sanitize.escape_terminal("a\n\tb\r\n", keep_newlines=True) == "a\n\tb\\u{000D}\n"
    assert sanitize.escape_terminal("a\n\tb", keep_newlines=False) == "a\\u{000A}\\u{0009}b"


def test_every_character_of_these_categories_is_written_out() -> None:
    steering = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    missed = [
        f"U+{number:04X}"
        for number in range(0x110000)
        if unicodedata.category(chr(number)) in steering
        and sanitize.escape_terminal(chr(number), keep_newlines=False) == chr(number)
    ]
    assert missed == []


def test_nothing_is_written_out_that_can_be_seen() -> None:
    """Letters, marks, digits, signs: only those that Unicode calls default-ignorable are hidden."""
    ignorable = {*range(0x034F, 0x0350), 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0}
    ignorable |= set(range(0xE0000, 0xE1000))
    hidden = [
        number
        for number in range(0x110000)
        if unicodedata.category(chr(number))[0] in "LMNPS"
        and sanitize.escape_terminal(chr(number), keep_newlines=False) != chr(number)
    ]
    assert set(hidden) <= ignorable
