"""Mattermost in an installation: what is asked, what lies where, what is refused, and what goes when it is left out."""

import os
import re
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bxcore import config
from bxcore import wiring as wiring_file
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.settings.loopd import LoopdSettings
from deploy.local.refusal import Refusal
from deploy.quadlet import installation, installer, mattermost, steps
from deploy.quadlet.answers import Answers
from deploy.quadlet.installation import Images
from deploy.quadlet.mattermost import Mattermost, Seal
from tests.structure import sources

WIRING = wiring_file.load(sources.ROOT / "nix" / "roles.json")
GATEWAYD = WIRING.roles["gatewayd"]
ALICE, BOB = "a" * 26, "b" * 26
TOKEN = "xoxo-not-a-real-token-1234"
OPTIONS = ("--upstream", "http://127.0.0.1:8080", "--owner", "alice")
UNIT = "etc/containers/systemd/users/644/bx-gatewayd.container"


@dataclass(frozen=True)
class Image:
    identity: str = "ab" * 32
    archive: Path = Path("/nowhere.tar")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "etc").mkdir(parents=True)
    (top / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    (top / "etc" / "group").write_text("root:x:0:\nalice:x:1000:\n")
    return top


@pytest.fixture
def install(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    # bxctl is no part of this, and the slowest of an installation.
    monkeypatch.setattr("deploy.quadlet.ownerprogram.steps", lambda *_: ())
    image = Image()

    def run(*options: str) -> int:
        return installer.main(
            ["--root", str(root), *options],
            built=lambda _, roles: Images(
                roles=dict.fromkeys(roles, image), tags=dict.fromkeys(roles, "t"), tools=image
            ),
        )

    return run


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def chat(token: Path) -> tuple[str, ...]:
    return ("--mattermost", "https://chat.example.org", "--mattermost-user", ALICE, "--mattermost-token", str(token))


def at(root: Path, place: str) -> Path:
    return steps.below(root, str(WIRING.at(place)))


def settings(root: Path) -> GatewaydSettings:
    return config.load(at(root, "etc/gatewayd.toml"), GatewaydSettings)


def everything(root: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in root.rglob("*") if path.is_file())


def test_without_mattermost_nothing_of_it_is_there_but_its_place(root: Path, install: Callable[..., int]) -> None:
    assert install(*OPTIONS) == 0
    assert not at(root, "etc/gatewayd.toml").exists()
    assert not (root / UNIT).exists()
    assert config.load(at(root, "etc/brokerd.toml"), BrokerdSettings).gateway.socket is None
    loopd = config.load(at(root, "etc/loopd.toml"), LoopdSettings)
    assert loopd.listen.gateway == WIRING.socket("loop-gateway")
    assert f'u {GATEWAYD.user} 644 "Boxmaker"' in (root / "etc/sysusers.d/boxmaker.conf").read_text()


def test_the_roles_are_told_of_each_other_the_server_and_the_people(
    root: Path, install: Callable[..., int], chat: tuple[str, ...]
) -> None:
    assert install(*OPTIONS, *chat, "--mattermost-user", BOB) == 0
    read = settings(root)
    assert (read.mattermost.url, read.mattermost.ca_file) == ("https://chat.example.org", None)
    assert (read.allow.users, read.approvers) == ((ALICE, BOB), (ALICE, BOB))
    assert (read.listen.gateway, read.listen.owner, read.loop.socket, read.state) == (
        WIRING.socket("gateway"), WIRING.socket("gateway-owner"), WIRING.socket("loop-gateway"),
        WIRING.at("home/gateway"),
    )  # fmt: skip
    assert read.secrets == {}
    brokerd = config.load(at(root, "etc/brokerd.toml"), BrokerdSettings)
    assert brokerd.gateway.socket == WIRING.socket("gateway")
    assert (root / UNIT).read_bytes() == (installation.FILES / UNIT).read_bytes()


def test_the_unit_reaches_out_and_is_given_the_sealed_token(
    root: Path, install: Callable[..., int], chat: tuple[str, ...]
) -> None:
    assert install(*OPTIONS, *chat) == 0
    drop_in = (root / f"{UNIT}.d/10-machine.conf").read_text().splitlines()
    for line in (
        "Network=", "Network=pasta", "Image=localhost/boxmaker/gatewayd:t",
        "LoadCredentialEncrypted=mattermost-token:/etc/boxmaker/gatewayd/mattermost-token.cred",
        "PodmanArgs=--env=CREDENTIALS_DIRECTORY=/run/user/644/credentials/bx-gatewayd.service",
    ):  # fmt: skip
        assert line in drop_in
    wait = root / "etc/systemd/system/user@644.service.d/boxmaker.conf"
    assert "After=network-online.target" in wait.read_text()


def test_a_second_installation_keeps_what_was_said(
    root: Path, install: Callable[..., int], chat: tuple[str, ...]
) -> None:
    assert install(*OPTIONS, *chat) == 0
    before = at(root, "etc/gatewayd.toml").read_bytes()
    assert install() == 0
    assert at(root, "etc/gatewayd.toml").read_bytes() == before
    assert install("--mattermost-user", BOB) == 0
    assert settings(root).allow.users == (BOB,)


def test_the_token_stands_in_no_file_but_its_own(
    root: Path, install: Callable[..., int], chat: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS, *chat) == 0
    assert TOKEN not in everything(root)
    assert install(*OPTIONS, *chat, "--mattermost-plain-token") == 0
    assert everything(root).count(TOKEN) == 1
    told = capsys.readouterr()
    assert TOKEN not in told.out + told.err


def test_a_plain_token_is_readable_to_gatewayds_user_alone(
    root: Path, install: Callable[..., int], chat: tuple[str, ...]
) -> None:
    assert install(*OPTIONS, *chat, "--mattermost-plain-token") == 0
    kept = at(root, "etc/gatewayd/mattermost-token")
    status = kept.stat()
    assert stat.S_IMODE(status.st_mode) == 0o400
    if os.geteuid() == 0:
        assert (status.st_uid, status.st_gid) == (644, 644)
    assert kept.read_text() == f"{TOKEN}\n"
    (source,) = settings(root).secrets.values()
    assert source.path == WIRING.at("etc/gatewayd/mattermost-token")
    drop_in = (root / f"{UNIT}.d/10-machine.conf").read_text()
    assert "Credential" not in drop_in
    assert "CREDENTIALS" not in drop_in
    assert install() == 0
    assert kept.exists()


def test_sealing_the_token_takes_the_plain_one_away(
    root: Path, install: Callable[..., int], chat: tuple[str, ...]
) -> None:
    assert install(*OPTIONS, *chat, "--mattermost-plain-token") == 0
    assert install(*OPTIONS, *chat) == 0
    assert not at(root, "etc/gatewayd/mattermost-token").exists()
    assert settings(root).secrets == {}


def test_an_authority_of_ones_own_lies_where_gatewayd_looks(
    root: Path, install: Callable[..., int], chat: tuple[str, ...], tmp_path: Path
) -> None:
    authority = tmp_path / "mine.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    assert install(*OPTIONS, *chat, "--mattermost-ca", str(authority)) == 0
    assert settings(root).mattermost.ca_file == WIRING.at("etc/gatewayd/ca.pem")
    assert at(root, "etc/gatewayd/ca.pem").read_bytes() == authority.read_bytes()
    assert install() == 0
    assert settings(root).mattermost.ca_file == WIRING.at("etc/gatewayd/ca.pem")


def test_when_it_is_left_out_again_only_what_it_keeps_stays(
    root: Path, install: Callable[..., int], chat: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS, *chat) == 0
    queue = at(root, "home/gateway/queue.sqlite")
    queue.parent.mkdir(parents=True, exist_ok=True)
    queue.write_bytes(b"x")
    assert install("--no-mattermost") == 0
    assert not list((root / "etc/containers/systemd/users").glob("644/*"))
    assert not (root / "etc/systemd/system/user@644.service.d").exists()
    assert not at(root, "etc/gatewayd.toml").exists()
    assert config.load(at(root, "etc/brokerd.toml"), BrokerdSettings).gateway.socket is None
    assert queue.exists()
    capsys.readouterr()
    assert install() == 0
    assert "remove" not in capsys.readouterr().err


def test_an_end_of_all_leaves_its_queue_its_settings_and_its_token(
    root: Path, install: Callable[..., int], chat: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS, *chat, "--mattermost-plain-token") == 0
    queue = at(root, "home/gateway/queue.sqlite")
    queue.parent.mkdir(parents=True, exist_ok=True)
    queue.write_bytes(b"x")
    capsys.readouterr()
    assert install("--uninstall") == 0
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert not [path for path in left if "644" in path]
    kept = {
        "var/lib/boxmaker/gateway/queue.sqlite",
        "etc/boxmaker/gatewayd.toml",
        "etc/boxmaker/gatewayd/mattermost-token",
    }
    assert kept <= left
    assert "the bot's token where there is one" in capsys.readouterr().err


def test_settings_that_the_owner_changed_stay_and_are_named(
    root: Path, install: Callable[..., int], chat: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*OPTIONS, *chat) == 0
    mine = at(root, "etc/gatewayd.toml")
    mine.write_text(mine.read_text().replace("attempts = 3", "attempts = 4"))
    assert install() == 0
    assert f"kept as you changed it: {WIRING.at('etc/gatewayd.toml')}" in capsys.readouterr().err
    assert install("--mattermost", "https://other.example.org") == 1
    assert "its server is https://chat.example.org" in capsys.readouterr().err
    assert install("--no-mattermost") == 0
    assert mine.exists()
    assert "bxctl doctor asks for gatewayd until you remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--mattermost", "chat.example.org"), "expected the server's address"),
        (("--mattermost", "https://chat.example.org/"), "without a slash at its end"),
        (("--mattermost", "http://localhost:8065"), "write 127.0.0.1 or [::1]"),
        (("--mattermost", "https://127.1"), "neither a name in ASCII nor an address"),
        (("--mattermost-user", "alice"), "expected Mattermost ids"),
        (("--mattermost-token", "/nowhere/token"), "/nowhere/token is no file"),
        (("--mattermost-ca", "/nowhere/ca"), "/nowhere/ca is no file"),
    ],
)
def test_what_gatewayd_would_not_take_is_refused_before_anything_is_written(
    root: Path, install: Callable[..., int], chat: tuple[str, ...], capsys: pytest.CaptureFixture[str],
    options: tuple[str, str], told: str,
) -> None:  # fmt: skip
    assert install(*OPTIONS, *chat, *options) == 1
    assert told in capsys.readouterr().err
    assert not (root / "etc/boxmaker").exists()


