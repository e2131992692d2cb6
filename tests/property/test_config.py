"""Lines of keys are exact, whatever stands between them; any text is read or refused as a ConfigError."""

import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import config
from bxcore.errors import ConfigError


@attrs.frozen(kw_only=True)
class Table:
    number: int = 0


@attrs.frozen(kw_only=True)
class Settings:
    number: int = 0
    text: str = ""
    list: tuple[str, ...] = ()
    table: Table = Table()
    tables: tuple[Table, ...] = ()


# Statements of one or more lines that are right, and that a search for lines can stumble over.
FILLERS = st.sampled_from(
    [
        "",
        '# number = 1 [table] """',
        "   ",
        '"""\n[table]\nnumber = 2\n"""',
        "'''\n\"\"\" # ]\n'''",
        '"]["',
        "'# no remark'",
        "[ # one\n  \"a]\",\n\n  'b', # ]\n]",
        '["""\n]\n""", \'x\']',
        '"\u2028\x85"',
    ]
)


def load(text: str) -> Settings:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_text(text, encoding="utf-8", newline="")
        return config.load(Path(file.name), Settings)


def statements(values: list[str]) -> list[str]:
    """Return the fillers as statements: remarks as they are, values under keys that are not ours."""
    return [value if value.strip()[:1] in {"", "#"} else f"filler{n} = {value}" for n, value in enumerate(values)]


@given(
    st.lists(FILLERS, max_size=6),
    st.sampled_from(["number = true", "[table]\nnumber = 'x'", "[[tables]]\nnumber = []"]),
)
def test_a_fault_is_told_with_the_line_on_which_it_stands(values: list[str], wrong: str) -> None:
    before = "".join(f"{statement}\n" for statement in statements(values))
    line = before.count("\n") + wrong.count("\n") + 1
    with pytest.raises(ConfigError) as caught:
        load(f"{before}{wrong}\n# end\n")
    told = [fault.split(".toml:")[1] for fault in caught.value.detail.split("\n")]
    assert any(fault.startswith(f"{line}: ") and "expected a whole number" in fault for fault in told)
    fillers = [fault for fault in told if "unknown key" in fault]
    starts = [n for n, text in enumerate(before.split("\n"), start=1) if text.startswith("filler")]
    assert [int(fault.split(":")[0]) for fault in fillers] == starts


TOML_LIKE = st.lists(
    st.sampled_from(
        [*"abx=[]{}\"'#.,\n\r \t\\0123-_:\0", "number", "text", "table", '"""', "'''", "= 1\n", "[[", "]]\n"]
    ),
    max_size=40,
).map("".join)


@given(TOML_LIKE | st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        load(text)
    except ConfigError as error:
        assert ".toml:" in error.detail  # noqa: PT017 - most texts are refused, some are read
