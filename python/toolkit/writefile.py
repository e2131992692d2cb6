"""write_file: a new text in the place of a whole file, or a new file. Says what was there before, by its hash."""

import hashlib

from bxcore.tools import WriteFile
from toolkit import replace, textfile
from toolkit.place import Place
from toolkit.textfile import Content


def run(asked: WriteFile, place: Place) -> str:
    data = asked.content.encode()
    with replace.spot(place.roots, asked.path, most=textfile.MOST_BYTES) as spot:
        replace.put(spot, data)
    return f"written: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}\n{_before(spot.old)}"


def _before(old: Content | None) -> str:
    if old is None:
        return "before: no file"
    digest = f"sha256 {old.sha256}" if old.whole else "too large for a hash"
    return f"before: {old.found.st_size} bytes, {digest}"
