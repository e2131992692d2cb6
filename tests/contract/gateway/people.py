"""People in front of a Mattermost server, through REST alone: so they do the same to a fake and a real one.

A Person says, edits and deletes posts and reads what is there. Town makes people, bots and channels, by the way that a
server which was just set up allows: its first account becomes its administrator.
"""

import itertools
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests

PATIENCE_SECONDS = 60
PASSWORD = "Correct-horse-9"
Json = dict[str, Any]


class Refused(Exception):
    """The server said no, as `status` and `error` tell."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(f"{status} {error}")
        self.status, self.error = status, error


class Person:
    """Somebody with a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/api/v4"
        self._session = requests.Session()
        self._session.trust_env = False
        self.token = token
        self._session.headers["Authorization"] = f"Bearer {token}"
        me = self.call("GET", "/users/me")
        self.id: str = me["id"]
        self.name: str = me["username"]

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Ask the server. Raises Refused."""
        answer = self._session.request(method, self._url + path, json=body, params=query, timeout=PATIENCE_SECONDS)  # type: ignore[arg-type]
        if answer.status_code >= 400:
            try:
                error = str(answer.json()["id"])
            except (ValueError, KeyError):
                error = answer.text[:100]
            raise Refused(answer.status_code, error)
        return answer.json()

    def say(self, channel: str, text: str, *, root: str = "", props: Mapping[str, object] | None = None) -> Json:
        body = {"channel_id": channel, "message": text, "root_id": root, "props": dict(props or {})}
        return dict(self.call("POST", "/posts", body))

    def edit(self, post: str, text: str) -> None:
        self.call("PUT", f"/posts/{post}/patch", {"message": text})

    def delete(self, post: str) -> None:
        self.call("DELETE", f"/posts/{post}")

    def post(self, post: str) -> Json:
        return dict(self.call("GET", f"/posts/{post}"))

    def thread(self, root: str) -> list[Json]:
        """The posts of a thread, oldest first."""
        posts = self.call("GET", f"/posts/{root}/thread")["posts"].values()
        return sorted(posts, key=lambda post: (post["create_at"], post["id"]))

    def channel(self, channel: str) -> list[Json]:
        """All posts of a channel, oldest first."""
        found: list[Json] = []
        for page in itertools.count():
            answer = self.call("GET", f"/channels/{channel}/posts", page=page, per_page=200)
            found += [answer["posts"][post] for post in answer["order"]]
            if len(answer["order"]) < 200:
                return sorted(found, key=lambda post: (post["create_at"], post["id"]))
        raise AssertionError("not reached")

    def close(self) -> None:
        self._session.close()


class Town:
    """A server with its administrator, a team, an owner and a bot. `close` it."""

    def __init__(self, url: str, *, login: str = "boss", password: str = PASSWORD) -> None:
        self.url = url
        self._people: list[Person] = []
        until(lambda: _serves(url), f"a server that answers at {url}")
        if login == "boss":
            _quiet(url, "/users", {"email": "boss@example.org", "username": "boss", "password": password})
        self.boss = self._log_in(login, password)
        self.tag = secrets.token_hex(4)
        team = {"name": f"t{self.tag}", "display_name": "Team", "type": "O"}
        self.team: str = self.boss.call("POST", "/teams", team)["id"]
        self.owner = self.person("owner")
        made = self.boss.call("POST", "/bots", {"username": f"boxmaker{self.tag}", "display_name": "Boxmaker"})
        self.bot_id: str = made["user_id"]
        self.bot_name: str = made["username"]
        self.boss.call("POST", f"/teams/{self.team}/members", {"team_id": self.team, "user_id": self.bot_id})
        self.token_id, self.token = self.new_token()
        self.direct = self.direct_channel(self.owner)

    def new_token(self) -> tuple[str, str]:
        """Another token of the bot: its id, which revokes it, and itself."""
        made = self.boss.call("POST", f"/users/{self.bot_id}/tokens", {"description": "test"})
        return made["id"], made["token"]

    def person(self, name: str) -> Person:
        """A new account in the team."""
        name = f"{name}{self.tag}"
        self.boss.call("POST", "/users", {"email": f"{name}@example.org", "username": name, "password": PASSWORD})
        person = self._log_in(name, PASSWORD)
        self.boss.call("POST", f"/teams/{self.team}/members", {"team_id": self.team, "user_id": person.id})
        return person

    def direct_channel(self, person: Person) -> str:
        """The channel of a person and the bot."""
        return str(person.call("POST", "/channels/direct", [person.id, self.bot_id])["id"])

    def channel(self, *members: str, kind: str = "P") -> str:
        """A new channel of the team, with the administrator and these."""
        name = f"c{secrets.token_hex(6)}"
        body = {"team_id": self.team, "name": name, "display_name": name, "type": kind}
        made = str(self.boss.call("POST", "/channels", body)["id"])
        for member in members:
            self.boss.call("POST", f"/channels/{made}/members", {"user_id": member})
        return made

    def close(self) -> None:
        for person in self._people:
            person.close()

    def _log_in(self, login: str, password: str) -> Person:
        body = {"login_id": login, "password": password}
        answer = requests.post(f"{self.url}/api/v4/users/login", json=body, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text
        person = Person(self.url, answer.headers["Token"])
        self._people.append(person)
        return person


def until(holds: Callable[[], object], what: str) -> None:
    """Return as soon as `holds` does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def _serves(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/v4/system/ping", timeout=PATIENCE_SECONDS).status_code == 200
    except requests.RequestException:
        return False


def _quiet(url: str, path: str, body: Mapping[str, object]) -> None:
    requests.post(f"{url}/api/v4{path}", json=body, timeout=PATIENCE_SECONDS)


def wanted_real() -> str | None:
    """The address of the real server that the caller named, if any."""
    return os.environ.get("MATTERMOST_URL")
