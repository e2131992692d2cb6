"""`make demo`: a short story through the real roles, broker, audit log and containers, with a scripted model.

Writes: .state/demo/, made anew each time but for the containers' storage. Nothing is asked of the person who
watches: where the story needs an owner's yes, this program says it, with the same bxctl that a person would use.
"""

import argparse
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "python")]

from bxcore.client import Connection  # noqa: E402 - the path comes first
from bxcore.deadline import SystemClock  # noqa: E402
from bxcore.errors import BoxmakerError  # noqa: E402
from bxcore.wire import admin  # noqa: E402
from deploy.local import configs, plan, processes, starter, story, toolhost  # noqa: E402
from deploy.local.configs import Served  # noqa: E402
from deploy.local.home import Home, refuse_another_users  # noqa: E402
from deploy.local.progress import Progress  # noqa: E402
from deploy.local.refusal import Refusal  # noqa: E402
from deploy.local.stack import Stack  # noqa: E402
from deploy.local.story import Chapter, Setting, Use  # noqa: E402
from deploy.local.toolhost import ToolHost  # noqa: E402
from deploy.local.wakeups import Interrupted, Wakeups  # noqa: E402
from tests.fakes.llama_server import Call, FakeLlama, Reply  # noqa: E402 - the scripted model

EXIT_NOT_STARTED = 69
_ANSWER_SECONDS = 60.0
_N_CTX = 65_536

_DEMO_GRANTS = {
    "fetch-own.toml": (
        'tool = "http_fetch"\nmode = "auto"\nmax_taint = "private"\n\n[constraints]\nhosts = ["localhost:{port}"]\n'
    ),
}


@dataclass
class Canary:
    """A listener that nothing may reach."""

    port: int
    visitors: list[object] = field(default_factory=list)


class Stage:
    """The running roles, and the owner who sits before them."""

    def __init__(self, home: Home, canary: Canary) -> None:
        self._home = home
        self._canary = canary
        self._failed: list[str] = []

    @property
    def failed(self) -> list[str]:
        """What did not come out as the story has it."""
        return self._failed

    def play(self, number: int, chapter: Chapter) -> None:
        """Say the chapter's line, answer what is asked, and tell what it meant."""
        _heading(f"{number}. {chapter.title}")
        _show(f"you> {chapter.says}")
        talk = self._bxctl("chat", "--verbose", "--no-usage", "--say", chapter.says)
        if chapter.approve:
            approval = self._asked()
            if approval is None:
                self._failed.append(f"nothing was asked in chapter {number}")
            else:
                _show(f"$ bxctl approve {approval}")
                self._expect(0, self._bxctl("approve", str(approval)).wait(), f"bxctl approve {approval}")
        self._expect(0, talk.wait(), f"the conversation of chapter {number}")
        if chapter.afterwards:
            _show(f"   ({chapter.afterwards})")

    def look_back(self) -> None:
        """Show what is on record."""
        _heading("What is on record")
        for words in (["audit", "show"], ["audit", "verify"]):
            _show(f"$ bxctl {' '.join(words)}")
            self._expect(0, self._bxctl(*words).wait(), " ".join(words))
        denied = self._denied()
        if denied is None:
            self._failed.append("no denial is on record")
        else:
            _heading("Why was that denied?")
            for verb in ("explain", "suggest"):
                _show(f"$ bxctl grants {verb} {denied}")
                self._expect(0, self._bxctl("grants", verb, str(denied)).wait(), f"grants {verb}")
        visitors = len(self._canary.visitors)
        _show(f"Connections to the listener that nothing may reach: {visitors}")
        if visitors:
            self._failed.append("something reached the canary")

    def _bxctl(self, *words: str) -> Any:
        sys.stdout.flush()
        return processes.in_foreground(
            (sys.executable, "-P", "-s", "-m", "bxctl", "--home", str(self._home.path), *words)
        )

    def _asked(self) -> int | None:
        until = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < until:
            for found in self._admin(admin.ApprovalList()):
                if isinstance(found, admin.ApprovalSummary):
                    time.sleep(0.5)  # let the other bxctl show the question first
                    return found.id
            time.sleep(0.1)
        return None

    def _denied(self) -> int | None:
        """Return the first denial on record: brokerd is asked about each number until it knows no more."""
        for seq in range(1, 1_000):
            try:
                found = list(self._admin(admin.GrantsExplain(seq=seq)))
            except BoxmakerError as error:
                if error.code != "no_record":
                    raise
                continue
            verdict = found[-1]
            if isinstance(verdict, admin.GrantsVerdict) and verdict.verdict is admin.Verdict.DENIED:
                return seq
        return None

    def _admin(self, message: object) -> list[object]:
        with Connection(self._home.admin_socket, clock=SystemClock()) as connection:
            return [envelope.msg for envelope in connection.request(message)]

    def _expect(self, wanted: int, found: int, what: str) -> None:
        if found != wanted:
            self._failed.append(f"{what} ended with {found}")


