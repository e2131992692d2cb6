"""One launcher a home, and directories that the roles accept for their sockets."""

import os
import stat
from pathlib import Path

import pytest

from bxcore import listener
from deploy.local.home import MAX_SOCKET_BYTES, Home
from deploy.local.refusal import Refusal


def test_the_roles_accept_the_directories(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "run" / "infer").mkdir(parents=True, mode=0o777)
    (tmp_path / "run" / "infer").chmod(0o777)  # whatever it was before
    home.prepare()
    for path in (home.infer_socket, home.loop_socket):
        listener.open_socket(path).close()


def test_nobody_else_may_enter(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    home.prepare()  # a second start finds everything there
    directories = [path for path in home.path.rglob("*") if path.is_dir() and path.name != "run"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    own = {"etc", "log", "sessions", "audit", "gateway"}
    roles = {"infer", "loop-owner", "loop-gateway", "broker", "admin", "gateway", "gateway-owner", "state"}
    assert {path.name for path in directories} == own | roles | {"model", "launcher"}


def test_a_path_that_no_socket_can_have_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    home = Home(tmp_path / ("d" * MAX_SOCKET_BYTES))
    with pytest.raises(Refusal, match="--home"):
        home.prepare()
    assert not home.path.exists()


@pytest.mark.parametrize("name", ["new\nline", "last\n", "re\rturn", "\x1b[2J", os.fsdecode(b"\xff")], ids=ascii)
def test_a_name_that_no_line_can_hold_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name)
    with pytest.raises(Refusal, match="can be printed") as refusal:
        home.prepare()
    assert str(refusal.value).isprintable()
    assert not home.path.exists()


def test_the_longest_path_that_is_let_through_works(tmp_path: Path) -> None:
    room = MAX_SOCKET_BYTES - len(str(Home(tmp_path).gateway_owner_socket)) - 1
    home = Home(tmp_path / ("d" * room))
    home.prepare()
    listener.open_socket(home.loop_socket).close()
    with pytest.raises(Refusal):
        Home(tmp_path / ("d" * (room + 1))).prepare()


def test_a_home_has_one_lock(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = home.lock()
    assert first is not None
    assert home.lock() is None
    first.close()
    second = home.lock()
    assert second is not None
    second.close()


def test_the_door_closes_when_the_last_guest_has_left_and_then_nobody_enters(tmp_path: Path) -> None:
    home = Home(tmp_path)
    one, other = home.enter(), home.enter()
    assert one is not None
    assert other is not None
    one.close()
    assert home.close_door() is None
    other.close()
    door = home.close_door()
    assert door is not None
    assert home.enter() is None
    door.close()


def test_a_home_of_another_users_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 4_000_000)
    with pytest.raises(Refusal, match=f"{tmp_path} belongs to the user .*, and you are {me + 4_000_000}:"):
        Home(tmp_path).prepare()
    assert list(tmp_path.iterdir()) == []
