"""Turn poetry.lock into a requirements file for pip that allows the locked files and no others.

Reads: the lock named as an argument. Writes: standard output. Standard library only, since it
runs before anything is installed. Markers go to pip as they stand: it knows how to judge them.

    requirements.py poetry.lock GROUP...
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

KNOWN_LOCKS = ("2.0", "2.1")


def lines(lock: Mapping[str, Any], groups: Sequence[str]) -> Iterator[str]:
    """Yield pip's options, then one requirement with its hashes for each package of the groups."""
    if lock["metadata"]["lock-version"] not in KNOWN_LOCKS:
        raise SystemExit(f"poetry.lock: format {lock['metadata']['lock-version']} is not known here")
    yield "--require-hashes"
    yield "--only-binary :all:"
    for package in lock["package"]:
        wanted = [group for group in package["groups"] if group in groups]
        if wanted and not package["optional"]:
            yield _requirement(package, wanted)


def _requirement(package: Mapping[str, Any], groups: Sequence[str]) -> str:
    if "source" in package:
        raise SystemExit(f"poetry.lock: {package['name']} comes from a source of its own")
    marker = _marker(package.get("markers", ""), groups)
    hashes = "".join(f" \\\n    --hash={entry['hash']}" for entry in package["files"])
    return f"{package['name']}=={package['version']}{marker}{hashes}"


def _marker(markers: str | Mapping[str, str], groups: Sequence[str]) -> str:
    """Join what the groups demand: Poetry writes one marker, or a table of them by group."""
    if isinstance(markers, str):
        return f" ; {markers}" if markers else ""
    demanded = [markers.get(group, "") for group in groups]
    if "" in demanded:  # one of the groups wants the package everywhere
        return ""
    return " ; " + " or ".join(f"({marker})" for marker in demanded)


def main(argv: Sequence[str]) -> int:
    """Print the requirements of the named groups."""
    path, *groups = argv
    lock = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    print("\n".join(lines(lock, groups)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
