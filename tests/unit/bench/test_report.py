import json

import pytest

from tests.bench import report
from tests.bench.report import Measure

ROWS = [
    report.exactly("re-read", 0, "tokens", 0),
    report.at_most("added", 9.1234567, "ms", 8),
    report.to_read("direct", 1234.5, "ms"),
]


def test_a_row_holds_up_to_its_target_and_not_beyond() -> None:
    assert [report.at_most("", value, "", 8).holds for value in (7.9, 8, 8.001)] == [True, True, False]
    assert [report.below("", value, "", 8).holds for value in (7.9, 8)] == [True, False]
    assert [report.at_least("", value, "", 0.5).holds for value in (0.499, 0.5)] == [False, True]
    assert [report.exactly("", value, "", 0).holds for value in (-1, 0, 1)] == [False, True, False]


def test_a_figure_without_a_target_is_shown_and_not_judged() -> None:
    assert report.to_read("a", 3, "ms") == Measure(name="a", value=3, unit="ms", target=None, holds=True)


def test_the_table_is_markdown_and_marks_what_does_not_hold() -> None:
    assert report.table(ROWS).splitlines() == [
        "| measure | value    | target | holds  |",
        "|---------|----------|--------|--------|",
        "| re-read | 0 tokens | = 0    | yes    |",
        "| added   | 9.12 ms  | <= 8   | **no** |",
        "| direct  | 1234 ms  |        |        |",
    ]


def test_the_list_has_every_field_and_more_figures_than_the_table() -> None:
    assert json.loads(report.to_json(ROWS)) == [
        {"name": "re-read", "value": 0, "unit": "tokens", "target": "= 0", "holds": True},
        {"name": "added", "value": 9.12346, "unit": "ms", "target": "<= 8", "holds": False},
        {"name": "direct", "value": 1234.5, "unit": "ms", "target": None, "holds": True},
    ]


SHOWN = {0: "0", 1000: "1000", 0.000123456: "0.000123", 2.0: "2", 8.0049: "8", 12.345: "12.3", 98765.4: "98765"}


@pytest.mark.parametrize(("value", "text"), SHOWN.items(), ids=SHOWN.values())
def test_figures_are_short(value: float, text: str) -> None:
    assert report.shown(value) == text
