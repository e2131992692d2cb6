"""Files of grants as tests write them, a clock that runs ahead, and kernels that tell nothing or the wrong thing."""

from pathlib import Path

import pytest

from brokerd.grantset import GrantFiles
from bxcore.deadline import SystemClock
from bxcore.grants import GrantFaults
from bxcore.timestamp import Timestamp

TEXT = 'tool = "read_file"\nmode = "ask"\nmax_taint = "private"\n[constraints]\npaths = ["/srv"]\n'
DENY = 'tool = "read_file"\nmode = "deny"\nmax_taint = "secret"\n[constraints]\npaths = ["/srv"]\n'
OTHER = TEXT.replace("/srv", "/etc")  # as long as TEXT


class Later:
    """The wall clock, and what passes beyond it: by an hour, every file counts as settled."""

    def __init__(self) -> None:
        self.beyond_ms = 0

    def now_ms(self) -> Timestamp:
        return Timestamp(SystemClock().now_ms() + self.beyond_ms)

    def monotonic_ms(self) -> int:
        return SystemClock().monotonic_ms() + self.beyond_ms


class NeverStill:
    """A kernel that tells nothing: every call looks at every file."""

    def begin(self, directory: int) -> None: ...

    def still(self) -> bool:
        return False


class AlwaysStill:
    """A kernel that misses a change, as it does where the change is made on another machine."""

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, directory: int) -> None:
        self.begun += 1

    def still(self) -> bool:
        return True


def put(path: Path, text: str = TEXT, mode: int = 0o644) -> Path:
    """Write a file in place, whatever the umask."""
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def ids(files: GrantFiles) -> list[str]:
    return [grant.id for grant in files.current().grants]


def faults(files: GrantFiles) -> list[str]:
    with pytest.raises(GrantFaults) as caught:
        files.current()
    assert caught.value.code == "grants_invalid"
    return [str(fault) for fault in caught.value.faults]
