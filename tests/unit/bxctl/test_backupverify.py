import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bxcore.backupcheck import BackupNewer, BackupUnfinished
from bxcore.errors import StateError
from bxcore.ids import SessionId
from bxctl import backupverify
from tests.fakes.backedup import SECRET, BackedUp, manifest_lines, seal_manifest


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> BackedUp:
    made = BackedUp(tmp_path_factory.mktemp("original"))
    made.fill()
    (made.home / "memory").mkdir()
    (made.home / "memory" / "facts.md").write_text("The sea is wet.\n")
    made.create()
    return made


@pytest.fixture
def place(original: BackedUp, tmp_path: Path) -> BackedUp:
    made = BackedUp(tmp_path)
    shutil.copytree(original.top / "b", tmp_path / "b")
    return made


def flip(path: Path, at: int = 10) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def become_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_a_whole_one_says_so_and_its_head(place: BackedUp) -> None:
    assert backupverify.verify(place.world(), place.top / "b", json=False) == 0
    said = place.out.getvalue()
    assert said.startswith("✓ whole: ")
    assert f"  head  {manifest_lines(place.top / 'b')[0]['head']}\n" in said


@pytest.mark.parametrize(
    "name",
    [
        "audit/2026-01-01.jsonl",
        "sessions/s-1/0.jsonl",
        "sessions/s-1/0.baseline.json",
        "sessions/s-1/results/1.txt",
        "broker/audit-head",
        "broker/clock",
        "broker/sessions/s-2.json",
        "broker/sessions/complete",
        "memory/facts.md",
        "etc/grants/notes.toml",
    ],
)
def test_every_file_that_was_touched_is_named(place: BackedUp, name: str) -> None:
    path = place.top / "b" / name
    touched: dict[str, Callable[[Path], Any]] = {
        "was changed after it was written": lambda path: flip(path, 3),
        f"has {path.stat().st_size - 1} bytes, {path.stat().st_size} were written": lambda path: os.truncate(
            path, path.stat().st_size - 1
        ),
        "is not there": Path.unlink,
        "cannot be read: not a regular file": become_pipe,
        "cannot be read: Too many levels of symbolic links": become_link,
    }
    content = path.read_bytes()
    for words, touch in touched.items():
        touch(path)
        assert any(str(finding).startswith(f"{name}: {words}") for finding in place.damage(place.top / "b")), words
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        shutil.rmtree(path.with_name("elsewhere"), ignore_errors=True)
        path.with_name("elsewhere").unlink(missing_ok=True)
    assert place.findings(place.top / "b") == []


def test_each_byte_of_a_small_file_counts(place: BackedUp) -> None:
    path = place.top / "b" / "broker" / "sessions" / "s-2.json"
    for at in range(path.stat().st_size):
        flip(path, at)
        assert place.damage(place.top / "b")
        flip(path, at)


def test_what_was_added_is_named(place: BackedUp) -> None:
    top = place.top / "b"
    (top / "audit" / "2026-01-03.jsonl").write_text("")
    (top / "etc" / "grants" / ".more.toml").write_text("")
    (top / "run").mkdir()
    (top / "memory" / "link").symlink_to("/")
    assert place.findings(top) == [
        "audit/2026-01-03.jsonl: is not in the manifest",
        "etc/grants/.more.toml: is not in the manifest",
        "memory/link: is not in the manifest",
        "run: a directory that is no part of the backup",
    ]


def test_a_directory_that_became_a_link_is_named(place: BackedUp) -> None:
    (place.top / "b" / "audit").rename(place.top / "audit")
    (place.top / "b" / "audit").symlink_to(place.top / "audit")
    assert "audit: is not in the manifest" in [str(found) for found in place.damage(place.top / "b")]


# -- the manifest ---------------------------------------------------------------------------------------


def test_each_byte_of_the_manifest_counts(place: BackedUp) -> None:
    path = place.top / "b" / "manifest.jsonl"
    for at in range(0, path.stat().st_size, 7):
        flip(path, at)
        try:
            assert place.damage(place.top / "b")
        except (BackupUnfinished, BackupNewer):
            pass
        flip(path, at)
    assert place.findings(place.top / "b") == []


def test_a_manifest_that_ends_anywhere_is_no_backup(place: BackedUp) -> None:
    path = place.top / "b" / "manifest.jsonl"
    content = path.read_bytes()
    for size in range(0, len(content), 11):
        path.write_bytes(content[:size])
        with pytest.raises(BackupUnfinished):
            place.check(place.top / "b")


