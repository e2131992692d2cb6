"""The roles' files are written until the owner changes one, and the roles accept them."""

import shutil
import stat
import typing
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import attrs
import pytest

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.secrets import SecretStore
from bxcore.settings.brokerd import BrokerdSettings
from bxcore.settings.gatewayd import TOKEN, GatewaydSettings
from bxcore.settings.inferproxy import InferproxySettings
from bxcore.settings.loopd import LoopdSettings
from deploy.local import configs
from deploy.local.configs import Outcome, Served
from deploy.local.home import Home
from deploy.local.mattermost import Wish

EXAMPLES = Path(__file__).parents[3] / "deploy" / "example"


def served(*, slots: int = 2) -> Served:
    return Served(model="m", n_ctx=4_096, slots=slots)


def test_loopd_accepts_what_is_written_for_it(tmp_path: Path) -> None:
    path, home = tmp_path / "loopd.toml", Home(tmp_path)
    configs.write(path, configs.loopd(home, served(), small_model=False, tools=False))
    settings = config.load(path, LoopdSettings)
    assert (settings.expect.n_ctx, settings.expect.slots) == (4_096, 2)
    assert (settings.slots.main, settings.slots.background) == (0, 1)
    assert settings.listen.owner == home.loop_socket
    assert settings.state == tmp_path


def test_a_server_with_one_slot_serves_both_from_it(tmp_path: Path) -> None:
    path = tmp_path / "loopd.toml"
    configs.write(path, configs.loopd(Home(tmp_path), served(slots=1), small_model=False, tools=False))
    assert config.load(path, LoopdSettings).slots.background == 0


def test_the_small_model_has_settings_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "loopd.toml"
    configs.write(path, configs.loopd(Home(tmp_path), served(), small_model=True, tools=False))
    settings = config.load(path, LoopdSettings)
    assert (settings.sampling.temperature, settings.limits.loop_chars) == (Decimal("0"), 400)


ALICE, LOBBY = "a" * 26, "c" * 26


def wish(token: Path, *, ca_file: Path | None = None) -> Wish:
    return Wish(url="https://chat.example.org", users=(ALICE,), channels=(LOBBY,), token=token, ca_file=ca_file)


def test_gatewayd_accepts_what_is_written_for_it_and_finds_its_token(tmp_path: Path) -> None:
    home, token = Home(tmp_path), tmp_path / "to ken"
    token.write_text("t" * 26 + "\n")
    token.chmod(0o600)
    path = tmp_path / "gatewayd.toml"
    body = configs.gatewayd(home, wish(token, ca_file=tmp_path / "ca.pem"), ca_file=tmp_path / "ca.pem", token=token)
    configs.write(path, body)
    settings = config.load(path, GatewaydSettings)
    assert settings.state == tmp_path / "gateway"
    assert (settings.mattermost.url, settings.mattermost.ca_file) == ("https://chat.example.org", tmp_path / "ca.pem")
    assert (settings.allow.users, settings.allow.channels, settings.approvers) == ((ALICE,), (LOBBY,), (ALICE,))
    assert SecretStore(settings.secrets, environment={}).get(TOKEN).reveal() == "t" * 26


def test_the_three_that_speak_of_mattermost_meet_on_their_sockets(tmp_path: Path) -> None:
    home, path = Home(tmp_path), tmp_path / "x.toml"
    configs.write(path, configs.gatewayd(home, wish(tmp_path), ca_file=None, token=None))
    gatewayd = config.load(path, GatewaydSettings)
    assert gatewayd.secrets == {}
    configs.write(path, configs.loopd(home, served(), small_model=False, tools=True, gateway=True))
    assert config.load(path, LoopdSettings).listen.gateway == gatewayd.loop.socket
    configs.write(path, configs.loopd(home, served(), small_model=False, tools=True))
    assert config.load(path, LoopdSettings).listen.gateway is None
    listens = tuple(path.parent.name for path in (gatewayd.listen.gateway, gatewayd.listen.owner))
    assert listens == ("gateway", "gateway-owner")


def test_a_file_of_ours_goes_with_its_role_and_an_edited_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "gatewayd.toml"
    assert configs.leave_out(path) is Outcome.REMOVED
    configs.write(path, "a = 1\n")
    assert configs.leave_out(path) is Outcome.REMOVED
    assert not path.exists()
    path.write_text("a = 1\n")
    assert configs.leave_out(path) is Outcome.KEPT
    assert path.exists()


STRANGE = {"quotes": 'a"b', "a line break": "a\nb", "controls": "a\x1b\x7fb", "letters": "straße 模型"}


