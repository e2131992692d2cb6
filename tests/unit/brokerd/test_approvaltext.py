"""INV-8: the block shows everything, hides nothing, and no two calls give the same one."""

import hashlib
import json
import re
import sys
import unicodedata

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import approvaltext
from brokerd.approvaltext import MountShown, Question, Terms
from brokerd.call import Call, Labels
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass
from tests.fakes import calls

SESSION = Labels(data_class=DataClass.PRIVATE, untrusted=False)
RESULT = Labels(data_class=DataClass.SECRET, untrusted=True)
TERMS = Terms(
    mounts=(MountShown(path="/srv/boat", writable=True),),
    hosts=(),
    image="0f3a" * 16,
    limits=("memory 512 MiB", "100 s"),
    session=SESSION,
    result=RESULT,
)
ANYTHING = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


def question(call: Call, terms: Terms = TERMS) -> Question:
    return Question(
        id=1041,
        call=call,
        grant="boat-notes",
        terms=terms,
        opened=Timestamp(1_789_632_300_000),
        expires=Timestamp(1_789_632_900_250),
    )


def writing(content: str, path: str = "/srv/boat/log.md") -> Call:
    return calls.call("write_file", text=json.dumps({"path": path, "content": content}, ensure_ascii=False))


def block(call: Call) -> str:
    return approvaltext.block(question(call))


