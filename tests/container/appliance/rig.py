"""A real appliance under test: every role in its container, a scripted model server behind, and clients on its sockets.

One for a session of tests. Each test may stop, kill and replace roles; `up` brings back what is missing.
"""

import base64
import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from bxcore import auditfiles, envelope, ids
from bxcore.auditlog import Record
from bxcore.client import Connection
from bxcore.deadline import SystemClock
from bxcore.envelope import Envelope
from bxcore.ids import CallId, MessageKey, SessionId
from bxcore.settings.gatewayd import TOKEN
from bxcore.wire import admin
from bxcore.wire.channel import UserMessage
from bxcore.wire.kinds import KINDS
from bxcore.wire.tools import ToolPending, ToolRequest
from bxcore.wiring import Wiring
from deploy.appliance import remains, roleplan
from deploy.appliance.host import Appliance
from deploy.appliance.rolecontainer import RoleContainer
from deploy.local import podman
from tests.container.appliance import bundle, looks, takeover
from tests.container.appliance.canaries import Canaries
from tests.container.appliance.chattown import ChatTown
from tests.container.appliance.expected import PROBE, View, every_path
from tests.fakes.brokered import grant_text
from tests.fakes.llama_server import Call, FakeLlama, Refusal, Reply, Vanish
from tests.process.loopd_stack import Talk

Answer = Reply | Refusal | Vanish

ORDER = ("inferproxy", "brokerd", "loopd", "gatewayd")
STATE = Path(__file__).resolve().parents[3] / ".state" / "container-tests" / "appliance"
PATIENCE_SECONDS = 90
N_CTX = 65_536
CLOCK = SystemClock()
SECRET = "wheelhouse-7731"
"""Stands in the launcher's environment and in each role's settings; no other role may come across it."""
GATEWAYD = "gatewayd"
_STANDING = "reads"

PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
LOOKS = bundle.program("tests.container.inside", "tests.container.appliance.looks")
TAKEOVER = bundle.program("tests.container.appliance.takeover")
FRAMES = Path(__file__).resolve().parents[2] / "fixtures" / "wire"

_THREAD = SessionId(f"mm-{'t' * 26}")

_PLACES = (
    "/",
    "/etc",
    "/usr",
    "/usr/lib",
    "/tmp",
    "/run",
    "/var/tmp",
    "/dev",
    "/dev/shm",
    "/proc/sys",
    "/sys",
    "/root",
)


@attrs.frozen(kw_only=True)
class Loose:
    """A container with a wall less: options more, another wiring, or other settings."""

    more: tuple[str, ...] = ()
    wiring: Callable[[Wiring], Wiring] = lambda same: same
    settings: Callable[[roleplan.Settings], roleplan.Settings] = lambda same: same


