"""Row A1 of the bad-input list: a file of records after a crash, and a file that is damaged otherwise."""

import errno
import hashlib
from pathlib import Path

import attrs
import pytest

from bxcore import convert, jsonl, strictjson
from bxcore.errors import BadMessage
from bxcore.files import DiskFiles, StateInUse, StateMissing, StateUnreadable, StateUnwritable
from bxcore.ids import Hash32
from bxcore.jsonl import MAX_LINE, Entry, JsonlWriter, Line, Recovery
from bxcore.strictjson import JsonValue
from bxcore.timestamp import Timestamp
from tests.fakes.faulty_files import Fault, FaultyFiles

DISK = DiskFiles()
WHEN = Timestamp(1_789_632_300_000)


@attrs.frozen(kw_only=True)
class Note:
    number: int
    text: str


class FixedClock:
    def now_ms(self) -> Timestamp:
        return WHEN

    def monotonic_ms(self) -> int:
        return 0


def note(number: int, text: str = "x") -> Note:
    return Note(number=number, text=text)


def raw(*numbers: int) -> bytes:
    return b"".join(b'{"number":%d,"text":"x"}\n' % number for number in numbers)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.jsonl"


def opened(path: Path, disk: DiskFiles = DISK) -> JsonlWriter:
    return JsonlWriter.open(path, disk, clock=FixedClock())


def write(path: Path, *records: Note) -> Recovery | None:
    writer = opened(path)
    writer.append(*records)
    writer.close()
    return writer.recovery


def entries(path: Path) -> list[Entry]:
    return list(jsonl.read_entries(path))


def numbers(path: Path) -> list[JsonValue]:
    return [entry.value["number"] for entry in entries(path) if entry.value and "number" in entry.value]


def told(path: Path) -> list[str]:
    """Return one word for each line."""
    words = []
    for entry in entries(path):
        recovery = entry.value is not None and entry.value.get("type") == "recovery"
        words.append("torn" if entry.torn else "damaged" if entry.fault else "recovery" if recovery else "record")
    return words


# -- writing and reading ----------------------------------------------------------------------


def test_records_are_lines_in_the_order_in_which_they_came(path: Path) -> None:
    write(path, note(1), note(2))
    write(path, note(3))
    assert path.read_bytes() == raw(1, 2, 3)
    assert numbers(path) == [1, 2, 3]


def test_several_records_are_one_write_and_one_fsync(path: Path) -> None:
    disk = FaultyFiles(None)
    writer = opened(path, disk)
    before = dict(disk.calls)
    writer.append(note(1), note(2), note(3))
    writer.close()
    assert disk.calls["write"] - before.get("write", 0) == 1
    assert disk.calls["fsync"] - before["fsync"] == 1


def test_no_record_is_no_write(path: Path) -> None:
    disk = FaultyFiles(None)
    writer = opened(path, disk)
    writer.append()
    writer.close()
    assert "write" not in disk.calls


def test_a_new_file_is_made_empty(path: Path) -> None:
    assert write(path) is None
    assert path.read_bytes() == b""
    assert entries(path) == []


def test_a_newline_in_a_text_does_not_end_the_line(path: Path) -> None:
    write(path, note(1, "a\nb\r\n\u2028\x85\0"))
    assert path.read_bytes().count(b"\n") == 1
    assert entries(path)[0].value == {"number": 1, "text": "a\nb\r\n\u2028\x85\0"}


def test_a_line_keeps_its_bytes_and_its_number(path: Path) -> None:
    write(path, note(1), note(2))
    assert list(jsonl.read_lines(path)) == [
        Line(1, 0, b'{"number":1,"text":"x"}', 23, complete=True),
        Line(2, 24, b'{"number":2,"text":"x"}', 23, complete=True),
    ]


def test_a_form_of_ones_own_is_written(path: Path) -> None:
    def tagged(record: object) -> JsonValue:
        return convert.unstructure_tagged(record, {Note: "note"}, tag="type")

    writer = JsonlWriter.open(path, DISK, clock=FixedClock(), encode=tagged)
    writer.append(note(1))
    writer.close()
    assert path.read_bytes() == b'{"type":"note","number":1,"text":"x"}\n'


def test_a_record_that_has_no_json_form_is_not_written_and_breaks_nothing(path: Path) -> None:
    writer = opened(path)
    writer.append(note(1))
    with pytest.raises(ValueError, match="surrogate"):
        writer.append(note(2), note(3, "\ud800"))
    writer.append(note(4))
    writer.close()
    assert numbers(path) == [1, 4]


def test_a_record_longer_than_a_line_is_not_written_and_breaks_nothing(path: Path) -> None:
    writer = opened(path)
    longest = MAX_LINE - len(b'{"number":2,"text":""}')
    with pytest.raises(ValueError, match="longer than a line"):
        writer.append(note(1), note(2, "x" * (longest + 1)))
    writer.append(note(3))
    writer.close()
    assert numbers(path) == [3]


