"""Keep only sdists and pure wheels of the run-time packages in poetry.lock.

Reads and writes: poetry.lock, line by line, so that Poetry's own formatting stays. Development
packages keep their platform wheels, since ruff, mypy and grimp have no other. Why: poetry2nix
parses the name of every file of the groups that it builds and throws on newer platform tags.

    prune_lock.py [--check] poetry.lock
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

FILE_LINE = re.compile(r'^\s*\{file = "(?P<name>[^"]+)", hash = "')


def impure_files(lock: str) -> list[str]:
    """Return every platform wheel that belongs to a run-time package."""
    return [
        entry["file"]
        for package in tomllib.loads(lock)["package"]
        if "main" in package["groups"]
        for entry in package["files"]
        if _is_platform_wheel(entry["file"])
    ]


def fileless_packages(lock: str) -> list[str]:
    """Return the run-time packages that have no file left to install."""
    packages = tomllib.loads(lock)["package"]
    return [p["name"] for p in packages if "main" in p["groups"] and not p["files"]]


def prune(lock: str) -> str:
    """Return the lock without the lines that name such wheels."""
    unwanted = set(impure_files(lock))
    return "".join(_kept_lines(lock, unwanted))


def _kept_lines(lock: str, unwanted: set[str]) -> Iterator[str]:
    for line in lock.splitlines(keepends=True):
        found = FILE_LINE.match(line)
        if found is None or found["name"] not in unwanted:
            yield line


def _is_platform_wheel(file: str) -> bool:
    return file.endswith(".whl") and not file.endswith("-none-any.whl")


def main(argv: Sequence[str]) -> int:
    """Prune the lock in place, or with --check say whether that would change it."""
    path = Path(argv[-1])
    lock = path.read_text(encoding="utf-8")
    pruned = prune(lock)
    if empty := fileless_packages(pruned):
        print(f"{path}: no sdist and no pure wheel for: {', '.join(empty)}", file=sys.stderr)
        return 1
    if "--check" in argv:
        for file in impure_files(lock):
            print(f"{path}: platform wheel of a run-time package: {file}", file=sys.stderr)
        return 0 if pruned == lock else 1
    path.write_text(pruned, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
