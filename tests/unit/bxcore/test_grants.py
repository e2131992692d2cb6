"""Rows G2 (of a file), G4 and E11 of the bad-input list: a grant is read exactly, or every fault is told."""

import hashlib
from collections.abc import Callable

import pytest

from bxcore import grants, hosts
from bxcore.errors import EXIT_CONFIG, ConfigError
from bxcore.grants import Grant, GrantFault, GrantFaults, GrantSet, Mode
from bxcore.ids import Hash32
from bxcore.timestamp import MAX_TIMESTAMP, Timestamp
from bxcore.tools import TOOLS, Takes
from bxcore.wire.tools import DataClass
from tests.structure import sources

WHOLE = """\
# the owner's words
tool = "read_file" # and a remark
mode = "auto"
max_taint = "secret"
result_class = "public"
untrusted = false
expires = 2026-12-31T00:00:00Z

[constraints]
paths = [
  "/srv/notes", # first
  "/srv/a b",
]
"""

SHORT = 'tool = "read_file"\nmode = "ask"\nmax_taint = "private"\n[constraints]\npaths = ["/srv"]\n'
FETCH = 'tool = "http_fetch"\nmode = "ask"\nmax_taint = "private"\n[constraints]\nhosts = ["example.org"]\n'


def parse(text: str, name: str = "a.toml") -> Grant:
    return grants.parse(name, text.encode())


def faults(text: str | bytes, name: str = "a.toml") -> list[str]:
    """Return the faults as `line: text`."""
    with pytest.raises(GrantFaults) as caught:
        grants.parse(name, text if isinstance(text, bytes) else text.encode())
    assert [str(fault) for fault in caught.value.faults] == caught.value.detail.split("\n")
    return [f"{fault.line}: {fault.text}" for fault in caught.value.faults]


def with_line(line: str) -> str:
    """Return SHORT with one more line before its constraints: the fourth."""
    return SHORT.replace("[constraints]", f"{line}\n[constraints]")


def test_a_whole_file_is_read() -> None:
    assert parse(WHOLE, "read-notes.toml") == Grant(
        id="read-notes",
        tool="read_file",
        mode=Mode.AUTO,
        max_taint=DataClass.SECRET,
        result_class=DataClass.PUBLIC,
        untrusted=False,
        expires=Timestamp(1_798_675_200_000),
        paths=("/srv/notes", "/srv/a b"),
        hosts=(),
        hash=Hash32(hashlib.sha256(WHOLE.encode()).hexdigest()),
    )


def test_what_is_left_out_is_private_untrusted_and_without_an_end() -> None:
    grant = parse(SHORT)
    assert (grant.result_class, grant.untrusted, grant.expires) == (DataClass.PRIVATE, True, None)
    assert grant.hosts == ()


def test_paths_are_cut_into_components_once() -> None:
    assert parse(WHOLE).path_parts == (("srv", "notes"), ("srv", "a b"))


def test_hosts_are_read_as_rules() -> None:
    text = FETCH.replace('"example.org"', '"example.org", "*.example.org:8443", "Example.COM."')
    assert parse(text).hosts == (
        hosts.rule("example.org:443"),
        hosts.rule("*.example.org:8443"),
        hosts.rule("example.com"),
    )


def test_every_spelling_of_a_table_is_one() -> None:
    for constraints in ('constraints = {paths = ["/srv"]}', 'constraints.paths = ["/srv"]'):
        assert parse(SHORT.replace('[constraints]\npaths = ["/srv"]', constraints)).paths == ("/srv",)


def test_windows_line_ends_are_read() -> None:
    assert parse(WHOLE.replace("\n", "\r\n")).paths == ("/srv/notes", "/srv/a b")


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_can_be_granted_with_what_it_takes(tool: str) -> None:
    constraint = {Takes.PATHS: 'paths = ["/srv"]', Takes.HOSTS: 'hosts = ["example.org"]', Takes.NONE: ""}
    text = f'tool = "{tool}"\nmode = "ask"\nmax_taint = "private"\n[constraints]\n{constraint[TOOLS[tool].takes]}\n'
    assert parse(text).tool == tool


