"""The real gatewayd between a Mattermost server, loopd and brokerd: its start, its ends, one story of each."""

import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokerd.gatewaycourier import GatewayCourier
from bxcore.auditlog import Answered
from bxcore.client import Connection
from bxcore.deadline import SystemClock
from bxcore.errors import EXIT_CONFIG, UpstreamError
from bxcore.ids import MattermostId
from bxcore.server import Request
from bxcore.settings.brokerd import Gateway
from bxcore.wire import channel, gateway
from bxcore.wire.admin import ApprovalEnding
from bxcore.wire.approvals import ApprovalOpen
from bxcore.wire.channel import TurnState
from bxcore.wire.tools import ToolResult
from tests.contract.gateway.people import until
from tests.fakes import loopd, queued
from tests.fakes.brokered import Brokered
from tests.fakes.mattermost import Mattermost
from tests.fakes.rolesocket import FakeRole, Script, replies, send
from tests.process.role import Role

CLOCK = SystemClock()
PATIENCE_MS = 60_000


class Place:
    """A server with the bot and alice in a direct channel, a loopd that answers, and gatewayd when it is started."""

    def __init__(self, home: Path, server: Mattermost) -> None:
        self.home, self.server = home, server
        for name in ("state", "run/gateway", "run/gateway-owner"):
            (home / name).mkdir(mode=0o700, parents=True)
        self.alice = server.add_user("alice")
        self.bot, self.token = server.add_bot("boxmaker")
        self.direct = server.direct(self.alice, self.bot)
        self.users = [self.alice]
        self.url, self.ping_ms = server.url, 1000
        self.scripts: dict[Any, Script] = {
            channel.LoopStatus: replies(loopd.ready()),
            channel.UserMessage: lambda request: request.answer(loopd.accepted(request), final=True),
            channel.TurnFollow: _ended,
        }

    @property
    def config(self) -> Path:
        """gatewayd.toml, written now."""
        token, path = self.home / "token", self.home / "gatewayd.toml"
        token.write_text(f"{self.token}\n")
        token.chmod(0o600)
        users = ", ".join(f'"{user}"' for user in self.users)
        path.write_text(
            f'state = "{self.home}/state"\n'
            f'[listen]\ngateway = "{self.socket}"\nowner = "{self.owner_socket}"\n'
            f'[mattermost]\nurl = "{self.url}"\nretry_most_ms = 50\nping_ms = {self.ping_ms}\n'
            f'[loop]\nsocket = "{self.home}/run/loop-gateway/loop.sock"\n'
            f"[allow]\nusers = [{users}]\n"
            f'[secrets.mattermost-token]\nbackend = "file"\npath = "{token}"\n'
        )
        return path

    @property
    def socket(self) -> Path:
        return self.home / "run" / "gateway" / "gateway.sock"

    @property
    def owner_socket(self) -> Path:
        return self.home / "run" / "gateway-owner" / "gateway.sock"

    def start(self) -> Role:
        return Role("gatewayd", "--config", str(self.config), home=self.home)

    @contextmanager
    def running(self) -> Iterator[Role]:
        """gatewayd, ready; it ends well when the block does."""
        with self.start() as role:
            yield role.wait_ready()
            assert role.terminate() == 0, role.log()

    @contextmanager
    def connected(self) -> Iterator[Role]:
        """The same, and it hears of posts."""
        with self.running() as role:
            until(lambda: self.status().connected, "connected to the server")
            yield role

    def loopd(self) -> FakeRole:
        return FakeRole(self.home, "loop-gateway", "loop.sock", self.scripts)

    def tell(self, message: object) -> Any:
        with Connection(self.owner_socket, clock=CLOCK) as connection:
            [answer] = connection.request(message, idle_ms=PATIENCE_MS)
        return answer.msg

    def status(self) -> gateway.GatewayStatusReport:
        report = self.tell(gateway.GatewayStatus())
        assert isinstance(report, gateway.GatewayStatusReport)
        return report

    def said(self) -> list[Any]:
        """What the bot said in the direct channel, oldest first."""
        return [post for post in self.server.posts_of(self.direct) if post["user_id"] == self.bot]

    def until_said(self, words: str) -> Any:
        until(lambda: [post for post in self.said() if words in post["message"]], f"a post with '{words}'")
        return next(post for post in self.said() if words in post["message"])


def _ended(request: Request) -> None:
    message = request.message
    assert isinstance(message, channel.TurnFollow)
    snapshot = channel.TurnSnapshot(turn=message.turn, state=TurnState.RUNNING, step=1, reasoning="", text="")
    send(request, [snapshot, loopd.ended("Good morning.", turn=message.turn)])


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="bxg") as name, Mattermost() as server:
        yield Place(Path(name).resolve(), server)


# -- the start --------------------------------------------------------------------------------------


