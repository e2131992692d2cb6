"""Which users a process can tell apart, from the kernel's own words."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import usermap

MAPS = {
    "no namespace": ("         0          0 4294967295\n", True),
    "rootless podman": ("         0       2103          1\n         1     300000      65536\n", False),
    "keep-id": ("         0          1       1000\n      1000          0          1\n", True),
    "root under another number": ("      1000          0          1\n", True),
    "nobody at all": ("", False),
}


@pytest.mark.parametrize(("text", "known"), MAPS.values(), ids=MAPS.keys())
def test_root_of_the_namespace_around_is_known_or_not(text: str, *, known: bool) -> None:
    assert usermap.knows_root(text) is known


@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3)))
def test_root_is_known_exactly_where_a_line_begins_at_it(lines: list[tuple[int, int, int]]) -> None:
    text = "".join(f"{inside:10} {outside:10} {count:10}\n" for inside, outside, count in lines)
    assert usermap.knows_root(text) is any(outside == 0 < count for _, outside, count in lines)


def test_here_the_answer_is_that_of_this_processs_own_map() -> None:
    known = usermap.knows_root(Path("/proc/self/uid_map").read_text(encoding="ascii"))
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    usermap.stranger.cache_clear()
    assert usermap.stranger() == (None if known else overflow)
    assert os.geteuid() != usermap.stranger()
