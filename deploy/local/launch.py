"""One `make chat`: start what a conversation needs, open it, and leave nothing behind.

Reads and writes: the home directory (.state). Standard output and input belong to bxctl; what the
launcher itself has to say goes to standard error. Exit codes: bxctl's, 2 for a slip in what was typed, 69 where
a part did not start, 128 and the signal's number where one stopped the launcher, 0 where that ended a
service of Mattermost alone.
"""

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.local import commandline, configs, conversation, mattermost, plan, processes, served, stack, upstream
from deploy.local.configs import Outcome, Served
from deploy.local.home import Home, refuse_another_users
from deploy.local.mattermost import Wish
from deploy.local.plan import Part
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.stack import Stack
from deploy.local.tools import Tools
from deploy.local.wakeups import Interrupted, Wakeups

_LOAD_SECONDS = 180.0
_TERMINAL_CLOSED = frozenset({signal.SIGHUP})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was typed. Neither `upstream` nor `model`: our own server with the small model."""

    home: Home
    upstream: str | None
    model: Path | None
    tools: bool
    accept_break: bool
    mattermost: Wish | None
    serves_only: bool
    chat: tuple[str, ...]

    @property
    def conversation(self) -> tuple[str, ...]:
        """The command line of the conversation."""
        back = plan.make_chat(
            self.home,
            upstream=self.upstream,
            model=self.model,
            tools=self.tools,
            mattermost=self.mattermost.variables if self.mattermost else {},
        )
        return plan.bxctl(self.home, self.chat, come_back=back)

    @property
    def small_model(self) -> bool:
        return not self.upstream and not self.model


def main(argv: Sequence[str]) -> int:
    """Run one `make chat` and return its exit code."""
    progress = Progress(sys.stderr)
    try:
        options = _options(argv)
    except Refusal as slip:
        progress.say(str(slip))
        return commandline.EXIT_USAGE
    return commandline.guarded(lambda: _prepared(options, progress), progress)


def _prepared(options: Options, progress: Progress) -> int:
    # Sessions, logs and settings are nobody else's business.
    os.umask(0o077)
    if os.geteuid() == 0:
        # Whatever the home is, the tool image is made in the checkout's own.
        refuse_another_users(plan.ROOT / ".state")
    options.home.prepare()
    with Wakeups() as wakeups:
        return _run(options, wakeups, progress)


def _options(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="chat.py",
        description="Start Boxmaker in this checkout and open a conversation.",
        epilog="What follows -- goes to `bxctl chat`: chat.py -- --session ID --verbose",
    )
    commandline.declare(parser, usual=plan.ROOT / ".state", shown=".state")
    parser.add_argument("--no-tools", action="store_true", help="no brokerd and no containers: the model only talks")
    given = parser.parse_args(argv)
    if given.accept_break and given.no_tools:
        raise Refusal("--accept-break is for brokerd, which --no-tools leaves out")
    commandline.check(given)
    return Options(
        home=Home(given.home.absolute()),
        upstream=given.upstream,
        model=given.model and given.model.absolute(),
        tools=not given.no_tools,
        accept_break=given.accept_break,
        mattermost=mattermost.wish(given),
        serves_only=commandline.serves_only(given),
        chat=commandline.for_chat(given),
    )


def _run(options: Options, wakeups: Wakeups, progress: Progress) -> int:
    """Become this home's launcher, or the guest of the one that it has.

    One that is still starting, or is just leaving, is waited for.
    """
    home = options.home
    while True:
        if lock := home.lock():
            with lock:
                return _launch(options, wakeups, progress)
        if right := home.enter():
            with right:
                if _loopd_listens(home):
                    return _visit(options, wakeups, progress)
        stack.pause(wakeups, progress, f"waiting for another make chat in {home.path}")


def _launch(options: Options, wakeups: Wakeups, progress: Progress) -> int:
    # The place where tools run outlives the stack: brokerd stops what runs there while it can still be reached.
    with Tools() as tools, Stack(options.home, wakeups, progress) as running:
        watch = mattermost.Watch(progress)
        _start(options, running, tools, watch, progress)
        progress.clear()

        def tend() -> list[int]:
            tools.tend(progress)
            descriptors = running.tend()
            watch.look(running.status(mattermost.ROLE))
            return descriptors

        try:
            if options.serves_only:
                progress.say(mattermost.SERVES)
            code = _talk(options, wakeups, tend)
            while not (door := options.home.close_door()):
                tend()
                doing = "another make chat still talks here; Ctrl-C ends it as well"
                stack.pause(wakeups, progress, doing, ignoring=_TERMINAL_CLOSED)
        finally:
            running.report_endings()
    door.close()
    return code


def _talk(options: Options, wakeups: Wakeups, tend: Callable[[], list[int]]) -> int:
    """Return the conversation's exit code. A terminal that closes ends this conversation, and no guest's."""
    try:
        if options.serves_only:
            return conversation.attend(wakeups, tend)
        return conversation.converse(options.conversation, wakeups, tend)
    except Interrupted as interrupted:
        if interrupted.number not in _TERMINAL_CLOSED:
            raise
        return 128 + interrupted.number


def _visit(options: Options, wakeups: Wakeups, progress: Progress) -> int:
    progress.say(f"already running in {options.home.path}: this one only talks to it, and leaves it running")
    if not options.small_model:
        progress.say("the running one keeps its model; UPSTREAM= and MODEL= have no effect")
    if options.accept_break:
        progress.say("brokerd runs already; --accept-break has no effect")
    if options.mattermost:
        progress.say("the running one keeps its settings; MATTERMOST= has no effect")
    if options.serves_only:
        raise Refusal("nobody is here to talk with, and the running one is not told of Mattermost; end that one first")
    return conversation.converse(options.conversation, wakeups, lambda: ())


def _loopd_listens(home: Home) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(home.loop_socket)) == 0


def _start(options: Options, running: Stack, tools: Tools, watch: mattermost.Watch, progress: Progress) -> None:
    """Start the model server and inferproxy, beside them brokerd, once they say what is served loopd, then gatewayd."""
    refused = processes.no_network_refused()
    if refused:
        progress.say(f"loopd runs with a network here, since this machine allows nothing less: {refused}")
    home = options.home
    configs.check_edited(home)  # loading the model first would make a typo cost a minute
    prepare_gatewayd(home.etc, options.mattermost, progress=progress)
    address = options.upstream or plan.upstream_of(home)
    write(home.etc / "inferproxy.toml", configs.inferproxy(home, address), progress=progress)
    parts = [plan.inferproxy(home, network=bool(options.upstream))]
    if not options.upstream:
        parts.append(plan.model_server(home, options.model))
    processes_started = [running.start(_allowed(part, refused)) for part in parts]
    # While the model is being loaded.
    if options.tools and (host := tools.start(home, progress)):
        write(
            home.etc / "brokerd.toml", configs.brokerd(home, host, gateway=bool(options.mattermost)), progress=progress
        )
        processes_started.append(
            running.start(_allowed(plan.brokerd(home, accept_break=options.accept_break), refused))
        )
    running.wait_ready(*processes_started)

    found = ask(home.infer_socket, home.log, running, address)
    tell(found, small_model=options.small_model, progress=progress)
    write(
        home.etc / "loopd.toml",
        configs.loopd(
            home,
            found,
            small_model=options.small_model,
            tools=tools.running,
            gateway=bool(options.mattermost),
        ),
        progress=progress,
    )
    running.wait_ready(running.start(_allowed(plan.loopd(home), refused)))
    if wanted := options.mattermost:
        body = configs.gatewayd(home, wanted, ca_file=wanted.ca_file, token=wanted.token)
        write(home.etc / "gatewayd.toml", body, progress=progress)
        running.wait_ready(running.start(_allowed(plan.gatewayd(home), refused)))
        watch.begin(home.gateway_owner_socket, wanted)


def _allowed(part: Part, refused: str | None) -> Part:
    """Return the part as this machine can run it."""
    return replace(part, network=True) if refused else part


def write(path: Path, body: str, *, writer: str = configs.WRITER, progress: Progress) -> None:
    """Write a role's file, or say that the owner has made it theirs."""
    if configs.write(path, body, writer=writer) is Outcome.KEPT:
        progress.say(f"{path} was changed by hand and stays as it is; without it a new one would be written")


