"""The chat server of the VM test: the tests' fake Mattermost, with one person and one bot.

python -m nix.checks.chat PORT DIRECTORY: serves on the loopback address until it is killed. Writes DIRECTORY/token, the
bot's, and DIRECTORY/people.json: the ids of alice, of the bot, and of the channel of the two. They are the same in
every run, since a configuration names people by their ids (tests/nix/test_machine.py).
"""

import json
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fakes.mattermost import Mattermost


@dataclass(frozen=True, kw_only=True)
class People:
    """Who is there, by their ids."""

    alice: str
    bot: str
    direct: str


def populated(server: Mattermost) -> tuple[People, str]:
    """Let the two in. Returns them and the bot's token."""
    alice = server.add_user("alice")
    bot, token = server.add_bot("boxmaker")
    return People(alice=alice, bot=bot, direct=server.direct(alice, bot)), token


def main() -> None:
    """Serve."""
    port, directory = int(sys.argv[1]), Path(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Mattermost(port=port, control=True) as server:
        people, token = populated(server)
        (directory / "token").write_text(token, encoding="utf-8")
        (directory / "people.json").write_text(json.dumps(asdict(people)), encoding="utf-8")
        signal.pause()


if __name__ == "__main__":
    main()
