"""Where the installer refuses, and in which words."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from bxcore import wiring as wiring_file
from deploy.local.refusal import Refusal
from deploy.quadlet import answers, facts, modelserver, subids
from deploy.quadlet.answers import Answers
from deploy.quadlet.facts import Accounts, Machine
from images import layout
from tests.structure import sources

WIRING = wiring_file.load(sources.ROOT / "nix" / "roles.json")
GOOD = Machine(
    systemd=True,
    version=257,
    controllers=frozenset({"cpu", "memory", "pids"}),
    podman=(5, 4),
    programs=frozenset(facts.PROGRAMS),
)
NOBODY = Accounts(users={"root": 0}, groups={"root": 0})

LACKS = {
    "systemd": ({"systemd": False}, "systemd does not run this machine"),
    "cgroup v2": ({"controllers": frozenset()}, "cgroup v2 does not offer memory and pids"),
    "pids": ({"controllers": frozenset({"memory"})}, "does not offer pids"),
    "podman": ({"podman": None}, "podman is not installed"),
    "Quadlet": ({"podman": (4, 3)}, "podman 4.3 is too old: units for containers (Quadlet) came with 4.4"),
    "drop-ins": ({"podman": (4, 9)}, "in 5.0"),
    "pasta": ({"programs": frozenset(facts.PROGRAMS) - {"pasta"}}, "these programs are missing: pasta"),
}


def test_a_machine_that_has_everything_is_taken() -> None:
    assert list(facts.unable(GOOD)) == []


@pytest.mark.parametrize(("lack", "words"), LACKS.values(), ids=LACKS.keys())
def test_a_machine_that_lacks_something_is_refused_in_words(lack: dict[str, object], words: str) -> None:
    import dataclasses

    machine = dataclasses.replace(GOOD, **lack)  # type: ignore[arg-type]  # a row of the table
    (said,) = facts.unable(machine)
    assert words in said


def test_every_lack_is_said_at_once() -> None:
    nothing = Machine(systemd=False, version=0, controllers=frozenset(), podman=None, programs=frozenset())
    assert len(list(facts.unable(nothing))) == 4


def test_this_machine_can_be_looked_at() -> None:
    assert facts.look().systemd == Path("/run/systemd/system").is_dir()


def test_accounts_that_nobody_else_has_are_taken() -> None:
    assert list(facts.taken(NOBODY, WIRING)) == []
    there = Accounts(users=WIRING.users, groups=WIRING.users)  # the second time
    assert list(facts.taken(there, WIRING)) == []


def test_a_number_of_somebody_elses_is_refused() -> None:
    found = Accounts(users={"alice": 642}, groups={"www": 643})
    assert list(facts.taken(found, WIRING)) == [
        "the user number 642, which is bx-loopd's, belongs to alice",
        "the group number 643, which is bx-brokerd's, belongs to www",
    ]


def test_a_number_that_two_have_is_refused_whoever_stands_last() -> None:
    found = Accounts(users={"toor": 643, **WIRING.users}, groups={})
    (said,) = facts.taken(found, WIRING)
    assert said.endswith("belongs to toor")


def test_a_name_with_another_number_is_refused() -> None:
    found = Accounts(users={"boxmaker-tools": 999}, groups={})
    assert list(facts.taken(found, WIRING)) == [
        "the user boxmaker-tools is there with the number 999, and has to have 650"
    ]


def test_accounts_are_read_below_a_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n+broken\nalice:x:1000:1000::/:/bin/sh\n")
    found = facts.accounts(tmp_path)
    assert (found.users, found.groups) == ({"root": 0, "alice": 1000}, {})


def test_an_owner_has_to_be_there() -> None:
    assert list(facts.owner(NOBODY, WIRING, "root")) == []
    assert list(facts.owner(NOBODY, WIRING, "alice")) == ["there is no user alice here, who is to be the owner"]


@pytest.mark.parametrize("user", WIRING.users)
def test_no_user_of_boxmakers_own_is_the_owner(user: str) -> None:
    (why,) = facts.owner(Accounts(users=WIRING.users, groups=WIRING.users), WIRING, user)
    assert f"{user} is a user of Boxmaker's own" in why


UPSTREAMS = {
    "http://127.0.0.1:8080": "pasta:-T,8080",
    "http://127.0.0.1:9000/": "pasta:-T,9000",
    "http://[::1]": "pasta:-T,80",
    "http://192.0.2.7:8080": "pasta",
    "http://[2001:db8::7]:8080": "pasta",
    "unix:/srv/model/model.sock": "pasta",
    "http://127.0.0.1.example.com:8080": "pasta",
}


@pytest.mark.parametrize(("upstream", "network"), UPSTREAMS.items())
def test_a_server_of_this_machine_is_reached_by_its_port_alone(upstream: str, network: str) -> None:
    assert modelserver.network(upstream) == network


ELSEWHERE = (
    "localhost", "LOCALHOST",
    "127.0.0.2", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "LOCALHOST.",
    "model.localhost", "１２７.0.0.1", "192.0.2",
)  # fmt: skip
"""Other words for this machine's loopback, or for an address at all, than the ones whose port is led in."""


