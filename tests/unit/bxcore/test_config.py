"""Rows G4-like of the bad-input list for configuration: every fault at once, each with its line."""

import os
from decimal import Decimal
from enum import Enum
from pathlib import Path

import attrs
import pytest
import tomlkit

from bxcore import config, tomlfile
from bxcore.errors import EXIT_CONFIG, ConfigError


class Mode(Enum):
    AUTO = "auto"
    ASK = "ask"


def at_least_one(_: object, attribute: "attrs.Attribute[int]", value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name}: expected 1 or more")


@attrs.frozen(kw_only=True)
class Limits:
    steps: int = attrs.field(default=24, validator=at_least_one)
    ratio: Decimal = Decimal("0.7")


@attrs.frozen(kw_only=True)
class Peer:
    name: str
    socket: Path


@attrs.frozen(kw_only=True)
class Range:
    low: int = 0
    high: int = 10

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@attrs.frozen(kw_only=True)
class Settings:
    state: Path
    name: str = "boxmaker"
    mode: Mode = Mode.ASK
    verbose: bool = False
    maybe: int | None = None
    names: tuple[str, ...] = ()
    limits: Limits = Limits()
    range: Range = Range()
    peers: tuple[Peer, ...] = ()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loopd.toml"


def load(path: Path, text: str) -> Settings:
    path.write_text(text, encoding="utf-8", newline="")
    return config.load(path, Settings)


def faults(path: Path, text: str) -> list[str]:
    """Return the faults, without the path in front."""
    with pytest.raises(ConfigError) as caught:
        load(path, text)
    lines = caught.value.detail.split("\n")
    assert all(line.startswith(f"{path}:") for line in lines)
    assert caught.value.code == "config"
    return [line.removeprefix(f"{path}:") for line in lines]


WHOLE = """\
# the owner's words
state = "/var/lib/boxmaker"
name = 'Box' # and a remark
mode = "auto"
verbose = true
maybe = 1_000
names = [
  "a", # first
  "b",
]

[limits]
steps = 0x10
ratio = 1.30

[[peers]]
name = "é"
socket = "/run/a.sock"

[[peers]]
name = "b"
socket = "/run/b.sock"
"""


def test_a_whole_file_is_read(path: Path) -> None:
    assert load(path, WHOLE) == Settings(
        state=Path("/var/lib/boxmaker"),
        name="Box",
        mode=Mode.AUTO,
        verbose=True,
        maybe=1000,
        names=("a", "b"),
        limits=Limits(steps=16, ratio=Decimal("1.30")),
        peers=(Peer(name="é", socket=Path("/run/a.sock")), Peer(name="b", socket=Path("/run/b.sock"))),
    )


def test_defaults_live_in_the_class(path: Path) -> None:
    assert load(path, 'state = "/s"\n[limits]\nsteps = 1\n') == Settings(
        state=Path("/s"), limits=Limits(steps=1, ratio=Decimal("0.7"))
    )


def test_a_number_is_what_the_owner_wrote(path: Path) -> None:
    ratios = {"0.1": "0.1", "1": "1", "1e-3": "0.001", "1_0.5": "10.5", "-0.0": "0", "+2.50": "2.50"}
    for written, meant in ratios.items():
        assert load(path, f'state="/s"\nlimits.ratio = {written}\n').limits.ratio == Decimal(meant)


def test_dotted_keys_and_inline_tables_are_tables(path: Path) -> None:
    text = 'state="/s"\nlimits = {steps = 3, ratio = 0.5}\nrange.low = 2\n'
    assert load(path, text).limits == Limits(steps=3, ratio=Decimal("0.5"))


def test_windows_line_ends_are_read(path: Path) -> None:
    assert load(path, 'state = "/s"\r\nname = "x"\r\n').name == "x"


def test_every_fault_is_told_at_once_in_order_of_lines(path: Path) -> None:
    assert faults(
        path,
        """\
# head

nmae = "x"
mode = "auot"
verbose = 1
names = ["a",
  2,
  "c", 4]
maybe = "5"

[limits]
steps = 0
ratio = "much"

[peers]
name = "one"

[colour]
x = 1
""",
    ) == [
        "1: state: missing; expected an absolute path",
        "3: nmae: unknown key; did you mean name?",
        '4: mode: expected one of "auto", "ask", got text',
        "5: verbose: expected true or false, got a whole number",
        "6: names[1]: expected text, got a whole number",
        "6: names[3]: expected text, got a whole number",
        "9: maybe: expected a whole number, got text",
        "12: limits.steps: expected 1 or more",
        "13: limits.ratio: expected a number, got text",
        "15: peers: expected a list, got a table",
        "18: colour: unknown key",
    ]


