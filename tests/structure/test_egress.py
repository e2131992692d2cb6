"""No module reaches out of the machine unless docs/egress.md says so, and the page says nothing else.

Held by what the source names: an internet socket, or a library that can open one. A module that
uses such a library over Unix sockets only is listed on the page as well, under its own heading.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.structure import sources

DIALS = "Connections out of the machine"
COULD_DIAL = "Libraries that could dial, and do not"

LIBRARIES = {
    "aiohttp", "asyncio", "ftplib", "http.client", "httpx", "imaplib", "poplib", "requests", "smtplib",
    "socketserver", "ssl", "urllib.request", "urllib3", "websocket", "xmlrpc.client",
}  # fmt: skip
INTERNET = {
    "socket.AF_INET", "socket.AF_INET6", "socket.create_connection", "socket.create_server",
    "socket.getaddrinfo", "socket.gethostbyname",
}  # fmt: skip
REQUESTS_AT_ONCE = {f"requests.{verb}" for verb in ("get", "post", "put", "patch", "delete", "head", "request")}


def dials(path: Path) -> bool:
    """Say whether the file names an internet socket, or makes a socket without naming its family."""
    for node in ast.walk(sources.tree(path)):
        if isinstance(node, ast.Attribute) and sources.dotted(node) in INTERNET:
            return True
        if isinstance(node, ast.Call) and sources.dotted(node.func) == "socket.socket" and not _names_family(node):
            return True
    return bool(INTERNET & set(sources.imports(path)))


def _names_family(call: ast.Call) -> bool:
    # A socket made of a descriptor has the family that the descriptor has.
    return bool(call.args) or any(keyword.arg in {"family", "fileno"} for keyword in call.keywords)


def could_dial(path: Path) -> bool:
    return any(
        name == library or name.startswith(f"{library}.") for name in sources.imports(path) for library in LIBRARIES
    )


def unguarded(path: Path) -> Iterator[str]:
    """Yield uses of requests that proxies, netrc or environment variables could turn elsewhere."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = sources.dotted(node.func)
            if name in REQUESTS_AT_ONCE or (name == "requests.Session" and "trust_env = False" not in text):
                yield f"{sources.shown(path)}:{node.lineno}: {name}"


def listed(page: str, heading: str) -> set[str]:
    """Return the modules named in the first column of the tables under a heading."""
    return {row[0].strip("`") for row in sources.table_rows(sources.section(page, heading))}


def judged() -> list[Path]:
    return sources.python_files(sources.PYTHON, sources.ROOT / "deploy")


def named(paths: Iterable[Path]) -> set[str]:
    return {sources.shown(path) for path in paths}


def page() -> str:
    return (sources.DOCS / "egress.md").read_text(encoding="utf-8")


def test_the_page_lists_exactly_what_dials() -> None:
    assert named(path for path in judged() if dials(path)) == listed(page(), DIALS)


def test_the_page_lists_exactly_what_could_dial() -> None:
    assert named(path for path in judged() if could_dial(path)) == listed(page(), COULD_DIAL)


def test_every_session_ignores_the_environment() -> None:
    assert [found for path in judged() for found in unguarded(path)] == []


def test_s15_only_the_proxy_dials_for_the_tools() -> None:
    """What runs in a tool's own container cannot even name the module that opens internet sockets."""
    proxy = {"egress.py", "egressorder.py", "egressproxy.py"}
    toolkit = sources.python_files(sources.PYTHON / "toolkit")
    assert [path.name for path in toolkit if dials(path)] == ["dialling.py"]
    assert {path.name for path in toolkit if "toolkit.dialling" in sources.imports(path)} == proxy
    assert not [path for path in toolkit if path.name not in proxy and _PROXY & set(sources.imports(path))]


_PROXY = {"toolkit.egress", "toolkit.egressproxy"}


BAD_DIALS = {
    "family": "import socket\nsocket.socket(socket.AF_INET)\n",
    "default family": "import socket\nsocket.socket()\n",
    "create_connection": "import socket\nsocket.create_connection(('host', 1))\n",
    "a name of its own": "from socket import create_connection\n",
}


@pytest.mark.parametrize("source", BAD_DIALS.values(), ids=BAD_DIALS.keys())
def test_a_dial_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert dials(bad)


@pytest.mark.parametrize(
    "source", ["import requests\n", "from urllib.request import urlopen\n", "import http.client\n"]
)
def test_a_library_that_could_dial_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert could_dial(bad)


def test_a_unix_socket_is_no_dial(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text("import socket\nsocket.socket(socket.AF_UNIX)\nsocket.socket(fileno=3)\nsocket.socketpair()\n")
    assert not dials(good)
    assert not could_dial(good)


@pytest.mark.parametrize("source", ["import requests\nrequests.get('x')\n", "import requests\nrequests.Session()\n"])
def test_a_session_that_heeds_the_environment_is_seen(tmp_path: Path, source: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(source)
    assert len(list(unguarded(bad))) == 1


def test_only_the_table_under_the_heading_counts() -> None:
    text = "## One\n\n| module | to |\n| --- | --- |\n| `a.py` | b |\n\n## Two\n\n| module |\n| --- |\n| `c.py` |\n"
    assert listed(text, "One") == {"a.py"}