@pytest.mark.parametrize(
    ("left_out", "told"),
    [("--mattermost", "with --mattermost URL alone"), ("--mattermost-user", "nobody may speak")],
)
def test_half_of_what_is_needed_is_refused(
    install: Callable[..., int], chat: tuple[str, ...], capsys: pytest.CaptureFixture[str], left_out: str, told: str
) -> None:
    pairs = dict(zip(chat[::2], chat[1::2], strict=True))
    said = [word for option, value in pairs.items() if option != left_out for word in (option, value)]
    assert install(*OPTIONS, *said) == 1
    assert told in capsys.readouterr().err


def test_a_token_that_nobody_brought_is_asked_for(root: Path) -> None:
    said = Mattermost(url="https://chat.example.org", users=(ALICE,), sealed=False)
    with pytest.raises(Refusal, match="--mattermost-token FILE"):
        mattermost.check(said, mattermost.NOTHING, WIRING, root)


def test_a_systemd_that_gives_users_no_credentials_is_said() -> None:
    sealed = Mattermost(url="https://chat.example.org", users=(ALICE,))
    (told,) = mattermost.old(sealed, 257)
    assert "--mattermost-plain-token" in told
    assert list(mattermost.old(sealed, 258)) == []
    assert list(mattermost.old(Mattermost(url=sealed.url, users=(ALICE,), sealed=False), 252)) == []
    assert list(mattermost.old(None, 252)) == []


