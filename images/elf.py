"""Programs and libraries of the host, as the image gets them: without symbols, without search paths. Pure.

A search path of the host's interpreter names the place it was built for, where a mount could put another
library; and what a debugger wants is a third of its size. Only the loader's view of the file counts here:
64-bit little-endian ELF, program headers and the dynamic section (System V ABI, chapters 4 and 5).
"""

import struct

_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SECTIONS_AT = 0x28
_SECTION_COUNT_AT = 0x3C

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_RPATH, _DT_RUNPATH = 0, 15, 29


def is_elf(content: bytes) -> bool:
    return content.startswith(_MAGIC)


def lean(content: bytes) -> bytes:
    """Return the file with what the loader uses, and no search path."""
    image = bytearray(content)
    segments = _segments(content)
    for kind, offset, size in segments:
        if kind == _PT_DYNAMIC:
            _drop_search_paths(image, offset, size)
    end = max(offset + size for _, offset, size in segments)
    del image[end:]
    # The table of sections lay behind the last segment; the loader never looks at it.
    struct.pack_into("<Q", image, _SECTIONS_AT, 0)
    struct.pack_into("<HH", image, _SECTION_COUNT_AT, 0, 0)
    return bytes(image)


def search_paths(content: bytes) -> int:
    """Return how many search paths the file has."""
    spans = [(offset, size) for kind, offset, size in _segments(content) if kind == _PT_DYNAMIC]
    return sum(tag in (_DT_RPATH, _DT_RUNPATH) for span in spans for tag, _ in _entries(content, *span))


def _segments(content: bytes) -> list[tuple[int, int, int]]:
    """Return (kind, offset, size) of every segment."""
    if not is_elf(content):
        raise ValueError("not a 64-bit little-endian ELF file")
    _, _, _, _, start, _, _, _, entry_size, count, *_ = _HEADER.unpack_from(content)
    found = []
    for number in range(count):
        kind, _, offset, _, _, size, _, _ = _SEGMENT.unpack_from(content, start + number * entry_size)
        found.append((kind, offset, size))
    return found


def _entries(content: bytes | bytearray, offset: int, size: int) -> list[tuple[int, int]]:
    return [_DYNAMIC.unpack_from(content, at) for at in range(offset, offset + size, _DYNAMIC.size)]


def _drop_search_paths(image: bytearray, offset: int, size: int) -> None:
    """Close the gaps that the dropped entries leave; the list ends at the first empty one anyway."""
    kept = [entry for entry in _entries(image, offset, size) if entry[0] not in (_DT_RPATH, _DT_RUNPATH)]
    kept += [(_DT_NULL, 0)] * (size // _DYNAMIC.size - len(kept))
    for number, entry in enumerate(kept):
        _DYNAMIC.pack_into(image, offset + number * _DYNAMIC.size, *entry)
