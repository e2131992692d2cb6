"""Write what is made from nix/roles.nix: nix/roles.json for programs, deploy/quadlet/files for hosts without NixOS.

    deploy/generate.py [--check]

Runs nix-instantiate, with a store of its own: neither root, nor a daemon, nor a network is needed. `--check` writes
nothing; it names each file that is not what would be written, and the command that mends it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NIX = ROOT / "nix" / "roles.nix"
JSON = ROOT / "nix" / "roles.json"
UNITS = ROOT / "deploy" / "quadlet" / "files"

COMMAND = "make generate"


class NotEvaluated(Exception):
    """nix/roles.nix has no JSON form. The text is Nix's own."""


def main(argv: Sequence[str]) -> int:
    """Write the files, or with --check compare them: 1 where one is stale."""
    # In place of this directory, whose modules are named from the root: deploy.
    sys.path[:1] = [str(ROOT), str(ROOT / "python")]
    parser = argparse.ArgumentParser(prog="generate.py", description="Write what is made from nix/roles.nix.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where a file is stale")
    given = parser.parse_args(argv)
    try:
        wiring_text = evaluated(NIX)
    except NotEvaluated as fault:
        print(f"{NIX.relative_to(ROOT)} does not evaluate:\n{fault}", file=sys.stderr)
        return 1
    wanted = {JSON: wiring_text, **units(wiring_text)}
    if not given.check:
        write(wanted)
        return 0
    found = list(stale(wanted))
    for path in found:
        print(f"stale: {path.relative_to(ROOT)} is not what {COMMAND} writes; run that", file=sys.stderr)
    return 1 if found else 0


def evaluated(expression: Path) -> str:
    """Return the JSON form of a Nix file, in the one form that it is kept in. Raises NotEvaluated."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = {
            "HOME": scratch,
            "NIX_CONFIG": "build-users-group =\nsandbox = false",
            "NIX_REMOTE": f"{scratch}/store",
            "PATH": os.environ.get("PATH", os.defpath),
        }
        argv = ["nix-instantiate", "--eval", "--strict", "--json", os.fspath(expression)]
        try:
            told = subprocess.run(
                argv, env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            raise NotEvaluated("nix-instantiate is not installed; deploy/local/setup.sh gate brings it") from None
    # Nix prints a part of the document before it fails.
    if told.returncode != 0:
        raise NotEvaluated(told.stderr.strip())
    return json.dumps(json.loads(told.stdout), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def units(wiring_text: str) -> dict[Path, str]:
    """Return the files for hosts without NixOS, as the wiring's JSON form asks for them."""
    from bxcore import wiring
    from deploy.quadlet import hostfiles

    made = hostfiles.fixed(wiring.read(wiring_text.encode()))
    return {UNITS / path.removeprefix("/"): text for path, text in made.items()}


def stale(wanted: Mapping[Path, str], *, units_in: Path = UNITS) -> Iterator[Path]:
    """Yield each file that differs or is missing, and each that nobody asked for."""
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path
    yield from (path for path in _kept(units_in) if path not in wanted)


def write(wanted: Mapping[Path, str], *, units_in: Path = UNITS) -> None:
    """Write the files, and remove those of a role that is no more."""
    for path in _kept(units_in):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _kept(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
