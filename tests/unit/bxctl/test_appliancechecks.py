"""What `bxctl doctor` says of an appliance: nothing where all holds, and of each thing that does not, what mends it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bxcore import convert, strictjson
from bxctl import (
    appliancechecks,
    finding,
    hostchecks,
    installed,
    placechecks,
    rolelimits,
    socketchecks,
    userchecks,
    wayin,
)
from bxctl.finding import Finding
from bxctl.installed import Installed
from bxctl.machine import CONTROL_GROUPS, Group, Kind
from bxctl.userchecks import Range
from tests.fakes import machine as fakes
from tests.fakes.machine import ETC, HIDDEN, HOME, FakeMachine, listed

Room = Callable[[Installed], Iterator[Finding]]
ROOMS: tuple[Room, ...] = (
    userchecks.users,
    userchecks.groups,
    userchecks.ids,
    placechecks.directories,
    placechecks.files,
    placechecks.grants,
    wayin.folders,
    socketchecks.sockets,
    rolelimits.limits,
    hostchecks.inodes,
    hostchecks.clock,
)


@pytest.fixture
def appliance() -> tuple[Installed, FakeMachine]:
    return fakes.another()


def faults(room: Room, made: Installed) -> list[tuple[str, str]]:
    """Return what was found and what mends it, of each check that failed."""
    return [(one.found, one.command) for one in room(made) if one.passed is False]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_where_all_is_as_it_must_be_each_room_says_so_once(room: Room) -> None:
    made, _ = fakes.another()
    (found,) = room(made)
    assert found.passed
    assert found.runbook == ""


# -- users ------------------------------------------------------------------------------------------

USERS: dict[str, tuple[Callable[[FakeMachine], object], str, str]] = {
    "is not there": (
        lambda m: m.users.pop("bx-loopd"),
        "no such user",
        (
            "useradd --system --uid 642 --user-group --no-create-home --home-dir /nonexistent "
            "--shell /usr/sbin/nologin bx-loopd"
        ),
    ),
    "has another uid": (
        lambda m: m.users.update({"bx-loopd": attrs.evolve(m.users["bx-loopd"], uid=990)}),
        "uid 990",
        "usermod --uid 642 bx-loopd",
    ),
    "may log in": (
        lambda m: m.users.update({"bx-loopd": attrs.evolve(m.users["bx-loopd"], shell="/bin/bash")}),
        "its shell is /bin/bash",
        "usermod --shell /usr/sbin/nologin bx-loopd",
    ),
    "has no shell named, which is one": (
        lambda m: m.users.update({"bx-loopd": attrs.evolve(m.users["bx-loopd"], shell="")}),
        "its shell is /bin/sh",
        "usermod --shell /usr/sbin/nologin bx-loopd",
    ),
    "is in another group": (
        lambda m: m.users.update({"bx-loopd": attrs.evolve(m.users["bx-loopd"], groups=frozenset({642, 27}))}),
        "it is in the group with gid 27",
        'gpasswd --delete bx-loopd "$(getent group 27 | cut -d: -f1)"',
    ),
    "has somebody in its group": (
        lambda m: m.groups.update({"bx-loopd": Group(name="bx-loopd", gid=642, members=frozenset({"eve"}))}),
        "eve is",
        "gpasswd --delete eve bx-loopd",
    ),
}


@pytest.mark.parametrize(("change", "found", "command"), USERS.values(), ids=USERS.keys())
def test_a_role_whose_user_is_more_than_that(
    appliance: tuple[Installed, FakeMachine], change: Callable[[FakeMachine], object], found: str, command: str
) -> None:
    made, machine = appliance
    change(machine)
    assert faults(userchecks.users, made) == [(found, command)]


def test_nologin_is_nologin_wherever_it_lies(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.users["bx-loopd"] = attrs.evolve(machine.users["bx-loopd"], shell="/run/current-system/sw/bin/nologin")
    assert faults(userchecks.users, made) == []


def test_one_user_for_all_is_said(appliance: tuple[Installed, FakeMachine]) -> None:
    made, _ = appliance
    (found,) = userchecks.users(attrs.evolve(made, one=fakes.OWNER_UID))
    assert found.passed
    assert found.found == "every role is alice: only the containers keep them apart"


def join(machine: FakeMachine, group: str, *members: str) -> None:
    machine.groups[group] = attrs.evolve(machine.groups[group], members=frozenset(members))


def test_nobody_is_in_the_group_of_two_roles(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    join(machine, "bx-tool-runner", "nobody")
    assert faults(userchecks.groups, made) == [("nobody is", "gpasswd --delete nobody bx-tool-runner")]


def test_a_group_is_also_who_has_it_as_its_own(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.users["alice"] = attrs.evolve(machine.users["alice"], gid=machine.groups["bx-broker"].gid)
    mended = "groupadd --force alice && usermod --gid alice alice"
    assert faults(userchecks.groups, made) == [("it is the own group of alice", mended)]
    machine.users["alice"] = attrs.evolve(machine.users["alice"], gid=642)
    assert faults(userchecks.users, made) == [("it is the own group of alice", mended)]


def test_owners_are_told_by_name_and_no_role_is_one(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    join(machine, "bx-admin", "alice", "bob")
    (found,) = userchecks.groups(made)
    assert found.passed
    assert (
        found.found
        == "nobody in those between roles; owners: bx-admin alice, bob; bx-gateway-owner alice; bx-loop-owner alice"
    )
    join(machine, "bx-admin", "alice", "bx-loopd")
    assert faults(userchecks.groups, made) == [("bx-loopd is", "gpasswd --delete bx-loopd bx-admin")]


def test_of_one_user_for_all_no_group_means_anything(appliance: tuple[Installed, FakeMachine]) -> None:
    made, _ = appliance
    assert list(userchecks.groups(attrs.evolve(made, one=fakes.OWNER_UID))) == []


# -- ids for containers -----------------------------------------------------------------------------

SUBUID, SUBGID = Path("/etc/subuid"), Path("/etc/subgid")


def test_ids_of_the_tools_are_many(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.texts[SUBGID] = machine.texts[SUBUID].replace("boxmaker-tools:362144:65536", "650:362144:1000")
    assert faults(userchecks.ids, made) == [("1000", "usermod --add-subgids 363144-428679 boxmaker-tools")]


def test_a_file_of_ids_that_is_not_there_gives_nobody_any(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    del machine.texts[SUBUID]
    assert [found for found, _ in faults(userchecks.ids, made)] == ["0"] * 5


def test_ids_that_somebody_else_has_too(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.texts[SUBUID] = f"eve:100000:1\n{machine.texts[SUBUID]}"
    machine.add_user("mallory", 100_007)
    assert faults(userchecks.ids, made) == [
        ("eve has some of them too", "usermod --del-subuids 100000-165535 --add-subuids 427680-493215 bx-brokerd"),
        ("100007 is the user mallory", "usermod --del-subuids 100000-165535 --add-subuids 427680-493215 bx-brokerd"),
        ("100007 is the user mallory", "usermod --del-subgids 100000-165535 --add-subgids 427680-493215 bx-brokerd"),
    ]


names = st.sampled_from(["a", "b", "c"])
ranges = st.lists(st.builds(Range, user=names, first=st.integers(0, 40), count=st.integers(1, 10)), max_size=5).map(
    tuple
)


@given(ranges)
def test_ranges_are_apart_exactly_where_no_id_of_ours_is_anothers(held: tuple[Range, ...]) -> None:
    def ids(user: str) -> set[int]:
        return {number for one in held if one.user == user for number in range(one.first, one.end)}

    shared = any(ids("a") & ids(other) for other in ("b", "c"))
    assert bool(list(userchecks.apart(SUBUID, held, owners={"a": "a"}, users={}))) is shared


@given(ranges)
def test_the_ids_that_are_offered_are_nobodys(held: tuple[Range, ...]) -> None:
    first, last = map(int, userchecks.free(held).split("-"))
    assert last - first == 65_535
    assert all(one.end <= first for one in held)


@given(st.text(alphabet="ab:0123456789\n x"))
def test_any_file_of_ids_is_read(text: str) -> None:
    assert all(one.count >= 0 and one.first >= 0 for one in userchecks.parse(text))


# -- directories ------------------------------------------------------------------------------------

INFER = HOME / "run/infer"
MEND_INFER = (
    f"setfacl -b {INFER} && chown bx-inferproxy:bx-infer {INFER} && chmod 2750 {INFER} && "
    f"setfacl -m u:bx-loopd:x,d:u::rwx,d:g::rw,d:m::rw,d:o::-,d:u:bx-loopd:rw {INFER}"
)
DIRECTORIES: dict[str, tuple[Callable[[FakeMachine], object], str]] = {
    "is not there": (lambda m: m.files.pop(INFER), "nothing is there"),
    "is a link": (lambda m: m.change(INFER, kind=Kind.LINK), "a symbolic link"),
    "has another mode": (lambda m: m.change(INFER, mode=0o2755), "mode 2755"),
    "has another owner": (lambda m: m.change(INFER, uid=643), "owner is uid 643"),
    "has another group": (lambda m: m.change(INFER, gid=643), "group is gid 643"),
    "lets in somebody else": (
        lambda m: m.change(INFER, acl=listed(0o2750, u642=1, u643=1)),
        "its access list lets in uid 642 (x), uid 643 (x)",
    ),
    "lets its client write": (
        lambda m: m.change(INFER, acl=listed(0o2770, u642=3)),
        "its access list lets in uid 642 (wx)",
    ),
    "lets nobody in": (
        lambda m: m.change(INFER, acl=listed(0o2750)),
        "its access list lets in nobody else",
    ),
    "opens its sockets to nobody": (
        lambda m: m.change(INFER, default=None),
        "what is made in it is open to nobody else",
    ),
}


@pytest.mark.parametrize(("change", "found"), DIRECTORIES.values(), ids=DIRECTORIES.keys())
def test_a_directory_that_is_not_as_the_wiring_says(
    appliance: tuple[Installed, FakeMachine], change: Callable[[FakeMachine], object], found: str
) -> None:
    made, machine = appliance
    change(machine)
    missing = f"install -d {INFER} && " if found == "nothing is there" else ""
    assert faults(placechecks.directories, made) == [(found, missing + MEND_INFER)]


def test_of_grants_anyone_who_is_an_owner_may_be_the_owner(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.change(ETC / "grants", uid=0)
    assert faults(placechecks.directories, made) == []
    machine.change(ETC / "grants", uid=1001)
    assert [found for found, _ in faults(placechecks.directories, made)] == ["owner is uid 1001"]


def test_what_may_not_be_looked_at_is_neither_passed_nor_failed(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.files[HOME / "run"] = HIDDEN
    (found,) = placechecks.directories(made)
    assert found.passed is None
    assert found.found == "9 things not for this user to see; run as root"


def test_of_one_user_for_all_only_owner_and_mode_count(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    one = attrs.evolve(made, one=fakes.OWNER_UID)
    for directory in made.wiring.directories:
        mode = int(directory.mode, 8)
        machine.put(made.wiring.at(directory.path), Kind.DIRECTORY, fakes.OWNER_UID, 50, mode)
    assert faults(placechecks.directories, one) == []
    machine.change(HOME / "audit", mode=0o755)
    assert faults(placechecks.directories, one) == [("mode 0755", f"chmod 0700 {HOME}/audit")]


# -- limits of roles --------------------------------------------------------------------------------

LOOPD = CONTROL_GROUPS / "bx-loopd"


def test_limits_of_a_role_that_nothing_holds(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.texts[LOOPD / "memory.max"] = "max\n"
    machine.texts[LOOPD / "pids.max"] = "9999\n"
    assert [found for found, _ in faults(rolelimits.limits, made)] == ["no limit", "9999"]
    machine.texts[LOOPD / "container" / "pids.max"] = "16\n"
    del machine.texts[LOOPD / "memory.max"], machine.texts[LOOPD / "container" / "memory.max"]
    assert [found for found, _ in faults(rolelimits.limits, made)] == ["no limit"]


def test_limits_that_cannot_be_seen_are_not_said_to_hold(appliance: tuple[Installed, FakeMachine]) -> None:
    made, machine = appliance
    machine.limited[642] = []
    del machine.limited[641]
    (found,) = rolelimits.limits(made)
    assert found.passed is None
    assert found.found == (
        "cannot be told: inferproxy was not seen to run, loopd has no control group of version 2; "
        "held: brokerd, gatewayd"
    )
    machine.limited.clear()
    (found,) = rolelimits.limits(made)
    assert found.passed is None


# -- whose word the wiring is -----------------------------------------------------------------------

WIRED = ETC / installed.FILE
UNSAFE: dict[str, tuple[Callable[[FakeMachine], object], str]] = {
    "everybody's to write": (lambda m: m.change(WIRED, mode=0o666), "others may write it, mode 0666"),
    "a role's": (lambda m: m.change(WIRED, uid=642), "owner is uid 642"),
    "writable by a list": (
        lambda m: m.change(WIRED, acl=listed(0o664, u642=6), listed=True),
        "others may write it, mode 0644",
    ),
    "a link": (lambda m: m.change(WIRED, kind=Kind.LINK), "a symbolic link"),
    "in a directory of everybody's": (lambda m: m.change(ETC, mode=0o777), "others may write in it, mode 0777"),
    "below a directory of everybody's": (
        lambda m: m.change(Path("/etc"), mode=0o777),
        "others may write in it, mode 0777",
    ),
    "below a directory of somebody's": (lambda m: m.change(Path("/etc"), uid=1000), "owner is uid 1000"),
}


def all_of(machine: FakeMachine) -> list[Finding]:
    return list(appliancechecks.run(HOME, ETC, None, machine))


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    made, machine = fakes.another()
    monkeypatch.setattr(installed, "find", lambda *_: made)
    machine.put(WIRED, Kind.FILE, 0, 0, 0o644)
    return machine


@pytest.mark.parametrize(("change", "found"), UNSAFE.values(), ids=UNSAFE.keys())
def test_a_wiring_that_is_not_roots_word_is_told_and_not_gone_by(
    wired: FakeMachine, change: Callable[[FakeMachine], object], found: str
) -> None:
    change(wired)
    told = all_of(wired)
    assert [(one.found, one.runbook) for one in told if one.passed is False] == [(found, "wiring_unsafe")]
    assert {one.name for one in told} == {"owner of the wiring", "way to the home"}


def test_a_directory_above_the_home_in_which_others_write(wired: FakeMachine) -> None:
    wired.change(Path("/var"), mode=0o777)
    (found,) = [one for one in all_of(wired) if one.name == "way to the home"]
    assert (found.passed, found.command) == (False, "setfacl -b /var && chmod go-w /var")
    wired.change(Path("/var"), mode=0o1777)
    told = all_of(wired)
    assert [one.passed for one in told if one.name in {"way to the home", "owner of the wiring"}] == [True, True]
    assert "directories" in {one.name for one in told}


def test_a_link_into_a_store_that_nobody_writes_is_a_wiring(wired: FakeMachine) -> None:
    wired.change(WIRED, kind=Kind.LINK, mode=0o777)
    wired.links[WIRED] = Path("/nix/store/abc-roles.json")
    assert "directories" in {one.name for one in all_of(wired)}
    wired.put(Path("/nix/store"), Kind.DIRECTORY, 0, 999, 0o775)
    assert [one.found for one in all_of(wired) if one.passed is False] == ["others may write in it, mode 0775"]


def test_where_one_user_is_every_role_that_user_may_write(wired: FakeMachine) -> None:
    for path in (HOME, ETC, WIRED):
        wired.change(path, uid=fakes.OWNER_UID)
    assert all(one.passed for one in all_of(wired) if one.runbook == "wiring_unsafe" or "wiring" in one.name)


# -- all together -----------------------------------------------------------------------------------


def test_a_home_without_a_wiring_is_a_checkout(tmp_path: Path) -> None:
    assert list(appliancechecks.run(tmp_path, tmp_path, None, FakeMachine())) == []


def test_a_wiring_of_another_version_is_told_and_nothing_is_guessed(tmp_path: Path) -> None:
    (tmp_path / installed.FILE).write_text('{"version":99}')
    machine = FakeMachine()
    machine.put(tmp_path / installed.FILE, Kind.FILE, 0, 0, 0o644)
    *_, found = appliancechecks.run(tmp_path, tmp_path, None, machine)
    assert (found.passed, found.runbook) == (False, "wiring_unreadable")


@pytest.mark.parametrize(("uid", "one"), [(0, None), (1000, 1000), (642, None)])
def test_a_home_that_is_not_roots_is_one_users(tmp_path: Path, uid: int, one: int | None) -> None:
    made, _ = fakes.another()
    (tmp_path / installed.FILE).write_bytes(strictjson.dumps(convert.unstructure(made.wiring)))
    machine = FakeMachine()
    machine.add_user("bx-loopd", 642)
    machine.put(tmp_path / installed.FILE, Kind.FILE, 0, 0, 0o644)
    machine.put(tmp_path, Kind.DIRECTORY, uid, 0, 0o755)
    found = installed.find(tmp_path, tmp_path, machine)
    assert found is not None
    assert found.one == one
    assert found.wiring.at("home/run") == tmp_path / "run"


@pytest.mark.parametrize("passed", [True, False])
def test_in_json_a_finding_is_a_check_result(*, passed: bool) -> None:
    made = Finding(name="a", passed=passed, expected="b", found="c", why="d", command="e", runbook="f")
    assert json.loads(finding.json_line(made)) == {
        "kind": "check_result",
        "name": "a",
        "passed": passed,
        "expected": "b",
        "found": "c",
        "runbook": "f",
        "why": "d",
        "command": "e",
    }
    assert "why" not in json.loads(finding.json_line(Finding(name="a", passed=passed, expected="b", found="c")))


def test_in_json_what_nobody_looked_at_is_skipped() -> None:
    line = finding.json_line(Finding(name="a", passed=None, expected="b", found="c"))
    assert json.loads(line) == {"kind": "check_skipped", "name": "a", "found": "c"}
