"""An installation into a directory: what lies there, what a second one leaves alone, what an end takes away.

systemd's own programs make the users and directories in it, where they are installed.
"""

import compileall
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bxcore import config
from bxcore import wiring as wiring_file
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.settings.roles import ROLES
from bxcore.wiring import OWNER, TOOLS, Wiring
from deploy.quadlet import installation, installer, ownerprogram, steps
from deploy.quadlet.installation import Images
from images import layout
from tests.structure import sources

WIRING = wiring_file.load(sources.ROOT / "nix" / "roles.json")
AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("systemd-sysusers") and shutil.which("systemd-tmpfiles")),
    reason="making users and directories in a tree needs root and systemd's programs (Debian: systemd)",
)
ALWAYS = WIRING.running(())
"""The roles that are there without Mattermost."""
OPTIONS = ("--upstream", "http://127.0.0.1:8080", "--owner", "alice", "--n-ctx", "8192", "--slots", "1")


@dataclass(frozen=True)
class Image:
    identity: str
    archive: Path


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make bxctl's modules once: compiling them is most of an installation."""
    top = tmp_path_factory.mktemp("library")
    tree, _ = ownerprogram.steps(Path(sysconfig.get_path("purelib")), ownerprogram.interpreter())
    assert tree.needed(top)
    tree.do(top)
    assert not tree.needed(top)
    return steps.below(top, ownerprogram.LIBRARY)


