"""What an owner reads of a slip in a grant file: the rule that was broken, and what to write instead."""

import pytest

from bxcore import grants
from bxcore.grants import GrantFaults

SHORT = 'tool = "read_file"\nmode = "ask"\nmax_taint = "private"\n[constraints]\npaths = ["/srv"]\n'


def faults(text: str, name: str = "a.toml") -> list[str]:
    """Return the faults as `line: text`."""
    with pytest.raises(GrantFaults) as caught:
        grants.parse(name, text.encode())
    return [f"{fault.line}: {fault.text}" for fault in caught.value.faults]


WRONG_NAMES = {
    "a.TOML": "it does not end in .toml, in small letters",
    "Notes.toml": "it holds a capital letter",
    "my notes.toml": "it holds a space",
    "my_notes.toml": "it holds an underscore",
    "notes.old.toml": "it holds another dot",
    "n\u00f6tes.toml": "it holds another character",
    "-notes.toml": "it starts with -",
    f"{'a' * 65}.toml": "it has 65 characters before .toml",
}


@pytest.mark.parametrize(("name", "rule"), WRONG_NAMES.items(), ids=WRONG_NAMES.values())
def test_a_file_name_is_refused_with_the_rule_that_it_breaks(name: str, rule: str) -> None:
    (fault,) = faults(SHORT, name)
    assert fault.endswith(f"and then .toml; {rule}")


@pytest.mark.parametrize(("written", "meant"), [("allow", "auto"), ("Ask", "ask"), ("block", "deny"), ("dny", "deny")])
def test_a_mode_by_another_name_is_told_the_one_that_there_is(written: str, meant: str) -> None:
    wrong = SHORT.replace('"ask"', f'"{written}"')
    assert faults(wrong) == [f'2: mode: expected one of "auto", "ask", "deny", got another text; did you mean {meant}?']


NO_QUOTES = "not TOML: a text needs quotes; only numbers, times, true and false stand without"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tool = read_file", NO_QUOTES),
        ("tool = tomorrow", NO_QUOTES),
        ("untrusted = fals", NO_QUOTES),
        ("constraints.paths = [/srv/notes]", NO_QUOTES),
        ('constraints.paths = ["/srv/notes", /srv/b]', NO_QUOTES),
        ("constraints = {hosts = [*.example.org]}", NO_QUOTES),
        ('tool = "read_file" x', "not TOML: Unexpected character: 'x'"),
        ('tool = "a b = c" d', "not TOML: Unexpected character: 'd'"),
        ("tool =", "not TOML: Unexpected character: '\\n'"),
    ],
)
def test_a_text_without_quotes_is_told_that_it_needs_them(line: str, told: str) -> None:
    assert faults(f"# head\n{line}\n") == [f"2: {told}"]
