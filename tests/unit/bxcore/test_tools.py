"""The tools' arguments: what is read, what is refused and in which words, and the one spelling."""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from bxcore import frame, strictjson, toolarguments, tools
from bxcore.tools import BadArguments, HttpFetch, Method, ReadFile, Shell, Takes, WriteFile

PYTHON = Path(__file__).resolve().parents[3] / "python"

GOOD: dict[str, tuple[str, str, object]] = {
    "a file": ("read_file", '{"path":"/a/b"}', ReadFile(path="/a/b")),
    "a window": (
        "read_file",
        ' { "max_lines" : 3, "start_line":2,"path":"/a" } ',
        ReadFile(path="/a", start_line=2, max_lines=3),
    ),
    "an empty content": ("write_file", '{"path":"/a","content":""}', WriteFile(path="/a", content="")),
    "escapes": ("write_file", r'{"path":"\u002fa","content":"\n\u00e9"}', WriteFile(path="/a", content="\né")),
    "P9 shell words are literal": (
        "read_file",
        '{"path":"/~/$HOME/${IFS}/*/-rf"}',
        ReadFile(path="/~/$HOME/${IFS}/*/-rf"),
    ),
    "P6 a space at the end": ("read_file", '{"path":"/a "}', ReadFile(path="/a ")),
    "a command": ("shell", '{"directory":"/w","command":"a\\nb"}', Shell(command="a\nb", directory="/w")),
    "a head": (
        "http_fetch",
        '{"url":"https://example.org/x","method":"HEAD"}',
        HttpFetch(url="https://example.org/x", method=Method.HEAD),
    ),
}


@pytest.mark.parametrize(("tool", "text", "expected"), GOOD.values(), ids=GOOD.keys())
def test_arguments_are_read(tool: str, text: str, expected: object) -> None:
    read = tools.parse(tool, text)
    assert read == expected
    assert type(read) is tools.TOOLS[tool].arguments


SECRET = "zvalue"  # no refusal may repeat it