def test_it_is_ready_connected_and_ends_when_told_to(place: Place) -> None:
    with place.connected() as role:
        report = place.status()
        assert (report.code, report.bot, report.server) == (None, "boxmaker", place.url)
        assert report.server_version is not None
        assert report.server_version.startswith("11.6")
    assert "ready" in role.log()


def test_a_server_that_is_not_there_does_not_keep_it_from_being_up(place: Place) -> None:
    place.server.down()
    with place.running():
        report = place.status()
        assert (report.connected, report.code, report.bot) == (False, "mattermost_away", None)
        place.server.up()
        until(lambda: place.status().connected, "connected once the server is there")
        assert place.status().code is None


def test_c11_a_token_that_was_revoked_is_a_state_and_no_end(place: Place) -> None:
    place.server.revoke(place.token)
    with place.running() as role:
        assert place.status().code == "token_refused"
        assert role.process.poll() is None


def test_c11_a_token_that_is_revoked_while_it_runs_is_a_state_too(place: Place) -> None:
    with place.connected():
        place.server.revoke(place.token)
        until(lambda: place.status().code == "token_refused", "told of the revoked token")


def test_c11_a_token_that_one_call_finds_revoked_shows_at_once(place: Place) -> None:
    """The event stream's own ping would tell minutes later."""
    place.ping_ms = 300_000
    with place.connected():
        place.server.revoke(place.token)
        refused = _whatever(place, gateway.GatewayWhoami())
        assert isinstance(refused, UpstreamError)
        assert refused.code == "token_refused"
        until(lambda: place.status().code == "token_refused", "told of the revoked token")
        assert not place.status().connected


def test_a_token_of_a_person_ends_the_start(place: Place) -> None:
    place.token = place.server.token_for(place.alice)
    with place.start() as role:
        assert role.exit_code() == EXIT_CONFIG
    assert "[not_a_bot]" in role.log()


def test_where_nobody_may_speak_it_says_who_could_be_meant(place: Place) -> None:
    place.users = []
    with place.start() as role:
        assert role.exit_code() == EXIT_CONFIG
    assert f"alice = {place.alice}" in role.log()
    assert "[nobody_allowed]" in role.log()


def test_where_nobody_may_speak_and_the_server_is_away_it_ends_all_the_same(place: Place) -> None:
    place.users = []
    place.server.down()
    with place.start() as role:
        assert role.exit_code() == EXIT_CONFIG
    assert "[nobody_allowed]" in role.log()
    place.server.up()


def _open_state(place: Place) -> None:
    (place.home / "state").chmod(0o750)


def _no_state(place: Place) -> None:
    (place.home / "state").rmdir()


def _linked_state(place: Place) -> None:
    (place.home / "state").rmdir()
    (place.home / "state").symlink_to(place.home / "run")


BAD: dict[str, tuple[Callable[[Place], None], str]] = {
    "a state directory that others may enter": (_open_state, "[unsafe_directory]"),
    "a state directory that is a link": (_linked_state, "[unsafe_directory]"),
    "no state directory": (_no_state, "[config]"),
    "no token": (lambda place: setattr(place, "token", ""), "[secret_refused]"),
    "a name for an id": (lambda place: setattr(place, "users", ["alice"]), "[config]"),
}


