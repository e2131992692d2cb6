"""The Mattermost server of the appliance's tests, with a bot and one person, where gatewayd's container finds it."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.fakes.mattermost import Mattermost

HOST = "host"
_SLIRP_HOST = "10.0.2.2"
"""Where the machine's loopback is for a container behind slirp4netns, where that is allowed."""
PATIENCE_SECONDS = 90


class ChatTown:
    """`network`: Podman's name of the network by which a container reaches the server at `url`."""

    def __init__(self, outside: str) -> None:
        self._server = Mattermost()
        self.alice = self._server.add_user("alice")
        self.bot, self.token = self._server.add_bot("boxmaker")
        self._direct = self._server.direct(self.alice, self.bot)
        on_host = outside == HOST
        self.network = HOST if on_host else f"{outside}:allow_host_loopback=true"
        self.url = self._server.url if on_host else self._server.url.replace("127.0.0.1", _SLIRP_HOST)

    @property
    def address(self) -> tuple[str, int]:
        """Where `url` leads."""
        url = urlsplit(self.url)
        assert url.hostname is not None
        assert url.port is not None
        return url.hostname, url.port

    def close(self) -> None:
        self._server.close()

    def connected(self) -> int:
        """Return how many event connections there are."""
        return self._server.connected()

    def say(self, text: str, *, root: str | None = None) -> str:
        """Say something to the bot directly; return the post's id."""
        return str(self._server.say(self.alice, self._direct, text, root=root)["id"])

    def said_in(self, root: str) -> list[str]:
        """Return what the bot said in a thread, oldest first."""
        posts = self._server.posts_of(self._direct)
        return [post["message"] for post in posts if post["root_id"] == root and post["user_id"] == self.bot]

    def wait(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"never came: {what}"
            time.sleep(0.02)