@pytest.fixture
def root(tmp_path: Path, library: Path) -> Path:
    top = tmp_path / "root"
    (top / "etc").mkdir(parents=True)
    shutil.copytree(library, steps.below(top, ownerprogram.LIBRARY), copy_function=os.link)
    (top / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    (top / "etc" / "group").write_text("root:x:0:\nalice:x:1000:\n")
    return top


def images(tag: str) -> Callable[[Wiring, Sequence[str]], Images]:
    image = Image(identity="ab" * 32, archive=Path("/nowhere.tar"))
    return lambda _, roles: Images(roles=dict.fromkeys(roles, image), tags=dict.fromkeys(roles, tag), tools=image)


@pytest.fixture
def install(root: Path) -> Callable[..., int]:
    def run(*options: str, tag: str = "0123abcd") -> int:
        return installer.main(["--root", str(root), *options], built=images(tag))

    return run


def at(root: Path, place: str) -> Path:
    return steps.below(root, str(WIRING.at(place)))


@AS_ROOT
def test_users_groups_and_directories_are_those_of_the_wiring(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    lines = [line.split(":") for line in (root / "etc" / "passwd").read_text().splitlines()]
    assert {line[0]: int(line[2]) for line in lines if line[0] not in ("root", "alice")} == WIRING.users
    members = {line.split(":")[0]: line.split(":") for line in (root / "etc" / "group").read_text().splitlines()}
    assert {name for name, line in members.items() if line[3] == "alice"} == set(WIRING.owner_groups)
    uids = {**WIRING.users, "root": 0, OWNER: 1000}
    gids = {name: int(line[2]) for name, line in members.items()}
    for entry in WIRING.directories:
        status = at(root, entry.path).stat()
        assert (status.st_uid, status.st_gid) == (uids[entry.user], gids[entry.group]), entry.path
        assert status.st_mode & 0o7777 == int(entry.mode, 8), entry.path


@AS_ROOT
def test_a_client_enters_a_socket_directory_by_its_acl(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    assert install() == 0  # systemd-tmpfiles sets them at every boot
    if shutil.which("getfacl") is None:
        pytest.skip("getfacl is not installed (Debian: acl)")
    for entry in WIRING.directories:
        directory = at(root, entry.path)
        told = subprocess.run(["getfacl", "-cnp", directory], capture_output=True, text=True, check=True).stdout
        named = {line for line in told.split() if line.startswith(("user:", "default:user:")) and "::" not in line}
        wanted = {f"user:{WIRING.users[user]}:--x" for user in entry.enter}
        if entry.enter and entry.sockets:
            wanted |= {f"default:user:{WIRING.users[user]}:rw-" for user in entry.enter}
            assert {"default:user::rwx", "default:group::rw-", "default:mask::rw-", "default:other::---"} <= {
                *told.split()
            }
        assert named == wanted, entry.path


def test_a_roles_file_is_valid_and_its_own(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    for name, role in ALWAYS.items():
        path = at(root, role.config)
        config.load(path, ROLES[name])
    idle = {role.config for name, role in WIRING.roles.items() if name not in ALWAYS}
    for file in (file for file in WIRING.files if file.path not in idle):
        status = at(root, file.path).stat()
        assert status.st_mode & 0o7777 == int(file.mode, 8), file.path
        if os.geteuid() == 0:
            assert (status.st_uid, status.st_gid) == (0, {**WIRING.users, "root": 0}[file.group]), file.path


def test_a_roles_file_says_what_the_wiring_and_the_owner_say(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    sockets = {str(WIRING.socket(edge.name)): edge for edge in WIRING.edges}
    for name in ALWAYS:
        text = uncommented(at(root, WIRING.roles[name].config))
        named = {edge.name for path, edge in sockets.items() if f'"{path}"' in text}
        # Who listens does so for whoever may come; who calls one that is left out is not told of it.
        assert named == {
            edge.name
            for edge in WIRING.edges
            if edge.listener == name or (edge.client == name and edge.listener in {*ALWAYS, TOOLS})
        }
    assert "n_ctx = 8192" in at(root, "etc/loopd.toml").read_text()
    assert 'upstream = "http://127.0.0.1:8080"' in at(root, "etc/inferproxy.toml").read_text()


def uncommented(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def test_units_are_the_checked_in_ones_and_the_machines_drop_ins(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    for path in installation.FILES.rglob("*"):
        if "644" in path.parts:
            assert not (root / path.relative_to(installation.FILES)).exists()
        elif path.is_file():
            assert (root / path.relative_to(installation.FILES)).read_bytes() == path.read_bytes()
    drop_in = root / "etc/containers/systemd/users/641/bx-inferproxy.container.d/10-machine.conf"
    assert "Network=\nNetwork=pasta:-T,8080\n" in drop_in.read_text()
    assert "Image=localhost/boxmaker/inferproxy:0123abcd\n" in drop_in.read_text()


def test_brokerd_and_doctor_are_told_the_image_and_the_wiring(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    assert at(root, "etc/tool-image").read_text() == f"{'ab' * 32}\n"
    assert wiring_file.load(at(root, "etc/roles.json")) == WIRING


def test_the_owners_bxctl_runs_without_this_checkout(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    clean = {"PATH": "/nowhere", "HOME": "/nowhere", "LANG": "C.UTF-8"}
    bxctl = root / "usr/local/bin/bxctl"
    check = [str(bxctl), "config", "check", str(at(root, "etc/"))]
    told = subprocess.run(check, env=clean, cwd="/", capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    told = subprocess.run([bxctl, "doctor"], env=clean, cwd="/", capture_output=True, text=True, check=False)
    assert "Traceback" not in told.stderr


def test_a_root_with_a_narrow_mask_shuts_nobody_out(root: Path, install: Callable[..., int]) -> None:
    shutil.rmtree(root / "usr")
    before = os.umask(0o077)
    try:
        assert install(*OPTIONS) == 0
    finally:
        os.umask(before)
    made = [root / "etc/containers/systemd/users/641", root / "usr/local/lib/boxmaker/bxctl"]
    for path in (*made, *made[1].rglob("*"), *(above for one in made for above in one.relative_to(root).parents)):
        wanted = 0o055 if (root / path).is_dir() else 0o044
        assert (root / path).stat().st_mode & wanted == wanted, path


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes()) for p in root.rglob("*") if p.is_file()}


def test_a_second_installation_writes_nothing(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS) == 0
    before = snapshot(root)
    capsys.readouterr()
    assert install() == 0
    assert "write" not in capsys.readouterr().err
    assert snapshot(root) == before


def test_an_upgrade_names_the_new_image_and_keeps_what_the_owner_changed(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS) == 0
    mine = at(root, "etc/loopd.toml")
    mine.write_text(mine.read_text().replace('time_zone = "UTC"', 'time_zone = "Europe/Berlin"'))
    text = mine.read_text()
    own = root / "etc/containers/systemd/users/642/bx-loopd.container.d/20-mine.conf"
    own.write_text("[Container]\nPodmanArgs=--memory=1g\n")
    assert install("--n-ctx", "4096", tag="new") == 0
    assert mine.read_text() == text
    assert f"kept as you changed it: {WIRING.at('etc/loopd.toml')}" in capsys.readouterr().err
    assert "Image=localhost/boxmaker/loopd:new\n" in own.with_name("10-machine.conf").read_text()
    assert own.exists()


def test_a_changed_file_with_a_fault_is_refused_before_anything_is_written(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS) == 0
    mine = at(root, "etc/loopd.toml")
    mine.write_text(mine.read_text().replace("time_zone", "tyme_zone"))
    before = snapshot(root)
    assert install(tag="new") == 1
    assert "tyme_zone" in capsys.readouterr().err
    assert snapshot(root) == before


def test_a_changed_inferproxy_that_goes_elsewhere_than_the_unit_is_refused(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS) == 0
    mine = at(root, "etc/inferproxy.toml")
    mine.write_text(mine.read_text().replace("127.0.0.1:8080", "192.0.2.7:8080"))
    assert install() == 1
    assert "its upstream is http://192.0.2.7:8080" in capsys.readouterr().err
    assert install("--upstream", "http://192.0.2.7:8080") == 0


def test_a_number_that_is_taken_is_refused_before_anything_is_written(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with (root / "etc" / "passwd").open("a") as passwd:
        passwd.write("bob:x:642:642::/:/bin/sh\n")
    before = snapshot(root)
    assert install(*OPTIONS) == 1
    assert "the user number 642, which is bx-loopd's, belongs to bob" in capsys.readouterr().err
    assert snapshot(root) == before


@pytest.mark.parametrize("options", [("--grant", "/"), ("--grant", "/etc"), ("--owner", "x\nu+ evil 0")])
def test_what_can_never_be_is_refused_where_it_is_only_looked_at(
    root: Path, install: Callable[..., int], options: tuple[str, str]
) -> None:
    before = snapshot(root)
    for check in ((), ("--check",)):
        assert install(*OPTIONS, *options, *check) == 1
    assert snapshot(root) == before


def test_a_stranger_in_a_group_of_boxmakers_is_refused_before_anything_is_written(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with (root / "etc" / "group").open("a") as group:
        group.write("bx-tool-runner:x:999:eve\n")
    before = snapshot(root)
    assert install(*OPTIONS) == 1
    assert "eve is in the group bx-tool-runner" in capsys.readouterr().err
    assert snapshot(root) == before


def test_the_last_granted_folder_can_be_taken_back(
    root: Path, install: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "OWN", ())  # tests lie in one of them
    folder = tmp_path / "notes"
    folder.mkdir()
    unit = root / "etc/containers/systemd/users/643/bx-brokerd.container.d/10-machine.conf"
    assert install(*OPTIONS, "--grant", str(folder), "--grant", str(folder)) == 0
    assert unit.read_text().count(f"src={folder},") == 1
    assert install() == 0
    assert str(folder) in unit.read_text()
    assert install("--no-grants") == 0
    assert str(folder) not in unit.read_text()


def test_nothing_of_boxmakers_own_may_be_shown_to_a_tool(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    settings = config.load(at(root, "etc/brokerd.toml"), BrokerdSettings)
    assert settings.protect == (WIRING.at("home"), WIRING.at("etc"))


@pytest.mark.parametrize("address", ["https://model.example.com", "model.example.com", "unix:relative"])
def test_an_address_that_inferproxy_does_not_take_is_refused(install: Callable[..., int], address: str) -> None:
    assert install("--upstream", address, "--owner", "alice") == 1


def test_check_shows_every_step_and_changes_nothing(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(root)
    assert install(*OPTIONS, "--check") == 0
    assert snapshot(root) == before
    shown = capsys.readouterr().out
    assert "would write /etc/containers/systemd/users/643/bx-brokerd.container" in shown
    assert "podman load --quiet" in shown
    assert "loginctl enable-linger bx-loopd" in shown
    assert shown.index("run podman load") < shown.index("--no-block")


def test_an_upgrade_that_breaks_off_leaves_the_bxctl_of_before(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(library, tmp_path / "library")
    monkeypatch.setattr(compileall, "compile_dir", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        steps.Tree(path="/library", files={"new.py": b""}).do(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "library" / "bxctl" / "__main__.py").exists()
    steps.Tree(path="/library", files={"new.py": b""}).do(tmp_path)
    assert sorted(path.name for path in (tmp_path / "library").iterdir()) == ["__pycache__", "new.py"]


def test_an_end_takes_everything_but_state_settings_and_their_owners(
    root: Path, install: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS) == 0
    for place in ("home/sessions/s/log", "home/audit/day", "home/broker/head", "etc/grants/mine.toml"):
        at(root, place).parent.mkdir(parents=True, exist_ok=True)
        at(root, place).write_text("kept\n")
    mine = root / "etc/containers/systemd/users/642/bx-loopd.container.d/20-mine.conf"
    mine.write_text("[Container]\n")
    capsys.readouterr()
    assert install("--uninstall") == 0
    said = capsys.readouterr().err
    left = {str(path) for path in snapshot(root)}
    kept = {"sessions/s/log", "audit/day", "broker/head"}
    assert {path for path in left if path.startswith("var/lib/boxmaker")} == {f"var/lib/boxmaker/{k}" for k in kept}
    settings = {"install/answers.toml", "grants/mine.toml", *(f"{role}.toml" for role in ALWAYS)}
    assert {path for path in left if path.startswith("etc/boxmaker")} == {f"etc/boxmaker/{name}" for name in settings}
    assert not [path for path in left if path.startswith(("usr", "etc/sysusers.d", "etc/tmpfiles.d", "etc/systemd"))]
    assert [path for path in left if path.startswith("etc/containers")] == [str(mine.relative_to(root))]
    for word in ("state stays", "settings and grants stay", "userdel"):
        assert word in said
    assert install("--uninstall") == 0  # nothing is left to take


def test_a_link_of_the_owners_is_not_written_through(root: Path, install: Callable[..., int], tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("mine\n")
    (root / "etc" / "sysusers.d").mkdir()
    (root / "etc" / "sysusers.d" / "boxmaker.conf").symlink_to(target)
    assert install(*OPTIONS) == 0
    assert target.read_text() == "mine\n"
