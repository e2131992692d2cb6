"""`make bench`, and nothing else: finds the modules and runs suite.py. docs/bench.md describes it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    # In place of this directory, whose modules are named from the root: tests.bench.
    sys.path[:1] = [str(ROOT), str(ROOT / "python")]
    from tests.bench import suite

    return suite.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
