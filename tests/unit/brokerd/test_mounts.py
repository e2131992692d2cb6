"""brokerd.mounts: which path is meant, and what of the host a call sees. Rows P1 to P11 of the bad inputs."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd import mounts, protected
from brokerd.mounts import IMAGE_PLACES, Mount, MountRefused, Unresolvable
from brokerd.protected import MountTable, Protected
from bxcore import tools
from bxcore.tools import TOOLS
from tests.fakes import calls

READ, WRITE, LIST = TOOLS["read_file"], TOOLS["write_file"], TOOLS["list_directory"]
NOBODY = Protected(whole=())


def planned(tool: str, path: Path | str, ours: Protected = NOBODY) -> Mount:
    """What a call of `tool` would see, whose path was resolved to `path`."""
    (mount,) = mounts.plan(calls.call(tool, path=str(path)), ours)
    return mount


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    """A directory with a file, beside one with a secret."""
    (tmp_path / "granted" / "sub").mkdir(parents=True)
    (tmp_path / "granted" / "a.txt").write_text("a")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    return tmp_path / "granted"


# -- resolve ------------------------------------------------------------------------------------


def test_a_plain_path_is_what_it_says(granted: Path) -> None:
    assert mounts.resolve(f"{granted}/a.txt", READ) == f"{granted}/a.txt"


LINKS = {
    "to a file outside, absolute": ("link", "{top}/secret/key", "secret/key"),
    "to a file outside, relative": ("link", "../secret/key", "secret/key"),
    "to a directory outside": ("link", "../secret", "secret"),
    "dangling": ("link", "../nowhere/x", "nowhere/x"),
    "through itself and up": ("link", "sub/../../secret/./key", "secret/key"),
    "above the root": ("link", "../" * 60 + "{top}/secret/key", "secret/key"),
}


@pytest.mark.parametrize(("name", "target", "expected"), LINKS.values(), ids=LINKS.keys())
def test_p2_a_link_is_judged_as_where_it_leads(granted: Path, name: str, target: str, expected: str) -> None:
    top = granted.parent
    (granted / name).symlink_to(target.format(top=top))
    assert mounts.resolve(f"{granted}/{name}", READ) == f"{top}/{expected}"


def test_p2_a_link_in_the_middle_of_a_path_is_followed(granted: Path) -> None:
    (granted / "door").symlink_to("../secret")
    assert mounts.resolve(f"{granted}/door/key", READ) == f"{granted.parent}/secret/key"


def test_p2_a_loop_is_no_wait_and_leads_nowhere(granted: Path) -> None:
    (granted / "one").symlink_to("two")
    (granted / "two").symlink_to("one")
    path = mounts.resolve(f"{granted}/one", READ)
    with pytest.raises(MountRefused, match="link"):
        planned("read_file", path)


def test_a_write_through_a_link_is_judged_as_what_it_would_replace(granted: Path) -> None:
    (granted / "innocent").symlink_to("../secret/key")
    assert mounts.resolve(f"{granted}/innocent", WRITE) == f"{granted.parent}/secret/key"


def test_what_is_missing_is_answered_like_what_is_there(granted: Path) -> None:
    """Without a grant the model learns nothing about the disk: no error comes before policy."""
    for path in (f"{granted}/no/such/file", f"{granted}/a.txt/below", "/root/.ssh/id_ed25519"):
        assert mounts.resolve(path, READ) == path


SPECIAL = ("/proc/self/root/etc/passwd", "/proc/1/environ", "/dev/fd/3", "/dev/stdin", "/sys", "/proc", "/dev")


@pytest.mark.parametrize("path", SPECIAL)
def test_p5_the_kernels_trees_cannot_be_asked_for(path: str) -> None:
    with pytest.raises(Unresolvable):
        mounts.resolve(path, READ)
    with pytest.raises(MountRefused):
        planned("read_file", path)


@pytest.mark.parametrize("target", ["/proc/self/root/etc", "/proc/self/fd/0", "/dev/stdin", "/proc/thread-self/cwd"])
def test_p5_a_magic_link_is_not_followed(granted: Path, target: str) -> None:
    (granted / "link").symlink_to(target)
    path = mounts.resolve(f"{granted}/link", READ)
    assert path == target
    with pytest.raises(MountRefused, match="/proc, /sys or /dev"):
        planned("read_file", path)


@pytest.mark.parametrize(
    "name",
    [b"not-utf8-\xff", b"line\nend", b"bell\x07", *map(str.encode, ("c1\x9b31m", "line\u2028", "paragraph\u2029"))],
)
def test_p6_a_link_to_a_name_that_cannot_be_shown_is_refused(granted: Path, name: bytes) -> None:
    (granted / "link").symlink_to(os.fsdecode(name))
    with pytest.raises(Unresolvable, match="name"):
        mounts.resolve(f"{granted}/link", READ)


def test_p6_a_path_that_grows_too_long_is_refused(granted: Path) -> None:
    (granted / "link").symlink_to("/" + "/".join(["x" * 200] * 20))
    with pytest.raises(Unresolvable, match="too long"):
        mounts.resolve(f"{granted}/link/{'y' * 200}", READ)


@pytest.mark.parametrize(
    "name", ["e\u0301", "\u00e9", "A.TXT", "\uff0fetc", "a.txt ", "~", "$HOME", "*", "-rf", "\u202e"]
)
def test_p7_p9_a_name_is_its_bytes(granted: Path, name: str) -> None:
    (granted / name).write_text("x")
    assert mounts.resolve(f"{granted}/{name}", READ) == f"{granted}/{name}"
    assert planned("read_file", f"{granted}/{name}").source == f"{granted}/{name}"


NAMES = st.sampled_from(["a", "b", "c", ".", "..", "", "x"])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(NAMES, max_size=6), st.booleans()), max_size=3), st.data())
def test_p2_resolving_agrees_with_the_kernel_on_what_exists(
    tmp_path_factory: pytest.TempPathFactory, links: list[tuple[str, list[str], bool]], data: st.DataObject
) -> None:
    top = tmp_path_factory.mktemp("tree").resolve()
    (top / "x" / "x").mkdir(parents=True)
    for name, target, absolute in links:
        if not (top / name).is_symlink():
            (top / name).symlink_to((f"{top}/" if absolute else "") + ("/".join(target) or "x"))
    asked = f"{top}/" + "/".join(data.draw(st.lists(st.sampled_from("abcx"), min_size=1, max_size=4)))
    try:
        expected = os.path.realpath(asked, strict=True)
    except OSError:
        return  # what the kernel does not reach is judged as text, and never mounted
    assert mounts.resolve(asked, READ) == expected


# -- plan: what is mounted ----------------------------------------------------------------------


def test_a_file_alone_is_mounted_to_read_it(granted: Path) -> None:
    found = (granted / "a.txt").stat()
    path = f"{granted}/a.txt"
    assert planned("read_file", path) == Mount(
        source=path, destination=path, writable=False, device=found.st_dev, inode=found.st_ino
    )


SHAPES = {
    "list_directory": ("sub", "sub", False),
    "search_files": ("sub", "sub", False),
    "shell": ("sub", "sub", True),
    "write_file": ("sub/new", "sub", True),
    "edit_file": ("a.txt", "", True),
}


@pytest.mark.parametrize("tool", SHAPES)
def test_each_tool_sees_the_least_that_it_needs(granted: Path, tool: str) -> None:
    path, source, writable = SHAPES[tool]
    mount = planned(tool, granted / path)
    assert (Path(mount.source), mount.writable) == (granted / source, writable)
    assert (mount.device, mount.inode) == protected.identity((granted / source).stat())


def test_a_search_may_be_of_one_file(granted: Path) -> None:
    assert planned("search_files", granted / "a.txt").source == f"{granted}/a.txt"


def test_every_tool_with_a_path_has_a_shape() -> None:
    assert {kind.name for kind in TOOLS.values() if kind.takes is tools.Takes.PATHS} == mounts.SHAPES.keys()
    assert all(TOOLS[name].writes == writable for name, (_, writable) in mounts.SHAPES.items())


def test_a_tool_without_a_path_sees_nothing() -> None:
    assert mounts.plan(calls.call("http_fetch"), NOBODY) == ()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


KINDS = {"a FIFO": _fifo, "a socket": _socket, "a directory": Path.mkdir}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file"])
def test_p8_only_a_regular_file_is_read_or_replaced(granted: Path, tool: str, make: object) -> None:
    make(granted / "odd")  # type: ignore[operator]
    with pytest.raises(MountRefused, match=r"regular file|directory"):
        planned(tool, granted / "odd")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices; the FIFO goes the same way")
def test_p8_a_device_is_refused(granted: Path) -> None:
    os.mknod(granted / "null", 0o20666, os.makedev(1, 3))
    with pytest.raises(MountRefused, match="regular file"):
        planned("read_file", granted / "null")


@pytest.mark.parametrize("tool", ["read_file", "edit_file"])
def test_nothing_is_mounted_for_what_is_not_there(granted: Path, tool: str) -> None:
    with pytest.raises(MountRefused, match="nothing at this path"):
        planned(tool, granted / "missing")


def test_p10_a_file_may_be_written_that_is_not_there_but_its_directory_must_be(granted: Path) -> None:
    assert planned("write_file", granted / "new").source == str(granted)
    with pytest.raises(MountRefused, match="nothing at this path"):
        planned("write_file", granted / "no" / "new")


def test_p3_a_link_that_came_after_the_decision_is_refused(granted: Path) -> None:
    (granted / "a.txt").unlink()
    (granted / "a.txt").symlink_to("../secret/key")
    with pytest.raises(MountRefused, match="link now"):
        planned("read_file", granted / "a.txt")
    with pytest.raises(MountRefused, match="link now"):
        planned("write_file", granted / "a.txt")


def test_p3_a_directory_that_became_a_link_after_the_decision_is_refused(granted: Path) -> None:
    (granted / "sub").rmdir()
    (granted / "sub").symlink_to("../secret")
    with pytest.raises(MountRefused, match="link now"):
        planned("read_file", granted / "sub" / "key")
    with pytest.raises(MountRefused, match="link now"):
        planned("list_directory", granted / "sub")


def _swap_for_ever(place: Path, real: Path, link: Path, end: threading.Event) -> None:
    spare = place.with_name("spare")
    while not end.is_set():
        for source in (link, real):
            os.link(source, spare, follow_symlinks=False)
            spare.replace(place)


def test_p3_no_race_of_thousands_ever_plans_what_was_not_decided(granted: Path) -> None:
    """A file that is swapped for a link to a secret, as fast as can be, while it is planned 5,000 times."""
    place, real, link = granted / "a.txt", granted / "real", granted / "link"
    real.write_text("a")
    link.symlink_to("../secret/key")
    secret = protected.identity((granted.parent / "secret" / "key").stat())
    end = threading.Event()
    swapper = threading.Thread(target=_swap_for_ever, args=(place, real, link, end))
    swapper.start()
    try:
        outcomes = [_outcome(place) for _ in range(5_000)]
    finally:
        end.set()
        swapper.join()
    assert secret not in outcomes
    assert None in outcomes, "the race never met a link"
    assert len(set(outcomes)) > 1, "the race never met the file"


def _outcome(place: Path) -> tuple[int, int] | None:
    try:
        mount = planned("read_file", place)
    except MountRefused:
        return None
    return mount.device, mount.inode


@pytest.mark.parametrize(
    "place", [*IMAGE_PLACES, "/", "/etc", "/usr", "/usr/lib/python3", "/etc/ssl/private", "/egress"]
)
def test_no_mount_covers_the_tool_image(place: str) -> None:
    with pytest.raises(MountRefused):
        planned("list_directory", place)


def test_below_the_images_empty_directory_a_mount_covers_nothing(tmp_path: Path) -> None:
    assert planned("list_directory", tmp_path).source == str(tmp_path)


# -- plan: what no grant can open ---------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Boxmaker's own files: grants and audit as directories, a configuration file, a socket."""
    for name in ("own/grants", "own/audit", "own/run", "own/etc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "own/grants/a.toml").write_text("x")
    (tmp_path / "own/audit/2026-01-01.jsonl").write_text("x")
    (tmp_path / "own/etc/brokerd.toml").write_text("x")
    _socket(tmp_path / "own/run/broker.sock")
    return tmp_path / "own"


@pytest.fixture
def ours(home: Path) -> Protected:
    return Protected(
        whole=(home / "grants", home / "audit", home / "run"), places=(home / "etc/brokerd.toml", home / "none")
    )


P11 = ("grants/a.toml", "audit/2026-01-01.jsonl", "etc/brokerd.toml")


@pytest.mark.parametrize("name", P11)
def test_p11_no_file_of_ours_is_read_whatever_is_granted(home: Path, ours: Protected, name: str) -> None:
    with pytest.raises(MountRefused, match="Boxmaker's own"):
        planned("read_file", home / name, ours)


@pytest.mark.parametrize("name", P11)
def test_p11_no_file_of_ours_is_written_whatever_is_granted(home: Path, ours: Protected, name: str) -> None:
    for path in (home / name, (home / name).parent / "new"):
        with pytest.raises(MountRefused, match="Boxmaker's own"):
            planned("write_file", path, ours)


@pytest.mark.parametrize("name", ["grants", "audit", "run", "etc", "", ".."])
def test_p11_no_directory_is_shown_that_is_ours_or_holds_ours(home: Path, ours: Protected, name: str) -> None:
    for tool in ("list_directory", "search_files", "shell"):
        with pytest.raises(MountRefused, match="Boxmaker's own"):
            planned(tool, (home / name).resolve(), ours)


def test_p11_a_link_to_ours_is_no_way_round(home: Path, ours: Protected, granted: Path) -> None:
    (granted / "link").symlink_to(home / "grants")
    with pytest.raises(MountRefused, match="Boxmaker's own"):
        planned("read_file", mounts.resolve(f"{granted}/link/a.toml", READ), ours)


def test_p11_protected_paths_that_are_links_themselves_protect_where_they_lead(home: Path, granted: Path) -> None:
    (home.parent / "alias").symlink_to(home / "grants")
    with pytest.raises(MountRefused, match="Boxmaker's own"):
        planned("read_file", home / "grants/a.toml", Protected(whole=(home.parent / "alias",)))


def test_p8_a_hard_link_to_ours_is_seen_by_its_inode(home: Path, ours: Protected, granted: Path) -> None:
    for name in P11:
        (granted / "innocent.txt").unlink(missing_ok=True)
        os.link(home / name, granted / "innocent.txt")
        with pytest.raises(MountRefused, match="Boxmaker's own"):
            planned("read_file", granted / "innocent.txt", ours)


def test_p8_a_directory_is_not_shown_while_ours_has_a_second_name(home: Path, ours: Protected, granted: Path) -> None:
    """The other name may lie anywhere below it, and the socket of a role may be one too."""
    assert planned("list_directory", granted, ours).source == str(granted)
    for own in (home / "grants/a.toml", home / "etc/brokerd.toml", home / "run/broker.sock"):
        os.link(own, granted / "deep")
        for tool in ("list_directory", "shell"):
            with pytest.raises(MountRefused, match="second name"):
                planned(tool, granted, ours)
        with pytest.raises(MountRefused, match="second name"):
            planned("write_file", granted / "new", ours)
        (granted / "deep").unlink()
    assert planned("list_directory", granted, ours).source == str(granted)


def test_p8_a_hard_link_to_something_else_is_what_was_granted(ours: Protected, granted: Path) -> None:
    """Backups are made of hard links; whoever can link a file into the directory can read it anyway."""
    os.link(granted / "a.txt", granted / "b.txt")
    assert planned("read_file", granted / "b.txt", ours).source == f"{granted}/b.txt"


def test_what_cannot_be_compared_is_not_shown(
    home: Path, ours: Protected, granted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(MountRefused, match="could not be compared"):
        planned("list_directory", granted, ours)


def test_a_bind_mount_of_ours_is_seen_by_its_inodes(home: Path, ours: Protected) -> None:
    """What a bind mount shows has the inodes of what it is made of; here without the mount (tests/container has it)."""
    way = [protected.identity(path.stat()) for path in (Path("/"), home.parent)]
    grants = protected.identity((home / "grants").stat())
    assert ours.touches("/elsewhere", [*way[:1], protected.identity(home.stat())]), "shows a directory that holds ours"
    assert ours.touches("/elsewhere", [*way[:1], grants]), "shows ours"
    assert ours.touches("/elsewhere/x", [*way[:1], grants, (1, 2)]), "lies in ours"
    assert not ours.touches("/elsewhere/x", [*way[:1], (1, 2), (1, 3)])


def _shown_at(alias: str, of: Path) -> MountTable:
    """Return the table of a machine where `of` is mounted at `alias` as well: the numbers are the kernel's own."""
    table = MountTable.read()
    device, where = table.spot(str(of)) or ("", "")
    number = protected._mount_of(alias)
    assert number is not None
    return attrs.evolve(table, shows={**table.shows, number: (device, where, alias)})


@pytest.mark.parametrize("part", ["grants", "grants/deep/er", "grants/deep/er/a.toml", ""])
def test_p11_a_bind_mount_of_any_part_of_ours_is_seen_by_its_place(home: Path, part: str) -> None:
    """Also of a directory below one of ours, which has none of the inodes that we know."""
    (home / "grants/deep/er").mkdir(parents=True)
    (home / "grants/deep/er/a.toml").write_text("x")
    (own,) = [path for path in MountTable.read().points if path == "/proc"]
    table = _shown_at(own, home / part)
    alone = Protected(whole=(home / "grants",))
    assert alone.shows(own, table)
    assert not alone.shows(own, _shown_at(own, home / "audit"))
    assert not Protected(whole=()).shows(own, table)


# What brokerd's container is given of its home: parts of it under their own names. The home itself is the image's. The
# last one could be a file system that is mounted at /var/lib.
CONTAINED = MountTable(
    points=frozenset(),
    kernels=frozenset(),
    shows={
        1: ("0:39", "/", "/"),
        2: ("254:0", "/srv/home/audit", "/var/lib/boxmaker/audit"),
        3: ("254:0", "/srv/home/run/broker", "/var/lib/boxmaker/run/broker"),
        4: ("254:0", "/srv/home/sessions", "/notes"),
        5: ("254:1", "/", "/var/lib/boxmaker/calls"),
        6: ("254:2", "/boxmaker-2/audit", "/var/lib/boxmaker-2/audit"),
    },
)


@pytest.mark.parametrize(
    ("place", "spots"),
    [
        ("/var/lib/boxmaker", {("254:0", "/srv/home"), ("254:2", "/boxmaker")}),
        ("/var/lib/boxmaker/sessions", {("254:0", "/srv/home/sessions"), ("254:2", "/boxmaker/sessions")}),
        ("/var/lib/boxmaker/run/broker", {("254:0", "/srv/home/run/broker"), ("254:2", "/boxmaker/run/broker")}),
        ("/var/lib/boxmaker-2", {("254:2", "/boxmaker-2")}),
        ("/var/lib", {("254:2", "/")}),
        ("/etc/boxmaker", set()),
    ],
)
def test_in_a_container_a_home_is_found_by_what_is_mounted_in_it(place: str, spots: set[tuple[str, str]]) -> None:
    assert set(CONTAINED.around(place)) == spots


@pytest.mark.parametrize(("contained", "seen"), [(True, True), (False, False)])
def test_p11_in_a_container_a_part_of_the_home_that_brokerd_was_not_given_is_seen_by_its_place(
    home: Path, *, contained: bool, seen: bool
) -> None:
    """The home's other directories have neither name nor inode there; a folder that is one of them is found out."""
    (home / "sessions").mkdir()
    table = _shown_at("/proc", home / "sessions")
    device, where = table.spot(str(home / "audit")) or ("", "")
    # Brokerd sees the home as /nowhere/else, and of it the audit log alone.
    table = attrs.evolve(table, shows={**table.shows, -1: (device, where, "/nowhere/else/audit")})
    ours = Protected(whole=(), places=(Path("/nowhere/else/sessions"),), contained=contained)
    assert ours.shows("/proc", table) is seen


def test_a_place_is_on_its_file_system_whatever_its_path(home: Path) -> None:
    table = MountTable.read()
    spot = table.spot(str(home))
    assert spot is not None
    assert table.spot(str(home / "grants")) == (spot[0], f"{spot[1]}/grants")
    assert table.spot(str(home / "nowhere")) is None
    with pytest.raises(OSError, match="changed"):
        attrs.evolve(table, shows={}).spot(str(home))


TABLE = """22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:22 / /srv/with\\040space/odd rw shared:1 - proc proc rw
25 22 254:0 /x /srv/b rw - ext4 /dev/vda rw
"""


def test_the_mount_table_knows_what_lies_below_and_what_is_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)
    monkeypatch.setattr(protected, "_MOUNTINFO", tmp_path / "mountinfo")
    table = MountTable.read()
    assert table.holds_mounts("/srv")
    assert table.holds_mounts("/srv/with space")
    assert not table.holds_mounts("/srv/b")
    assert table.is_mount("/srv/b")
    assert table.is_kernels(os.makedev(0, 22))
    assert not table.is_kernels(os.makedev(254, 0))
