"""What holds for every test: no property fails for being slow, and examples are kept in .state."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile(
    "boxmaker", deadline=None, database=DirectoryBasedExampleDatabase(ROOT / ".state" / "hypothesis")
)
# Hypothesis knows "ci" by itself: the same examples in every run, and no time limit either.
settings.load_profile("ci" if os.environ.get("CI") else "boxmaker")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Spell out what is no text in what a test wrote: between the processes that share the tests only text can pass."""
    report = yield
    report.sections = [
        (name, content.encode("utf-8", "backslashreplace").decode("utf-8")) for name, content in report.sections
    ]
    return report