WRONG: dict[str, tuple[str, str]] = {
    "relative path": ('state = "x"', "1: state: expected an absolute path, got text"),
    "path with a NUL": ('state = "/x\\u0000"', "1: state: expected an absolute path, got text"),
    "home is no path": ('state = "~/x"', "1: state: expected an absolute path, got text"),
    "number for text": ('state="/s"\nname = 5', "2: name: expected text, got a whole number"),
    "true for a number": ('state="/s"\nmaybe = true', "2: maybe: expected a whole number, got true or false"),
    "fraction for a number": (
        'state="/s"\nmaybe = 1.0',
        "2: maybe: expected a whole number, got a number with a fraction",
    ),
    "number beyond 2^53": (
        'state="/s"\nmaybe = 9007199254740992',
        "2: maybe: expected a whole number, got a whole number beyond 2^53-1",
    ),
    "infinity": ('state="/s"\nlimits.ratio = inf', "2: limits.ratio: expected a number, got a number with a fraction"),
    "not a number": (
        'state="/s"\nlimits.ratio = nan',
        "2: limits.ratio: expected a number, got a number with a fraction",
    ),
    "date for text": ('state="/s"\nname = 2026-09-17', "2: name: expected text, got a date"),
    "time for text": ('state="/s"\nname = 08:05:00', "2: name: expected text, got a time"),
    "moment for text": ('state="/s"\nname = 2026-09-17T08:05:00Z', "2: name: expected text, got a date"),
    "list for text": ('state="/s"\nname = ["a"]', "2: name: expected text, got a list"),
    "text for a list": ('state="/s"\nnames = "abc"', "2: names: expected a list, got text"),
    "text for a table": ('state="/s"\nlimits = "x"', "2: limits: expected a table, got text"),
    "list of tables for a table": ('state="/s"\n[[limits]]\nsteps=1', "2: limits: expected a table, got a list"),
    "key in a second table of a list": (
        'state="/s"\n[[peers]]\nname="a"\nsocket="/a"\n\n[[peers]]\nsocket="/b"\nname=3',
        "8: peers[1].name: expected text, got a whole number",
    ),
    "missing in a second table of a list": (
        'state="/s"\n[[peers]]\nname="a"\nsocket="/a"\n\n[[peers]]\nsocket="/b"\n',
        "6: peers[1].name: missing; expected text",
    ),
    "key below a dotted header": ('state="/s"\n\n[limits]\n\n[limits.deep]\nx=1', "5: limits.deep: unknown key"),
    "second dotted key of a table": (
        'state="/s"\nlimits.steps=1\n\nlimits.ratio="x"',
        "4: limits.ratio: expected a number, got text",
    ),
    "inline table": ('state="/s"\nlimits = {steps = "x"}', "2: limits.steps: expected a whole number, got text"),
    "after a multi-line text": (
        'state="/s"\nname = """\n[x]\n# "\n"""\nmaybe="y"',
        "6: maybe: expected a whole number, got text",
    ),
    "after a literal multi-line text": (
        "state='/s'\nname = '''\n\"\"\"\n'''\nmaybe='y'",
        "5: maybe: expected a whole number, got text",
    ),
    "after brackets in a text": (
        'state="/s"\nnames = ["]", \'[\',\n"#]"]\nmaybe="y"',
        "4: maybe: expected a whole number, got text",
    ),
    "after an unusual line end in a text": (
        'state="/s"\nname = "\u2028\x85"\nmaybe="y"',
        "3: maybe: expected a whole number, got text",
    ),
    "a rule about two keys": ('state="/s"\n\n[range]\nlow=5\nhigh=1', "3: range: low is above high"),
    "quoted key": ('state="/s"\n"what is this" = 1', "2: what is this: unknown key"),
    "header with spaces": (
        'state="/s"\n\n  [ limits ] # here\nsteps = "x"',
        "4: limits.steps: expected a whole number, got text",
    ),
}


