import errno
import fcntl
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore.errors import StateError
from bxcore.files import NewTree, lock_directory
from bxctl import backuprestore
from bxctl.backuplive import RestoreLive, RestoreNotEmpty, RestoreUnfinished
from bxctl.backupnames import MARK
from bxctl.backupowners import Owners
from bxctl.backuprestore import BackupDamaged, BackupFaulty, RestoreTarget, Wish
from bxctl.rootsword import WiringUnsafe
from tests.fakes.backedup import SECRET, BackedUp, manifest_lines, tree_of
from tests.fakes.faulty_files import Fault, FaultySystem, killed_at

WIRING = Path(__file__).resolve().parents[3] / "nix" / "roles.json"
PARTS = ("sessions", "audit", "broker", "memory")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> BackedUp:
    made = BackedUp(tmp_path_factory.mktemp("original"))
    made.fill()
    (made.home / "memory" / "people").mkdir(parents=True)
    (made.home / "memory" / "people" / "anna.md").write_text("Anna likes boats.\n")
    (made.etc / "loopd.toml").write_text("# the owner's own\n")
    made.create()
    return made


@pytest.fixture
def place(original: BackedUp, tmp_path: Path) -> BackedUp:
    made = BackedUp(tmp_path)
    shutil.copytree(original.top / "b", tmp_path / "b")
    return made


def restore(place: BackedUp, name: str = "restored", *, accept: bool = True, tree: NewTree | None = None) -> Path:
    """The file of loopd's settings is one that loopd would refuse, which restoring accepts."""
    return place.restore(place.top / "b", name, accept=accept, tree=tree)


def test_what_is_restored_is_what_was_backed_up_to_the_byte_and_its_time(place: BackedUp, original: BackedUp) -> None:
    home = restore(place)
    assert tree_of(home) == tree_of(original.home)
    assert tree_of(place.top / "restored-etc") == tree_of(original.etc)
    assert not (home / MARK).exists()
    assert not (place.top / "restored-etc" / MARK).exists()


def test_the_roles_go_on_with_it(place: BackedUp) -> None:
    home = restore(place)
    with place.live(home) as live:
        live.assert_labels_hold()
        assert live.audit.recovered is None
        live.turn("s-1")
        live.turn("s-2")
        assert live.states.labels(live.store.newest(1)[0]) == SECRET
    (place.top / "again").mkdir()
    again = BackedUp(place.top / "again")
    again.home = home
    assert again.findings(again.create()) == []


def test_the_order_in_which_sessions_spoke_last_is_kept(place: BackedUp, original: BackedUp) -> None:
    with original.live() as live:
        before = live.store.newest(9)
    with place.live(restore(place)) as live:
        assert live.store.newest(9) == before