def test_every_fault_is_told_at_once_in_order_of_lines() -> None:
    assert faults(
        """\
# head
tol = "read_file"
mode = "atuo"
max_tant = "private"
untrusted = 1
expires = 2026-12-31
secret = "hunter2"
paths = ["/x"]
"a b" = 1

[constraints]
paths = ["/srv/notes", "/", 5,
 "/srv/notes"]
hosts = []
patterns = ["x"]
mode = 1

[other]
x = 1
"""
    ) == [
        "1: tool: missing; expected the name of a tool",
        '1: max_taint: missing; expected one of "public", "private", "secret"',
        "2: tol: unknown key; did you mean tool?",
        '3: mode: expected one of "auto", "ask", "deny", got another text; did you mean auto?',
        "4: max_tant: unknown key; did you mean max_taint?",
        "5: untrusted: expected true or false, got a whole number",
        "6: expires: expected a date and time with its zone, as 2026-12-31T00:00:00Z, got a day without a time",
        "7: secret: no tool takes a secret yet; the file may not set one",
        "8: paths: unknown key; it belongs under [constraints]",
        "9: (a key of 3 characters): unknown key",
        "11: constraints: expected at the end of the file, after every other key",
        "12: constraints.paths[1]: expected a path below /, which is everything",
        "12: constraints.paths[2]: expected text, got a whole number",
        "12: constraints.paths[3]: the same as paths[0]",
        "14: constraints.hosts: expected a list of at least one text, got an empty one",
        "15: constraints.patterns: not a constraint yet; the file may not set it",
        "16: constraints.mode: unknown key; it belongs above [constraints]",
        "18: other: unknown key",
    ]


def test_faults_belong_to_the_owner_and_have_a_code() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("")
    assert caught.value.code == "grants_invalid"
    assert EXIT_CONFIG == 78


NO_CLASS = 'result_class: expected one of "public", "private", "secret", got'

# What one more line makes of SHORT: the faults of the fourth line, without "4: ".
ONE_LINE: dict[str, tuple[str, str]] = {
    "G4 unknown key": ("max_tant = 1", "max_tant: unknown key; did you mean max_taint?"),
    "G4 key in capitals": ("Untrusted = false", "Untrusted: unknown key; did you mean untrusted?"),
    "G4 hidden key": ('"\\u202emode" = 1', "(a key of 5 characters): unknown key; did you mean mode?"),
    "G4 number for truth": ("untrusted = 0", "untrusted: expected true or false, got a whole number"),
    "G4 text for truth": ('untrusted = "false"', "untrusted: expected true or false, got text"),
    "G4 truth for text": ("result_class = true", f"{NO_CLASS} true or false"),
    "G4 class in capitals": ('result_class = "Public"', f"{NO_CLASS} another text; did you mean public?"),
    "G4 no class at all": ('result_class = "mine"', f"{NO_CLASS} another text"),
    "G4 list for a class": ('result_class = ["public"]', f"{NO_CLASS} a list"),
    "secret": ('secret = "canary"', "secret: no tool takes a secret yet; the file may not set one"),
    "secret of a wrong type": ("secret = 1", "secret: no tool takes a secret yet; the file may not set one"),
    "patterns above": ("patterns = []", "patterns: unknown key; it belongs under [constraints]"),
    "another table": ("[limits]", "limits: unknown key"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "fault"), ONE_LINE.values(), ids=ONE_LINE.keys())
def test_one_wrong_line_refuses_the_file(line: str, fault: str) -> None:
    assert f"4: {fault}" in faults(with_line(line))


NO_MOMENT = "expires: expected a date and time with its zone, as 2026-12-31T00:00:00Z, got"