def without_hashes(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{64}\b", "#", text)


# -- what it shows ------------------------------------------------------------------------------


def test_the_block_shows_everything_that_will_take_effect() -> None:
    call = writing('Fair wind.\n"Home"\tby six\n')
    call = attrs.evolve(call, path="/srv/harbour/log.md")
    assert block(call).splitlines() == [
        "Approval 1041: may this call run?",
        "",
        "  tool            write_file (it writes)",
        "  session         s, call 1",
        '  path            "/srv/harbour/log.md"',
        '  asked as        "/srv/boat/log.md"',
        f"  arguments       70 bytes, SHA-256 {hashlib.sha256(call.canonical).hexdigest()}",
        "    {",
        '      "path": "/srv/boat/log.md",',
        '      "content":',
        r'        "Fair wind.\u{a}"',
        r'        "\"Home\"\u{9}by six\u{a}"',
        "    }",
        '  grant           "boat-notes", which asks',
        "  session so far  private, has read nothing untrusted",
        "  its result      secret, untrusted",
        '  will see        "/srv/boat", read and write',
        "  network         none",
        f'  image           "{"0f3a" * 16}"',
        "  limits          memory 512 MiB, 100 s",
        "  asked           2026-09-17T08:05:00.000Z",
        "  expires         2026-09-17T08:15:00.250Z",
        f"  fingerprint     {call.fingerprint}",
    ]


def test_a_call_to_the_network_shows_the_host_and_says_where_a_name_is_not_ascii() -> None:
    """E12."""
    call = calls.call("http_fetch", url="https://xn--bcher-kva.example.org/a?q=1")
    terms = attrs.evolve(TERMS, mounts=(), hosts=("xn--bcher-kva.example.org:443",))
    text = approvaltext.block(question(call, terms))
    assert 'host            "https://xn--bcher-kva.example.org:443" (not ASCII: ' in text
    assert '  network         "xn--bcher-kva.example.org:443"\n' in text
    assert "  will see        no file of this machine\n" in text


def test_a_path_beyond_ascii_is_also_spelled_out() -> None:
    """P7, G12: a Cyrillic a, and an accent that stands apart from its letter."""
    text = block(writing("x", path="/srv/b\u043eat/e\u0301.md"))
    assert '"/srv/b\u043eat/e\\u{301}.md" (not ASCII: "/srv/b\\u{43e}at/e\\u{301}.md")' in text


def test_a_long_run_of_blanks_is_counted() -> None:
    """G12: ten thousand spaces, then a command."""
    text = block(writing("ls" + " " * 10_000 + "rm -rf /srv" + "\n" * 500 + "end"))
    assert r'"ls\u{20*10000}rm -rf /srv\u{a*500}"' in text
    assert max(map(len, text.splitlines())) < 200
    indented = "\n".join(" " * n + "x" for n in range(approvaltext.LONGEST_RUN + 1))
    assert r"\u{20*" not in block(writing(indented))


def test_nothing_is_left_out_of_a_long_text() -> None:
    content = "\n".join(f"line {number}" for number in range(20_000))
    text = block(writing(content))
    assert all(f'"line {number}\\u{{a}}"' in text for number in (0, 1, 9_999, 19_998))
    assert '"line 19999"' in text


# -- what it hides ------------------------------------------------------------------------------


LEFT_TO_RIGHT = {"L", "EN", "ES", "ET", "CS", "ON", "B", "S", "WS"}
"""The classes of Unicode's bidirectional algorithm that make no run from right to left, nor do together."""


def test_of_all_unicode_only_what_shows_itself_stays() -> None:
    """Neighbours 4 and 5, G12, P6: every code point there is. Of what is left, none turns its neighbours round."""
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        shown = approvaltext.escaped(character)
        spelled = f"\\u{{{number:x}}}"
        if (
            (character != " " and unicodedata.category(character)[0] in "CZM")
            or unicodedata.bidirectional(character) not in LEFT_TO_RIGHT
            or unicodedata.name(character, "").startswith(("HANGUL CHOSEONG", "HANGUL JUNGSEONG", "HANGUL JONGSEONG"))
        ):
            assert shown == spelled
        else:
            assert shown in (character, f"\\{character}", spelled)


ATTACKS = {
    "right to left": "\u202e",
    "isolate": "\u2066",
    "zero width space": "\u200b",
    "joiner": "\u200d",
    "tag letter": "\U000e0041",
    "variation selector": "\ufe0f",
    "more of them": "\U000e0100",
    "soft hyphen": "\u00ad",
    "byte order mark": "\ufeff",
    "escape": "\x1b",
    "C1 control": "\x9b",
    "carriage return": "\r",
    "backspace": "\x08",
    "line separator": "\u2028",
    "no-break space": "\u00a0",
    "wide space": "\u3000",
    "Hangul filler": "\u3164",
    "half-width filler": "\uffa0",
    "empty braille": "\u2800",
    "accent on the letter before": "\u0301",
    "overlay": "\u0338",
    "enclosing circle": "\u20dd",
    "private use": "\ue000",
    "unassigned": "\u0378",
    "noncharacter": "\uffff",
    "Hebrew letter": "\u05d0",
    "Arabic letter": "\u0628",
    "Arabic digit": "\u0661",
    "letter of an old script from right to left": "\U00010800",
    "vowel that goes before its letter": "\u093f",
    "Hangul vowel that shows nothing": "\u1160",
    "Hangul vowel": "\u1173",
    "Hangul end": "\u11a8",
    "Hangul beginning": "\u1112",
    "older Hangul vowel": "\ud7b0",
    "shade of skin": "\U0001f3fd",
    "half a flag": "\U0001f1e9",
}


@pytest.mark.parametrize("character", ATTACKS.values(), ids=ATTACKS.keys())
def test_no_character_can_hide_or_steer(character: str) -> None:
    text = block(writing(f"a{character}b"))
    text += approvaltext.block(attrs.evolve(question(writing("x")), grant=f"a{character}b"))
    assert character not in text.replace("\n", "")
    assert f"a\\u{{{ord(character):x}}}b" in text


READABLE = ["Gruß, œuvre", "Καλημέρα", "Привет", "漢字かなカナ", "한국어", "สวสด", "→ ½ € 🙂"]


@pytest.mark.parametrize("text", READABLE)
def test_what_is_written_from_left_to_right_stays_readable(text: str) -> None:
    assert approvaltext.escaped(text) == text


@given(ANYTHING, st.text(st.sampled_from(' \n\r"\\{}:,\u2028'), max_size=30))
def test_no_text_of_the_model_forges_a_line_of_the_block(anything: str, marks: str) -> None:
    plain = block(writing("x"))
    labels = [line[:18] for line in plain.splitlines() if line.startswith("  ") and line[2] != " "]
    text = block(writing(anything + marks + "\n  expires         2099-01-01T00:00:00.000Z\n"))
    assert [line[:18] for line in text.splitlines() if line.startswith("  ") and line[2] != " "] == labels
    assert text.count("\n  expires ") == 1


@given(ANYTHING)
def test_a_quoted_text_can_be_read_back_exactly(text: str) -> None:
    def meant(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        number, _, times = match[2].partition("*")
        return chr(int(number, 16)) * int(times or 1)

    quoted = approvaltext.quoted(text)
    assert quoted[0] == quoted[-1] == '"'
    assert re.sub(r'\\(["\\])|\\u\{([0-9a-f]+(?:\*[0-9]+)?)\}', meant, quoted[1:-1]) == text


# -- two calls, two blocks ----------------------------------------------------------------------

CONTENT = ANYTHING | st.text(st.sampled_from(" \n\\u{}20a*19\"',"), max_size=60)


@given(CONTENT, CONTENT)
def test_two_texts_never_give_the_same_block(one: str, other: str) -> None:
    """G8, also without the hash that would tell them apart anyway."""
    first, second = without_hashes(block(writing(one))), without_hashes(block(writing(other)))
    assert (first == second) is (one == other)


def test_every_difference_of_a_call_shows() -> None:
    call = calls.call("write_file", path="/srv/boat/log.md")
    others = [
        calls.call("edit_file", path="/srv/boat/log.md"),
        calls.call("write_file", path="/srv/boat/log.mb"),
        calls.call("write_file", path="/srv/boat/log.md", session="t"),
        calls.call("write_file", path="/srv/boat/log.md", number=2),
        attrs.evolve(call, path="/etc/shadow"),
        writing("x ", path="/srv/boat/log.md"),
    ]
    blocks = [without_hashes(block(one)) for one in [call, *others]]
    assert len(set(blocks)) == len(blocks)


TERMS_CHANGED = [
    attrs.evolve(TERMS, mounts=(MountShown(path="/srv/boat", writable=False),)),
    attrs.evolve(TERMS, mounts=(MountShown(path="/srv", writable=True),)),
    attrs.evolve(TERMS, mounts=()),
    attrs.evolve(TERMS, hosts=("example.org:443",)),
    attrs.evolve(TERMS, image="0f3b" * 16),
    attrs.evolve(TERMS, limits=("memory 1 GiB", "100 s")),
    attrs.evolve(TERMS, session=attrs.evolve(SESSION, untrusted=True)),
    attrs.evolve(TERMS, session=attrs.evolve(SESSION, data_class=DataClass.SECRET)),
    attrs.evolve(TERMS, result=attrs.evolve(RESULT, untrusted=False)),
    attrs.evolve(TERMS, result=attrs.evolve(RESULT, data_class=DataClass.PUBLIC)),
]


def test_every_difference_of_what_takes_effect_shows() -> None:
    call = writing("x")
    blocks = [approvaltext.block(question(call, terms)) for terms in [TERMS, *TERMS_CHANGED]]
    assert len(set(blocks)) == len(blocks)


def test_a_spelling_of_the_same_arguments_gives_the_same_block() -> None:
    """G8: key order and the spelling of a letter are no difference."""
    one = calls.call("write_file", text='{"path":"/srv/a","content":"é"}')
    other = calls.call("write_file", text='{ "content": "\\u00e9", "path": "/srv/a" }')
    assert block(one) == block(other)
    assert one.fingerprint == other.fingerprint
