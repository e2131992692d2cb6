"""What can be typed about Mattermost, what is wrong with it before anything starts, and what is said once it runs."""

import argparse
import dataclasses
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bxcore.wire import gateway
from bxcore.wire.control import ErrorCode
from deploy.appliance import appliance
from deploy.local import commandline, launch, mattermost
from deploy.local.home import Home
from deploy.local.mattermost import Wish
from deploy.local.progress import Progress
from tests.fakes import gateway as fakes
from tests.fakes.gateway import FakeGateway, an_id
from tests.fakes.rolesocket import refuses

ALICE, BOB, LOBBY = "a" * 26, "b" * 26, "c" * 26
URL = "https://chat.example.org"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("t" * 26)
    path.chmod(0o600)
    return path


def words(token: Path, **other: str | None) -> list[str]:
    """Return a command line in which all is well, but for what differs; None leaves it out."""
    usual: dict[str, str | None] = {"mattermost": URL, "mattermost-users": ALICE, "mattermost-token": str(token)}
    given = {**usual, **{name.replace("_", "-"): value for name, value in other.items()}}
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def wish(token: Path, **other: str | None) -> Wish:
    found = launch._options(words(token, **other)).mattermost
    assert found is not None
    return found


def test_all_of_it_can_be_typed(token: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    more: Any = {"mattermost_channels": LOBBY, "mattermost_ca": str(tmp_path / "ca.pem")}
    found = wish(token, mattermost_users=f"{ALICE}, {BOB},", **more)
    assert found == Wish(url=URL, users=(ALICE, BOB), channels=(LOBBY,), token=token, ca_file=tmp_path / "ca.pem")
    assert found.secret() == "t" * 26
    assert found.variables == {
        "MATTERMOST": URL,
        "MATTERMOST_USERS": f"{ALICE},{BOB}",
        "MATTERMOST_TOKEN": str(token),
        "MATTERMOST_CHANNELS": LOBBY,
        "MATTERMOST_CA": str(tmp_path / "ca.pem"),
    }


def test_without_a_word_of_it_there_is_none() -> None:
    assert launch._options([]).mattermost is None
    assert appliance._options([]).mattermost is None


@pytest.mark.parametrize("users", [None, ", ,"])
def test_without_users_it_is_gatewayd_that_says_who_could_be_meant(token: Path, users: str | None) -> None:
    assert wish(token, mattermost_users=users).users == ()


def test_both_launchers_take_it(token: Path) -> None:
    assert appliance._options(words(token)).mattermost == wish(token)
    assert "MATTERMOST_USERS=" in appliance._options(words(token)).come_back
    assert "MATTERMOST_USERS=" in " ".join(launch._options(words(token)).conversation)


SLIPS: dict[str, tuple[dict[str, str | None], str]] = {
    "no server": (
        {"mattermost": None},
        "MATTERMOST_USERS is there and MATTERMOST= is not; it takes the server's address",
    ),
    "a name": ({"mattermost_users": "alice"}, "MATTERMOST_USERS=alice: expected Mattermost ids, 26 characters"),
    "a name twice": (
        {"mattermost_users": f"{ALICE},{ALICE}"},
        f"MATTERMOST_USERS={ALICE},{ALICE}: expected each id once",
    ),
    "a channel's name": ({"mattermost_channels": "~lobby"}, "MATTERMOST_CHANNELS=~lobby: expected Mattermost ids"),
    "no scheme": ({"mattermost": "chat.example.org"}, "MATTERMOST=chat.example.org: expected the server's address, as"),
    "a slash behind it": ({"mattermost": f"{URL}/"}, f"MATTERMOST={URL}/: expected the server's address"),
    "a control character": ({"mattermost": "https://\x1b[2J"}, "MATTERMOST="),
    "no token": ({"mattermost_token": None}, "MATTERMOST_TOKEN= is missing: the path of a file, mode 0600"),
    "no such token": ({"mattermost_token": "/nowhere/x"}, "MATTERMOST_TOKEN=/nowhere/x: there is no such file"),
    "a directory": ({"mattermost_token": "/"}, "MATTERMOST_TOKEN=/ is not a file"),
    "no such certificate": ({"mattermost_ca": "/nowhere/x"}, "MATTERMOST_CA=/nowhere/x: there is no such file"),
    "no certificate": ({"mattermost_ca": os.__file__}, f"MATTERMOST_CA={os.__file__} holds no certificate in PEM"),
}


@pytest.mark.parametrize(("other", "said"), SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_one_sentence_and_nothing_starts(
    token: Path, tmp_path: Path, other: dict[str, str | None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert launch.main([*words(token, **other), "--home", str(home)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"make chat: {said}")
    assert line.isprintable()
    assert not home.exists()


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://chat.example.org", True),
        ("http://192.0.2.7:8065", True),
        ("https://chat.example.org", False),
        ("http://127.0.0.1:8065", False),
        ("http://[::1]:8065", False),
        ("http://localhost:8065", False),
    ],
)
def test_a_token_that_would_be_read_on_the_way_is_told_before_anything_starts(
    token: Path, tmp_path: Path, url: str, warned: bool
) -> None:
    said = io.StringIO()
    launch.prepare_gatewayd(tmp_path, wish(token, mattermost=url), progress=Progress(said))
    assert said.getvalue().startswith(f"make chat: MATTERMOST={url}: the bot's token") is warned
    assert ("[mattermost_in_clear]" in said.getvalue()) is warned


def link(path: Path) -> None:
    """Have a link to the file in its place."""
    path.rename(path.with_name("x"))
    path.symlink_to(path.with_name("x"))


TOKENS: dict[str, tuple[Callable[[Path], object], str]] = {
    "open to its group": (lambda path: path.chmod(0o640), "is open to others (mode 0640): chmod 600 "),
    "open to everybody": (lambda path: path.chmod(0o604), "is open to others (mode 0604): chmod 600 "),
    "empty": (lambda path: path.write_text(""), "is empty"),
    "a link": (link, "is a link; name the file itself"),
}


@pytest.mark.parametrize(("change", "said"), TOKENS.values(), ids=TOKENS.keys())
def test_a_token_file_that_others_may_read_is_refused(
    token: Path, change: Callable[[Path], object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(token)
    assert launch.main(words(token)) == 2
    assert f"MATTERMOST_TOKEN={token} {said}" in capsys.readouterr().err.replace("\n", " ")


def test_a_token_file_of_another_users_is_refused(
    token: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert launch.main(words(token)) == 2
    assert f"is another user's file (uid {me})" in capsys.readouterr().err


# -- without a terminal -----------------------------------------------------------------------------


def serves_only(token: Path, *more: str, stdin: int, monkeypatch: pytest.MonkeyPatch, asked: bool = True) -> bool:
    """Return what is made of a standard input that is `stdin`."""
    parser = argparse.ArgumentParser()
    commandline.declare(parser, usual=Path(), shown="")
    given = parser.parse_args([*(words(token) if asked else ()), *more])
    real_fstat, real_isatty = os.fstat, os.isatty
    monkeypatch.setattr(os, "fstat", lambda number: real_fstat(stdin if number == 0 else number))
    monkeypatch.setattr(os, "isatty", lambda number: real_isatty(stdin if number == 0 else number))
    return commandline.serves_only(given)


def test_mattermost_alone_is_served_where_nobody_can_say_anything(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        assert serves_only(token, stdin=nothing.fileno(), monkeypatch=monkeypatch)
        assert not serves_only(token, "--say=x", stdin=nothing.fileno(), monkeypatch=monkeypatch)
        assert not serves_only(token, stdin=nothing.fileno(), monkeypatch=monkeypatch, asked=False)
    assert serves_only(token, stdin=-1, monkeypatch=monkeypatch)


def test_a_pipe_and_a_terminal_hold_a_conversation(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    leader, terminal = os.openpty()
    for stdin in (read, terminal):
        assert not serves_only(token, stdin=stdin, monkeypatch=monkeypatch)
    with token.open() as file:
        assert not serves_only(token, stdin=file.fileno(), monkeypatch=monkeypatch)
    for descriptor in (read, write, leader, terminal):
        os.close(descriptor)


# -- what is said of it -----------------------------------------------------------------------------


def told(home: Path, scripts: Any = None, **other: Any) -> str:
    wanted = Wish(url=URL, users=(ALICE,), channels=(), token=Path("/t"), ca_file=None)
    with FakeGateway(home, scripts):
        return mattermost.told(Home(home).gateway_owner_socket, dataclasses.replace(wanted, **other)).text


def test_it_is_said_as_whom_it_listens_and_to_whom(tmp_path: Path) -> None:
    assert told(tmp_path) == f"Mattermost: @boxmaker on {URL} answers @alice in direct messages, while this runs"
    with_channels = told(tmp_path, fakes.account(channels_allowed=1), channels=(LOBBY,))
    assert "in direct messages and, when named, in 1 of its channels, while this runs" in with_channels


def test_ids_that_are_nobodys_are_named(tmp_path: Path) -> None:
    said = told(tmp_path, fakes.account(allowed=(), unfit=(an_id("x"),)))
    assert f"answers nobody in direct messages, while this runs. No person has the ids {'x' * 26}; " in said
    assert "write to the bot" in said
    assert said.endswith("for MATTERMOST_USERS= [mattermost_users_unfit]")


def test_a_channel_in_which_the_bot_is_not_is_not_counted_and_is_named(tmp_path: Path) -> None:
    said = told(tmp_path, fakes.account(channels_allowed=0, channels_absent=(an_id("x"),)), channels=(an_id("x"),))
    assert "answers @alice in direct messages, while this runs. It is not in " in said
    assert said.endswith(f"{'x' * 26}; invite it there, or correct MATTERMOST_CHANNELS= [mattermost_channels_absent]")


def test_a_server_that_is_away_is_said_to_be_tried_again(tmp_path: Path) -> None:
    said = told(tmp_path, fakes.status(connected=False, code="mattermost_away", detail="no \x1b answer"))
    assert said.startswith(f"Mattermost: not connected to {URL}: ")
    assert "[mattermost_away]" in said
    assert said.endswith("; it goes on trying")
    assert said.isprintable()


def test_a_server_that_does_not_say_who_the_bot_is_is_tried_again(tmp_path: Path) -> None:
    said = told(tmp_path, {gateway.GatewayWhoami: refuses(ErrorCode.INTERNAL, "a fault")})
    assert said == f"Mattermost: not connected to {URL}: a fault [internal]; it goes on trying"


def test_where_events_are_not_read_yet_it_is_said_all_the_same_who_listens(tmp_path: Path) -> None:
    assert told(tmp_path, fakes.status(connected=False)).startswith("Mattermost: @boxmaker on ")


def test_a_gatewayd_that_says_nothing_ends_nothing(tmp_path: Path) -> None:
    wanted = Wish(url=URL, users=(ALICE,), channels=(), token=Path("/t"), ca_file=None)
    assert "does not say how it is" in mattermost.told(tmp_path / "nothing.sock", wanted).text


# -- while it runs ----------------------------------------------------------------------------------


class Terminal:
    """What is said while time passes only as the test wants."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said = io.StringIO()
        self.watch = mattermost.Watch(Progress(self.said), lambda: self.now)

    def look(self, status: str, *, after: float = 0) -> list[str]:
        """Return what is said of this status."""
        self.now += after
        self.said.seek(0)
        self.said.truncate()
        self.watch.look(status)
        return self.said.getvalue().splitlines()


AWAY = "mattermost_away: chat.example.org port 443: Connection refused"


def test_a_connection_that_is_lost_is_told_once_and_so_is_that_it_is_back() -> None:
    terminal = Terminal()
    assert terminal.look("connected") == []
    assert terminal.look(AWAY) == []
    (line,) = terminal.look(AWAY, after=10)
    assert line == (
        "make chat: Mattermost: chat.example.org port 443: Connection refused [mattermost_away]; "
        "gatewayd goes on trying"
    )
    assert terminal.look(AWAY, after=10) == []
    assert terminal.look("catching up", after=10) == []
    assert terminal.look("connected") == ["make chat: Mattermost: connected"]
    assert terminal.look("connected") == []


def test_a_hiccup_is_not_told() -> None:
    terminal = Terminal()
    for _ in range(3):
        assert [*terminal.look(AWAY, after=1), *terminal.look("catching up"), *terminal.look("connected")] == []


def test_a_token_that_is_refused_is_told_at_once() -> None:
    (line,) = Terminal().look("token_refused: the server said 401")
    assert line.endswith("the server said 401 [token_refused]; gatewayd goes on trying")


def test_where_the_start_told_of_it_only_that_it_is_connected_is_told(tmp_path: Path) -> None:
    terminal = Terminal()
    wanted = Wish(url=URL, users=(ALICE,), channels=(), token=Path("/t"), ca_file=None)
    with FakeGateway(tmp_path, fakes.status(connected=False, code="mattermost_away", detail="no answer")):
        terminal.watch.begin(Home(tmp_path).gateway_owner_socket, wanted)
    assert "it goes on trying" in terminal.said.getvalue()
    assert terminal.look(AWAY, after=10) == []
    assert terminal.look("connected") == ["make chat: Mattermost: connected"]