EXPIRIES: dict[str, tuple[str, int | str]] = {
    "G2 UTC": ("2026-12-31T00:00:00Z", 1_798_675_200_000),
    "G2 with a blank": ("2026-12-31 00:00:00Z", 1_798_675_200_000),
    "G2 other zone": ("2026-12-31T02:00:00+02:00", 1_798_675_200_000),
    "G2 zone west": ("2026-12-30T19:00:00-05:00", 1_798_675_200_000),
    "G2 fraction, never rounded up": ("2026-12-31T00:00:00.9999999Z", 1_798_675_200_999),
    "G2 long ago": ("1970-01-01T00:00:00Z", 0),
    "G2 year 9999": ("9999-12-31T23:59:59.999Z", MAX_TIMESTAMP),
    "G2 leap day": ("2028-02-29T00:00:00Z", 1_835_395_200_000),
    "G2 date only": ("2026-12-31", f"{NO_MOMENT} a day without a time"),
    "G2 naive": ("2026-12-31T00:00:00", f"{NO_MOMENT} a time without a zone"),
    "G2 time only": ("00:00:00", f"{NO_MOMENT} a time"),
    "G2 text": ('"2026-12-31T00:00:00Z"', f"{NO_MOMENT} text"),
    "G2 number": ("1798675200000", f"{NO_MOMENT} a whole number"),
    "G2 never": ('"never"', f"{NO_MOMENT} text"),
    "G2 30 February": ("2026-02-30T00:00:00Z", "not TOML: Invalid datetime"),
    "G2 29 February of another year": ("2027-02-29T00:00:00Z", "not TOML: Invalid datetime"),
    "G2 hour 24": ("2026-12-31T24:00:00Z", "not TOML: Invalid datetime"),
    "G2 leap second": ("2026-12-31T23:59:60Z", "not TOML: Invalid datetime"),
    "G2 year 0": ("0000-12-31T00:00:00Z", "not TOML: Invalid datetime"),
    "G2 before 1970": ("1969-12-31T23:59:59Z", "expires: expected a time in the years 1970 to 9999"),
    "G2 before 1970 by its zone": ("1970-01-01T00:00:00+00:01", "expires: expected a time in the years 1970 to 9999"),
    "G2 beyond 9999 by its zone": ("9999-12-31T23:59:59-00:01", "expires: expected a time in the years 1970 to 9999"),
    "G2 year 1 by its zone": ("0001-01-01T00:00:00+14:00", "expires: expected a time in the years 1970 to 9999"),
}  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), EXPIRIES.values(), ids=EXPIRIES.keys())
def test_an_expiry_is_one_moment_or_refused(written: str, meant: int | str) -> None:
    text = with_line(f"expires = {written}")
    if isinstance(meant, int):
        assert parse(text).expires == meant
    else:
        assert faults(text) == [f"4: {meant}"]


NO_CONTROL = (
    "4: not TOML: Control characters (codes less than 0x1f and 0x7f) are not allowed in strings, use \\u0000 instead"
)
NO_TOOL = f"1: tool: no such tool; there are {', '.join(TOOLS)}"