def test_the_longest_line_is_written_and_read(path: Path) -> None:
    text = "x" * (MAX_LINE - len(b'{"number":1,"text":""}'))
    write(path, note(1, text), note(2))
    assert [line.size for line in jsonl.read_lines(path)] == [MAX_LINE, 23]
    assert numbers(path) == [1, 2]


def test_a_file_that_is_not_there_is_said_to_be_missing(path: Path) -> None:
    with pytest.raises(StateMissing):
        entries(path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable):
        entries(tmp_path)


def test_a_file_has_one_writer(path: Path) -> None:
    writer = opened(path)
    with pytest.raises(StateInUse):
        opened(path)
    writer.close()
    opened(path).close()


# -- a torn tail ------------------------------------------------------------------------------

# Each is what a crash may leave after the records 1 and 2.
TAILS: dict[str, bytes] = {
    "one byte": b"{",
    "half a record": b'{"number":3,"te',
    "a record without its newline": raw(3)[:-1],
    "a letter cut in half": '{"number":3,"text":"é'.encode()[:-1],
    "zeros": b"\0" * 40,
    "zeros and a newline": b"\0" * 40 + b"\n",
    "the start of a record, then zeros": b'{"number":3,' + b"\0" * 40,
    "zeros, then the end of a record": b"\0" * 20 + b'text":"x"}\n',
    "garbage": b"\xff\xfe\x00garbage",
    "garbage of many lines": b"gar\nba\n\n\xffge\n",
    "an empty line": b"\n",
    "carriage return": b"\r\n",
    "a list": b"[1]\n",
    "a number": b"5",
    "duplicate keys": b'{"number":3,"number":4}\n',
    "a record, then a newline too many": b"\n\n",
    "longer than a line": b"x" * (MAX_LINE + 10),
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_a_tail_is_kept_and_described_and_the_file_goes_on(path: Path, tail: bytes) -> None:
    path.write_bytes(raw(1, 2) + tail)
    digest = Hash32(hashlib.sha256(tail).hexdigest())
    assert write(path, note(4)) == Recovery(time=WHEN, line=3, bytes=len(tail), sha256=digest)
    content = path.read_bytes()
    assert content.startswith(raw(1, 2) + tail)
    assert content.endswith(raw(4))
    assert numbers(path) == [1, 2, 4]
    words = told(path)
    assert words == ["record", "record", *["torn"] * (len(words) - 4), "recovery", "record"]


def test_the_recovery_record_has_these_bytes(path: Path) -> None:
    path.write_bytes(raw(1) + b'{"numb')
    write(path)
    digest = hashlib.sha256(b'{"numb').hexdigest()
    assert path.read_bytes() == (
        raw(1)
        + b'{"numb\n'
        + b'{"type":"recovery","time":"2026-09-17T08:05:00.000Z","line":2,"bytes":6,"sha256":"%s"}\n' % digest.encode()
    )


def test_a_tail_is_described_once(path: Path) -> None:
    path.write_bytes(raw(1) + b"{")
    write(path)
    content = path.read_bytes()
    assert write(path) is None
    assert path.read_bytes() == content


def test_a_whole_file_that_is_no_record_is_kept_too(path: Path) -> None:
    path.write_bytes(b"not\nours\n")
    recovery = write(path, note(1))
    assert recovery is not None
    assert (recovery.line, recovery.bytes) == (1, 9)
    assert told(path) == ["torn", "torn", "recovery", "record"]


def test_several_tears_are_described_each(path: Path) -> None:
    for number in range(1, 4):
        write(path, note(number))
        with path.open("ab") as file:
            file.write(b'{"torn')
    write(path)
    assert told(path) == ["record", "torn", "recovery"] * 3
    assert numbers(path) == [1, 2, 3]


@pytest.mark.parametrize("kept", range(1, 150, 7))
def test_a_recovery_that_is_itself_torn_is_described_in_turn(path: Path, kept: int) -> None:
    path.write_bytes(raw(1) + b'{"torn')
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(raw(1)) + 6 + kept])
    write(path, note(2))
    assert numbers(path) == [1, 2]
    assert "damaged" not in told(path)


def test_an_incomplete_last_line_is_torn_also_before_a_writer_comes(path: Path) -> None:
    path.write_bytes(raw(1, 2)[:-1])
    assert told(path) == ["record", "torn"]
    assert entries(path)[1].value is None
    assert path.read_bytes() == raw(1, 2)[:-1]


# -- damage that no crash explains ------------------------------------------------------------

