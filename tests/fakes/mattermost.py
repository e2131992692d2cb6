"""A Mattermost server that behaves like server 11.6, for tests: REST, events, and every way in which it can fail.

In process: `with Mattermost() as server:`, then `server.url`. As a program it prints one line of JSON and takes the
same commands as `POST /_control/NAME` with their arguments as an object:

    python tests/fakes/mattermost.py --port 0

Its rules are the server's, read in its source, and not what our client expects; the official JavaScript client is
run against it (tests/contract/mattermost). Threads: as in mattermostparts/server.py; the methods here are for any.
"""

import argparse
import json
import queue
import re
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

if __name__ == "__main__":  # started by its path
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.mattermostparts.calls import Answer
from tests.fakes.mattermostparts.faults import Fault, Faults, RateLimit
from tests.fakes.mattermostparts.hub import Hub
from tests.fakes.mattermostparts.records import AppError, Json, User
from tests.fakes.mattermostparts.rest import ROOT, Rest
from tests.fakes.mattermostparts.rules import Fetch
from tests.fakes.mattermostparts.server import Server
from tests.fakes.mattermostparts.world import Event, Notified, Typing, World

_TLS = Path(__file__).parents[1] / "fixtures" / "tls" / "server.pem"
_COMMANDS = frozenset(
    {
        "add_user",
        "add_bot",
        "add_channel",
        "direct",
        "say",
        "edit",
        "delete",
        "posts_of",
        "post",
        "typings",
        "fetches",
        "notified",
        "fail",
        "clear_faults",
        "drop_sockets",
        "half_open",
        "hook",
        "revoke",
        "disable",
        "enable",
        "restart",
        "advance",
        "now",
        "set_config",
        "rate_limit",
        "break_rules",
        "archive",
        "remove",
        "join",
        "leave_all",
        "token_for",
        "connected",
    }
)


