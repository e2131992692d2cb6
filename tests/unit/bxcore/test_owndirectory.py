"""A directory in which a role keeps what is nobody else's."""

from pathlib import Path

import pytest

from bxcore import owndirectory
from bxcore.errors import ConfigError
from bxcore.listener import UnsafeDirectory


def test_a_directory_of_our_own_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    owndirectory.check(tmp_path)


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o770], ids=oct)
def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(UnsafeDirectory, match="others may enter"):
        owndirectory.check(tmp_path)


def test_what_is_no_directory_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(UnsafeDirectory, match="must be a directory itself"):
            owndirectory.check(tmp_path / name)
    with pytest.raises(ConfigError, match="create it for this user"):
        owndirectory.check(tmp_path / "none")