@pytest.mark.parametrize(
    ("url", "network"),
    [
        ("https://chat.example.org", "pasta"),
        ("https://192.0.2.9:8443/chat", "pasta"),
        ("http://127.0.0.1:8065", "pasta:-T,8065"),
        ("https://[::1]", "pasta:-T,443"),
        ("http://127.0.0.1", "pasta:-T,80"),
    ],
)
def test_of_this_machine_the_servers_port_alone_is_led_in(url: str, network: str) -> None:
    assert mattermost.network(Mattermost(url=url, users=())) == network
    assert Answers(upstream="", owner="", mattermost=Mattermost(url=url, users=())).settings.outbound == network


def test_without_a_server_the_role_has_no_network() -> None:
    assert Answers(upstream="", owner="").settings.outbound == "none"


def test_the_token_is_sealed_for_its_user_and_stands_in_no_argument(root: Path, token: Path, tmp_path: Path) -> None:
    fake = tmp_path / "systemd-creds"
    fake.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/argv\necho sealed "$(cat "$5" | wc -c)"\n')
    fake.chmod(0o755)
    seal = Seal(path="/etc/boxmaker/x.cred", token=token, user="bx-gatewayd", gid=0, program=str(fake))
    seal.do(root)
    argv = (tmp_path / "argv").read_text().split()
    assert argv == ["encrypt", "--user", "--uid=bx-gatewayd", "--name=mattermost-token", str(token), "-"]
    kept = root / "etc/boxmaker/x.cred"
    assert re.fullmatch(rf"sealed +{len(TOKEN) + 1}\n", kept.read_text())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o440
    assert TOKEN not in repr(seal) + seal.told()


def test_a_token_that_cannot_be_sealed_leaves_the_one_before(root: Path, token: Path, tmp_path: Path) -> None:
    kept = root / "etc" / "x.cred"
    kept.write_text("before")
    fake = tmp_path / "systemd-creds"
    fake.write_text("#!/bin/sh\necho half\necho no such key >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(Refusal, match="no such key"):
        Seal(path="/etc/x.cred", token=token, user="bx-gatewayd", gid=0, program=str(fake)).do(root)
    assert kept.read_text() == "before"


def test_this_systemd_takes_the_words_of_the_seal() -> None:
    """Its help names each of them, where it is new enough to have credentials of users."""
    try:
        told = subprocess.run(["systemd-creds", "--help"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        pytest.skip("systemd-creds is not installed (Debian: systemd)")
    if "--uid" not in told:
        pytest.skip("this systemd has no credentials of users; 256 has")
    for word in ("--user", "--uid=", "--name=", "encrypt INPUT OUTPUT"):
        assert word in told
