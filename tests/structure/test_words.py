"""The repository names no machine that it was written on, and no host that a reader cannot expect."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure import sources

# Any other host is a registry, a mirror or a service, and belongs in the owner's configuration.
EXPECTED = re.compile(r"^(github\.com|nixos\.org|no-color\.org|(.+\.)?example\.(com|org))$")
ADDRESS = re.compile(r"\w://(?:[\w.-]+@)?((?:[a-z0-9-]+\.)+[a-z]{2,})\b")
BARE_HOST = re.compile(r"(?<![\w@./-])((?:[a-z0-9-]+\.)+(?:com|org))\b(?!\()")
SCRATCH = re.compile(r"(?<![\w}$])/tmp/\w+")
LINK = re.compile(r"\]\((?!#)([^)\s]+)\)")

# Packages name their homes in their descriptions there.
UNJUDGED = {"poetry.lock"}


def strange(text: str, places: tuple[Path, ...]) -> Iterator[str]:
    """Yield hosts that are not expected, and paths that exist on one machine only."""
    hosts = {*ADDRESS.findall(text), *BARE_HOST.findall(text)}
    yield from sorted(host for host in hosts if not EXPECTED.search(host))
    yield from SCRATCH.findall(text)
    yield from (str(place) for place in places if re.search(rf"{re.escape(str(place))}(?![\w.-])", text))


def machine() -> tuple[Path, ...]:
    """Return where this checkout lies: a path that no other machine has."""
    parent = sources.ROOT.parent
    ordinary = {Path("/"), Path.home(), Path("/root"), Path("/home"), Path("/srv"), Path("/opt"), Path("/tmp")}
    return (sources.ROOT,) if parent in ordinary else (sources.ROOT, parent)


def texts() -> Iterator[tuple[Path, str]]:
    for path in sources.files():
        if path.name not in UNJUDGED:
            yield path, path.read_text(encoding="utf-8", errors="replace")


def test_no_file_names_a_strange_host_or_place() -> None:
    places = machine()
    found = {sources.shown(path): words for path, text in texts() if (words := list(strange(text, places)))}
    assert found == {}


BAD = {
    "host": "see https://packages." + "somewhere.io/simple",
    "bare host": "pip --index packages.somewhere." + "org",
    "scratch": "open('/tmp" + "/lab/x')",
    "place": "cd /one/machine/only/boxmaker && make",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_strange_word_is_seen(text: str) -> None:
    assert len(list(strange(text, (Path("/one/machine/only"),)))) == 1


def test_ordinary_words_are_let_through() -> None:
    text = 'github.com/NixOS, a.b.net(x), "$scratch/tmp/x", /one/machine/only-not, model.io.read()'
    assert list(strange(text, (Path("/one/machine/only"),))) == []


def broken_links(path: Path, text: str) -> Iterator[str]:
    """Yield the links of a page that lead nowhere in the repository."""
    for target in LINK.findall(text):
        if "://" not in target and not _inside(path.parent / target.partition("#")[0]):
            yield target


def _inside(path: Path) -> bool:
    return path.exists() and path.resolve().is_relative_to(sources.ROOT)


def test_every_link_of_a_page_leads_somewhere() -> None:
    found = {
        sources.shown(path): links
        for path, text in texts()
        if path.suffix == ".md" and (links := list(broken_links(path, text)))
    }
    assert found == {}


def test_a_broken_link_is_seen() -> None:
    text = "[a](Makefile) [b](#here) [c](docs/nowhere.md) [d](../outside.md) [e](https://example.org/x)"
    assert list(broken_links(sources.ROOT / "README.md", text)) == ["docs/nowhere.md", "../outside.md"]
