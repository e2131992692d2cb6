"""What holds for every test: no property fails for being slow, and examples are kept in .state."""

import os
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile(
    "boxmaker", deadline=None, database=DirectoryBasedExampleDatabase(ROOT / ".state" / "hypothesis")
)
# Hypothesis knows "ci" by itself: the same examples in every run, and no time limit either.
settings.load_profile("ci" if os.environ.get("CI") else "boxmaker")