def test_without_a_manifest_it_is_no_backup(place: BackedUp) -> None:
    (place.top / "b" / "manifest.jsonl").unlink()
    with pytest.raises(BackupUnfinished, match="is no finished backup"):
        place.check(place.top / "b")


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_what_is_no_directory_is_no_backup(place: BackedUp, name: str) -> None:
    (place.top / "file").touch()
    with pytest.raises(StateError) as refused:
        place.check(place.top / name)
    assert refused.value.code == "backup_unfinished"


def test_s11_a_newer_format_is_refused_before_it_is_read(place: BackedUp) -> None:
    path = place.top / "b" / "manifest.jsonl"
    path.write_text('{"type":"backup","format":2,"chunks":[]}\n{"type":"something else"}\n')
    with pytest.raises(BackupNewer, match="of format 2, which a newer Boxmaker wrote"):
        place.check(place.top / "b")


@pytest.mark.parametrize(
    "path",
    [
        "../home/audit/2026-01-01.jsonl",
        "/etc/passwd",
        "audit/../../x.jsonl",
        "audit/2026-01-01.jsonl/x",
        "broker/sessions/../clock",
        "memory/../../x",
        "memory//x",
        "memory/.ssh",
        "memory",
        "run/admin/admin.sock",
        "sessions/S/0.jsonl",
        "sessions/s/1.txt",
        "sessions/s/results/../0.jsonl",
        "etc/grants/.toml",
        "etc/passwd",
        "manifest.jsonl",
        "",
    ],
)
def test_a_manifest_that_names_what_no_backup_holds_is_refused(place: BackedUp, path: str) -> None:
    top = place.top / "b"
    lines = manifest_lines(top)
    lines[1]["path"] = path
    seal_manifest(top, lines)
    with pytest.raises(BackupUnfinished, match=r"manifest.jsonl:2: a file that no backup holds"):
        place.check(top)


BAD: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "no parts": lambda lines: lines[0].update(parts=[]),
    "a part less": lambda lines: lines[0].update(parts=lines[0]["parts"][1:]),
    "a part twice": lambda lines: lines[0]["parts"].append("audit"),
    "a part that is none": lambda lines: lines[0]["parts"].append("run"),
    "twice": lambda lines: lines.insert(1, dict(lines[1])),
    "two beginnings": lambda lines: lines.insert(1, dict(lines[0])),
    "no beginning": lambda lines: lines.pop(0),
    "a mode": lambda lines: lines[1].update(mode="4755"),
    "a size": lambda lines: lines[1].update(bytes=-1),
    "a hash": lambda lines: lines[1].update(sha256="x"),
    "unknown key": lambda lines: lines[1].update(more=1),
    "unknown line": lambda lines: lines.insert(1, {"type": "directory"}),
    "behind the end": lambda lines: lines.append(dict(lines[1])),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_a_manifest_that_is_none_is_refused(place: BackedUp, change: Callable[[list[dict[str, Any]]], object]) -> None:
    top = place.top / "b"
    lines = manifest_lines(top)
    change(lines)
    end = next(line for line in lines if line["type"] == "end")
    if lines[-1] is end:
        seal_manifest(top, lines)
    else:
        (top / "manifest.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    with pytest.raises(BackupUnfinished):
        place.check(top)


# -- what it holds ----------------------------------------------------------------------------------------


def home(tmp_path: Path) -> BackedUp:
    place = BackedUp(tmp_path)
    place.fill()
    return place


FAULTS: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "the log, a record": (
        "home/audit/2026-01-01.jsonl",
        lambda raw: raw.replace(b'"tool":"read_file"', b'"tool":"tead_file"', 1),
        "audit/2026-01-01.jsonl:2: line 1 was changed after it was written (broken_link)",
    ),
    "a session, no JSON": (
        "home/sessions/s-1/0.jsonl",
        lambda raw: raw.replace(b'{"type":"user"', b'{"type":user"', 1),
        "sessions/s-1/0.jsonl:2: ",
    ),
    "a session, no record": (
        "home/sessions/s-1/0.jsonl",
        lambda raw: raw.replace(b'{"type":"user"', b'{"type":"usher"', 1),
        "sessions/s-1/0.jsonl:2: ",
    ),
    "a session, no start": (
        "home/sessions/s-1/0.jsonl",
        lambda raw: raw.partition(b"\n")[2],
        "sessions/s-1/0.jsonl:1: expected a session_start",
    ),
    "a session of another name": (
        "home/sessions/s-1/0.jsonl",
        lambda raw: raw.replace(b'"session":"s-1"', b'"session":"s-8"', 1),
        "sessions/s-1/0.jsonl:1: is the log of another session",
    ),
    "a session of a newer version": (
        "home/sessions/s-1/0.jsonl",
        lambda raw: raw.replace(b'"format":1', b'"format":2', 1),
        "sessions/s-1/0.jsonl:1: written by a newer version (format 2)",
    ),
    "a baseline": (
        "home/sessions/s-1/0.baseline.json",
        lambda raw: raw + b" ",
        "sessions/s-1/0.baseline.json: is another one than the session began with",
    ),
    "labels of a newer version": (
        "home/broker/sessions/s-2.json",
        lambda raw: raw.replace(b'"v":1', b'"v":2'),
        "broker/sessions/s-2.json:1: of version 2, which a newer Boxmaker wrote",
    ),
    "labels that are lower": (
        "home/broker/sessions/s-2.json",
        lambda raw: raw.replace(b'"secret"', b'"private"'),
        "broker/sessions/s-2.json: lower than the audit log says",
    ),
    "the clock": ("home/broker/clock", lambda _: b"{}\n", "broker/clock:1: v: missing"),
    "a grant": (
        "etc/grants/notes.toml",
        lambda raw: raw.replace(b'mode = "ask"', b'mode = "any"'),
        "etc/grants/notes.toml:2: mode: ",
    ),
}