@pytest.mark.parametrize("name", STRANGE.values(), ids=STRANGE.keys())
def test_any_directory_can_be_spelled(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name)
    path = tmp_path / "loopd.toml"
    configs.write(path, configs.loopd(home, served(), small_model=False, tools=False))
    assert config.load(path, LoopdSettings).infer.socket == home.infer_socket


def test_inferproxy_accepts_what_is_written_for_it(tmp_path: Path) -> None:
    path, home = tmp_path / "inferproxy.toml", Home(tmp_path)
    configs.write(path, configs.inferproxy(home, "unix:/run/model.sock"))
    settings = config.load(path, InferproxySettings)
    assert (str(settings.listen), settings.upstream) == (str(home.infer_socket), "unix:/run/model.sock")


def test_an_upstream_cannot_write_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "inferproxy.toml"
    configs.write(path, configs.inferproxy(Home(tmp_path), 'x"\nidle_ms = 1\n#'))
    assert "idle_ms = 1" not in path.read_text().splitlines()


def test_a_file_of_ours_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    assert configs.write(path, "a = 1\n") is Outcome.WRITTEN
    assert configs.write(path, "a = 2\n") is Outcome.WRITTEN
    assert path.read_text().splitlines()[1:] == ["a = 2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


OWNERS = {
    "a value changed": lambda text: text.replace("a = 1", "a = 3"),
    "a comment added": lambda text: text + "# mine\n",
    "our first line removed": lambda text: text.partition("\n")[2],
    "another first line": lambda text: "# mine\n" + text,
    "emptied": lambda _: "",
}


@pytest.mark.parametrize("change", OWNERS.values(), ids=OWNERS.keys())
def test_an_edited_file_stays_as_it_is(tmp_path: Path, change: Callable[[str], str]) -> None:
    path = tmp_path / "a.toml"
    configs.write(path, "a = 1\n")
    path.write_text(change(path.read_text()))
    edited = path.read_bytes()
    assert configs.write(path, "a = 2\n") is Outcome.KEPT
    assert path.read_bytes() == edited


def test_a_file_that_is_not_text_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xff\n")
    assert configs.write(path, "a = 2\n") is Outcome.KEPT


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, path = tmp_path / "elsewhere.toml", tmp_path / "a.toml"
    configs.write(target, "a = 1\n")
    path.symlink_to(target)
    assert configs.write(path, "a = 2\n") is Outcome.KEPT
    assert path.is_symlink()


def test_the_faults_of_all_edited_files_are_told_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    (home.etc / "inferproxy.toml").write_text('upstream = "http://box:1"\n')
    (home.etc / "loopd.toml").write_text(
        configs.loopd(home, served(), small_model=True, tools=False) + "[sampling]\ntop_q = 1\n"
    )
    with pytest.raises(ConfigError) as faults:
        configs.check_edited(home)
    assert [line.partition(":")[0] for line in faults.value.detail.splitlines()] == [
        str(home.etc / "inferproxy.toml"),
        str(home.etc / "loopd.toml"),
    ]


def test_a_file_that_will_be_written_anew_is_not_checked(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    configs.write(home.etc / "loopd.toml", "of = 'an older version'\n")
    configs.check_edited(home)


def test_an_edited_file_without_faults_is_accepted(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    (home.etc / "loopd.toml").write_text(configs.loopd(home, served(), small_model=True, tools=False))
    configs.check_edited(home)


# -- deploy/example ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("loopd", LoopdSettings),
        ("inferproxy", InferproxySettings),
        ("brokerd", BrokerdSettings),
        ("gatewayd", GatewaydSettings),
    ],
)
def test_an_example_holds_every_key_with_its_default(tmp_path: Path, name: str, cls: type) -> None:
    """What the example spells out equals what a file with the required keys alone would give."""
    text = (EXAMPLES / f"{name}.toml").read_text()
    whole = tmp_path / f"{name}.toml"
    shutil.copy(EXAMPLES / f"{name}.toml", whole)
    short = tmp_path / "short.toml"
    short.write_text("\n".join(line for line in text.splitlines() if line.startswith("[") or "# required" in line))
    assert config.load(whole, cls) == config.load(short, cls)
    assert keys_of(cls) <= set(text.replace("#", "").split()), "a key is missing"


def keys_of(cls: type) -> set[str]:
    names: set[str] = set()
    hints = typing.get_type_hints(cls)
    for field in attrs.fields(cls):
        if typing.get_origin(hints[field.name]) is dict:
            continue  # tables of the owner's own names
        names |= keys_of(hints[field.name]) if attrs.has(hints[field.name]) else {field.name}
    return names