class Rig:
    """See the module's header. `replies` is what the model says next; where it is empty it says OK."""

    def __init__(self, appliance: Appliance, canaries: Canaries) -> None:
        self.appliance, self.canaries = appliance, canaries
        self.town = ChatTown(appliance.egress_network)
        appliance.settings = attrs.evolve(appliance.settings, outbound=self.town.network)
        self.llama = FakeLlama(appliance.place.model_socket, self.answer, n_ctx=N_CTX)
        self.replies: deque[Answer] = deque()
        self.running: dict[str, RoleContainer] = {}
        self._talks: list[Talk] = []
        self._numbers = itertools.count(1)

    # -- set up -------------------------------------------------------------------------------------

    @property
    def files(self) -> Path:
        """A folder of the tool user's that grants speak of."""
        return self.appliance.place.shared / "files"

    @property
    def probe(self) -> Path:
        return self.appliance.place.path / "probe"

    @property
    def note(self) -> Path:
        return self.files / "note.txt"

    def prepare(self) -> None:
        """Write settings, one grant and one file, and forget every earlier conversation."""
        shutil.rmtree(self.probe, ignore_errors=True)
        bundle.libraries(self.probe)
        self.files.mkdir(exist_ok=True)
        self.note.write_text("fair wind\n")
        for path in (self.files, self.note):
            path.chmod(0o700)
            self.give(path)
        (self.at("etc/grants") / f"{_STANDING}.toml").unlink(missing_ok=True)
        self.configure()
        self.appliance.place.write_secret(GATEWAYD, TOKEN, self.town.token)
        self.forget_grants()

    def forget_grants(self) -> None:
        """Leave the one grant that every test finds."""
        for grant in self.at("etc/grants").glob("*.toml"):
            if grant.stem != _STANDING:
                grant.unlink()
        if not (self.at("etc/grants") / f"{_STANDING}.toml").exists():
            self.grant(_STANDING, tool="read_file", paths=json.dumps([str(self.files)]))

    def give(self, path: Path) -> None:
        """Make a thing the tool user's, that brokerd may look at, and nobody else."""
        users, wiring = self.appliance.place.users, self.appliance.wiring
        if users.own:
            tools, brokerd = users.user(wiring.tools.user), wiring.user(wiring.edge("tool-runner").client)
            os.chown(path, tools.uid, tools.gid)
            subprocess.run(["setfacl", "--modify", f"u:{brokerd}:rX", str(path)], check=True)

    def configure(self, brokerd: str = "", loopd: str = "") -> None:
        """Write the roles' settings; the texts are added to those of these roles."""
        at, write = self.at, self.appliance.place.write
        upstream = self.appliance.settings.upstream
        write("etc/inferproxy.toml", _toml("inferproxy", {"": {"listen": at("infer"), "upstream": upstream}}))
        tables: Mapping[str, Mapping[str, object]] = {
            "": {"state": at("home")},
            "listen": {"owner": at("loop-owner"), "gateway": at("loop-gateway")},
            "infer": {"socket": at("infer")},
            "expect": {"n_ctx": N_CTX, "slots": 2},
            "broker": {"socket": at("broker")},
        }
        write("etc/loopd.toml", _toml("loopd", tables) + loopd)
        tables = {
            "": {"grants": at("etc/grants"), "audit": at("home/audit"), "state": at("home/broker")},
            "listen": {"broker": at("broker"), "admin": at("admin")},
            "podman": {
                "socket": at("tool-runner"),
                "image_file": at("etc/tool-image"),
                "calls": at("home/calls"),
                "seccomp": at("etc/tool-seccomp.json"),
            },
            "gateway": {"socket": at("gateway")},
        }
        write("etc/brokerd.toml", _toml("brokerd", tables) + brokerd)
        tables = {
            "": {"state": at("home/gateway")},
            "listen": {"gateway": at("gateway"), "owner": at("gateway-owner")},
            "mattermost": {"url": self.town.url},
            "loop": {"socket": at("loop-gateway")},
        }
        write("etc/gatewayd.toml", _toml(GATEWAYD, tables) + f'[allow]\nusers = ["{self.town.alice}"]\n')

    def at(self, name: str) -> Path:
        """Return where a path of the wiring lies, or an edge's socket."""
        return self.appliance.wiring.at(name) if "/" in name else self._top_or_socket(name)

    def _top_or_socket(self, name: str) -> Path:
        places = self.appliance.wiring.places
        tops = {"home": Path(places.home), "etc": Path(places.etc)}
        return tops[name] if name in tops else self.appliance.wiring.socket(name)

    def grant(self, name: str, **keys: str) -> Path:
        path = self.at("etc/grants") / f"{name}.toml"
        beside = path.with_name(f".{name}.new")
        beside.write_text(grant_text(**keys))
        beside.chmod(0o640)
        beside.rename(path)
        return path

    # -- parts --------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Start the model server anew, and let inferproxy's user in."""
        self.llama.start()
        self.appliance.place.model_socket.chmod(0o660)

    def start(self, role: str, *, more: Sequence[str] = ()) -> RoleContainer:
        self.running[role] = self.appliance.start(role, more=more)
        return self.running[role]

    def up(self) -> "Rig":
        """Have every role run and serve."""
        if not self.llama.listening:
            self.listen()
        self.appliance.tend()
        for role in ORDER:
            if role not in self.running or not self.running[role].alive:
                self.start(role)
        for role in ORDER:
            self.running[role].ready(PATIENCE_SECONDS)
        return self

    def close(self) -> None:
        """Stop what is ours; the appliance is closed by whoever made it."""
        self.stop()
        self.llama.kill()
        self.town.close()
        for talk in self._talks:
            talk.over()

    def stop(self, *roles: str) -> None:
        """Stop roles in order."""
        for role in roles or ORDER:
            if self.running.pop(role, None) is not None:
                self.appliance.stop(role)

    def kill(self, role: str) -> None:
        """End the role's own process, in its container, with SIGKILL; nobody else is told."""
        container = self.running[role]
        os.kill(self.number(role), signal.SIGKILL)
        until(lambda: not container.alive, f"{role} ends")

    def renew(self, role: str) -> None:
        """Let a stopped role's Podman see the host's mounts of now; where / is no shared mount, it keeps others."""
        account = self.appliance.place.account(role)
        # Who still cleans up would keep them for those who come later.
        until(lambda: all(map(remains.is_pause, remains.processes(account))), f"nothing of {role} is left")
        podman.end_pause_process(account)

    def number(self, role: str) -> int:
        """Return the host's number of the role's own process."""
        return int(self.appliance.podman(role, "inspect", "--format={{.State.Pid}}", self.running[role].name))

    def as_user(self, name: str) -> list[str]:
        """Return the words that run a program as one of the wiring's users."""
        user = self.appliance.place.users.user(name)
        return ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "--"] if user.own else []

    def forget(self) -> None:
        """Stop everything and remove all that the roles keep."""
        self.stop()
        for role in self.appliance.wiring.roles.values():
            for kept in role.keeps:
                _empty(self.at(kept))

    # -- programs in a role's place -----------------------------------------------------------------

    def view(self, role: str) -> View:
        """Return what the role must find; everything else runs."""
        user = self.appliance.place.users.user(self.appliance.wiring.roles[role].user)
        return View(
            wiring=self.appliance.wiring,
            settings=self.appliance.settings,
            name=role,
            uid=user.uid,
            gid=user.gid,
            own=user.own,
            credentials=self.credentials(),
        )

    def credentials(self) -> dict[str, Path]:
        """Return where the secrets of each role lie that has some."""
        roles = self.appliance.wiring.roles
        return {name: self.appliance.place.credentials(name) for name, role in roles.items() if role.secrets}

    def look(self, role: str, *, loose: Loose | None = None) -> Any:
        """Run looks.py in the role's place; `loose` opens it."""
        asked = {
            "addresses": self.canaries.addresses,
            "dns port": self.canaries.dns_port,
            "abstract": self.canaries.name,
            "paths": every_path(self.view(role)),
            "words": [SECRET[::-1], self.town.token[::-1]],
        }
        return self.run_in_place(role, LOOKS, asked, looks.MARK, loose=loose)

    def taken_over(self, role: str) -> list[tuple[str, str]]:
        """Run takeover.py in the role's place."""
        asked = {**self.all_there_is(), "services": {"the chat server": self.town.address}}
        if role == self.appliance.wiring.edge("tool-runner").client:
            asked |= {"podman": str(self.at("tool-runner")), "image": self.at("etc/tool-image").read_text().strip()}
        return [tuple(row) for row in self.run_in_place(role, TAKEOVER, asked, takeover.MARK)]

    def all_there_is(self) -> dict[str, Any]:
        """Return what a role that was taken over tries, by the wiring's names."""
        wiring = self.appliance.wiring
        model = self.appliance.place.model_socket
        names = [one.path for one in wiring.directories] + [one.path for one in wiring.files]
        paths = {name: str(wiring.at(name)) for name in names}
        paths |= {f"secrets of {name}": str(path) for name, path in self.credentials().items()}
        paths["the bot's token"] = str(self.credentials()[GATEWAYD] / TOKEN)
        sockets = {edge.path: str(wiring.at(edge.path)) for edge in wiring.edges}
        return {
            "paths": {**paths, "the model server's directory": str(model.parent), "a granted folder": str(self.files)},
            "sockets": {**sockets, "the model server": str(model)},
            "frames": {name: base64.b64encode(payload).decode() for name, payload in frames().items()},
            "places": _PLACES,
            "addresses": self.canaries.addresses[:1],
        }

    def run_in_place(
        self, role: str, program: str, asked: Mapping[str, object], mark: str, *, loose: Loose | None = None
    ) -> Any:
        """Replace a role by a program, and return what it found; the role itself is stopped."""
        self.stop(role)
        appliance, place, settings = self.appliance, self.appliance.place, self.appliance.settings
        more = [f"--mount=type=bind,src={self.probe},dst={PROBE},ro=true,nosuid,nodev"]
        if loose:
            more += loose.more
            appliance.place = dataclasses.replace(place, wiring=loose.wiring(place.wiring))
            appliance.settings = loose.settings(settings)
        try:
            ran = appliance.start(role, instead=(*PYTHON, program, json.dumps(asked)), more=more)
        finally:
            appliance.place, appliance.settings = place, settings
        until(lambda: not ran.alive, f"the program in the place of {role} ends")
        said = ran.log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in said.splitlines() if line.startswith(mark)]
        assert lines, f"{role}: {said[-2000:]}"
        return json.loads(lines[0].removeprefix(mark))

    # -- clients ------------------------------------------------------------------------------------

    def say(self, text: str = "Hello.", *, session: str = "s", new: bool | None = None, key: str | None = None) -> Talk:
        """Say something on loop.sock; the first of a session makes it."""
        wanted = not (self.at("home/sessions") / session).exists() if new is None else new
        said_as = MessageKey(key) if key is not None else ids.new_message_key()
        return self.talk(UserMessage(session=SessionId(session), new=wanted, key=said_as, text=text))

    def talk(self, message: object) -> Talk:
        self._talks.append(Talk(self.at("loop-owner"), message))
        return self._talks[-1]

    def request(self, tool: str = "read_file", *, session: str = "direct", **arguments: Any) -> ToolRequest:
        """Return a call as loopd makes one, of the note where no path is given."""
        given = arguments or {"path": str(self.note)}
        number = CallId(next(self._numbers))
        return ToolRequest(session=SessionId(session), call=number, tool=tool, arguments=json.dumps(given))

    def ask(self, request: ToolRequest | None = None) -> Any:
        """Send a call that asks no question to brokerd; return its answer."""
        with self.dial("broker") as connection:
            [answer] = connection.request(request or self.request(), idle_ms=PATIENCE_SECONDS * 1000)
        return answer.msg

    @contextmanager
    def question(self, request: ToolRequest) -> Iterator[tuple[ToolPending, Iterator[Envelope]]]:
        with self.dial("broker") as connection:
            answers = connection.request(request, idle_ms=PATIENCE_SECONDS * 1000)
            pending = next(answers).msg
            assert isinstance(pending, ToolPending), pending
            yield pending, answers

    def approved(self, request: ToolRequest) -> Any:
        """Send a call that asks, say yes, and return its answer."""
        with self.question(request) as (pending, answers):
            shown = self.tell(admin.ApprovalShow(id=pending.approval))[-1]
            yes = admin.ApprovalAnswer(id=pending.approval, approve=True, canonical=shown.canonical, reason=None)
            self.tell(yes)
            return list(answers)[-1].msg

    def tell(self, message: object) -> list[Any]:
        with self.dial("admin") as connection:
            return [answer.msg for answer in connection.request(message, idle_ms=PATIENCE_SECONDS * 1000)]

    def dial(self, edge: str) -> Connection:
        return Connection(self.at(edge), clock=CLOCK, connect_ms=PATIENCE_SECONDS * 1000)

    # -- the model ----------------------------------------------------------------------------------

    def reads_the_note(self) -> Reply:
        arguments = json.dumps({"name": "read_file", "arguments": {"path": str(self.note)}})
        return Reply(calls=(Call(name="call_tool", arguments=arguments),))

    def answer(self, messages: list[dict[str, Any]]) -> Answer:
        if str(messages[0]["content"]).startswith("Self-test"):
            return Reply(calls=(Call(name="clock"),))
        return self.replies.popleft() if self.replies else Reply(text="All right.")

    # -- what is left behind --------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Return the audit log."""
        directory = self.at("home/audit")
        entries = auditfiles.entries(directory, auditfiles.names(directory))
        return [entry.record for entry in entries if entry.record is not None]

    def session_log(self, session: str = "s") -> list[dict[str, Any]]:
        text = (self.at("home/sessions") / session / "0.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def tool_containers(self) -> list[str]:
        return self.appliance.podman("tools", "ps", "--all", "--quiet").split()

    def log(self, role: str) -> str:
        return self.running[role].log.read_text(encoding="utf-8", errors="replace")


def frames() -> dict[str, bytes]:
    """Return one request of every kind of the wire, and what is none."""
    found = {}
    for kind in KINDS:
        (path,) = FRAMES.glob(f"{kind}.json")
        message = attrs.evolve(envelope.decode(path.read_bytes()), final=True)
        found[kind] = _framed(envelope.encode(message))
        if hasattr(message.msg, "session"):
            threads = attrs.evolve(message, msg=attrs.evolve(message.msg, session=_THREAD))  # type: ignore[misc]
            found[f"{kind}{takeover.OF_A_THREAD}"] = _framed(envelope.encode(threads))
    rubbish = {
        "no frame": b"GET / HTTP/1.0\r\n\r\n",
        "nothing": _framed(b""),
        "half a frame": b"\0\0\0\x10{",
        "a frame too long": b"\xff\xff\xff\xff",
        "no JSON": _framed(b"\xff\xfe"),
        "an unknown kind": _framed(b'{"v":1,"id":1,"final":true,"msg":{"kind":"tool_run","body":{}}}'),
        "another version": _framed(b'{"v":2,"id":1,"final":true,"msg":{"kind":"tool_request","body":{}}}'),
    }
    return found | rubbish


def until(holds: Callable[[], object], what: str) -> None:
    """Return as soon as `holds` does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _empty(directory: Path) -> None:
    for below, directories, names in os.walk(directory, topdown=False):
        for name in names:
            Path(below, name).unlink()
        for name in directories:
            Path(below, name).rmdir()


def _toml(role: str, tables: Mapping[str, Mapping[str, object]]) -> str:
    lines = [f"# {SECRET} of {role}"]
    for name, table in tables.items():
        lines += [f"[{name}]"] if name else []
        lines += [
            f"{key} = {json.dumps(value if isinstance(value, int) else str(value))}" for key, value in table.items()
        ]
    return "\n".join(lines) + "\n"