@pytest.mark.parametrize(("name", "change", "told"), FAULTS.values(), ids=FAULTS.keys())
def test_the_readers_of_the_programs_name_file_and_line(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], told: str
) -> None:
    place = home(tmp_path)
    path = place.top / name
    path.write_bytes(change(path.read_bytes()))
    directory = place.create(code=1 if "audit" in name else 0)
    findings = place.check(directory).findings
    assert any(str(finding).startswith(told) for finding in findings), findings
    assert not any(finding.damaged for finding in findings)


def test_a_session_without_its_baseline_is_named(tmp_path: Path) -> None:
    place = home(tmp_path)
    (place.home / "sessions" / "s-1" / "0.baseline.json").unlink()
    words = "sessions/s-1/0.baseline.json: is not there, and the session began with it"
    assert place.findings(place.create()) == [words]


def test_labels_that_are_missing_are_named(tmp_path: Path) -> None:
    place = home(tmp_path)
    (place.home / "broker" / "sessions" / "s-2.json").unlink()
    assert place.findings(place.create())[0].startswith("broker/sessions/s-2.json: lower than the audit log says")


def test_labels_that_are_lower_are_raised_where_such_a_backup_is_restored(tmp_path: Path) -> None:
    place = home(tmp_path)
    path = place.home / "broker" / "sessions" / "s-2.json"
    path.write_bytes(path.read_bytes().replace(b'"secret"', b'"private"'))
    restored = place.restore(place.create(), accept=True)
    with place.live(restored) as live:
        live.assert_labels_hold()
        assert live.states.labels(SessionId("s-2")) == SECRET


def test_without_the_mark_labels_are_not_judged_for_brokerd_makes_them_anew(tmp_path: Path) -> None:
    place = home(tmp_path)
    shutil.rmtree(place.home / "broker" / "sessions")
    directory = place.create()
    assert place.findings(directory) == []
    with place.live(place.restore(directory)) as live:
        assert live.states.labels(SessionId("s-2")) == SECRET


def test_a_tail_that_is_missing_is_found_by_the_head(tmp_path: Path) -> None:
    place = home(tmp_path)
    (place.home / "audit" / "2026-01-02.jsonl").unlink()
    assert "missing_end" in place.findings(place.create())[0]


def test_role_files_are_read_as_the_roles_would(tmp_path: Path) -> None:
    place = home(tmp_path)
    (place.etc / "loopd.toml").write_text('state = "/s"\nstat = 1\n')
    (place.etc / "memoryd.toml").write_text("anything")
    found = place.findings(place.create())
    assert any("etc/loopd.toml:2: stat: " in text for text in found)
    assert not any("memoryd" in text for text in found)


def test_json_lists_what_was_found(place: BackedUp, capsys: pytest.CaptureFixture[str]) -> None:
    flip(place.top / "b" / "memory" / "facts.md")
    assert backupverify.verify(place.world(), place.top / "b", json=True) == 1
    said = json.loads(capsys.readouterr().out)
    text = "was changed after it was written: another SHA-256"
    assert said["findings"] == [{"path": "memory/facts.md", "line": 0, "text": text, "damaged": True}]
    assert (said["whole"], said["damaged"]) == (False, True)


def test_a_name_that_steers_the_terminal_is_escaped(place: BackedUp) -> None:
    (place.top / "b" / "audit" / "\x1b[31m").touch()
    assert backupverify.verify(place.world(), place.top / "b", json=False) == 1
    assert "audit/\\u{001B}[31m: is not in the manifest" in place.out.getvalue()
    assert "\x1b" not in place.out.getvalue()