WHOLE_FILES: dict[str, tuple[str | bytes, list[str]]] = {
    "G4 empty file": (
        "",
        [
            "1: tool: missing; expected the name of a tool",
            '1: mode: missing; expected one of "auto", "ask", "deny"',
            '1: max_taint: missing; expected one of "public", "private", "secret"',
        ],
    ),
    "G4 byte-order mark": ("\ufeff" + SHORT, ["1: starts with a byte-order mark; save it without one"]),
    "G4 UTF-16": (SHORT.encode("utf-16"), ["1: not UTF-8"]),
    "G4 Latin-1": (with_line("# é").encode("latin-1"), ["4: not UTF-8"]),
    "G4 NUL": (
        with_line('secret = "a\0"'),
        [NO_CONTROL],
    ),
    "G4 5,000 digits": (with_line(f"untrusted = {'9' * 5000}"), ["4: not TOML: Invalid number"]),
    "G4 3,000 [": (
        with_line(f"untrusted = {'[' * 3000}"),
        ["4: not TOML: TOML value nested more than 100 levels deep"],
    ),
    "G4 key twice": (with_line('mode = "auto"'), ['4: not TOML: Key "mode" already exists.']),
    "G4 key twice, once quoted": (with_line('"mode" = "auto"'), ['4: not TOML: Key "mode" already exists.']),
    "G4 table twice": (SHORT + '[constraints]\nhosts = ["a"]\n', ['6: not TOML: Key "constraints" already exists.']),
    "G4 table twice, once by dots": (
        with_line('constraints.paths = ["/a"]'),
        ["5: not TOML: Redefinition of an existing table"],
    ),
    "G4 too long": (SHORT + "#" * 65536, ["0: longer than the 65536 bytes that are read"]),
    "G4 direction override in a remark": (
        with_line("# \u202egpj"),
        ["4: holds a character that cannot be seen; if it is meant, write it as an escape (\\u…)"],
    ),
    "P6 zero width in a path": (
        SHORT.replace("/srv", "/s\u200brv"),
        ["5: holds a character that cannot be seen; if it is meant, write it as an escape (\\u…)"],
    ),
    "G4 direction override in a tool name": (
        SHORT.replace("read_file", "\\u202eread_file"),
        ["1: tool: no such tool; did you mean read_file?"],
    ),
    "tool in capitals": (SHORT.replace("read_file", "Read_File"), ["1: tool: no such tool; did you mean read_file?"]),
    "no tool at all": (
        SHORT.replace("read_file", "telepathy"),
        [NO_TOOL],
    ),
    "tool with a blank": (SHORT.replace("read_file", "read_file "), ["1: tool: no such tool; did you mean read_file?"]),
    "tool of another type": (SHORT.replace('"read_file"', "[]"), ["1: tool: expected the name of a tool, got a list"]),
    "call_tool is no target": (SHORT.replace("read_file", "call_tool"), [NO_TOOL]),
    "deny that a secret would lift": (
        SHORT.replace('"ask"', '"deny"'),
        ['3: max_taint: a deny grant needs "secret": with less it stops denying at a higher taint'],
    ),
    "deny that needs a public session": (
        SHORT.replace('"ask"', '"deny"').replace("private", "public"),
        ['3: max_taint: a deny grant needs "secret": with less it stops denying at a higher taint'],
    ),
    "neighbour 1: auto for shell": (
        SHORT.replace("read_file", "shell").replace('"ask"', '"auto"'),
        ['2: mode: a grant for shell cannot be "auto": what it runs is not judged by its words'],
    ),
    "neighbour 2: a pattern of commands": (
        SHORT.replace("read_file", "shell") + 'patterns = ["whoami"]\n',
        ["6: constraints.patterns: not a constraint yet; the file may not set it"],
    ),
    "constraints that are no table": (
        SHORT.replace("[constraints]\npaths", "constraints"),
        [
            "4: constraints.paths: missing; a grant for read_file needs a list of paths",
            "4: constraints: expected a table, got a list",
        ],
    ),
    "no constraints": (
        SHORT.partition("[")[0],
        ["1: constraints.paths: missing; a grant for read_file needs a list of paths"],
    ),
    "empty constraints": (
        SHORT.partition("paths")[0],
        ["4: constraints.paths: missing; a grant for read_file needs a list of paths"],
    ),
    "no path in the list": (
        SHORT.replace('"/srv"', ""),
        ["5: constraints.paths: expected a list of at least one text, got an empty one"],
    ),
    "one path without a list": (
        SHORT.replace('["/srv"]', '"/srv"'),
        ["5: constraints.paths: expected a list of at least one text, got text"],
    ),
    "hosts for a tool that takes paths": (
        SHORT + 'hosts = ["example.org"]\n',
        ["6: constraints.hosts: a grant for read_file takes no hosts"],
    ),
    "paths for a tool that takes hosts": (
        FETCH + 'paths = ["/srv"]\n',
        ["6: constraints.paths: a grant for http_fetch takes no paths"],
    ),
    "hosts instead of paths": (
        SHORT.replace('paths = ["/srv"]', 'hosts = ["example.org"]'),
        [
            "4: constraints.paths: missing; a grant for read_file needs a list of paths",
            "5: constraints.hosts: a grant for read_file takes no hosts",
        ],
    ),
    "a path and a relative one": (
        SHORT.replace('"/srv"', '"/srv", "notes"'),
        ["5: constraints.paths[1]: expected an absolute path, one that starts with /"],
    ),
    "P1 a path through its parent": (
        SHORT.replace("/srv", "/srv/../etc"),
        ["5: constraints.paths[0]: expected a path without . and .. components"],
    ),
    "everything": (
        SHORT.replace("/srv", "/"),
        ["5: constraints.paths[0]: expected a path below /, which is everything"],
    ),
    "a path with mount options": (
        SHORT.replace("/srv", "/srv:rw"),
        ["5: constraints.paths[0]: expected a path without : and ,"],
    ),
    "a path twice": (
        SHORT.replace('"/srv"', '"/srv", "/a", "/srv"'),
        ["5: constraints.paths[2]: the same as paths[0]"],
    ),
    "a host twice in two spellings": (
        FETCH.replace('"example.org"', '"example.org", "EXAMPLE.org.:443"'),
        ["5: constraints.hosts[1]: the same as hosts[0]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WHOLE_FILES.values(), ids=WHOLE_FILES.keys())
def test_a_file_that_is_not_exact_is_refused(text: str | bytes, expected: list[str]) -> None:
    assert faults(text) == expected


def test_p7_two_spellings_of_a_letter_are_two_paths() -> None:
    text = SHORT.replace('"/srv"', '"/srv/\u00e9", "/srv/e\u0301"')
    assert parse(text).paths == ("/srv/\u00e9", "/srv/e\u0301")


def test_p6_a_hidden_character_can_be_meant_when_it_can_be_seen_in_the_file() -> None:
    assert parse(SHORT.replace("/srv", "/s\\u200brv")).paths == ("/s\u200brv",)


E11 = ["*", "*.com", "*.co.uk", "*.github.io", "**.example.org", "a.*.example.org", "*example.org", "127.0.0.1",
       "127.1", "0x7f000001", "[::1]", "::1", "example.org:0", "example.org:65536", "example.org:", ":443",
       "https://example.org", "example.org/", "user@example.org", "example..org", "-a.example.org", "ex\u00e4mple.net",
       "example.org ", "", "a" * 64 + ".org"]  # fmt: skip


@pytest.mark.parametrize("host", E11)
def test_e11_a_host_that_is_none_or_belongs_to_many_refuses_the_file(host: str) -> None:
    [fault] = faults(FETCH.replace("example.org", host))
    assert fault.startswith("5: constraints.hosts[0]: ")
    assert len(host) < 3 or host not in fault


FILE_NAMES = ["", ".toml", "A.toml", "a_b.toml", "-a.toml", "a.b.toml", "a.TOML", "a.toml~", "a toml",
              "é.toml", "a\n.toml", "\u202ea.toml", "../a.toml", "a/b.toml",
              "a" * 65 + ".toml", "a.toml\0", "a\udcff.toml"]  # fmt: skip


@pytest.mark.parametrize("name", FILE_NAMES, ids=ascii)
def test_a_file_name_that_is_no_id_is_refused(name: str) -> None:
    [fault] = faults(SHORT, name)
    assert fault.startswith("0: expected a name of 1 to 64 characters of a-z, 0-9 and -")


def test_a_file_name_is_shown_so_that_nothing_in_it_hides() -> None:
    with pytest.raises(GrantFaults) as caught:
        parse(SHORT, "\u202ea\n.toml")
    assert caught.value.faults[0].file == "\\u{202E}a\\u{000A}.toml"


def test_a_bad_name_and_a_bad_text_are_told_together() -> None:
    assert [fault.partition(":")[0] for fault in faults("tool = ", "B.toml")] == ["0", "1"]


def test_a_longest_name_is_an_id() -> None:
    assert parse(SHORT, f"{'a' * 64}.toml").id == "a" * 64


def test_faults_are_ordered_by_file_and_line() -> None:
    given = [
        GrantFault(file="b", line=1, text="x"),
        GrantFault(file="a", line=2, text="y"),
        GrantFault(file="a", line=0, text="z"),
    ]
    assert GrantFaults(given).detail == "a: z\na:2: y\nb:1: x"


# -- the set ----------------------------------------------------------------------------------


def one(grant_id: str, text: str = SHORT) -> Grant:
    return parse(text, f"{grant_id}.toml")


def test_a_set_is_in_order_of_ids_whatever_came_first() -> None:
    grants_of_set = GrantSet(grants=(one("b"), one("a-1"), one("a", FETCH))).grants
    assert [grant.id for grant in grants_of_set] == ["a", "a-1", "b"]


def test_a_set_finds_the_grants_of_a_tool() -> None:
    found = GrantSet(grants=(one("c"), one("b", FETCH), one("a"))).by_tool
    assert {tool: [grant.id for grant in listed] for tool, listed in found.items()} == {
        "read_file": ["a", "c"],
        "http_fetch": ["b"],
    }


def test_two_grants_of_one_id_are_no_set() -> None:
    with pytest.raises(ValueError, match="one id"):
        GrantSet(grants=(one("a"), one("a", FETCH)))


CHANGES: dict[str, Callable[[], GrantSet]] = {
    "one more": lambda: GrantSet(grants=(one("a"), one("b"), one("c"))),
    "one less": lambda: GrantSet(grants=(one("a"),)),
    "another id": lambda: GrantSet(grants=(one("a"), one("c"))),
    "another content": lambda: GrantSet(grants=(one("a"), one("b", FETCH))),
    "a remark more": lambda: GrantSet(grants=(one("a"), one("b", SHORT + "# x\n"))),
    "exchanged": lambda: GrantSet(grants=(one("a", FETCH), one("b"))),
    "none": lambda: GrantSet(grants=()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_digest_changes_with_any_file(change: Callable[[], GrantSet]) -> None:
    assert change().digest != GrantSet(grants=(one("a"), one("b"))).digest


def test_the_digest_does_not_depend_on_the_order() -> None:
    assert GrantSet(grants=(one("a"), one("b"))).digest == GrantSet(grants=(one("b"), one("a"))).digest


# -- what the repository shows ----------------------------------------------------------------


def examples() -> dict[str, Grant]:
    paths = sorted((sources.ROOT / "deploy/example/grants").glob("*"))
    return {path.stem: grants.parse(path.name, path.read_bytes()) for path in paths}


def test_the_examples_are_grants() -> None:
    found = examples()
    assert {(grant.tool, grant.mode) for grant in found.values()} == {
        ("read_file", Mode.AUTO),
        ("write_file", Mode.ASK),
        ("http_fetch", Mode.ASK),
        ("read_file", Mode.DENY),
    }
    assert GrantSet(grants=tuple(found.values())).grants


def test_no_example_lets_the_model_write_what_is_read_as_trusted() -> None:
    found = examples().values()
    written = [path for grant in found if TOOLS[grant.tool].writes for path in grant.paths]
    assert [grant.id for grant in found if not grant.untrusted and set(grant.paths) & set(written)] == []
