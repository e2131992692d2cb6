"""Build the tool image from this machine's interpreter: no Nix, no network, no registry, no root.

    images/tool_image.py --output FILE [--revision TEXT]

Writes FILE, an OCI archive for `podman load`, and prints the image's ID. The same machine and the same
sources give the same bytes. Runs under the interpreter that goes into the image (.state/venv/bin/python).
images/README.md says what is in it and why.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / "python"

_UNKNOWN = "unknown"


def main(argv: Sequence[str]) -> int:
    """Build the image; 1 where something that it is made of is missing."""
    # In place of this directory, whose modules are named from the root: images.
    sys.path[:1] = [str(ROOT)]
    from images import closure, contents

    parser = argparse.ArgumentParser(prog="tool_image.py", description="Build the tool image as an OCI archive.")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--revision", metavar="TEXT", help="what stands in the label; default: the sources' commit")
    given = parser.parse_args(argv)
    try:
        identity, archive = _built(given.revision or revision())
    except (contents.Unbuildable, closure.Missing) as missing:
        print(f"tool image: {missing}", file=sys.stderr)
        return 1
    _write(given.output, archive)
    print(identity)
    return 0


def _built(named_revision: str) -> tuple[str, bytes]:
    from images import contents, layout, oci

    labels = {
        "org.opencontainers.image.title": "Boxmaker's tools",
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.revision": named_revision,
    }
    settings = oci.Settings(
        name=f"{layout.NAME}:{version()}",
        architecture=contents.architecture(),
        command=layout.COMMAND,
        user=layout.USER,
        environment=layout.ENVIRONMENT,
        labels=labels,
    )
    return oci.archive(contents.tree(PYTHON, Path(sysconfig.get_path("purelib"))), settings)


def version() -> str:
    """Return the version of this checkout."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(settings["tool"]["poetry"]["version"])


def sources() -> list[Path]:
    """Return the files of this checkout that decide what is in the image."""
    from images import closure

    builder = sorted(Path(__file__).parent.glob("*.py"))
    return [*builder, *closure.modules(PYTHON).values(), ROOT / "poetry.lock", ROOT / "pyproject.toml"]


def revision() -> str:
    """Return the commit that last changed a source, marked where one differs from it; "unknown" outside git.

    Not the newest commit: an image whose contents are the same keeps its ID.
    """
    names = [str(path.relative_to(ROOT)) for path in sources()]
    commit = _git("log", "-1", "--format=%H", "--", *names)
    if not commit:
        return _UNKNOWN
    return f"{commit}-changed" if _git("status", "--porcelain", "--", *names) != "" else commit


def _git(*arguments: str) -> str | None:
    """Return what git says; None where there is no git, or no repository that it trusts."""
    settings = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C"}
    try:
        told = subprocess.run(
            # --no-optional-locks: `status` would write the index under the feet of whoever commits.
            ["git", "--no-optional-locks", *arguments],
            cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return None
    return told.stdout.strip() if told.returncode == 0 else None


def _write(path: Path, archive: bytes) -> None:
    """Make the file whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(archive)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
