"""The grants that a checkout starts with, and the sample folder that they are about.

Writes: <home>/etc/grants/, once and whole; a grant that the owner deleted is never written again. The folder is
the tool user's, since tools run as that user and as nobody else.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

FETCHED_HOST = "example.org"

_HEAD = """\
# One of the grants that were here at the beginning. It is yours now: change it, or delete it; it is not written
# again. `bxctl grants check` says whether all of them can be read. docs/grants.md tells what each line means.
"""

_READ = """\
# {what} below the sample folder needs no question.
tool = "{tool}"
mode = "auto"
max_taint = "secret"

[constraints]
paths = ["{folder}"]
"""

_ASK = """\
# {what} below the sample folder: you are asked each time.
tool = "{tool}"
mode = "ask"
max_taint = "secret"

[constraints]
paths = ["{folder}"]
"""

_FETCH = """\
# Fetching a page of this one host, over https: you are asked each time. Not from a conversation that has seen a
# secret, since the address of a page can carry one out.
tool = "http_fetch"
mode = "ask"
max_taint = "private"

[constraints]
hosts = ["{host}"]
"""

SAMPLES: Mapping[str, str] = {
    "welcome.txt": (
        "This folder is what the model may see. It may read everything here without asking you,\n"
        "and write here if you say yes. The grants that say so are files; bxctl grants check reads them.\n"
    ),
    "shopping.txt": "coffee\noat milk\ntwo lemons\n",
    "ideas.txt": "- a shelf for the small boxes\n- fix the bicycle's bell\n- call grandmother on Sunday\n",
}


class Sharing(Protocol):
    """Who has folders that tools are to see, and can make a thing in them the tool user's: a toolhost.ToolHost."""

    @property
    def shared_dir(self) -> Path: ...

    def give(self, path: Path) -> None: ...


class HasGrants(Protocol):
    """Where grants lie: a home, or the place of an appliance."""

    @property
    def grants(self) -> Path: ...


def sample(host: Sharing) -> Path:
    """Return the sample folder, made where there is none."""
    folder = host.shared_dir / "sample"
    if not folder.is_dir():
        give_folder(folder, SAMPLES, host)
    return folder


def prepare(home: HasGrants, host: Sharing) -> Path:
    """Return the sample folder, made with the starter grants where there are no grants yet."""
    folder = sample(host)
    if not home.grants.exists():
        _write_grants(home.grants, folder)
    return folder


def summary(home: HasGrants, folder: Path) -> str:
    """Say what tools may do by the grants that there are, which are the owner's to change."""
    texts = [_text(path) for path in sorted(home.grants.glob("*.toml")) if not path.name.startswith(".")]
    if not texts:
        return f"no grant in {home.grants}: every call is denied; docs/grants.md tells how to write one"
    count = "1 grant says" if len(texts) == 1 else f"{len(texts)} grants say"
    sample = f"; the sample folder is {folder}" if any(str(folder) in text for text in texts) else ""
    return f"{count} what tools may do, in {home.grants}: bxctl grants check reads them{sample}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # what is wrong with it, brokerd says


def grants(folder: Path) -> Mapping[str, str]:
    """Return the starter grants, file name -> text."""
    reading = {"read_file": "Reading a file", "list_directory": "Listing a folder", "search_files": "Searching files"}
    writing = {"write_file": "Writing a file", "edit_file": "Changing a file"}
    found = {
        f"{_name(tool)}-sample.toml": _READ.format(tool=tool, what=what, folder=folder)
        for tool, what in reading.items()
    }
    found |= {
        f"{_name(tool)}-sample.toml": _ASK.format(tool=tool, what=what, folder=folder) for tool, what in writing.items()
    }
    found["fetch-example.toml"] = _FETCH.format(host=FETCHED_HOST)
    return {name: _HEAD + text for name, text in found.items()}


def _name(tool: str) -> str:
    return tool.partition("_")[0]


def _write_grants(directory: Path, folder: Path) -> None:
    """All of them or none: a set-up that was cut short must not leave a part of them behind."""
    unfinished = directory.with_name("grants.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    for name, text in grants(folder).items():
        (unfinished / name).write_text(text, encoding="utf-8")
        (unfinished / name).chmod(0o600)
    unfinished.rename(directory)


def give_folder(folder: Path, texts: Mapping[str, str], host: Sharing) -> None:
    """Make a folder of the tool user's with these files in it, whole or not at all.

    It is ours until everything is in it: in a folder of another user's a name may be a link to anywhere.
    """
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    for name, text in texts.items():
        path = unfinished / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        host.give(path)
    host.give(unfinished)
    os.rename(unfinished, folder)  # noqa: PTH104
