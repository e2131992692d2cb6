"""Pip is handed the locked files of the wanted groups, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import requirements

FILES = [{"file": "a.whl", "hash": "sha256:1"}, {"file": "a.tar.gz", "hash": "sha256:2"}]


def package(name: str, **changes: object) -> dict[str, object]:
    return {"name": name, "version": "1", "optional": False, "groups": ["main"], "files": FILES, **changes}


def wanted(*packages: dict[str, object], groups: tuple[str, ...] = ("main",), version: str = "2.1") -> list[str]:
    lock = {"metadata": {"lock-version": version}, "package": list(packages)}
    return list(requirements.lines(lock, groups))[2:]


def test_every_file_of_a_package_is_allowed_by_its_hash() -> None:
    assert wanted(package("a")) == ["a==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2"]


def test_packages_of_other_groups_and_optional_ones_are_left_out() -> None:
    assert wanted(package("a", groups=["dev"]), package("b", optional=True)) == []


def test_a_marker_is_handed_to_pip() -> None:
    assert wanted(package("a", markers='os_name == "nt"'))[0].startswith('a==1 ; os_name == "nt" \\')


def test_markers_by_group_are_joined() -> None:
    by_group = package("a", groups=["main", "dev"], markers={"main": "x", "dev": "y"})
    assert wanted(by_group, groups=("main", "dev"))[0].startswith("a==1 ; (x) or (y) \\")


def test_a_group_that_wants_a_package_everywhere_wins() -> None:
    by_group = package("a", groups=["main", "dev"], markers={"dev": "y"})
    assert wanted(by_group, groups=("main", "dev"))[0].startswith("a==1 \\")


def test_a_lock_of_another_format_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"format 9\.9"):
        wanted(package("a"), version="9.9")


def test_a_package_from_another_source_is_refused() -> None:
    with pytest.raises(SystemExit, match="a source of its own"):
        wanted(package("a", source={"type": "git"}))


def test_pip_refuses_a_file_with_another_hash_wherever_it_comes_from(tmp_path: Path) -> None:
    """A user's pip configuration may offer files of its own: they are looked at, and refused."""
    wheel = tmp_path / "attrs-26.1.0-py3-none-any.whl"
    wheel.write_bytes(b"not what the lock means")
    asked = tmp_path / "requirements.txt"
    asked.write_text("\n".join(["--require-hashes", "attrs==26.1.0 --hash=sha256:" + "0" * 64]))
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {tmp_path}\n")
    result = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "-d", tmp_path / "out", "-r", asked],
        env={"PIP_CONFIG_FILE": str(config), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "DO NOT MATCH THE HASHES" in result.stderr
