"""A directory of grants as large as anybody's, and calls that some of them are about."""

from pathlib import Path

from bxcore.ids import CallId, SessionId
from bxcore.strictjson import dumps
from bxcore.wire.tools import ToolRequest

TOOL = "read_file"
SESSION = SessionId("bench")
_TOP = "/srv/bench"

_TEXT = """\
# What the owner wrote down about this grant, so that it can be read a year later.
tool = "{tool}"
mode = "{mode}"
max_taint = "secret"
expires = 2099-12-31T00:00:00Z

[constraints]
paths = [{paths}]
"""


def write(directory: Path, count: int, *, granted: Path | None = None) -> None:
    """Write `count` grants, all for one tool: the hardest case, since every one of them is looked at each time.

    Each names two folders; the modes take turns. `granted` is a folder that may be read without a question.
    """
    directory.mkdir(mode=0o700)
    texts = {f"bench-{number:04}": _grant(number) for number in range(count - (granted is not None))}
    if granted is not None:
        texts["granted"] = _text("auto", str(granted))
    for name, text in texts.items():
        path = directory / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)


def path(number: int, *, grants: int) -> str:
    """Return the path of call `number`: in a folder of some grant for four calls of five, and for the fifth of none."""
    # 37 shares no factor with the number of folders, so the calls go through all of them in no order.
    return f"{_folder(number * 37 % (grants * 5 // 4))}/notes/{number}.txt"


def unknown_path(number: int) -> str:
    """Return a path that no grant names."""
    return f"{_TOP}/unknown/{number}.txt"


def request(number: int, path: str) -> ToolRequest:
    """Return call `number`, to read one file."""
    arguments = dumps({"path": path}).decode()
    return ToolRequest(session=SESSION, call=CallId(number), tool=TOOL, arguments=arguments)


def _grant(number: int) -> str:
    return _text(("auto", "ask", "deny")[number % 3], _folder(number), f"{_TOP}/elsewhere/{number}")


def _folder(number: int) -> str:
    return f"{_TOP}/folder-{number:04}"


def _text(mode: str, *paths: str) -> str:
    return _TEXT.format(tool=TOOL, mode=mode, paths=", ".join(f'"{path}"' for path in paths))