BAD: dict[str, tuple[str, str, str]] = {
    "M1 broken JSON": ("read_file", '{"path":"/zvalue', "expected JSON"),
    "M1 text": ("read_file", '"/zvalue"', "expected an object"),
    "M1 a list": ("read_file", '["/zvalue"]', "expected an object"),
    "M1 a number": ("read_file", "7", "expected an object"),
    "M1 null": ("read_file", "null", "expected an object"),
    "M1 nothing": ("read_file", "", "expected JSON"),
    "M1 two calls in one": ("read_file", '{"path":"/zvalue"}{"path":"/b"}', "expected JSON"),
    "M1 a missing argument": ("write_file", '{"path":"/zvalue"}', "content: missing"),
    "M1 an extra argument": ("read_file", '{"path":"/a","zvalue":1}', "1 unknown"),
    "M1 a name in another case": ("read_file", '{"Path":"/zvalue"}', "expected path, start_line, max_lines"),
    "F1 a key twice": ("read_file", '{"path":"/zvalue","path":"/b"}', "repeats one"),
    "F2 not a number": ("read_file", '{"path":"/zvalue","max_lines":NaN}', "whole number"),
    "F3 a fraction": ("read_file", '{"path":"/zvalue","max_lines":1.0}', "whole number"),
    "F3 an exponent": ("read_file", '{"path":"/zvalue","max_lines":1e0}', "whole number"),
    "F3 true for one": ("read_file", '{"path":"/zvalue","max_lines":true}', "max_lines: expected a whole number"),
    "F3 a number as text": ("read_file", '{"path":"/zvalue","max_lines":"1"}', "max_lines: expected a whole number"),
    "F3 5,000 digits": ("read_file", '{"path":"/zvalue","max_lines":' + "9" * 5000 + "}", "whole number"),
    "F4 deep nesting": ("read_file", "[" * 100_000, "nesting"),
    "F5 half a surrogate pair": ("read_file", '{"path":"/zvalue\\ud800"}', "surrogate"),
    "F5 half a surrogate pair, unescaped": ("read_file", '{"path":"/zvalue\ud800"}', "surrogate"),
    "F13 null for text": ("read_file", '{"path":null}', "path: expected text, got null"),
    "F13 null for nothing": ("read_file", '{"path":"/zvalue","max_lines":null}', "got null (leave it out"),
    "F13 an object for text": ("read_file", '{"path":{"zvalue":1}}', "path: expected text, got an object"),
    "too few lines": ("read_file", '{"path":"/zvalue","max_lines":0}', "max_lines: expected a whole number from 1"),
    "too many lines": ("read_file", '{"path":"/zvalue","max_lines":10001}', "to 10000"),
    "P1 two dots": ("read_file", '{"path":"/zvalue/../etc/passwd"}', "path: "),
    "P1 one dot": ("read_file", '{"path":"/./zvalue"}', "path: "),
    "P1 two slashes": ("read_file", '{"path":"/zvalue//b"}', "path: "),
    "P6 NUL": ("read_file", '{"path":"/zvalue\\u0000.txt"}', "path: "),
    "P6 a newline": ("read_file", '{"path":"/zvalue\\n"}', "path: "),
    "P6 empty": ("read_file", '{"path":""}', "path: "),
    "P6 a dot": ("read_file", '{"path":"."}', "path: "),
    "P6 a slash at the end": ("read_file", '{"path":"/zvalue/"}', "path: "),
    "P6 256 bytes in a component": ("read_file", '{"path":"/' + "é" * 128 + '"}', "path: "),
    "P6 4,097 bytes": ("read_file", '{"path":"' + "/zvalue9" * 512 + '/"}', "path: "),
    "P9 a home": ("read_file", '{"path":"~/zvalue"}', "path: "),
    "P9 a variable": ("read_file", '{"path":"$HOME/zvalue"}', "path: "),
    "NUL in a content": ("write_file", '{"path":"/a","content":"zvalue\\u0000"}', "content: expected text without NUL"),
    "NUL in a command": ("shell", '{"directory":"/a","command":"zvalue\\u0000"}', "command: expected text without NUL"),
    "no command": ("shell", '{"directory":"/a","command":""}', "command: expected at least one character"),
    "no text to replace": ("edit_file", '{"path":"/a","old_text":"","new_text":""}', "old_text: expected at least one"),
    "a query of two lines": ("search_files", '{"path":"/a","query":"zvalue\\nb"}', "query: expected one line"),
    "a query with its newline": ("search_files", '{"path":"/a","query":"zvalue\\n"}', "query: expected one line"),
    "a pattern with a slash": ("search_files", '{"path":"/a","query":"b","glob":"zvalue/*"}', "glob: expected a pat"),
    "a method": ("http_fetch", '{"url":"https://example.org/","method":"zvalue"}', "method: expected one of GET, HEAD"),
    "a method in another case": ("http_fetch", '{"url":"https://example.org/","method":"get"}', "method: expected one"),
    "E1 an address": ("http_fetch", '{"url":"https://2130706433/zvalue"}', "url: "),
    "E9 userinfo": ("http_fetch", '{"url":"https://zvalue@example.org/"}', "url: "),
    "E14 another scheme": ("http_fetch", '{"url":"file:///zvalue"}', "url: "),
    "M9 too long": ("write_file", '{"path":"/a","content":"' + "zvalue" * 50_000 + '"}', "at most 262144 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("tool", "text", "says"), BAD.values(), ids=BAD.keys())
def test_bad_arguments_are_refused_in_one_line_that_repeats_no_value(tool: str, text: str, says: str) -> None:
    with pytest.raises(BadArguments) as refused:
        tools.parse(tool, text)
    detail = refused.value.detail
    assert says in detail
    assert len(detail) <= 300
    assert len(detail.splitlines()) == 1
    assert SECRET not in detail


@pytest.mark.parametrize("name", ["Read_file", "read_file ", "fs.read", "", "find_tool"])
def test_m1_a_tool_has_one_exact_name(name: str) -> None:
    with pytest.raises(KeyError):
        tools.parse(name, "{}")


def test_g8_only_key_order_white_space_and_escapes_are_no_difference() -> None:
    def spelled(text: str) -> bytes:
        return tools.canonical(tools.parse("read_file", text))

    same = [r'{"path":"/a","max_lines":2}', '{ "max_lines":2,\n"path":"/a"}', r'{"path":"\u002fa","max_lines":2}']
    assert {spelled(text) for text in same} == {b'{"path":"/a","max_lines":2}'}
    others = ['{"path":"/a"}', '{"path":"/a","start_line":1}', '{"path":"/a","max_lines":500}', '{"path":"/A"}']
    assert len({spelled(text) for text in [same[0], *others]}) == 1 + len(others)


def test_p7_names_that_look_alike_stay_apart() -> None:
    alike = ["/é", "/e\u0301", "/É", "/ﬁ", "/fi", "/．．", "/․․", "/a／b"]
    spelled = {tools.canonical(tools.parse("read_file", json.dumps({"path": path}))) for path in alike}
    assert len(spelled) == len(alike)


def test_canonical_arguments_are_read_back() -> None:
    for tool, _, read in GOOD.values():
        assert tools.parse(tool, tools.canonical(read).decode()) == read


def test_the_path_and_the_address_that_were_asked() -> None:
    assert tools.asked_path(tools.parse("shell", '{"directory":"/w","command":"x"}')) == "/w"
    assert tools.asked_path(tools.parse("read_file", '{"path":"/a"}')) == "/a"
    page = tools.parse("http_fetch", '{"url":"https://example.org/"}')
    assert (tools.asked_path(page), tools.asked_url(page)) == (None, "https://example.org/")
    assert tools.asked_url(ReadFile(path="/a")) is None


def test_the_resolved_path_takes_the_place_of_the_asked_one_and_nothing_else_changes() -> None:
    for tool, _, read in GOOD.values():
        if tool == "http_fetch":
            with pytest.raises(TypeError):
                tools.with_path(read, "/r")
            continue
        resolved = tools.with_path(read, "/r")
        assert tools.asked_path(resolved) == "/r"
        assert tools.with_path(resolved, tools.asked_path(read) or "") == read


def test_every_tool_says_what_brokerd_needs_to_judge_it() -> None:
    for name, kind in tools.TOOLS.items():
        fields = attrs.fields_dict(kind.arguments)
        assert name == kind.name
        assert kind.takes is (Takes.HOSTS if "url" in fields else Takes.PATHS)
        assert kind.default_ms < 120_000  # loopd's patience
        assert 1_000 <= kind.result_chars <= 100_000
    assert [kind.name for kind in tools.TOOLS.values() if not kind.auto_allowed] == ["shell"]
    assert {kind.name for kind in tools.TOOLS.values() if kind.writes} == {"write_file", "edit_file", "shell"}
    assert {kind.name for kind in tools.TOOLS.values() if kind.recursive} == {"search_files", "shell"}


def test_a_command_ends_before_its_container() -> None:
    assert tools.TOOLS["shell"].default_ms > toolarguments.MOST_MS


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        tools.TOOLS["x"] = tools.TOOLS["shell"]  # type: ignore[index]


def test_the_longest_arguments_fit_a_frame_as_text() -> None:
    worst = '"' * tools.MAX_ARGUMENT_BYTES
    assert len(strictjson.dumps({"arguments": worst})) + 10_000 < frame.MAX_FRAME


def test_a_schema_is_short_closed_and_json() -> None:
    for name, kind in tools.TOOLS.items():
        text = json.dumps(tools.schema(name), separators=(",", ":"))
        assert len(text) < 700
        assert len(kind.description) <= 80
        assert json.loads(text)["additionalProperties"] is False


def test_what_a_tool_container_imports_stays_small() -> None:
    """A start of Python is most of what a call costs; these modules would double it."""
    code = "import sys; import bxcore.tools; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(PYTHON)}, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"cattrs", "tomlkit", "requests", "subprocess", "ssl", "bxcore.convert", "bxcore.hosts"}.isdisjoint(loaded)
