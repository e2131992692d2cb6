"""The official JavaScript client against the fake, run as a program: what a client that we did not write makes of it.

drive.mjs tells the stories and says what it saw; here stands what a real server would have let it see. The last test
breaks rules of the fake on purpose: a check that cannot fail checks nothing.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = ROOT / ".state" / "npm"
DENIED = {"error": "api.context.permissions.app_error", "status": 403}
NOT_A_ROOT = {"error": "api.post.create_post.root_id.app_error", "status": 400}


@contextmanager
def running(*options: str) -> Iterator[str]:
    """Run the fake as a program, without any account."""
    command = [sys.executable, str(ROOT / "tests/fakes/mattermost.py"), "--empty", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
        assert process.wait() == 0


def told(story: str, *broken: str) -> Any:
    """Return what the client saw in a story."""
    assert (MODULES / "stamp").exists(), "the client is not installed; deploy/local/setup.sh node installs it"
    options = [word for rule in broken for word in ("--break-rule", rule)]
    with running(*options) as url:
        ran = subprocess.run(
            ["node", Path(__file__).with_name("drive.mjs"), MODULES, url, story],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


REST = {
    "first": "system_admin system_user",
    "second": "system_user",
    "me": ["box", True, False],
    "names": ["ann"],
    "greeting": 1,
    "direct": "D",
    "group": "G",
    "channels": ["D", "D", "G", "P"],
    "outside": DENIED,
    "dated": False,
    "reply": [{"unsafe_links": "true", "boxmaker": "k", "from_bot": "true"}, "p1"],
    "again": True,
    "toReply": NOT_A_ROOT,
    "toDeleted": NOT_A_ROOT,
    "elsewhere": {"error": "api.post.create_post.channel_root_id.app_error", "status": 400},
    "fits": 2 * 16_383,  # JavaScript counts halves of a smile
    "tooLong": {"error": "model.post.is_valid.message_length.app_error", "status": 400},
    "tooLarge": {"error": "api.context.request_body_too_large.app_error", "status": 413},
    "patched": ["hi there", {"unsafe_links": "true"}, True],
    "ofAnother": DENIED,
    "thread": [1, True, True],
    "perPage": {"error": "api.context.invalid_body_param.app_error", "status": 400},
    "since": 1,
    "reactions": ["eyes"],
    "deleted": {"error": "app.post.get.app_error", "status": 404},
    "left": 1,
    "config": ["16383", "string"],
    "public": False,
    "stranger": {"error": "api.context.session_expired.app_error", "status": 401},
}

EVENTS = {
    "version": "11.6.0.boxmaker.0123456789abcdef0123456789abcdef.false",
    "id": 26,
    "posted": ["one", "two"],  # its own post too
    "type": "D",
    "name": True,
    "sender": "@ann",
    "edited": ["ONE"],
    "deleted": ["ONE", 0],  # as it was, and once, although a reply went with it
    "typing": ["OK", True, True, True],
    "own": 0,
    "pong": ["OK", "pong", "11.6.0"],
    "unknown": ["FAIL", "api.web_socket_router.bad_action.app_error"],
    "sequence": True,
    "closed": 0,
}

RESUME = {"complete": True, "resumed": True, "attempts": 6, "hello": 1, "missed": 0, "sequence": True}

REVOKED = {"posted": [], "pong": ["FAIL", "api.web_socket_router.not_authenticated.app_error", 401], "closed": 0}


def test_a_suite_can_set_up_the_server_and_post_through_the_client() -> None:
    assert told("rest") == REST


def test_events_come_to_the_client_with_their_numbers_and_its_own_posts() -> None:
    assert told("events") == EVENTS


def test_the_client_resumes_and_misses_nothing() -> None:
    assert told("resume") == RESUME


def test_the_client_is_told_when_it_has_to_look_for_itself() -> None:
    assert told("loss") == {"missed": [1, 2], "renewed": [True, True], "posted": 0}


def test_a_login_by_challenge_cannot_resume() -> None:
    assert told("challenge") == {"missed": 1, "posted": []}


def test_a_revoked_token_is_told_by_the_ping_alone() -> None:
    assert told("revoked") == REVOKED


def test_whoever_is_in_no_channel_gets_an_answer_that_is_no_json() -> None:
    # The client turns it into an error without a name; a refusal of the server would have one.
    assert told("lonely") == {"channels": {}}


@pytest.mark.parametrize(
    ("rule", "story", "expected", "seen"),
    [
        ("root", "rest", REST, "toReply"),
        ("length", "rest", REST, "tooLong"),
        ("pending", "rest", REST, "again"),
        ("patch_props", "rest", REST, "patched"),
        ("resume", "resume", RESUME, "missed"),
        ("ping_status", "revoked", REVOKED, "pong"),
    ],
)
def test_a_fake_that_breaks_a_rule_is_found_out(rule: str, story: str, expected: dict[str, Any], seen: str) -> None:
    assert told(story, rule)[seen] != expected[seen]