DAMAGE: dict[str, bytes] = {
    "NUL": b'{"number":2,"te\0t":"x"}\n',
    "zeros": b"\0" * 30 + b"\n",
    "garbage": b"\xff\xfe garbage\n",
    "empty line": b"\n",
    "half a record": b'{"number":2,\n',
    "a list": b"[2]\n",
    "duplicate keys": b'{"number":2,"number":2}\n',
    "lone surrogate": b'{"number":2,"text":"\\ud800"}\n',
    "longer than a line": b'{"number":2,"text":"' + b"x" * MAX_LINE + b'"}\n',
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_in_the_middle_is_reported_with_its_line_and_nothing_is_written(path: Path, line: bytes) -> None:
    path.write_bytes(raw(1) + line + raw(3))
    assert told(path) == ["record", "damaged", "record"]
    damaged = entries(path)[1]
    assert (damaged.number, damaged.value, damaged.torn) == (2, None, False)
    assert damaged.fault
    assert write(path) is None
    assert path.read_bytes() == raw(1) + line + raw(3)


def test_the_fault_of_a_line_says_what_it_is(path: Path) -> None:
    path.write_bytes(raw(1) + b"[2]\n" + DAMAGE["longer than a line"] + raw(3))
    faults = [entry.fault for entry in entries(path)]
    assert faults == [None, "expected an object", f"longer than a line may be: {MAX_LINE + 22} bytes", None]


def test_bytes_that_changed_after_they_were_described_are_damage(path: Path) -> None:
    path.write_bytes(raw(1) + b'{"torn')
    write(path, note(2))
    path.write_bytes(path.read_bytes().replace(b'{"torn', b'{"tarn'))
    assert told(path) == ["record", "damaged", "recovery", "record"]


def test_a_recovery_cannot_take_a_record_away(path: Path) -> None:
    forged = Recovery(time=WHEN, line=1, bytes=47, sha256=Hash32(hashlib.sha256(b"other").hexdigest()))
    value = convert.unstructure_tagged(forged, {Recovery: "recovery"}, tag="type")
    path.write_bytes(raw(1, 2) + strictjson.dumps(value) + b"\n" + raw(3))
    assert numbers(path) == [1, 2, 3]


@pytest.mark.parametrize("described", [b'{"tor', b'"torn', b'{"torn\n{'])
def test_a_recovery_describes_all_of_the_tail_or_nothing(path: Path, described: bytes) -> None:
    digest = Hash32(hashlib.sha256(described).hexdigest())
    recovery = Recovery(time=WHEN, line=2, bytes=len(described), sha256=digest)
    value = convert.unstructure_tagged(recovery, {Recovery: "recovery"}, tag="type")
    path.write_bytes(raw(1) + b'{"torn\n' + strictjson.dumps(value) + b"\n")
    assert told(path) == ["record", "damaged", "recovery"]


def test_a_malformed_recovery_describes_nothing(path: Path) -> None:
    path.write_bytes(raw(1) + b'{"torn\n' + b'{"type":"recovery","line":2}\n' + raw(3))
    assert told(path) == ["record", "damaged", "recovery", "record"]


def test_damage_before_a_tear_stays_damage(path: Path) -> None:
    path.write_bytes(raw(1) + b"bad\n" + raw(3) + b'{"torn')
    write(path)
    assert told(path) == ["record", "damaged", "record", "torn", "recovery"]


# -- a disk that fails ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("after_bytes", [0, 1, 10, 22, 23])
def test_a_write_that_fails_at_any_byte_loses_no_acknowledged_record(path: Path, after_bytes: int, error: int) -> None:
    writer = opened(path, FaultyFiles(Fault(at=1, error=error, after_bytes=after_bytes)))
    writer.append(note(1))
    for _ in range(2):  # a second attempt may not write after the tear
        with pytest.raises(StateUnwritable):
            writer.append(note(2))
    writer.close()
    assert path.read_bytes() == raw(1) + raw(2)[:after_bytes]
    write(path, note(3))
    assert numbers(path) == [1, 3]
    assert "damaged" not in told(path)


def test_a_failed_fsync_ends_the_writer(path: Path) -> None:
    writer = opened(path, FaultyFiles(Fault(call="fsync", at=2, error=errno.EIO)))
    writer.append(note(1))
    for number in (2, 3):
        with pytest.raises(StateUnwritable):
            writer.append(note(number))
    assert path.read_bytes() == raw(1, 2)


def test_a_file_whose_tail_cannot_be_described_is_not_opened_and_not_locked(path: Path) -> None:
    path.write_bytes(raw(1) + b"{")
    with pytest.raises(StateUnwritable):
        opened(path, FaultyFiles(Fault(error=errno.ENOSPC)))
    assert path.read_bytes() == raw(1) + b"{"
    assert write(path, note(2)) is not None
    assert numbers(path) == [1, 2]


class StoppedClock(FixedClock):
    def now_ms(self) -> Timestamp:
        raise StateUnreadable("no clock")


def test_a_writer_that_cannot_be_made_leaves_the_file_unlocked(path: Path) -> None:
    path.write_bytes(raw(1) + b"{")
    with pytest.raises(StateUnreadable):
        JsonlWriter.open(path, DISK, clock=StoppedClock())
    assert write(path, note(2)) is not None


def test_every_code_of_a_broken_file_is_in_the_state_group() -> None:
    assert not issubclass(StateUnwritable, BadMessage)
    assert {kind.code for kind in (StateUnwritable, StateUnreadable, StateInUse)} == {
        "state_unwritable",
        "state_unreadable",
        "state_in_use",
    }