@pytest.mark.parametrize(("spoil", "code"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_with_its_files_ends_the_start(place: Place, spoil: Callable[[Place], None], code: str) -> None:
    spoil(place)
    with place.start() as role:
        assert role.exit_code() == EXIT_CONFIG
    assert code in role.log()
    assert "Traceback" not in role.log()


def test_a_second_one_does_not_start(place: Place) -> None:
    with place.running(), place.start() as second:
        assert second.exit_code() == EXIT_CONFIG
        assert "[already_running]" in second.log()


# -- the end ----------------------------------------------------------------------------------------


def test_told_to_end_while_the_server_does_not_answer_it_ends(place: Place) -> None:
    never = threading.Event()
    place.server.fail("*", "/users/me$", wait=never, times=100)
    with place.start() as role:
        until(place.owner_socket.exists, "the owner's socket")
        assert place.status().connected is False
        assert role.terminate() == 0
    never.set()


def test_told_to_end_with_an_open_question_it_ends_and_the_next_start_marks_the_post(place: Place) -> None:
    opened = ApprovalOpen(
        id=7,
        session=queued.an_id("s")[:5],  # type: ignore[arg-type]  # any name of a session
        opened=CLOCK.now_ms(),
        expires=CLOCK.now_ms(),
        parts=("May this run?",),
        answerable=True,
    )
    with place.connected(), Connection(place.socket, clock=CLOCK) as connection:
        answers = connection.request(opened, idle_ms=PATIENCE_MS)
        next(answers)
        assert place.status().questions == 1
    post = place.until_said("May this run?")
    with place.connected():
        until(lambda: place.server.post(post["id"])["message"] != post["message"], "the dead post marked")
    assert "was restarted" in place.server.post(post["id"])["message"]


# -- INV-11 -----------------------------------------------------------------------------------------


def test_inv_11_the_token_is_in_no_log_no_answer_and_no_file_whatever_fails(place: Place) -> None:
    faults = {"/users/me$": 401, "/config/client": 500, "/channels": 502, "/posts": 403, "/users/ids": 429}
    for path, status in faults.items():
        place.server.fail("*", path, status=status, body=f"Bearer {place.token}", times=3)
    with place.loopd(), place.running() as role:
        answers = [str(_whatever(place, message)) for message in (gateway.GatewayStatus(), gateway.GatewayWhoami())]
        place.server.clear_faults()
        until(lambda: place.status().connected, "connected to the server")
        place.server.drop_sockets()
        place.server.say(place.alice, place.direct, "Hello")
        place.until_said("Good morning.")
        place.server.revoke(place.token)
        until(lambda: place.status().code == "token_refused", "told of the revoked token")
        answers.append(str(place.status()))
        environment = Path(f"/proc/{role.process.pid}/environ").read_bytes()
        arguments = Path(f"/proc/{role.process.pid}/cmdline").read_bytes()
    files = b"".join(path.read_bytes() for path in (place.home / "state").iterdir())
    seen = role.log().encode() + "".join(answers).encode() + environment + arguments + files
    assert place.token.encode() not in seen
    assert re.search(rb"[Bb]earer", seen) is None


def _whatever(place: Place, message: object) -> object:
    try:
        return place.tell(message)
    except UpstreamError as error:
        return error


# -- one story of each ------------------------------------------------------------------------------


def test_a_post_becomes_a_turn_and_its_answer_a_post_in_the_thread(place: Place) -> None:
    with place.loopd() as loop, place.connected():
        post = place.server.say(place.alice, place.direct, "Hello")
        said = loop.wait(channel.UserMessage)
        assert (said.session, said.key, said.text, said.new) == (f"mm-{post['id']}", post["id"], "Hello", True)
        answer = place.until_said("Good morning.")
        assert answer["root_id"] == post["id"]
        until(lambda: place.status().asked == 0, "nothing left to do")


@pytest.fixture
def brokered(place: Place) -> Iterator[Brokered]:
    (place.home / "broker").mkdir()
    made = Brokered(place.home / "broker", clock=CLOCK)
    made.grant("g", mode="ask")
    courier = GatewayCourier(Gateway(socket=place.socket), answer=made.approvals.answer, clock=CLOCK, most=3)
    made.approvals._couriers.add(courier)
    yield made
    courier.stop()
    assert courier.join(PATIENCE_MS)
    made.close()


def answered(brokered: Brokered) -> Answered:
    return [record for record in brokered.records() if isinstance(record, Answered)][-1]


def test_a_question_of_brokerd_is_answered_in_its_thread_and_the_post_says_how_it_ended(
    place: Place, brokered: Brokered
) -> None:
    with place.connected(), brokered.asking() as asking:
        number = asking.pending().approval
        question = place.until_said(f"!approve {number}")
        stranger = place.server.say(place.alice, place.direct, f"!approve {number}")
        refusal = place.until_said("in the thread where it was asked")
        assert refusal["root_id"] == stranger["id"]
        answer = place.server.say(place.alice, place.direct, f"!approve {number}", root=question["id"])
        assert isinstance(asking.answer(), ToolResult)
        note = place.until_said(f"Approval {number}: approved")
        assert note["root_id"] == question["id"]
        until(lambda: "Approved." in place.server.post(question["id"])["message"], "the question marked")
        after = place.server.post(question["id"])
        assert f"!approve {number}" not in after["message"]
        assert after["props"]["unsafe_links"] == "true"
    record = answered(brokered)
    assert (record.ending, record.approver, record.post) == (
        ApprovalEnding.APPROVED,
        f"mattermost:{place.alice}",
        MattermostId(answer["id"]),
    )


def test_n10_over_a_restart_of_gatewayd_the_question_is_asked_again_and_only_the_new_post_is_answered(
    place: Place, brokered: Brokered
) -> None:
    with brokered.asking() as asking:
        number = asking.pending().approval
        with place.connected():
            first = place.until_said(f"!approve {number}")
        place.server.say(place.alice, place.direct, f"!approve {number}", root=first["id"])
        with place.connected():
            until(lambda: f"!approve {number}" not in place.server.post(first["id"])["message"], "the first one marked")
            second = place.until_said(f"!approve {number}")
            place.server.say(place.alice, place.direct, f"!deny {number} no", root=second["id"])
            asking.answer()
    assert answered(brokered).ending is ApprovalEnding.REFUSED
    assert brokered.containers.ran == []


def test_flooded_with_connections_the_owner_still_hears_how_things_are(place: Place) -> None:
    with place.connected():
        silent = [socket.socket(socket.AF_UNIX) for _ in range(80)]
        for one in silent:
            one.connect(str(place.socket))
        assert place.status().connected
        for one in silent:
            one.close()
