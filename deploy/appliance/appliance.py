"""One `make appliance`: every role in its container as its own user, a conversation with them, and nothing left behind.

Reads and writes: the place of this home (place.py), and in the home (.state/appliance) logs. Standard output and input
belong to bxctl; what the launcher itself has to say goes to standard error. Exit codes: as of `make chat` (launch.py).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bxcore.settings.gatewayd import TOKEN
from deploy.appliance import host, place, roleconfigs, roleplan
from deploy.appliance.host import Appliance
from deploy.local import commandline, configs, conversation, launch, mattermost, plan, processes, starter
from deploy.local.home import Home, refuse_another_users, refuse_unprintable
from deploy.local.mattermost import Wish
from deploy.local.plan import Part
from deploy.local.processes import Process
from deploy.local.progress import Progress
from deploy.local.refusal import Refusal
from deploy.local.stack import Stack
from deploy.local.wakeups import Wakeups

SPEAKER = "make appliance"
USUAL_HOME = plan.STATE / "appliance"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was typed. Neither `upstream` nor `model`: our own server with the small model."""

    home: Home
    upstream: str | None
    model: Path | None
    accept_break: bool
    mattermost: Wish | None
    serves_only: bool
    chat: tuple[str, ...]

    @property
    def small_model(self) -> bool:
        return not self.upstream and not self.model

    @property
    def come_back(self) -> str:
        """What to type to go on with {session}."""
        return plan.make_chat(
            self.home,
            upstream=self.upstream,
            model=self.model,
            tools=True,
            mattermost=self.mattermost.variables if self.mattermost else {},
            target="appliance",
            usual=USUAL_HOME,
        )


def main(argv: Sequence[str]) -> int:
    """Run one `make appliance` and return its exit code."""
    progress = Progress(sys.stderr, speaker=SPEAKER)
    try:
        options = _options(argv)
    except Refusal as slip:
        progress.say(str(slip))
        return commandline.EXIT_USAGE
    return commandline.guarded(lambda: _prepared(options, progress), progress)


def _prepared(options: Options, progress: Progress) -> int:
    os.umask(0o077)
    refuse_unprintable(options.home.path)
    for directory in (plan.STATE, options.home.path):
        refuse_another_users(directory)
    options.home.log.mkdir(parents=True, exist_ok=True)
    with Wakeups() as wakeups:
        return _run(options, wakeups, progress)


def _options(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="start.py",
        description="Start Boxmaker's roles in containers, each as its own user, and open a conversation.",
        epilog="What follows -- goes to `bxctl chat`: start.py -- --session ID --verbose",
    )
    commandline.declare(parser, usual=USUAL_HOME, shown=".state/appliance")
    given = parser.parse_args(argv)
    commandline.check(given)
    return Options(
        home=Home(given.home.absolute()),
        upstream=given.upstream,
        model=given.model and given.model.absolute(),
        accept_break=given.accept_break,
        mattermost=mattermost.wish(given),
        serves_only=commandline.serves_only(given),
        chat=commandline.for_chat(given),
    )


def _run(options: Options, wakeups: Wakeups, progress: Progress) -> int:
    home = options.home
    enabled = (mattermost.ROLE,) if options.mattermost else ()
    with host.start(home.path, say=progress.doing, upstream=options.upstream, enabled=enabled) as appliance:
        try:
            return _converse(options, appliance, wakeups, progress)
        except Refusal as refusal:
            if not (suspects := appliance.suspects):
                raise
            progress.say(str(refusal))
        names = " and ".join(suspects)
        progress.say(f"{names}: once more, with images that are loaded anew, since those in the store may be damaged")
        appliance.renew(suspects, say=progress.doing)
        return _converse(options, appliance, wakeups, progress)


def _converse(options: Options, appliance: Appliance, wakeups: Wakeups, progress: Progress) -> int:
    home = options.home

    def begin(part: Part) -> Process:
        return _begin(part, appliance, home)

    # Stopped before the tools' service: brokerd ends what runs there while it can still be reached.
    with Stack(home, wakeups, progress, begin) as running:
        watch = mattermost.Watch(progress)
        _start(options, appliance, running, watch, progress)
        progress.clear()

        def tend() -> list[int]:
            _tend(appliance, progress)
            descriptors = running.tend()
            watch.look(running.status(mattermost.ROLE))
            return descriptors

        try:
            if options.serves_only:
                progress.say(mattermost.SERVES)
                return conversation.attend(wakeups, tend)
            at = Home(Path(appliance.wiring.places.home))
            return conversation.converse(plan.bxctl(at, options.chat, come_back=options.come_back), wakeups, tend)
        finally:
            running.report_endings()