@pytest.mark.parametrize("host", ELSEWHERE)
def test_another_word_for_the_loopback_is_refused(host: str) -> None:
    with pytest.raises(Refusal, match=r"write 127\.0\.0\.1 or|written in full"):
        answers.check(attrs.evolve(TOLD, upstream=f"http://{host}:8080", grants=()), WIRING)


@pytest.mark.parametrize(
    "upstream", [*sorted(UPSTREAMS.keys() - {"unix:/srv/model/model.sock"}), "http://Model-1.lan:8080"]
)
def test_a_server_that_can_be_reached_is_taken(upstream: str) -> None:
    answers.check(attrs.evolve(TOLD, upstream=upstream, grants=()), WIRING)


@pytest.mark.parametrize("name", ["", "x\nu+ evil 0", "a b", "-a", "0", "a" * 32, "über", "a,b", "%u", "a.b"])
def test_a_name_that_would_be_something_else_in_a_line_of_sysusers_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match="--owner: a user's name"):
        answers.check(attrs.evolve(TOLD, owner=name, grants=()), WIRING)


TOLD = Answers(upstream="http://model.example.com:8080", owner="alice", n_ctx=8192, slots=1, grants=(Path("/srv"),))
NOT_ASKED: dict[str, Any] = dict.fromkeys(("upstream", "owner", "n_ctx", "slots"))


def test_what_was_answered_once_is_not_asked_again(tmp_path: Path) -> None:
    kept = tmp_path / "answers.toml"
    kept.write_text(answers.text(TOLD))
    assert answers.joined(kept, grants=None, **NOT_ASKED) == TOLD


def test_an_option_takes_the_place_of_what_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "answers.toml"
    kept.write_text(answers.text(TOLD))
    changed = answers.joined(kept, **{**NOT_ASKED, "owner": "bob"}, grants=[Path("/srv/a"), Path("/srv/b")])
    assert changed == attrs.evolve(TOLD, owner="bob", grants=(Path("/srv/a"), Path("/srv/b")))


def test_a_grant_can_be_taken_back_and_counts_once(tmp_path: Path) -> None:
    kept = tmp_path / "answers.toml"
    kept.write_text(answers.text(TOLD))
    assert answers.joined(kept, grants=(), **NOT_ASKED) == attrs.evolve(TOLD, grants=())
    twice = answers.joined(kept, grants=[Path("/srv/a"), Path("/srv/b"), Path("/srv/a/")], **NOT_ASKED)
    assert twice.grants == (Path("/srv/a"), Path("/srv/b"))


def test_a_first_installation_has_to_be_told(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="--upstream URL and --owner USER"):
        answers.joined(tmp_path / "none", grants=None, **NOT_ASKED)