@pytest.mark.parametrize(("text", "fault"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_told_with_line_key_and_type(path: Path, text: str, fault: str) -> None:
    assert faults(path, text) == [fault]


NOT_TOML: dict[str, tuple[str, int]] = {
    "no value": ("a=1\nb=\n", 2),
    "no key": ("a=1\n=2\n", 2),
    "duplicate key": ('state="/s"\nname="a"\nname="b"\n', 3),
    "duplicate key in a table": ('state="/s"\n[limits]\nsteps=1\n\nratio=1\nsteps=2\n', 6),
    "duplicate key in an inline table": ('state="/s"\n\nlimits={steps=1, steps=2}\nname="x"\n', 3),
    "duplicate table": ("[limits]\nsteps=1\n\n[range]\nlow=1\n\n[limits]\nratio=1\n", 7),
    "table over a key": ('name="x"\n\n[name]\na=1\n', 3),
    "dotted key over a value": ("a=1\n\na.b=2\n", 3),
    "open text": ('a=1\nb="x\nc=2\n', 2),
    "open list": ("a=1\nb=[1,\n2\n", 3),
    "no value, lines ended as on Windows": ("# x\r\n" * 50 + "b=\r\n" + "# x\r\n" * 50, 51),
    "no value, after line ends of other kinds": ('a="\u2028\x85\u2029"\n# \x85\u2028\nb=\n', 3),
    "NUL": ('a="x\0"\n', 1),
    "control character in a remark": ("a=1\n# \x01\n", 2),
    "3,000 brackets": ("a=1\nb=" + "[" * 3000 + "\n", 2),
    "3,000 tables in one another": ("a=1\nb=" + "{a=" * 3000 + "\n", 2),
    "5,000 digits": ("a=1\nb=" + "9" * 5000 + "\n", 2),
    "date that does not exist": ("a=1\nb=2026-02-30\n", 2),
    "lone surrogate": ('a=1\nb="\\ud800"\n', 2),
    "lone carriage return": ("a=1\rb=2\n", 1),
    "words": ("hello\n", 1),
}


@pytest.mark.parametrize(("text", "line"), NOT_TOML.values(), ids=NOT_TOML.keys())
def test_what_is_not_toml_is_told_with_its_line(path: Path, text: str, line: int) -> None:
    (fault,) = faults(path, text)
    assert fault.startswith(f"{line}: not TOML: ")


def test_a_missing_file_is_a_fault(path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file") as caught:
        config.load(path, Settings)
    assert str(path) in caught.value.detail


def test_a_directory_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(tmp_path, Settings)


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "byte-order mark": (b"\xef\xbb\xbfa=1\n", "1: starts with a byte-order mark"),
    "not UTF-8": (b'a=1\nb="\xff"\n', "2: not UTF-8"),
    "UTF-16": ('a="x"'.encode("utf-16"), "1: not UTF-8"),
}


@pytest.mark.parametrize(("raw", "fault"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_bytes_that_are_no_text_are_a_fault(path: Path, raw: bytes, fault: str) -> None:
    path.write_bytes(raw)
    with pytest.raises(ConfigError) as caught:
        config.load(path, Settings)
    assert caught.value.detail.startswith(f"{path}:{fault}")


def test_a_file_of_absurd_size_is_not_read(path: Path) -> None:
    path.write_bytes(b"#" * (300 * 1024))
    with pytest.raises(ConfigError, match="longer than the 65536 bytes"):
        config.load(path, Settings)


def test_an_empty_file_lacks_what_has_no_default(path: Path) -> None:
    assert faults(path, "") == ["1: state: missing; expected an absolute path"]


def test_a_number_that_no_decimal_can_hold_is_a_fault(path: Path) -> None:
    text = 'state="/s"\nlimits.ratio = 1e99999999999999999999\n'
    assert faults(path, text) == ["2: limits.ratio: expected a number, got a number with a fraction"]


def test_a_class_with_another_kind_of_field_is_our_mistake(path: Path) -> None:
    strange = attrs.make_class("Strange", {"x": attrs.field(type=bytes)}, frozen=True)
    path.write_text("x = 1\n")
    with pytest.raises(TypeError, match="cannot stand in a configuration class"):
        config.load(path, strange)


def test_a_wrong_file_ends_the_process_with_the_code_for_it() -> None:
    assert EXIT_CONFIG == 78


def test_a_value_of_thousands_of_lines_is_read_and_its_faults_have_a_line(path: Path) -> None:
    numbers = ",\n".join(f'"{number}"' for number in range(3000))
    assert len(load(path, f'state="/s"\nnames=[\n{numbers}]\n').names) == 3000
    assert faults(path, f'state="/s"\nverbose=3\nnames=[\n{numbers}]\nmaybe="x"\n')[0] == (
        "2: verbose: expected true or false, got a whole number"
    )


def test_the_lines_of_a_long_value_cost_no_more_than_its_length(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    parse = tomlkit.parse

    def counted(text: str) -> tomlkit.TOMLDocument:
        read.append(len(text))
        return parse(text)

    monkeypatch.setattr(tomlkit, "parse", counted)
    text = 'state="/s"\nverbose=3\nnames=[\n' + "[1],\n" * 500 + "]\nmaybe='x'\n"
    assert [fault.split(":")[0] for fault in faults(path, text)][-1] == "505"
    assert sum(read) == 2 * len(text)  # the whole file, and each statement by itself


def test_a_pipe_is_a_fault_and_nobody_waits_for_its_other_end(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read: not a regular file"):
        config.load(path, Settings)


def test_a_link_to_the_file_is_followed(path: Path) -> None:
    path.with_name("real.toml").write_text('state="/s"\nlimits={steps=3}\nrange={low=1,high=2}\nname="n"\n')
    path.symlink_to("real.toml")
    assert isinstance(tomlfile.read(path), tomlfile.Document)