def prepare_gatewayd(etc: Path, wanted: Wish | None, *, writer: str = configs.WRITER, progress: Progress) -> None:
    """Have no gatewayd.toml where Mattermost was not asked for; say so of one that the owner has made theirs.

    And say what to think of before a token is sent.
    """
    path = etc / "gatewayd.toml"
    if warning := mattermost.warning(wanted):
        progress.say(warning)
    if wanted is None and configs.leave_out(path, writer=writer) is Outcome.KEPT:
        progress.say(f"{path} is yours and stays, and gatewayd does not start: that takes MATTERMOST=")


def ask(infer_socket: Path, logs: Path, running: Stack, address: str) -> Served:
    """Return what the model server says of itself, once it has loaded its model. Raises Refusal."""
    deadline = time.monotonic() + _LOAD_SECONDS
    while True:
        try:
            return served.ask(infer_socket)
        except served.Loading:
            if time.monotonic() > deadline:
                raise Refusal(f"{address}: still loading its model after {_LOAD_SECONDS:.0f} s") from None
        except served.Away as away:
            log = logs / "inferproxy.log"
            reason = upstream.away(log) or away
            raise Refusal(f"{address}: {reason}; is llama-server running there? The log is {log}") from None
        except served.NotLlama as fault:
            raise Refusal(f"{address}: {fault}; a llama.cpp server is needed") from None
        running.pause(f"waiting for {address} to load its model")


def tell(found: Served, *, small_model: bool, progress: Progress) -> None:
    """Say which model it is, and what to expect of it."""
    if small_model:
        progress.say(f"{found.model} is tiny and talks nonsense at times; UPSTREAM=http://host:port uses your server")
        return
    progress.say(f"{found.model}: {found.slots} slots of {found.n_ctx} tokens")
    if found.slots == 1:
        progress.say("it has one slot, so scheduled work will push conversations out of its cache")
