"""`python3 -I -m toolkit`: what runs in a tool's container."""

import sys

from toolkit import contract


def main() -> int:
    return contract.main()


if __name__ == "__main__":
    sys.exit(main())
