"""`make chat`, and nothing else: finds the launcher's modules and runs launch.py. docs/local.md describes it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Return the exit code of the launcher."""
    # In place of this directory, whose modules are named from the root: deploy.local.
    sys.path[:1] = [str(ROOT), str(ROOT / "python")]
    from deploy.local import launch

    return launch.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
