"""Which grants fit which calls, and what the owner is told where one does not."""

import pytest

from brokerd import match
from brokerd.call import Call
from brokerd.match import Match, WhyNot
from bxcore import hosts
from bxcore.grants import Grant, Mode
from tests.fakes import calls

PATHS: dict[str, tuple[str, str, str, int | None]] = {
    # tool, granted, asked, depth of the match or None
    "the path itself": ("read_file", "/data/a", "/data/a", 2),
    "below it": ("read_file", "/data/a", "/data/a/b/c", 2),
    "above it": ("read_file", "/data/a", "/data", None),
    "P1 a name that begins the same": ("read_file", "/data/granted", "/data/granted-evil", None),
    "P1 a name that ends the same": ("read_file", "/data/granted", "/data/not/granted", None),
    "P7 another case": ("read_file", "/data/Notes", "/data/notes", None),
    "P7 one letter spelled in two ways": ("read_file", "/data/\u00e9", "/data/e\u0301", None),
    "P7 a full-width letter": ("read_file", "/data/a", "/data/\uff41", None),
    "P9 a star is a name": ("read_file", "/data/*", "/data/x", None),
    "P9 a tilde is a name": ("read_file", "/data/~", "/data/~", 2),
    "a folder for a writer": ("write_file", "/data", "/data/a", 1),
    "the file itself for a writer": ("write_file", "/data/a", "/data/a", None),
    "the file itself for an editor": ("edit_file", "/data/a", "/data/a", None),
    "a folder far above for an editor": ("edit_file", "/data", "/data/a/b", 1),
    "the folder itself for a shell": ("shell", "/data/a", "/data/a", 2),
    "below a searched folder": ("search_files", "/data/a", "/data", None),
    "the root for a reader": ("list_directory", "/data", "/", None),
}


@pytest.mark.parametrize(("tool", "granted", "asked", "depth"), PATHS.values(), ids=PATHS.keys())
def test_a_path_fits_by_whole_components(tool: str, granted: str, asked: str, depth: int | None) -> None:
    found = match.match(calls.grant(tool=tool, mode=Mode.ASK, paths=(granted,)), calls.call(tool, path=asked))
    assert (found.depth if isinstance(found, Match) else None) == depth


DENIED: dict[str, tuple[str, str, str, bool]] = {
    "P10 a file that is written and need not exist": ("write_file", "/data/.env", "/data/.env", True),
    "P10 anything below": ("write_file", "/data/.git", "/data/.git/hooks/x", True),
    "below a searched folder": ("search_files", "/data/secret", "/data", True),
    "far below a searched root": ("search_files", "/data/secret", "/", True),
    "below the folder of a shell": ("shell", "/data/secret/x", "/data", True),
    "beside the folder of a shell": ("shell", "/data/secret", "/data/open", False),
    "a name that begins like the folder of a shell": ("shell", "/data/ab", "/data/a", False),
    "below a folder that is only listed": ("list_directory", "/data/secret", "/data", False),
}


@pytest.mark.parametrize(("tool", "granted", "asked", "fits"), DENIED.values(), ids=DENIED.keys())
def test_what_denies_fits_all_that_the_call_would_touch(tool: str, granted: str, asked: str, fits: bool) -> None:
    grant, call = calls.grant(tool=tool, mode=Mode.DENY, paths=(granted,)), calls.call(tool, path=asked)
    assert isinstance(match.match(grant, call), Match) is fits
    assert bool(match.touching([grant], call)) is fits


def test_the_longest_of_several_paths_counts() -> None:
    grant = calls.grant(paths=("/data", "/data/a/b", "/data/a", "/other/a/b/c"))
    assert match.match(grant, calls.call(path="/data/a/b/c")) == Match(depth=3)


HOSTS: dict[str, tuple[str, str, bool]] = {
    "the name": ("example.org", "https://example.org/x", True),
    "the name in capitals": ("example.org", "https://EXAMPLE.org/x", True),
    "another scheme is another port": ("example.org", "http://example.org/", False),
    "its port for that scheme": ("example.org:80", "http://example.org/", True),
    "a port of its own": ("example.org:8443", "https://example.org:8443/", True),
    "another port": ("example.org", "https://example.org:8443/", False),
    "a name below": ("example.org", "https://www.example.org/", False),
    "a wildcard": ("*.example.org", "https://a.b.example.org/", True),
    "a wildcard and its apex": ("*.example.org", "https://example.org/", False),
    "a wildcard and a name that ends the same": ("*.a.example.org", "https://ba.example.org/", False),
    "a name that ends the same": ("a.example.org", "https://ba.example.org/", False),
}


@pytest.mark.parametrize(("granted", "url", "fits"), HOSTS.values(), ids=HOSTS.keys())
def test_a_host_fits_by_name_and_port(granted: str, url: str, fits: bool) -> None:
    grant = calls.grant(tool="http_fetch", hosts=(hosts.rule("example.com"), hosts.rule(granted)))
    found = match.match(grant, calls.call("http_fetch", url=url))
    assert isinstance(found, Match) is fits
    assert not isinstance(found, Match) or found.depth == 0


WHY = {
    "another tool": (calls.grant(tool="write_file"), calls.call(), "it is for write_file"),
    "another path": (calls.grant(paths=("/x",)), calls.call(), "none of its paths holds the path of the call"),
    "the file to be replaced": (
        calls.grant(tool="write_file", paths=("/data/a",)),
        calls.call("write_file", path="/data/a"),
        "it names the file itself; what replaces a file needs a grant for the folder that holds it",
    ),
    "another host": (
        calls.grant(tool="http_fetch", hosts=(hosts.rule("example.com"),)),
        calls.call("http_fetch", url="https://example.org/"),
        "none of its hosts is the host of the call",
    ),
    "another port": (
        calls.grant(tool="http_fetch", hosts=(hosts.rule("*.example.org:8443"),)),
        calls.call("http_fetch", url="https://www.example.org/"),
        "it names the host, with another port",
    ),
}


@pytest.mark.parametrize(("grant", "call", "text"), WHY.values(), ids=WHY.keys())
def test_the_owner_is_told_why_a_grant_does_not_fit(grant: Grant, call: Call, text: str) -> None:
    assert match.match(grant, call) == WhyNot(text=text)
