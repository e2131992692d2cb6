"""read_file: some lines of a text file, with how many there are; what is no text is only described."""

from bxcore import toolarguments, tools
from bxcore.tools import ReadFile
from toolkit import textfile
from toolkit.order import ToolError
from toolkit.place import Place
from toolkit.textfile import Content

MOST_LINE_CHARS = 2_000
_HEAD_AND_TAIL_CHARS = 200
_BLOCK = 1024 * 1024
_DEFAULT_START = toolarguments.default_of(ReadFile, "start_line")
_DEFAULT_LINES = toolarguments.default_of(ReadFile, "max_lines")


def run(asked: ReadFile, place: Place) -> str:
    content = textfile.read(place.roots, asked.path)
    if not textfile.is_text(content.data):
        return f"[no text file: {textfile.described(content)}]"
    total = _count(content.data)
    first = asked.start_line or _DEFAULT_START
    if first > max(total, 1):
        raise ToolError(f"there is no line {first}; the file has {_of_all(content, total)}")
    lines = _window(content.data, first, asked.max_lines or _DEFAULT_LINES, place.most_chars - _HEAD_AND_TAIL_CHARS)
    after = first + len(lines)
    text = "\n".join([_head(content, first, after - 1, total), *lines])
    if after <= total and len(lines) != asked.max_lines:
        return f"{text}\n{tools.CUT}: go on with start_line {after}]"
    if after > total and not content.whole:
        return f"{text}\n{tools.CUT}: only the first {textfile.MOST_BYTES} bytes of a file are read]"
    return text


def _head(content: Content, first: int, last: int, total: int) -> str:
    window = "" if last - first + 1 == total else f"lines {first}-{last} of "
    return f"[{window}{_of_all(content, total)}, {content.found.st_size} bytes{_ends(content.data)}]"


def _ends(data: bytes) -> str:
    crlf = data.count(b"\r\n")
    if not crlf:
        return ""
    return ", CRLF line ends" if crlf == data.count(b"\n") else ", some CRLF line ends"


def _of_all(content: Content, total: int) -> str:
    lines = "1 line" if total == 1 else f"{total} lines"
    return lines if content.whole else f"more than {lines}"


def _window(data: bytes, first: int, most: int, most_chars: int) -> list[str]:
    """Return up to `most` lines from number `first` on, as many as there is room for, and one at least."""
    at, lines, room = _start_of(data, first), list[str](), most_chars
    while at < len(data) and len(lines) < most:
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = _line(data[at:end])
        room -= len(line) + 1
        if room < 0 and lines:
            break
        lines.append(line)
        at = end + 1
    return lines


def _line(raw: bytes) -> str:
    # Four bytes a character at most, so that a line of many megabytes is not decoded for its beginning.
    text = raw[: 4 * MOST_LINE_CHARS].decode("utf-8", "surrogateescape")
    if len(raw) > 4 * MOST_LINE_CHARS or len(text) > MOST_LINE_CHARS:
        text = f"{text[:MOST_LINE_CHARS]}[... a line of {len(raw)} bytes]"
    return textfile.printed(text.removesuffix("\r"))


def _start_of(data: bytes, line: int) -> int:
    """Return where line number `line` (from 1) begins, which must exist."""
    missing, at = line - 1, 0
    while missing > (found := data.count(b"\n", at, at + _BLOCK)):
        missing -= found
        at += _BLOCK
    for _ in range(missing):
        at = data.find(b"\n", at) + 1
    return at


def _count(data: bytes) -> int:
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))