UNFIT = {
    "gone": "no directory", "file": "no directory", "a b": "a unit cannot hold", "a%h": "a unit cannot hold",
    "a,b": "a comma", "a:b": "a colon",
}  # fmt: skip


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A place with folders of these names, but for the first."""
    (tmp_path / "file").write_text("")
    for name in UNFIT.keys() - {"gone", "file"}:
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("name", UNFIT)
def test_a_folder_that_cannot_be_mounted_is_refused(folders: Path, name: str) -> None:
    with pytest.raises(Refusal, match=f"--grant.*{UNFIT[name]}"):
        answers.check(attrs.evolve(TOLD, grants=(folders / name,)), WIRING)
    if UNFIT[name] != "no directory":
        with pytest.raises(Refusal, match=f"--upstream.*({UNFIT[name]}|commas)"):
            answers.check(attrs.evolve(TOLD, upstream=f"unix:{folders / name}/model.sock"), WIRING)


def test_what_is_boxmakers_or_the_images_own_is_not_granted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr/lib")
    moved = WIRING.moved(home=tmp_path / "home", etc=Path("/etc/boxmaker"))
    inside = moved.at("home/audit")
    inside.mkdir(parents=True)
    answers.check(attrs.evolve(TOLD, grants=(Path("/usr/share"), Path("/var/lib"))), moved)
    for folder in (Path("/"), Path("/usr"), Path("/etc"), Path("/proc/self"), inside, tmp_path / "link"):
        with pytest.raises(Refusal, match="Boxmaker's or the images' own"):
            answers.check(attrs.evolve(TOLD, grants=(folder,)), moved)


def test_a_servers_socket_has_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/run")
    (tmp_path / "home" / "run").mkdir(parents=True)
    moved = WIRING.moved(home=tmp_path / "home", etc=Path("/etc/boxmaker"))
    (tmp_path / "model").mkdir()
    answers.check(attrs.evolve(TOLD, upstream=f"unix:{tmp_path}/model/model.sock", grants=()), moved)
    shared = ("", "/run", "/tmp", "/home", "/usr", "/run/dbus", "/run/user/0", "/home/alice", "/proc", "/nix/store")
    for directory in (*shared, tmp_path, tmp_path / "home" / "run", tmp_path / "link"):
        with pytest.raises(Refusal, match="a directory of its own"):
            answers.check(attrs.evolve(TOLD, upstream=f"unix:{directory}/model.sock", grants=()), moved)


@pytest.mark.parametrize(
    "path", ["//etc/m", "/srv/../etc/m", "/srv//m", "/srv/./m", '/srv/"m', "/srv/m\n", "/srv/a,b/m"]
)
def test_a_socket_with_a_path_of_another_spelling_is_refused(path: str) -> None:
    with pytest.raises(Refusal, match="--upstream: a socket is named by an absolute path"):
        answers.check(attrs.evolve(TOLD, upstream=f"unix:{path}", grants=()), WIRING)


def test_a_granted_folder_is_named_as_it_really_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "OWN", ())  # tests lie in one of them
    (tmp_path / "notes" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("notes")
    answers.check(attrs.evolve(TOLD, grants=(tmp_path / "notes" / "a",)), WIRING)
    for folder in (
        tmp_path / "link",
        tmp_path / "link" / "a",
        tmp_path / "notes" / ".." / "notes",
        f"/{tmp_path}/notes",
    ):
        with pytest.raises(Refusal, match=f"another name.* of {tmp_path}/notes.*: grant that"):
            answers.check(attrs.evolve(TOLD, grants=(Path(folder),)), WIRING)


PASSWD = "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbx-loopd:x:642:642::/:/bin/sh\n"
GROUP = "root:x:0:\nalice:x:1000:\nbx-loopd:x:642:\nbx-admin:x:990:alice\nbx-tool-runner:x:991:\n"
STRANGERS = {
    "nobody": ("", "", []),
    "in the group of the tools' Podman": ("", "bx-broker:x:992:eve,alice", ["alice bx-broker", "eve bx-broker"]),
    "by a first group": ("eve:x:1001:991::/:/bin/sh", "", ["eve bx-tool-runner"]),
    "by another name of the number": ("", "other:x:991:eve", ["eve bx-tool-runner"]),
    "another person as an owner": ("bob:x:1002:990::/:/bin/sh", "", ["bob bx-admin"]),
    "in a role's own group": ("eve:x:1001:642::/:/bin/sh", "", ["eve bx-loopd"]),
    "a role in the owner's group": ("", "bx-loop-owner:x:993:bx-loopd", ["bx-loopd bx-loop-owner"]),
    "a role in another group": ("", "docker:x:994:bx-loopd,alice", ["bx-loopd docker"]),
}


@pytest.mark.parametrize(("user", "group", "found"), STRANGERS.values(), ids=STRANGERS.keys())
def test_a_stranger_in_a_group_of_boxmakers_is_named(tmp_path: Path, user: str, group: str, found: list[str]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(f"{PASSWD}{user}\n")
    (tmp_path / "etc" / "group").write_text(f"{GROUP}{group}\n")
    said = list(facts.strangers(facts.accounts(tmp_path), WIRING, "alice"))
    assert len(said) == len(found)
    for words, each in zip(said, found, strict=True):
        assert f"gpasswd -d {each};" in words


@pytest.mark.parametrize(("n_ctx", "slots"), [(0, 1), (1, 0), (1, -1)])
def test_a_server_without_room_is_refused(n_ctx: int, slots: int) -> None:
    with pytest.raises(Refusal, match="numbers from 1"):
        answers.check(attrs.evolve(TOLD, n_ctx=n_ctx, slots=slots), WIRING)


def test_ids_for_containers_are_given_above_everybodys() -> None:
    before = "alice:100000:65536\nbob:300000:65536\nbroken\nx:y:z\n"
    after = subids.added(before, {"bx-a": 641, "bx-b": 642})
    assert after == f"{before}bx-a:365536:65536\nbx-b:431072:65536\n"


def test_who_has_ids_keeps_them() -> None:
    before = "bx-a:100000:65536\n642:165536:65536\n"
    assert subids.added(before, {"bx-a": 641, "bx-b": 642}) == before
    assert subids.added("", {"bx-a": 641}) == "bx-a:100000:65536\n"
