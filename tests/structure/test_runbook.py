"""Whoever sees a code finds it in the runbook, and every message kind in the protocol page."""

import ast
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from bxcore.wire.channel import TurnEnding
from bxcore.wire.control import ErrorCode
from bxcore.wire.kinds import KINDS
from bxcore.wire.tools import DenyReason
from tests.structure import sources

IN_A_LOG_LINE = re.compile(r"\bcode=([a-z][a-z0-9_]*)")


def codes(path: Path) -> Iterator[str]:
    """Yield each code that the file gives: `code = "…"` in a class, `code="…"` in a call, `code=…` in a log line."""
    for node in ast.walk(sources.tree(path)):
        if isinstance(node, ast.ClassDef):
            yield from _class_codes(node)
        elif isinstance(node, ast.keyword) and node.arg == "code":
            yield from _text(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from IN_A_LOG_LINE.findall(node.value)


def _class_codes(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        if any(isinstance(target, ast.Name) and target.id == "code" for target in targets):
            yield from _text(statement.value)  # type: ignore[attr-defined]  # one of the two above


def _text(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def entries(page: str) -> set[str]:
    """Return the codes that a page has an entry for: `## code`, alone on the line."""
    return {match.strip("`") for match in re.findall(r"^## (\S+)$", page, re.MULTILINE)}


def known_codes() -> set[str]:
    found = {code for path in sources.python_files() for code in codes(path)}
    vocabularies: tuple[type[Enum], ...] = (ErrorCode, TurnEnding, DenyReason)
    return found | {member.value for vocabulary in vocabularies for member in vocabulary}


# The one ending that needs no mending.
ORDINARY = {TurnEnding.ANSWERED.value}


def test_every_code_has_an_entry_in_the_runbook() -> None:
    page = (sources.DOCS / "runbook.md").read_text(encoding="utf-8")
    assert sorted(known_codes() - ORDINARY - entries(page)) == []


def test_codes_are_found_where_they_are_given(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        'class Away(Exception):\n    code = "in_a_class"\n'
        'class Gone(Exception):\n    code: ClassVar[str] = "annotated"\n'
        'notice(code="in_a_call")\n'
        'log.error("stopped code=in_a_log_line ms=%d")\n'
    )
    assert set(codes(bad)) == {"in_a_class", "annotated", "in_a_call", "in_a_log_line"}


def test_a_mention_is_no_entry() -> None:
    assert entries("## bad_frame\n\nsee bad_message\n\n### forbidden\n\n## `quoted`\n\n## Two words\n") == {
        "bad_frame",
        "quoted",
    }


def unexplained_kinds(page: str) -> list[str]:
    return sorted(kind for kind in KINDS if f"`{kind}`" not in page)


def test_every_message_kind_is_in_the_protocol_page() -> None:
    assert unexplained_kinds((sources.DOCS / "protocol.md").read_text(encoding="utf-8")) == []


def test_a_kind_that_is_not_explained_is_seen() -> None:
    everything_but_one = " ".join(f"`{kind}`" for kind in KINDS if kind != "turn_cancel")
    assert unexplained_kinds(everything_but_one) == ["turn_cancel"]
