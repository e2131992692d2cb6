"""edit_file: one exact replacement in one text file, refused unless the old text occurs exactly once."""

import hashlib

from bxcore.tools import EditFile
from toolkit import replace
from toolkit.order import ToolError
from toolkit.place import Place

MOST_BYTES = 8 * 1024 * 1024
_MOST_COUNTED = 100


def run(asked: EditFile, place: Place) -> str:
    if asked.old_text == asked.new_text:
        raise ToolError("old_text and new_text are the same")
    with replace.spot(place.roots, asked.path, most=MOST_BYTES) as spot:
        if spot.old is None:
            raise ToolError("no such file")
        if not spot.old.whole:
            raise ToolError(f"the file is longer than {MOST_BYTES} bytes")
        before = spot.old.data
        after, line = edited(before, asked.old_text, asked.new_text)
        replace.put(spot, after)
    return f"replaced on line {line}\nbefore: {_described(before)}\nnow: {_described(after)}"


def edited(data: bytes, old_text: str, new_text: str) -> tuple[bytes, int]:
    """Return the new content, and the number of the line in which the old text began; or raise ToolError."""
    if b"\0" in data:
        raise ToolError("that is no text file")
    old, new = old_text.encode(), new_text.encode()
    if _ends_in_crlf(data):
        # The model is shown lines without their ends and writes \n between them.
        old, new = _with_crlf(old), _with_crlf(new)
    count = occurrences(data, old)
    if count != 1:
        how_often = f"{_MOST_COUNTED} times or more" if count == _MOST_COUNTED else f"{count} times"
        found = f"occurs {how_often}; add lines around it until it is unique" if count else "does not occur in the file"
        raise ToolError(f"old_text {found}. Nothing was changed")
    at = data.index(old)
    return data[:at] + new + data[at + len(old) :], data.count(b"\n", 0, at) + 1


def occurrences(data: bytes, piece: bytes) -> int:
    """Count where `piece` begins in `data`, overlapping ones too, up to a hundred."""
    count, at = 0, data.find(piece)
    while at >= 0 and count < _MOST_COUNTED:
        count += 1
        at = data.find(piece, at + 1)
    return count


def _ends_in_crlf(data: bytes) -> bool:
    return 0 < data.count(b"\n") == data.count(b"\r\n")


def _with_crlf(piece: bytes) -> bytes:
    return piece.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _described(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"
