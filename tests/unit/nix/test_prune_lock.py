"""The lock keeps no platform wheel of a run-time package, and loses nothing else."""

from pathlib import Path

import pytest

from nix import prune_lock

LOCK = """\
[[package]]
name = "fast"
groups = ["main"]
files = [
    {file = "fast-1-cp311-cp311-android_24_arm64_v8a.whl", hash = "sha256:1"},
    {file = "fast-1-py3-none-any.whl", hash = "sha256:2"},
    {file = "fast-1.tar.gz", hash = "sha256:3"},
]

[[package]]
name = "tool"
groups = ["dev"]
files = [
    {file = "tool-1-py3-none-manylinux_2_17_x86_64.whl", hash = "sha256:4"},
]
"""


def test_only_platform_wheels_of_run_time_packages_go() -> None:
    gone = set(LOCK.splitlines()) - set(prune_lock.prune(LOCK).splitlines())
    assert [line.split('"')[1] for line in gone] == ["fast-1-cp311-cp311-android_24_arm64_v8a.whl"]


def test_pruning_twice_is_pruning_once() -> None:
    once = prune_lock.prune(LOCK)
    assert prune_lock.prune(once) == once


def test_the_check_names_the_wheel_and_leaves_the_lock_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "poetry.lock"
    lock.write_text(LOCK)
    assert prune_lock.main(["--check", str(lock)]) == 1
    assert "android_24" in capsys.readouterr().err
    assert lock.read_text() == LOCK


def test_a_package_that_would_have_no_file_left_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "poetry.lock"
    lock.write_text(LOCK.replace('["dev"]', '["main"]'))
    assert prune_lock.main([str(lock)]) == 1
    assert "tool-1" in lock.read_text()


def test_our_own_lock_is_pruned() -> None:
    assert prune_lock.main(["--check", str(Path(__file__).resolve().parents[3] / "poetry.lock")]) == 0