def main(argv: Sequence[str]) -> int:
    """Play the story; 0 where everything came out as it should."""
    parser = argparse.ArgumentParser(prog="demo.py", description="Play a short story through Boxmaker's real parts.")
    default = ROOT / ".state" / "demo"
    parser.add_argument("--home", type=Path, metavar="DIR", default=default, help="made anew (default: .state/demo)")
    progress = Progress(sys.stderr, speaker="make demo")
    home = Home(parser.parse_args(argv).home.absolute())
    try:
        os.umask(0o077)
        for directory in (ROOT / ".state", home.path):
            refuse_another_users(directory)
        return _run(home, progress)
    except (Refusal, BoxmakerError) as error:
        progress.say(str(error))
    except Interrupted as interrupted:
        progress.say(f"stopped by {interrupted}")
        return 128 + interrupted.number
    return EXIT_NOT_STARTED


def _run(home: Home, progress: Progress) -> int:
    lock = _take(home)
    with lock, Wakeups() as wakeups, toolhost.start(home.path, say=progress.doing) as host, _canary() as canary:
        setting = _furnish(home, host, canary)
        chapters = story.chapters(setting)
        stage = Stage(home, canary)
        with (
            FakeLlama(home.model_socket, lambda messages: _reply(chapters, messages), n_ctx=_N_CTX) as model,
            Stack(home, wakeups, progress) as running,
        ):
            _start(home, host, model, running)
            progress.clear()
            for number, chapter in enumerate(chapters, 1):
                stage.play(number, chapter)
            stage.look_back()
    for fault in stage.failed:
        progress.say(f"not as it should be: {fault}")
    return 1 if stage.failed else 0


def _take(home: Home) -> BinaryIO:
    """Take the home for ourselves, and forget the last time. The containers' storage stays: it holds no story.

    Nothing is removed from a home that no demo made: it may be where somebody's conversations are.
    """
    mark = home.path / "made-by-make-demo"
    if not mark.exists():
        if home.path.exists() and any(home.path.iterdir()):
            raise Refusal(f"{home.path} is not empty, and no demo made it; name a directory that does not exist yet")
        home.path.mkdir(parents=True, exist_ok=True)
        mark.touch()
    lock = home.lock()
    if lock is None:
        raise Refusal(f"another make demo is running in {home.path}")
    for name in ("etc", "sessions", "audit", "broker", "run"):
        shutil.rmtree(home.path / name, ignore_errors=True)
    home.prepare()
    return lock


def _furnish(home: Home, host: ToolHost, canary: Canary) -> Setting:
    """Lay the sample folder out, and beside it a folder that no grant names."""
    for old in ("sample", "private"):
        shutil.rmtree(host.shared_dir / old, ignore_errors=True)
    private = host.shared_dir / "private"
    texts = {**starter.SAMPLES, "letter.txt": story.LETTER.format(private=private)}
    starter.give_folder(host.shared_dir / "sample", texts, host)
    starter.give_folder(private, {"keys.txt": story.KEYS}, host)
    setting = Setting(sample=starter.prepare(home, host), private=private, canary_port=canary.port)
    for name, grant in _DEMO_GRANTS.items():
        (home.grants / name).write_text(grant.format(port=canary.port), encoding="utf-8")
    return setting


def _start(home: Home, host: ToolHost, model: FakeLlama, running: Stack) -> None:
    served = Served(model=model.model, n_ctx=model.n_ctx, slots=model.slot_count)
    written = {
        "inferproxy": configs.inferproxy(home, plan.upstream_of(home)),
        "brokerd": configs.brokerd(home, host),
        "loopd": configs.loopd(home, served, small_model=False, tools=True),
    }
    for role, body in written.items():
        configs.write(home.etc / f"{role}.toml", body)
    running.wait_ready(running.start(plan.inferproxy(home, network=False)), running.start(plan.brokerd(home)))
    running.wait_ready(running.start(plan.loopd(home)))


def _reply(chapters: Sequence[Chapter], messages: list[dict[str, Any]]) -> Reply:
    """Answer loopd's self-test with the call that it wants, and the owner as the story has it."""
    if str(messages[0]["content"]).startswith("Self-test."):
        return Reply(calls=(Call(name="clock"),)) if messages[-1]["role"] == "user" else Reply(text="Noon.")
    move = story.next_move(chapters, messages)
    if isinstance(move, Use):
        return Reply(calls=(Call(name="call_tool", arguments=story.call_arguments(move)),))
    return Reply(text=move.text)


@contextmanager
def _canary() -> Iterator[Canary]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        canary = Canary(port=listener.getsockname()[1])

        def watch() -> None:
            try:
                while True:
                    visitor, address = listener.accept()
                    canary.visitors.append(address)
                    visitor.close()
            except OSError:
                pass  # the story is over

        threading.Thread(target=watch, daemon=True).start()
        yield canary
        listener.shutdown(socket.SHUT_RDWR)


def _heading(text: str) -> None:
    print(f"\n── {text} {'─' * max(3, 70 - len(text))}\n", flush=True)


def _show(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
