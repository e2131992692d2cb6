"""One builder for every image: this machine's interpreter and this checkout become an OCI archive.

No Nix, no network, no registry, no root. The same machine and the same sources give the same bytes. Reads: what
contents.py reads, pyproject.toml, and git for the label. Writes: the one file that it is told.
"""

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from images import bytecode, closure, contents, layout, oci, table
from images.table import Image

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / "python"

_UNKNOWN = "unknown"


def write(image: Image, output: Path, named_revision: str | None, *, made_by: str) -> oci.Built | None:
    """Write the archive, whole or not at all. None, after a word to stderr, where something for it is missing."""
    try:
        built = build(image, named_revision or revision(image), made_by=made_by)
    except (contents.Unbuildable, closure.Missing, bytecode.Uncompilable) as missing:
        print(f"image of {image.name}: {missing}", file=sys.stderr)
        return None
    partial = output.with_name(f"{output.name}.{os.getpid()}")
    try:
        partial.write_bytes(built.archive)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return built


def build(image: Image, named_revision: str, *, made_by: str) -> oci.Built:
    """Return the image. Raises contents.Unbuildable, closure.Missing, bytecode.Uncompilable."""
    settings = oci.Settings(
        repository=image.repository,
        # brokerd names the tools by their ID; a role is named by its content.
        tag=version() if image.name == table.TOOLS else None,
        made_by=made_by,
        architecture=contents.architecture(),
        command=layout.command(image),
        user=layout.user(image),
        environment=layout.environment(image),
        labels={
            "org.opencontainers.image.title": image.title,
            "org.opencontainers.image.version": version(),
            "org.opencontainers.image.revision": named_revision,
        },
    )
    return oci.archive(contents.tree(image, PYTHON, Path(sysconfig.get_path("purelib"))), settings)


def version() -> str:
    """Return the version of this checkout."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(settings["tool"]["poetry"]["version"])


def sources(image: Image) -> list[Path]:
    """Return the files of this checkout that decide what is in the image."""
    builder = [*sorted(Path(__file__).parent.glob("*.py")), table.FILE]
    ours = [*closure.modules(PYTHON, image.program).values(), *closure.data(PYTHON, image.program)]
    return [*builder, *ours, ROOT / "poetry.lock", ROOT / "pyproject.toml"]


def revision(image: Image) -> str:
    """Return the commit that last changed a source, marked where one differs from it; "unknown" outside git.

    Not the newest commit: an image whose contents are the same keeps its ID.
    """
    names = [str(path.relative_to(ROOT)) for path in sources(image)]
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
