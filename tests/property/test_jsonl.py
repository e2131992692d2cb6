"""Records survive every tear: any cut, any garbage, any power cut (rows A1 and S2, INV-6)."""

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from hypothesis import given
from hypothesis import strategies as st

from bxcore import jsonl
from bxcore.errors import StateError
from bxcore.files import DiskFiles
from bxcore.jsonl import JsonlWriter
from bxcore.timestamp import Timestamp
from tests.fakes.faulty_files import Fault, FaultyFiles
from tests.fakes.power_loss import Choose, PowerCut, PowerLossSystem


@attrs.frozen(kw_only=True)
class Note:
    text: str


class FixedClock:
    def now_ms(self) -> Timestamp:
        return Timestamp(0)

    def monotonic_ms(self) -> int:
        return 0


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=6)
GARBAGE = st.binary(max_size=60) | st.lists(st.sampled_from([b"\n", b"\0", b"{", b"}", b'"', b"{}\n"])).map(b"".join)


@contextmanager
def home() -> Iterator[Path]:
    # Not tmp_path: each example of a property needs a directory of its own.
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def opened(path: Path, disk: DiskFiles) -> JsonlWriter:
    return JsonlWriter.open(path, disk, clock=FixedClock())


def append_all(path: Path, texts: list[str]) -> list[int]:
    """Append one note for each text and return where each ends."""
    writer = opened(path, FaultyFiles(None))  # which fails never, and does not wait for a disk
    ends = []
    for text in texts:
        writer.append(Note(text=text))
        ends.append(path.stat().st_size)
    writer.close()
    return ends


def whole(path: Path) -> list[object]:
    return [entry.value["text"] for entry in jsonl.read_entries(path) if entry.value and "text" in entry.value]


def recoveries(path: Path) -> int:
    return sum(1 for entry in jsonl.read_entries(path) if entry.value and entry.value.get("type") == "recovery")


def damaged(path: Path) -> list[int]:
    return [entry.number for entry in jsonl.read_entries(path) if entry.fault is not None and not entry.torn]


def is_clean(tail: bytes) -> bool:
    """Say whether the tail itself is nothing but whole records."""
    with home() as directory:
        (directory / "tail").write_bytes(tail)
        return all(entry.value is not None for entry in jsonl.read_entries(directory / "tail"))


@given(TEXTS, st.data())
def test_every_cut_keeps_the_records_before_it(texts: list[str], data: st.DataObject) -> None:
    with home() as directory:
        path = directory / "0.jsonl"
        ends = append_all(path, texts)
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:cut])
        kept = [text for text, end in zip(texts, ends, strict=True) if end <= cut]
        assert whole(path) == kept
        append_all(path, ["after"])
        assert path.read_bytes().startswith(content[:cut])
        assert whole(path) == [*kept, "after"]
        assert damaged(path) == []
        assert recoveries(path) == (0 if cut in {0, *ends} else 1)


@given(TEXTS, GARBAGE)
def test_every_garbage_tail_is_kept_and_described_by_one_record(texts: list[str], tail: bytes) -> None:
    with home() as directory:
        path = directory / "0.jsonl"
        append_all(path, texts)
        content = path.read_bytes() + tail
        path.write_bytes(content)
        opened(path, FaultyFiles(None)).close()
        assert path.read_bytes().startswith(content)
        assert whole(path)[: len(texts)] == texts
        assert recoveries(path) == (0 if is_clean(tail) or not tail_needs_one(tail) else 1)
        size = path.stat().st_size
        opened(path, FaultyFiles(None)).close()
        assert path.stat().st_size == size  # what is described is not described again


def tail_needs_one(tail: bytes) -> bool:
    """Say whether the tail ends in something that is no record; damage before a record is no tear."""
    last = tail.removesuffix(b"\n").rpartition(b"\n")[2]
    return not tail.endswith(b"\n") or not is_clean(last + b"\n")


@given(st.binary(max_size=400))
def test_any_bytes_can_be_read_line_by_line(content: bytes) -> None:
    with home() as directory:
        path = directory / "0.jsonl"
        path.write_bytes(content)
        lines = list(jsonl.read_lines(path))
        assert b"".join(line.raw + b"\n" * line.complete for line in lines) == content
        assert [entry.number for entry in jsonl.read_entries(path)] == [line.number for line in lines]


@given(TEXTS, st.integers(0, 8), st.integers(0, 60), st.sampled_from([errno.ENOSPC, errno.EIO, errno.EROFS]))
def test_a_write_that_fails_loses_nothing_that_was_acknowledged(
    texts: list[str], at: int, after_bytes: int, error: int
) -> None:
    with home() as directory:
        path = directory / "0.jsonl"
        acknowledged = []
        try:
            writer = opened(path, FaultyFiles(Fault(at=at, after_bytes=after_bytes, error=error)))
            for text in texts:
                writer.append(Note(text=text))
                acknowledged.append(text)
            writer.close()
        except StateError:
            pass  # the disk failed: the rest was never acknowledged
        append_all(path, ["after"])
        read = whole(path)
        assert read[: len(acknowledged)] == acknowledged
        assert read[-1] == "after"
        assert len(read) - 1 <= len(acknowledged) + 1
        assert damaged(path) == []


