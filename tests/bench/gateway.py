"""The way of a post: seen to turn started, a backlog caught up, a long answer posted, and the memory that it takes.

The server is the fake one (tests/fakes/mattermost.py) in this process; gatewayd and loopd are processes. The bare
client reads the same pages with `requests` and keeps nothing.
"""

import json
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import requests

from bxcore import client, timestamp
from bxcore.deadline import SystemClock
from bxcore.errors import BoxmakerError
from bxcore.wire.gateway import GatewayStatus, GatewayStatusReport
from deploy.local.home import Home
from tests.bench import report, stack
from tests.bench.progress import say
from tests.bench.report import Measure
from tests.bench.sizes import Sizes
from tests.fakes.llama_server import Call, FakeLlama, Reply
from tests.fakes.mattermost import Mattermost
from tests.process.role import Role

CHANNELS = 200
ANSWER_CHARACTERS = 200_000
MEGABYTE = 1_000_000
N_CTX = 1_000_000
SEEN_MS, BACKLOG_SECONDS, MEMORY_MB = 20, 10, 50
LONG = "Tell me everything."

CLOCK = SystemClock()


def measure(sizes: Sizes) -> list[Measure]:
    return [*_conversation(sizes), *_backlog(sizes)]


def _conversation(sizes: Sizes) -> list[Measure]:
    words = " ".join(f"word{number}" for number in range(ANSWER_CHARACTERS))[:ANSWER_CHARACTERS]

    def answer(messages: list[dict[str, Any]]) -> Reply:
        if str(messages[0]["content"]).startswith("Self-test"):
            return Reply(calls=(Call(name="clock"),))
        return Reply(text=words if messages[-1]["content"] == LONG else "Aye.")

    with (
        Mattermost() as server,
        FakeLlama(script=answer, n_ctx=N_CTX) as fake,
        stack.home() as home,
        stack.inferproxy(home, fake.url, limits="accept_per_second = 10_000\n"),
        stack.loopd(home, n_ctx=N_CTX, max_tokens=N_CTX // 2),
    ):
        owner = server.add_user("owner")
        bot, token = server.add_bot("boxmaker")
        direct = server.direct(owner, bot)
        with gatewayd(home, server.url, token, [owner], loop=home.loop_socket) as role:
            _until(lambda: _status(home).connected)
            took = []
            for number in range(sizes.gateway_posts):
                post = server.say(owner, direct, f"Message {number}.")
                _until(partial(_answered, home, post["id"]))
                took.append((_record(home, post["id"], "turn_start") or 0) - post["create_at"])
            long = server.say(owner, direct, LONG)
            began = time.monotonic()
            _until(partial(_answered, home, long["id"]))
            seconds = time.monotonic() - began
            texts = [post["message"] for post in _in_order(server.posts_of(direct)) if post["root_id"] == long["id"]]
            lost = ANSWER_CHARACTERS - len("".join("".join(texts).split())) - words.count(" ")
            memory = role.resident_bytes() / MEGABYTE
    return [
        report.at_most("post seen to turn started, median", statistics.median(took), "ms", SEEN_MS),
        report.exactly(f"characters lost of an answer of {ANSWER_CHARACTERS:,}", abs(lost), "", 0),
        report.to_read("posts that it took", len(texts), ""),
        report.to_read("the same, from the question to the last post", seconds, "s"),
        report.below("memory of gatewayd after conversations", memory, "MB", MEMORY_MB),
    ]


def _backlog(sizes: Sizes) -> list[Measure]:
    """loopd is not there, so that what is measured is taking posts over."""
    each = sizes.gateway_backlog // CHANNELS
    with Mattermost() as server, stack.home() as home:
        bot, token = server.add_bot("boxmaker")
        users = [server.add_user(f"user{number}") for number in range(CHANNELS)]
        directs = [server.direct(user, bot) for user in users]
        nobody = home.path / "run" / "nobody.sock"
        with gatewayd(home, server.url, token, users, loop=nobody):
            _until(lambda: _status(home).connected)
        say(f"{each * CHANNELS:,} posts over {CHANNELS} channels")
        posted = {
            server.say(user, direct, f"Message {number}.")["id"]
            for number in range(each)
            for user, direct in zip(users, directs, strict=True)
        }
        bare = _bare_client(server.url, token)
        with gatewayd(home, server.url, token, users, loop=nobody) as role:
            began = time.monotonic()
            _until(lambda: _status(home).waiting >= len(posted))
            seconds = time.monotonic() - began
            memory = role.resident_bytes() / MEGABYTE
        kept = _kept(home)
    return [
        report.below(f"{len(posted):,} posts over {CHANNELS} channels caught up", seconds, "s", BACKLOG_SECONDS),
        report.to_read("a bare client that reads the same pages and keeps nothing", bare, "s"),
        report.exactly("posts lost or doubled of them", len(posted ^ set(kept)) + len(kept) - len(set(kept)), "", 0),
        report.below("memory of gatewayd after catching up", memory, "MB", MEMORY_MB),
    ]


@contextmanager
def gatewayd(home: Home, url: str, token: str, users: list[str], *, loop: Path) -> Iterator[Role]:
    """gatewayd against a server, ready, with its queue in the home."""
    for name in ("gateway", "run/gateway", "run/gateway-owner"):
        (home.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = home.etc / "token"
    secret.write_text(token)
    secret.chmod(0o600)
    settings = home.etc / "gatewayd.toml"
    settings.write_text(
        f'state = "{home.path}/gateway"\n[listen]\ngateway = "{home.path}/run/gateway/gateway.sock"\n'
        f'owner = "{_owner_socket(home)}"\n[mattermost]\nurl = "{url}"\n[loop]\nsocket = "{loop}"\n'
        f"[allow]\nusers = {json.dumps(users)}\n"
        f'[secrets.mattermost-token]\nbackend = "file"\npath = "{secret}"\n',
        encoding="utf-8",
    )
    with Role("gatewayd", "--config", str(settings), home=home.log) as role:
        role.wait_ready()
        yield role
        role.terminate()


def _owner_socket(home: Home) -> Path:
    return home.path / "run" / "gateway-owner" / "gateway.sock"


def _status(home: Home) -> GatewayStatusReport:
    with client.Connection(_owner_socket(home), clock=CLOCK) as connection:
        [answer] = connection.request(GatewayStatus())
    assert isinstance(answer.msg, GatewayStatusReport)
    return answer.msg


def _answered(home: Home, post: str) -> bool:
    """Whether the turn of a top-level post is over, and what it came to is posted."""
    report = _status(home)
    return _record(home, post, "turn_end") is not None and not report.asked and not report.outgoing


def _record(home: Home, post: str, kind: str) -> int | None:
    """Return when the first record of a kind was written, in milliseconds."""
    log = home.path / "sessions" / f"mm-{post}" / "0.jsonl"
    for line in log.read_text().splitlines() if log.exists() else ():
        record = json.loads(line)
        if record["type"] == kind:
            return timestamp.from_text(record["time"])
    return None


def _kept(home: Home) -> list[str]:
    with sqlite3.connect(f"file:{home.path}/gateway/queue.sqlite?mode=ro", uri=True) as database:
        found = [str(row[0]) for row in database.execute("SELECT id FROM posts")]
    database.close()
    return found


def _in_order(posts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(posts, key=lambda post: (post["create_at"], post["id"]))


def _bare_client(url: str, token: str) -> float:
    began = time.monotonic()
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {token}"
        for channel in session.get(f"{url}/api/v4/users/me/channels").json():
            where = f"{url}/api/v4/channels/{channel['id']}/posts?page=0&per_page=200&skipFetchThreads=true"
            session.get(where).json()
    return time.monotonic() - began


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            if holds():
                return
        except (BoxmakerError, FileNotFoundError):
            pass  # it is starting
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.02)
