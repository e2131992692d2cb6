"""Grants over generated files: read as TOML says, refused otherwise, and never wider for being cut short."""

import tomllib
from datetime import datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import grants, hosts, timestamp
from bxcore.grants import Grant, GrantFault, GrantFaults, Mode
from bxcore.tools import TOOLS, Takes
from bxcore.wire.tools import DataClass

PATHS = ["/srv", "/srv/a b", "/\u00e9", "/e\u0301", "/x/-rf", "/$HOME", "/a'b"]
HOSTS = ["example.org", "*.example.org", "example.org:8443", "a.example.com"]
CANARY = "c4n4ry-hunter2"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@st.composite
def files(draw: st.DrawFn) -> str:
    """Return the text of a valid grant file, its keys in any order and with remarks between."""
    kind = draw(st.sampled_from(list(TOOLS.values())))
    mode = draw(st.sampled_from([mode for mode in Mode if mode is not Mode.AUTO or kind.auto_allowed]))
    taint = DataClass.SECRET if mode is Mode.DENY else draw(st.sampled_from(DataClass))
    lines = [f'tool = "{kind.name}"', f'mode = "{mode.value}"', f'max_taint = "{taint.value}"']
    if draw(st.booleans()):
        lines.append(f'result_class = "{draw(st.sampled_from(DataClass)).value}"')
    if draw(st.booleans()):
        lines.append(f"untrusted = {draw(st.sampled_from(['true', 'false']))}")
    if draw(st.booleans()):
        lines.append(
            f"expires = {timestamp.to_text(draw(st.integers(0, timestamp.MAX_TIMESTAMP).map(timestamp.Timestamp)))}"
        )
    lines = draw(st.permutations(lines))
    name, pool = ("paths", PATHS) if kind.takes is Takes.PATHS else ("hosts", HOSTS)
    items = [quoted(item) for item in draw(st.lists(st.sampled_from(pool), min_size=1, unique=True))]
    gap = draw(st.sampled_from(["", "\n", "\n# [constraints]\n"]))
    joint = draw(st.sampled_from([", ", ",\n  ", ", # one\n"]))
    form = draw(
        st.sampled_from(["[constraints]\n{} = [{}]\n", "constraints.{} = [{}]\n", "constraints = {{{} = [{}]}}\n"])
    )
    return "\n".join(lines) + "\n" + gap + form.format(name, joint.join(items))


def parse(text: str) -> Grant:
    return grants.parse("a.toml", text.encode())


@given(files())
def test_what_is_read_is_what_another_reader_of_toml_reads(text: str) -> None:
    grant, meant = parse(text), tomllib.loads(text)
    assert (grant.tool, grant.mode.value, grant.max_taint.value) == (meant["tool"], meant["mode"], meant["max_taint"])
    assert grant.result_class.value == meant.get("result_class", "private")
    assert grant.untrusted == meant.get("untrusted", True)
    assert list(grant.paths) == meant["constraints"].get("paths", [])
    assert list(grant.hosts) == [hosts.rule(host) for host in meant["constraints"].get("hosts", [])]
    expires = meant.get("expires")
    assert (grant.expires is None) == (expires is None)
    if grant.expires is not None:
        assert isinstance(expires, datetime)
        assert datetime.fromisoformat(timestamp.to_text(grant.expires)) == expires


@given(files(), st.data())
def test_g7_a_file_cut_short_is_refused_or_means_the_same(text: str, data: st.DataObject) -> None:
    whole, raw = parse(text), text.encode()
    cut = data.draw(st.integers(0, len(raw) - 1))
    try:
        part = grants.parse("a.toml", raw[:cut])
    except GrantFaults:
        return
    assert attrs.evolve(part, hash=whole.hash) == whole


WRONG = [
    "untrusted = 1",
    "expires = 2026-12-31",
    "result_class = 'x'",
    "max_tant = 'secret'",
    'secret = """\n\n"""',
    "x.y = [\n1]",
]


@given(files(), st.integers(0, 3), st.sampled_from(WRONG))
def test_a_fault_is_told_with_its_line(text: str, place: int, wrong: str) -> None:
    lines = text.split("\n")
    key = wrong.split(maxsplit=1)[0]
    lines = [line for line in lines if not line.startswith(f"{key} ")]
    place = min(place, next(n for n, line in enumerate(lines) if "constraints" in line))
    lines.insert(place, wrong)
    with pytest.raises(GrantFaults) as caught:
        parse("\n".join(lines))
    assert [fault.line for fault in caught.value.faults] == [place + 1]


@given(files(), st.sampled_from(["secret", "tool", "mode", "result_class", "expires", "untrusted", "other"]), st.data())
def test_a_value_never_shows_in_a_fault(text: str, key: str, data: st.DataObject) -> None:
    broken = data.draw(
        st.sampled_from([f'"{CANARY}"', f'["{CANARY}"]', f'{{a = "{CANARY}"}}', CANARY, f'"{CANARY}', f'"{CANARY}\\'])
    )
    rest = "\n".join(line for line in text.split("\n") if not line.startswith(f"{key} "))
    with pytest.raises(GrantFaults) as caught:
        parse(f"{key} = {broken}\n{rest}")
    assert CANARY not in str(caught.value)
    assert all(CANARY not in fault.text for fault in caught.value.faults)


TOML_LIKE = st.lists(
    st.sampled_from(
        [
            *"=[]{}\"'#.,\n\r \0",
            "tool",
            "mode",
            "constraints",
            "paths",
            '"read_file"',
            '"ask"',
            "[constraints]\n",
            "expires",
            "1",
        ]
    ),
    max_size=40,
).map(lambda tokens: "".join(tokens).encode())


@given(TOML_LIKE | st.binary(max_size=80), st.text(st.characters(), max_size=20))
def test_any_bytes_under_any_name_are_a_grant_or_faults(raw: bytes, name: str) -> None:
    faults: tuple[GrantFault, ...] = (GrantFault(file="", line=0, text="none"),)
    try:
        grants.parse(name, raw)
    except GrantFaults as error:
        faults = error.faults
    assert faults
    assert all(fault.line >= 0 and fault.text and "\n" not in str(fault) for fault in faults)
