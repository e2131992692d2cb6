"""gatewayd between a Mattermost server and real loopd and brokerd: every part a process, each can be killed.

The model is the fake llama-server, whose answers repeat what was asked, so that each answer names its question. The
container service is the fake one that runs the real tool programs. Between gatewayd and its server stands a TcpProxy.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bxcore import client
from bxcore.deadline import SystemClock
from bxcore.wire.gateway import GatewayStatus, GatewayStatusReport
from tests.contract.gateway.people import Json, Town, until
from tests.contract.gateway.tcpproxy import TcpProxy
from tests.fakes.llama_server import Call, Reply
from tests.process import brokerd_stack, loopd_stack
from tests.process.loopd_stack import Answer
from tests.process.role import Role

ECHO = "You said: "


class EchoStack(loopd_stack.Stack):
    """loopd and its peers; what no reply was laid out for is answered with what was said."""

    def _answer(self, messages: list[dict[str, Any]]) -> Answer:
        if str(messages[0]["content"]).startswith("Self-test") or self.replies:
            return super()._answer(messages)
        asked = itertools.takewhile(lambda message: message["role"] == "user", reversed(messages))
        return Reply(text=ECHO + "\n\n".join(str(message["content"]) for message in reversed(list(asked))))


class Place:
    """Everything but the server. `start` starts gatewayd; the rest runs already."""

    def __init__(self, folder: Path, town: Town, proxy: TcpProxy, loop: EchoStack, broker: brokerd_stack.Stack) -> None:
        self.folder, self.town, self.proxy, self.loop, self.broker = folder, town, proxy, loop, broker
        self.role: Role | None = None
        self.socket = folder / "run" / "gateway" / "gateway.sock"
        self.owner_socket = folder / "run" / "gateway-owner" / "gateway.sock"
        self.module: Sequence[str] = ("gatewayd",)
        self.channels: list[str] = []
        self.more = ""
        self._brokerd: Role | None = None
        self.url = proxy.url
        self.users = [town.owner.id]

    # -- parts ----------------------------------------------------------------------------------

    def configure(self) -> Path:
        """Write gatewayd.toml; `channels`, `users` and `more` (lines of whole tables) are read now."""
        token = self.folder / "etc" / "token"
        token.write_text(f"{self.town.token}\n")
        token.chmod(0o600)
        path = self.folder / "etc" / "gatewayd.toml"
        path.write_text(
            f'state = "{self.folder}/gateway"\n'
            f'[listen]\ngateway = "{self.socket}"\nowner = "{self.owner_socket}"\n'
            f'[mattermost]\nurl = "{self.url}"\nping_ms = 2000\nretry_most_ms = 500\n'
            f'[loop]\nsocket = "{self.loop.settings["listen"]["gateway"]}"\n'
            f"[allow]\nusers = {json.dumps(self.users)}\nchannels = {json.dumps(self.channels)}\n"
            f'[secrets.mattermost-token]\nbackend = "file"\npath = "{token}"\n{self.more}',
            encoding="utf-8",
        )
        return path

    def start(self, *, wait: bool = True) -> Role:
        """Start gatewayd, and wait until it hears of posts."""
        module, *python = self.module
        self.role = Role(module, "--config", str(self.configure()), home=self.folder / "log", python=tuple(python))
        if wait:
            self.role.wait_ready()
            until(lambda: self.status().connected, "connected to the server")
        return self.role

    def kill(self) -> None:
        """kill -9, and forget it."""
        if self.role is not None:
            with self.role as role:
                role.kill()
            self.role = None

    def start_brokerd(self) -> Role:
        self._brokerd = self.broker.start().wait_ready()
        return self._brokerd

    def kill_brokerd(self) -> None:
        if self._brokerd is not None:
            with self._brokerd as role:
                role.kill()
            self._brokerd = None

    # -- looking --------------------------------------------------------------------------------

    def status(self) -> GatewayStatusReport:
        with client.Connection(self.owner_socket, clock=SystemClock()) as connection:
            [answer] = connection.request(GatewayStatus())
        assert isinstance(answer.msg, GatewayStatusReport)
        return answer.msg

    def idle(self) -> None:
        """Wait until nothing is left to do."""

        def quiet() -> bool:
            report = self.status()
            return report.connected and report.waiting == report.asked == report.outgoing == 0

        until(quiet, "a gatewayd that has nothing left to do")

    def said_by_bot(self, root: str) -> list[Json]:
        """The bot's posts of a thread, oldest first."""
        return [post for post in self.town.owner.thread(root) if post["user_id"] == self.town.bot_id]

    def answers(self, root: str, count: int = 1) -> list[str]:
        """Wait for so many posts of the bot in a thread, and return them."""
        until(lambda: len(self.said_by_bot(root)) >= count, f"{count} posts of the bot in the thread")
        return [post["message"] for post in self.said_by_bot(root)]

    def asks_for(self, tool: str, **arguments: object) -> None:
        """Let the model call a tool next, and say so afterwards."""
        call = json.dumps({"name": tool, "arguments": arguments})
        self.loop.replies.extend([Reply(calls=(Call(name="call_tool", arguments=call),)), loopd_stack.OK])


@contextmanager
def place(town: Town, *, brokerd: bool = False) -> Iterator[Place]:
    """Everything that gatewayd needs, running but for itself, in a folder whose name is short enough for sockets."""
    with ExitStack() as held:
        broker = held.enter_context(brokerd_stack.stack())
        folder = broker.home / "g"
        for name in ("etc", "gateway", "log", "run/gateway", "run/gateway-owner", "run/loop-gateway", "loop"):
            (folder / name).mkdir(mode=0o700, parents=True)
        broker.configure(f'[gateway]\nsocket = "{folder / "run" / "gateway" / "gateway.sock"}"\n')
        settings: dict[str, dict[str, object]] = {
            "listen": {"gateway": str(folder / "run" / "loop-gateway" / "loop.sock")},
            "sampling": {"max_tokens": 50_000},
            "broker": {"socket": str(broker.socket("broker"))} if brokerd else {},
        }
        loop = held.enter_context(EchoStack(folder / "loop", settings))
        proxy = held.enter_context(TcpProxy(town.url))
        made = Place(folder, town, proxy, loop, broker)
        held.callback(made.kill)
        held.callback(made.kill_brokerd)
        if brokerd:
            made.start_brokerd()
        loop.start()
        yield made
