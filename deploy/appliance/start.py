"""`make appliance`, and nothing else: finds the modules and runs appliance.py. docs/local.md describes it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Return the exit code of the launcher."""
    # In place of this directory, whose modules are named from the root: deploy.appliance.
    sys.path[:1] = [str(ROOT), str(ROOT / "python")]
    from deploy.appliance import appliance

    return appliance.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