def test_each_directory_and_file_is_closed_to_others(place: BackedUp) -> None:
    home = restore(place)
    for part in PARTS:
        for path in (home / part, *(home / part).rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_an_installed_place_keeps_its_directories_owners_and_its_role_files(place: BackedUp) -> None:
    home, etc = place.top / "restored", place.top / "restored-etc"
    for path in (home / "sessions", home / "audit", home / "broker", home / "run" / "admin", etc / "grants"):
        path.mkdir(parents=True, mode=0o700)
    (home / "sessions" / ".loopd.lock").touch()
    (etc / "loopd.toml").write_text("# the installation's\n")
    (etc / "grants").chmod(0o2750)
    if os.geteuid() == 0:
        for path, user in ((home / "sessions", 61_001), (home / "audit", 61_002), (etc / "grants", 0)):
            os.chown(path, user, 61_002)
        (etc / "grants").chmod(0o2750)
    restore(place)
    assert (etc / "loopd.toml").read_text() == "# the installation's\n"
    assert "loopd.toml: was there already and stays" in place.out.getvalue()
    if os.geteuid() == 0:
        assert {path.stat().st_uid for path in (home / "sessions").rglob("*")} == {61_001}
        assert {path.stat().st_uid for path in (home / "audit").rglob("*")} == {61_002}
        assert (etc / "grants" / "notes.toml").stat().st_gid == 61_002
        assert stat.S_IMODE((etc / "grants").stat().st_mode) == 0o2750
        assert stat.S_IMODE((etc / "grants" / "notes.toml").stat().st_mode) == 0o640


def test_without_etc_no_grant_is_restored_and_that_is_told(place: BackedUp) -> None:
    home = place.restore(place.top / "b", etc=False, accept=True)
    assert sorted(path.name for path in home.iterdir()) == sorted(PARTS)
    assert "name the configuration directory with --etc" in place.out.getvalue()


def test_json_says_the_same(place: BackedUp, capsys: pytest.CaptureFixture[str]) -> None:
    wish = Wish(backup=place.top / "b", into=place.top / "r", etc=None, accept_faults=True)
    assert backuprestore.restore(place.world(), wish, json=True) == 0
    said = json.loads(capsys.readouterr().out)
    state = [line for line in manifest_lines(place.top / "b") if line.get("path", "").startswith(PARTS)]
    assert (said["files"], said["bytes"]) == (len(state), sum(line["bytes"] for line in state))


# -- refused: the backup --------------------------------------------------------------------------------


def assert_nothing_was_made(place: BackedUp) -> None:
    assert not (place.top / "restored").exists()
    assert not (place.top / "restored-etc").exists()


def test_a_backup_that_was_changed_is_refused(place: BackedUp) -> None:
    with (place.top / "b" / "memory" / "people" / "anna.md").open("a") as file:
        file.write("And trains.\n")
    with pytest.raises(BackupDamaged):
        restore(place)
    assert "memory/people/anna.md: has 30 bytes, 18 were written" in place.err.getvalue()
    assert_nothing_was_made(place)


def test_one_that_holds_what_was_faulty_already_is_refused_unless_that_is_accepted(place: BackedUp) -> None:
    with pytest.raises(BackupFaulty, match="--accept-faults"):
        restore(place, accept=False)
    assert "etc/loopd.toml: " in place.err.getvalue()
    assert_nothing_was_made(place)
    restore(place, accept=True)


class Meanwhile(NewTree):
    """Does something before the file that ends with a name is written."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._name, self._act = name, act

    def make_file(self, path: Path):  # type: ignore[no-untyped-def]
        if str(path).endswith(self._name):
            self._act()
        return super().make_file(path)


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_backup_that_changes_while_it_is_restored_is_refused(place: BackedUp, how: str) -> None:
    path = place.top / "b" / "audit" / "2026-01-02.jsonl"

    def change() -> None:
        path.unlink() if how == "removed" else path.write_bytes(path.read_bytes() + b"{}\n")

    with pytest.raises(BackupDamaged, match="while it was restored; nothing was restored"):
        restore(place, tree=Meanwhile("audit/2026-01-01.jsonl", change))
    assert_nothing_was_made(place)


# -- refused: the place -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [*PARTS, "index", "gateway"])
def test_s10_a_place_that_holds_something_is_refused(place: BackedUp, part: str) -> None:
    (place.top / "restored" / part).mkdir(parents=True)
    (place.top / "restored" / part / "memory.db-wal").touch()
    with pytest.raises(RestoreNotEmpty, match=part):
        restore(place)
    assert [path.name for path in (place.top / "restored").rglob("*")] == [part, "memory.db-wal"]


def test_a_queue_of_other_sessions_is_refused_with_what_becomes_of_it(place: BackedUp) -> None:
    queue = place.top / "restored" / "gateway" / "queue.sqlite"
    queue.parent.mkdir(parents=True)
    queue.touch()
    with pytest.raises(RestoreNotEmpty, match=r"move it away\. What waits in it is not answered"):
        restore(place)
    queue.unlink()
    restore(place)
    assert list(queue.parent.iterdir()) == []


def test_where_gatewayd_is_to_run_it_is_told_that_its_queue_is_empty(place: BackedUp) -> None:
    restore(place)
    assert "empty queue" not in place.out.getvalue()
    (place.top / "second-etc").mkdir()
    (place.top / "second-etc" / "gatewayd.toml").touch()
    restore(place, "second")
    assert "gatewayd begins with an empty queue: what was not answered in Mattermost" in place.out.getvalue()


def test_grants_that_are_there_are_never_mixed_with_others(place: BackedUp) -> None:
    grants = place.top / "restored-etc" / "grants"
    grants.mkdir(parents=True)
    (grants / "mine.toml").touch()
    with pytest.raises(RestoreNotEmpty, match="grants"):
        restore(place)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_a_link_or_a_file_is_refused(place: BackedUp, part: str) -> None:
    (place.top / "restored").mkdir()
    (place.top / "restored" / part).symlink_to(place.top)
    with pytest.raises(RestoreNotEmpty, match="no directory of its own"):
        restore(place)


def test_a_place_whose_parent_is_missing_is_refused(place: BackedUp) -> None:
    with pytest.raises(RestoreTarget):
        restore(place, "no/where")


def hold_audit(home: Path) -> Callable[[], None]:
    (home / "audit").mkdir()
    return lock_directory(home / "audit").close


def hold(name: str) -> Callable[[Path], Callable[[], None]]:
    def act(home: Path) -> Callable[[], None]:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        lock = (home / name).open("ab")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock.close

    return act


def listen(home: Path) -> Callable[[], None]:
    (home / "run" / "admin").mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(home / "run" / "admin" / "admin.sock"))
    listener.listen()
    return listener.close


LIVE: dict[str, Callable[[Path], Callable[[], None]]] = {
    "brokerd has its log": hold_audit,
    "loopd has its sessions": hold("sessions/.loopd.lock"),
    "loopd has its state": hold(".loopd.lock"),
    "gatewayd has its queue": hold("gateway/.gatewayd.lock"),
    "make chat runs": hold("launcher.lock"),
    "a role has its socket": hold("run/infer/.infer.sock.lock"),
    "a socket is answered": listen,
}


@pytest.mark.parametrize("act", LIVE.values(), ids=LIVE.keys())
def test_s10_a_live_place_is_refused_and_taken_once_it_is_dead(
    original: BackedUp, act: Callable[[Path], Callable[[], None]]
) -> None:
    with tempfile.TemporaryDirectory(prefix="bx") as short:  # a socket's path may have 107 bytes
        place = BackedUp(Path(short))
        shutil.copytree(original.top / "b", place.top / "b")
        home = place.top / "restored"
        home.mkdir()
        die = act(home)
        before = sorted(home.rglob("*"))
        with pytest.raises(RestoreLive, match="Boxmaker runs here: stop every role first"):
            restore(place)
        assert sorted(home.rglob("*")) == before
        die()
        restore(place)


def test_no_role_can_start_while_it_is_restored(place: BackedUp) -> None:
    home = place.top / "restored"
    (home / "audit").mkdir(parents=True, mode=0o700)
    refused = []

    def start() -> None:
        with pytest.raises(StateError) as error:
            place.live(home).__enter__()
        refused.append(error.value.code)

    restore(place, tree=Meanwhile("audit/2026-01-01.jsonl", start))
    assert refused == ["state_in_use"]


# -- a disk that fails, a process that dies ------------------------------------------------------------------


def test_a_disk_that_is_full_or_fails_at_any_call_leaves_nothing(place: BackedUp) -> None:
    system = FaultySystem(None)
    restore(place, "counted", tree=NewTree(system))
    tried = [(call, at) for call, count in system.calls.items() for at in range(count)]
    assert len(tried) > 60
    for call, at in tried:
        fault = Fault(call=call, at=at, error=errno.ENOSPC, after_bytes=3)
        with pytest.raises(StateError) as error:
            restore(place, tree=NewTree(FaultySystem(fault)))
        assert error.value.code == "state_unwritable"
        left = [path for top in ("restored", "restored-etc") for path in sorted((place.top / top).rglob("*"))]
        if left:  # everything was in its place, and only that the mark is gone was not made durable
            assert not any(path.name == MARK for path in left), (call, at)
            assert tree_of(place.top / "restored") == tree_of(place.top / "counted"), (call, at)
        shutil.rmtree(place.top / "restored", ignore_errors=True)
        shutil.rmtree(place.top / "restored-etc", ignore_errors=True)


def test_killed_at_any_call_brokerd_starts_on_all_of_it_or_not_at_all(place: BackedUp) -> None:
    home, etc = place.top / "restored", place.top / "restored-etc"
    refused_start = whole = at = 0
    while killed_at(at, lambda system: restore(place, tree=NewTree(system))):
        at += 1
        if (home / MARK).exists() or (etc / MARK).exists():
            with pytest.raises(RestoreUnfinished):
                restore(place)
        if (home / "audit").exists():
            with place.live(home) as live:
                live.assert_labels_hold()
                assert live.audit.head.seq == 8
            whole += 1
        elif (home / "broker").exists():
            with pytest.raises(StateError) as error:
                place.live(home).__enter__()
            assert error.value.code == "audit_broken"
            refused_start += 1
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(etc, ignore_errors=True)
    assert at > 60
    assert whole
    assert refused_start


def test_what_a_killed_one_left_is_named_with_what_to_remove(place: BackedUp) -> None:
    assert killed_at(30, lambda system: restore(place, tree=NewTree(system)))
    with pytest.raises(RestoreUnfinished, match=f"remove {place.top}/restored/{MARK}") as refused:
        restore(place)
    shutil.rmtree(place.top / "restored" / MARK)
    restore(place)
    assert refused.value.code == "restore_unfinished"


# -- owners -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_each_part_to_the_user_of_the_wiring(place: BackedUp, monkeypatch: pytest.MonkeyPatch) -> None:
    etc = place.top / "restored-etc"
    etc.mkdir()
    value = json.loads(WIRING.read_text())
    text = json.dumps(value).replace('"bx-loopd"', '"daemon"').replace('"bx-brokerd"', '"bin"')
    (etc / "roles.json").write_text(text)
    home = restore(place)
    daemon, other = 1, 2
    assert {path.stat().st_uid for path in (home / "sessions", *(home / "sessions").rglob("*"))} == {daemon}
    for part in ("audit", "broker"):
        assert {path.stat().st_uid for path in (home / part, *(home / part).rglob("*"))} == {other}
    found = (etc / "grants").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, other, 0o2750)
    found = (etc / "loopd.toml").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, daemon, 0o640)
    assert "must be that user's" not in place.out.getvalue()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_users_that_are_missing_are_named_with_the_command(place: BackedUp) -> None:
    etc = place.top / "restored-etc"
    etc.mkdir()
    text = WIRING.read_text().replace("bx-loopd", "bx-nobody-of-this-name")
    (etc / "roles.json").write_text(text)
    home = restore(place)
    assert f"  chown -R bx-nobody-of-this-name: {home}/sessions\n" in place.out.getvalue()


def test_every_part_that_the_wiring_knows_has_its_owner_there(tmp_path: Path) -> None:
    shutil.copy(WIRING, tmp_path / "roles.json")
    if os.geteuid() == 0:
        wiring = Owners(tmp_path, tmp_path).wiring
        assert wiring is not None
        paths = {row.path for row in wiring.directories}
        assert {f"home/{part}" for part in PARTS} - paths == {"home/memory"}  # memoryd comes later
        assert "etc/grants" in paths


# -- places that are none ---------------------------------------------------------------------------------


def asked(place: BackedUp, into: str, etc: str | None) -> Wish:
    return Wish(
        backup=place.top / "b", into=place.top / into, etc=None if etc is None else place.top / etc, accept_faults=True
    )


@pytest.mark.parametrize(
    ("into", "etc"),
    [("b", None), ("b/sub", None), ("r", "b/new"), ("link/sub", None), ("x", "x"), ("r", "r/sessions"), ("x/y", "x")],
)
def test_a_place_in_the_backup_or_in_the_other_place_is_refused_beforehand(
    place: BackedUp, into: str, etc: str | None
) -> None:
    for name in ("x", "r"):
        (place.top / name).mkdir()
    (place.top / "link").symlink_to("b")
    before = sorted(place.top.rglob("*"))
    with pytest.raises(RestoreTarget, match=r"lies in the backup|lie in one another"):
        backuprestore.restore(place.world(), asked(place, into, etc), json=False)
    assert sorted(place.top.rglob("*")) == before


def test_the_configuration_may_lie_in_the_home_as_in_a_checkout(place: BackedUp) -> None:
    (place.top / "r").mkdir()
    assert backuprestore.restore(place.world(), asked(place, "r", "r/etc"), json=False) == 0
    assert (place.top / "r" / "etc" / "grants" / "notes.toml").is_file()
    assert (place.top / "r" / "audit").is_dir()


# -- whose word the wiring is -------------------------------------------------------------------------------


def everybody_writes_the_wiring(place: BackedUp) -> None:
    (place.top / "e" / "roles.json").chmod(0o666)


def everybody_writes_beside_the_wiring(place: BackedUp) -> None:
    (place.top / "e").chmod(0o777)


def the_wiring_is_somebodys(place: BackedUp) -> None:
    os.chown(place.top / "e" / "roles.json", 61_001, -1)


def everybody_writes_above_the_home(place: BackedUp) -> None:
    (place.top / "r").chmod(0o777)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    "unsafe",
    [
        everybody_writes_the_wiring,
        everybody_writes_beside_the_wiring,
        the_wiring_is_somebodys,
        everybody_writes_above_the_home,
    ],
)
def test_root_gives_nothing_away_by_a_wiring_that_is_not_its_own_word(
    place: BackedUp, unsafe: Callable[[BackedUp], None]
) -> None:
    for name in ("e", "r"):
        (place.top / name).mkdir(mode=0o755)
    shutil.copy(WIRING, place.top / "e" / "roles.json")
    (place.top / "e" / "roles.json").chmod(0o644)
    unsafe(place)
    with pytest.raises(WiringUnsafe, match="nothing was restored"):
        backuprestore.restore(place.world(), asked(place, "r/home", "e"), json=False)
    assert sorted(path.name for path in place.top.joinpath("e").iterdir()) == ["roles.json"]
    assert not any((place.top / "r").iterdir())
