"""`python -m bxctl` and the `bxctl` command."""

import sys

from bxctl import cli


def main() -> None:
    """Run one command and leave with its exit code."""
    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