# -- power cuts -------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn, data: bytes, *, holes: bool) -> bytes:
    """Draw what a write that was not synced left on the disk.

    A hole in a batch of records may leave a whole record after it, which no reader can tell from damage:
    that is reported, and nothing is lost, but it is not the subject of these properties.
    """
    length = draw(st.integers(0, len(data)))
    kinds = ["lost", "whole", "start", "zeros", "start, then zeros", "start, then garbage", *["hole"] * holes]
    kind = draw(st.sampled_from(kinds))
    if kind == "hole":
        hole = draw(st.integers(0, len(data) - length))
        return data[:length] + b"\0" * hole + data[length + hole :]
    return {
        "lost": b"",
        "whole": data,
        "start": data[:length],
        "zeros": b"\0" * len(data),
        "start, then zeros": data[:length].ljust(len(data), b"\0"),
        "start, then garbage": data[:length] + draw(st.binary(max_size=30)),
    }[kind]


def choices(data: st.DataObject, *, holes: bool = True) -> Choose:
    return Choose(lambda: data.draw(st.booleans()), lambda written: data.draw(arrivals(written, holes=holes)))


@given(TEXTS, st.integers(0, 30), st.booleans(), st.data())
def test_a_power_cut_loses_no_acknowledged_record(
    texts: list[str], cut_at: int, effect_first: bool, data: st.DataObject
) -> None:
    with home() as directory:
        live, found = directory / "live", directory / "found"
        live.mkdir()
        system = PowerLossSystem(live, cut_at=cut_at, effect_first=effect_first)
        acknowledged = record_until_the_cut(system, live, texts)
        system.after(found, choices(data))

        before = (found / "s" / "0.jsonl").read_bytes() if (found / "s" / "0.jsonl").exists() else b""
        (found / "s").mkdir(exist_ok=True)
        append_all(found / "s" / "0.jsonl", ["after"])
        assert (found / "s" / "0.jsonl").read_bytes().startswith(before)
        read = whole(found / "s" / "0.jsonl")
        assert read[: len(acknowledged)] == acknowledged
        assert read[-1] == "after"
        assert damaged(found / "s" / "0.jsonl") == []


def record_until_the_cut(system: PowerLossSystem, live: Path, texts: list[str]) -> list[str]:
    acknowledged = []
    disk = DiskFiles(system)
    writer = None
    try:
        disk.make_dir(live / "s")
        writer = opened(live / "s" / "0.jsonl", disk)
        for text in texts:
            writer.append(Note(text=text))
            acknowledged.append(text)
    except PowerCut:
        pass  # what follows is the next start
    if writer is not None:
        writer.close()
    return acknowledged


@given(st.lists(TEXTS, max_size=4), st.integers(0, 20), st.booleans(), st.data())
def test_a_power_cut_loses_no_acknowledged_record_of_a_batch(
    batches: list[list[str]], cut_at: int, effect_first: bool, data: st.DataObject
) -> None:
    with home() as directory:
        live, found = directory / "live", directory / "found"
        live.mkdir()
        system = PowerLossSystem(live, cut_at=cut_at, effect_first=effect_first)
        acknowledged: list[str] = []
        try:
            writer = opened(live / "0.jsonl", DiskFiles(system))
            for batch in batches:
                writer.append(*(Note(text=text) for text in batch))
                acknowledged += batch
        except PowerCut:
            pass  # what follows is the next start
        for fd in list(system.opened):
            system.close(fd)
        system.after(found, choices(data, holes=False))
        append_all(found / "0.jsonl", ["after"])
        read = whole(found / "0.jsonl")
        assert read[: len(acknowledged)] == acknowledged
        assert read[-1] == "after"
        assert damaged(found / "0.jsonl") == []


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.integers(0, 30), st.booleans(), st.data())
def test_a_power_cut_leaves_the_content_before_a_replace_or_after_it(
    contents: list[bytes], cut_at: int, effect_first: bool, data: st.DataObject
) -> None:
    with home() as directory:
        live, found = directory / "live", directory / "found"
        live.mkdir()
        system = PowerLossSystem(live, cut_at=cut_at, effect_first=effect_first)
        done = 0
        try:
            for content in contents:
                DiskFiles(system).replace(live / "a", content)
                done += 1
        except PowerCut:
            pass  # what follows is the next start
        system.after(found, choices(data))
        allowed = contents[max(done - 1, 0) : done + 1]
        if done or (found / "a").exists():
            assert (found / "a").read_bytes() in allowed