def _start(options: Options, appliance: Appliance, running: Stack, watch: mattermost.Watch, progress: Progress) -> None:
    """Start the model server and inferproxy, beside them brokerd, once they say what is served loopd, then gatewayd."""
    wiring, here, wanted = appliance.wiring, appliance.place, options.mattermost
    for note in appliance.notes:
        progress.say(note)
    configs.check_edited(here, writer=SPEAKER)
    launch.prepare_gatewayd(here.etc, wanted, writer=SPEAKER, progress=progress)
    progress.say(starter.summary(here, _furnished(appliance)))
    address = appliance.settings.upstream
    _write(appliance, "inferproxy", roleconfigs.inferproxy(wiring, address), progress)
    network, gateway = appliance.egress_network, wanted is not None
    _write(appliance, "brokerd", roleconfigs.brokerd(wiring, egress_network=network, gateway=gateway), progress)
    once = ("--accept-break",) if options.accept_break else ()
    parts = [appliance.part("inferproxy"), appliance.part("brokerd", once=once)]
    if not options.upstream:
        parts.append(_model_server(options, here.model_socket))
    running.wait_ready(*[running.start(part) for part in parts])

    found = launch.ask(wiring.socket("infer"), appliance.log, running, address)
    launch.tell(found, small_model=options.small_model, progress=progress)
    body = roleconfigs.loopd(wiring, found, small_model=options.small_model, gateway=gateway)
    _write(appliance, "loopd", body, progress)
    running.wait_ready(running.start(appliance.part("loopd")))
    if wanted is not None:
        _start_gatewayd(appliance, wanted, running, progress)
        watch.begin(wiring.socket("gateway-owner"), wanted)


def _start_gatewayd(appliance: Appliance, wanted: Wish, running: Stack, progress: Progress) -> None:
    role, here = mattermost.ROLE, appliance.place
    here.write_secret(role, TOKEN, wanted.secret())
    if wanted.ca_file is not None:
        text = wanted.ca_file.read_text(encoding="utf-8")
        here.account(role).write(roleconfigs.certificates(appliance.wiring), text)
    _write(appliance, role, roleconfigs.gatewayd(appliance.wiring, wanted), progress)
    running.wait_ready(running.start(appliance.part(role)))


def _begin(part: Part, appliance: Appliance, home: Home) -> Process:
    """Start a role in its container, and the model server as a process."""
    if part.name not in appliance.wiring.roles:
        return processes.start(part, home)
    command = roleplan.command(appliance.wiring, part.name)
    return appliance.start(part.name, instead=(*command, *part.once) if part.once else None)


def _model_server(options: Options, socket: Path) -> Part:
    part = plan.model_server(options.home, options.model, listen=socket)
    if refused := processes.no_network_refused():
        raise Refusal(f"the model server cannot be kept from the network here: {refused}")
    # The kernel makes a socket by the umask, whatever access list the directory hands on.
    return replace(part, umask=0o007)


def _furnished(appliance: Appliance) -> Path:
    """Return the sample folder. The grants about it are written once; then they are the owner's."""
    folder = starter.sample(appliance)
    begun = appliance.place.path / "begun"
    if not begun.exists():
        for name, text in starter.grants(folder).items():
            appliance.place.write_grant(name, text)
        place.write(begun, "", gid=None, mode=0o600)
    return folder


def _write(appliance: Appliance, role: str, body: str, progress: Progress) -> None:
    path = appliance.place.etc / f"{role}.toml"
    launch.write(path, body, writer=SPEAKER, progress=progress)
    appliance.place.give(appliance.wiring.roles[role].config)


def _tend(appliance: Appliance, progress: Progress) -> None:
    try:
        if appliance.tend():
            progress.interject("the container service had ended and is started again")
    except Refusal as refusal:
        progress.interject(f"the container service ended and does not start: {refusal}")
