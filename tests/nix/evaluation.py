"""services.boxmaker evaluated for a test: what it would hand to NixOS, without nixpkgs (tests/nix/evaluate.nix)."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.structure import sources

HERE = sources.ROOT / "tests" / "nix"
NIX = sources.ROOT / "nix"

needs_nix = pytest.mark.skipif(
    shutil.which("nix-instantiate") is None, reason="Nix is not installed; make gate brings it"
)

Said = Mapping[str, Any]

UPSTREAM = "http://192.0.2.7:8080"
GOOD: Said = {"enable": True, "owners": ["alice"], "upstream": UPSTREAM}
"""The least that a configuration has to say."""

SERVER = "https://192.0.2.9"
PERSON = "a1b2c3d4e5f6g7h8i9j0k1l2m3"
CHAT: Said = {
    "enable": True, "url": SERVER, "allowedUsers": [PERSON],
    "tokenCredential": "/etc/boxmaker-credentials/mattermost-token.cred",
}  # fmt: skip
"""The least that has to be said of Mattermost."""

EVERY: Said = {**GOOD, "mattermost": CHAT}
"""The least with which every role runs, the optional ones too."""

ALICE: Said = {"users": {"users": {"alice": {"isNormalUser": True, "uid": 1000}}}}


@attrs.frozen
class Evaluated:
    """What came of a configuration. `texts`: files below /etc that were written for it."""

    refused: tuple[str, ...]
    config: Any
    texts: Mapping[str, str]

    def container(self, user: str) -> Any:
        return self.config["virtualisation"]["oci-containers"]["containers"][user]

    def unit(self, name: str) -> Any:
        return self.config["systemd"]["services"][name]


def evaluate(said: Said, *, machine: Said | None = None, nix: Path = NIX) -> Evaluated:
    """Evaluate the module for `said`, on a machine that has alice and what `machine` says besides."""
    (found,) = evaluate_each([(said, machine or {})], nix=nix)
    return found


def evaluate_each(cases: Iterable[tuple[Said, Said]], *, nix: Path = NIX) -> list[Evaluated]:
    """Evaluate the module for each (said, machine), all of them in one run of Nix."""
    arguments = [
        {"said": json.dumps(said), "machine": json.dumps(_merged(ALICE, machine)), "nix": str(nix)}
        for said, machine in cases
    ]
    found = expression(HERE / "evaluations.nix", cases=json.dumps(arguments))
    return [Evaluated(refused=tuple(each["refused"]), config=each["config"], texts=each["texts"]) for each in found]


def expression(file: Path, **arguments: str) -> Any:
    """Return what a file of Nix evaluates to. A fault of evaluation fails the test with Nix's own words."""
    ended = run(file, **arguments)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def run(file: Path, **arguments: str) -> "subprocess.CompletedProcess[str]":
    given = [word for name, value in arguments.items() for word in ("--argstr", name, value)]
    return subprocess.run(
        ["nix-instantiate", "--eval", "--strict", "--json", "--read-write-mode", str(file), *given],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def _environment() -> dict[str, str]:
    """A store of our own, so that neither root nor a Nix daemon is needed."""
    store = sources.ROOT / ".state" / "cache" / "nix-store"
    store.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(store),
        "NIX_REMOTE": str(store),
        "NIX_CONFIG": "build-users-group =\nfsync-metadata = false\nsandbox = false",
    }


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(one[name], other[name])
        for name in one.keys() & other.keys()
        if isinstance(one[name], dict) and isinstance(other[name], dict)
    }
    return {**one, **other, **both}