class Mattermost:
    """The server. The first account is the administrator `admin`; everybody is in the team `main`."""

    def __init__(self, *, port: int = 0, tls: bool = False, control: bool = False, empty: bool = False) -> None:
        self._world = World(self._publish)
        self._hub = Hub(self._world)
        self._rest = Rest(self._world, self._hub)
        self._faults = Faults()
        self._rate = RateLimit()
        self._tls = _tls() if tls else None
        self._control = self._command if control else None
        self._to_do: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._team = ""
        if not empty:
            with self._world.lock:
                admin = self._world.add_user("admin", password="password-of-admin")
                self._team = self._world.add_team("main", display_name="Main", creator=admin.id).id
                self._admin_token = self._world.add_session(admin.id).token
        self._server: Server | None = self._listen(port)
        self._port = self._server.port

    def _listen(self, port: int) -> Server:
        return Server(
            self._world,
            self._hub,
            self._rest,
            port=port,
            faults=self._faults,
            rate=self._rate,
            tls=self._tls,
            control=self._control,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every connection and thread. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    @property
    def url(self) -> str:
        # A certificate names a host, and that of the tests names localhost.
        return f"https://localhost:{self._port}" if self._tls is not None else f"http://127.0.0.1:{self._port}"

    def _publish(self, event: Event) -> None:
        self._hub.publish(event)

    # --- who is there ---

    @property
    def admin(self) -> "Admin":
        """REST as the administrator, without the network."""
        return Admin(self._rest, self._admin_token)

    def add_user(self, name: str) -> str:
        """Return the id of a new person. The password is `password-of-` and the name."""
        with self._world.lock:
            user = self._world.add_user(name, password=f"password-of-{name}")
            self._join_team(user)
            return user.id

    def add_bot(self, name: str) -> tuple[str, str]:
        """Return the id of a new bot and its token. The administrator made it, and was greeted by it."""
        with self._world.lock:
            bot = self._rest.accounts.create_bot(self._administrator(), name)
            self._join_team(bot)
            return bot.id, self._world.add_session(bot.id, personal=True).token

    def _administrator(self) -> User:
        return next(user for user in self._world.users.values() if user.admin)

    def _join_team(self, user: User) -> None:
        if self._team:
            self._world.teams[self._team].members.add(user.id)

    def token_for(self, user: str) -> str:
        """Return a token of one more session of a person."""
        with self._world.lock:
            return self._world.add_session(user).token

    def add_channel(self, kind: str, members: Iterable[str], *, name: str = "") -> str:
        """Return the id of a new channel: O or P of the team, or G."""
        with self._world.lock:
            people = list(members)
            if kind == "G":
                return self._world.group(people[0], people)[0].id
            assert kind in ("O", "P"), "direct() makes the channel of two"
            channel = self._world.add_channel(kind, people, name=name, team=self._team, creator=people[0])
            for user in people:
                self._publish(
                    Event(name="user_added", data={"user_id": user, "team_id": self._team}, channel=channel.id)
                )
            return channel.id

    def direct(self, one: str, other: str) -> str:
        """Return the id of the direct channel of two."""
        with self._world.lock:
            return self._world.direct(one, other)[0].id

    def join(self, channel: str, user: str) -> None:
        with self._world.lock:
            self._world.join(self._world.channels[channel], user)

    def remove(self, channel: str, user: str) -> None:
        """Take somebody out of a channel."""
        with self._world.lock:
            self._world.leave(self._world.channels[channel], user, by=self._administrator().id)

    def leave_all(self, user: str) -> None:
        """Be in no channel at all."""
        with self._world.lock:
            for channel in self._world.channels.values():
                channel.members.pop(user, None)

    def archive(self, channel: str) -> None:
        with self._world.lock:
            self._world.archive(self._world.channels[channel])

    # --- what is said ---

    def say(
        self,
        user: str,
        channel: str,
        text: str,
        *,
        root: str | None = None,
        props: Mapping[str, Any] | None = None,
        type: str = "",  # noqa: A002  # the name of the field
        at: int | None = None,
        files: int = 0,
    ) -> Json:
        """Post as somebody would, or as the server does in their name; `at` is another time than now (milliseconds)."""
        untrusted: Json = {
            "channel_id": channel,
            "message": text,
            "root_id": root or "",
            "props": dict(props or {}),
            "type": type,
            "create_at": at or 0,
            "file_ids": [self._world.new_id() for _ in range(files)],
        }
        with self._world.lock:
            return self._rest.posting.create(self._world.users[user], untrusted, may_date=True, internal=True)

    def hook(self, user: str, channel: str, text: str) -> Json:
        """Post as an incoming webhook does: under the id of the person who made it."""
        return self.say(user, channel, text, props={"from_webhook": "true", "webhook_display_name": "hook"})

    def edit(self, post: str, text: str, *, by: str | None = None) -> Json:
        """Change the text of a post, as its author or as somebody who may."""
        with self._world.lock:
            who = self._world.users[by or self._world.posts[post].user]
            return self._rest.posting.patch(who, post, {"message": text})

    def delete(self, post: str) -> None:
        with self._world.lock:
            self._rest.posting.delete(self._world.users[self._world.posts[post].user], post)

    def post(self, id: str) -> Json:  # noqa: A002
        """Return a post as it is now, deleted ones too."""
        with self._world.lock:
            return self._rest.posting.json(self._world.posts[id])

    def posts_of(self, channel: str) -> list[Json]:
        """Return the posts of a channel that are not deleted, oldest first."""
        with self._world.lock:
            rows = self._world.in_channel[channel]
            return [self._rest.posting.json(post) for post in rows if not post.delete_at]

    @property
    def typings(self) -> list[Typing]:
        """Everybody who was shown as typing, in order."""
        with self._world.lock:
            return list(self._world.typings)

    @property
    def fetches(self) -> list[Fetch]:
        """What the server or a client would have fetched because of a post."""
        with self._world.lock:
            return list(self._world.fetches)

    @property
    def notified(self) -> list[Notified]:
        """Whom each post notified."""
        with self._world.lock:
            return list(self._world.notified)

    # --- what goes wrong ---

    def fail(
        self,
        method: str,
        path_regex: str,
        *,
        status: int | None = None,
        body: str = "",
        headers: Mapping[str, str] | None = None,
        times: int = 1,
        after: bool = False,
        wait: threading.Event | None = None,
    ) -> threading.Event:
        """Answer the next requests that fit so; status 0 cuts the connection.

        `after`: the request is carried out, and its answer lost. `wait`: it is held until this is set; with no status
        it is then carried out and answered, only late. Returns what is set once a request is held.
        """
        fault = Fault(
            method=method,
            path=re.compile(path_regex),
            status=status,
            body=body.encode("utf-8", "surrogateescape"),
            headers=headers or {},
            times=times,
            after=after,
            wait=wait,
        )
        self._faults.add(fault)
        return fault.begun

    def clear_faults(self) -> None:
        self._faults.clear()

    def connected(self) -> int:
        """Return how many event connections there are now."""
        with self._world.lock:
            return sum(stream.active for stream in self._hub.streams())

    def drop_sockets(self) -> None:
        """Cut every event connection; the server knows it at once, and keeps their queues."""
        for events in self._live().event_sockets():
            events.detach()
            events.end()

    def half_open(self) -> None:
        """Let nothing through on the present event connections, while both sides believe in them."""
        for events in self._live().event_sockets():
            events.freeze()

    def revoke(self, token: str) -> None:
        """Make a token worth nothing. Connections stay open, and hear nothing more."""
        with self._world.lock:
            self._world.sessions.pop(token, None)
            self._hub.look_again()

    def disable(self, bot: str) -> None:
        with self._world.lock:
            self._world.set_active(self._world.users[bot], active=False)
            self._hub.look_again()

    def enable(self, bot: str) -> None:
        """Undo `disable`: its token works again, but not on the connections of before."""
        with self._world.lock:
            self._world.set_active(self._world.users[bot], active=True)

    def restart(self) -> None:
        """Come back as a new process: no connection, no queue and no pending id is remembered."""
        self.down()
        self.up()

    def down(self) -> None:
        """Stop listening, and end every connection."""
        self.close()
        with self._world.lock:
            self._hub.forget_all()
            self._world.pending.clear()

    def up(self) -> None:
        """Listen again, at the same address."""
        self._server = self._listen(self._port)

    def advance(self, ms: int) -> None:
        """Let the server's clock be further on."""
        with self._world.lock:
            self._world.clock.advance(ms)
            self._hub.reap()
        for events in self._live().event_sockets():
            events.wake()

    def now(self) -> int:
        """Return the server's time."""
        return self._world.now()

    def set_config(self, **settings: str | int | bool) -> None:
        """Change settings, by the names that /config/client has."""
        with self._world.lock:
            for name, value in settings.items():
                self._world.config[name] = str(value).lower() if isinstance(value, bool) else str(value)

    def rate_limit(self, on: bool) -> None:
        """Switch the rate limit: 10 requests a second, 100 at once."""
        self._rate.on = on

    def break_rules(self, *rules: str) -> None:
        """Stop keeping some rules, so that a test can show that it would see it."""
        self._world.broken_rules.update(rules)

    def _live(self) -> Server:
        assert self._server is not None, "it is closed"
        return self._server

    # --- as a program ---

    def serve(self) -> None:
        """Do in this thread what commands leave to it, until `stop`."""
        while (job := self._to_do.get()) is not None:
            job()

    def stop(self) -> None:
        """End `serve`; may be called from a signal handler, since this queue is made for it."""
        self._to_do.put(None)

    def _command(self, name: str, body: bytes) -> Answer:
        if name not in _COMMANDS:
            return Answer(status=404, json={"error": f"no command {name}"})
        if name == "restart":  # not by the thread of a request, which a restart waits for
            self._to_do.put(self.restart)
            return Answer(json={"result": None})
        try:
            arguments = json.loads(body or b"{}")
            found = getattr(self, name)
            if callable(found):
                found = found(*arguments.pop("args", ()), **arguments)
        except (AppError, TypeError, ValueError, KeyError) as error:
            return Answer(status=400, json={"error": f"{name}: {error!r}"})
        return Answer(json={"result": None if name == "fail" else _plain(found)})


class Admin:
    """REST-like helpers, with the rights of the administrator."""

    def __init__(self, rest: Rest, token: str) -> None:
        self._rest = rest
        self._token = token

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the JSON of a call; `path` begins below /api/v4."""
        raw = b"" if body is None else json.dumps(body).encode()
        way, _, query = path.partition("?")
        pairs = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
        answer = self._rest.call(method, way.removeprefix(ROOT), pairs, {"authorization": f"Bearer {self._token}"}, raw)
        return answer.status, json.loads(answer.body())

    def get(self, path: str) -> Any:
        return self._done("GET", path)

    def post(self, path: str, body: object) -> Any:
        return self._done("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        return self._done("PUT", path, body)

    def delete(self, path: str) -> Any:
        return self._done("DELETE", path)

    def _done(self, method: str, path: str, body: object = None) -> Any:
        status, said = self.request(method, path, body)
        assert status < 400, f"{method} {path}: {status} {said}"
        return said


def _plain(value: object) -> object:
    if isinstance(value, list | tuple | frozenset):
        return [_plain(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(entry) for name, entry in asdict(value).items()}
    return value


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(_TLS))
    return context


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A Mattermost server for tests")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--empty", action="store_true", help="without any account: the first one becomes administrator")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--break-rule", action="append", default=[], help="stop keeping a rule")
    chosen = parser.parse_args(argv)
    with Mattermost(port=chosen.port, tls=chosen.tls, control=True, empty=chosen.empty) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: server.stop())
        server.break_rules(*chosen.break_rule)
        print(json.dumps({"url": server.url}), flush=True)
        server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
