"""An installation, and its end, as steps in their order. Carries none of them out.

Reads: the checkout's own files; below the root, the ids for containers and whose each settings file is. Invariant:
nothing of the owner's is overwritten, and what the roles keep is never removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bxcore.wiring import TOOLS, Wiring
from deploy.local.plan import ROOT
from deploy.quadlet import hostfiles, mattermost, settingsfiles, subids
from deploy.quadlet.answers import Answers
from deploy.quadlet.answers import text as answers_text
from deploy.quadlet.mattermost import NOTHING, Brought
from deploy.quadlet.steps import Account, Delegated, Remove, Run, Step, Write, below

FILES = ROOT / "deploy" / "quadlet" / "files"
_SYSTEMCTL = ("systemctl", "--user")


class Built(Protocol):
    """An image as a file."""

    @property
    def identity(self) -> str: ...

    @property
    def archive(self) -> Path: ...


@dataclass(frozen=True, kw_only=True)
class Images:
    """The images of one revision, of the roles that run here. `tags`: what each role's image is named by."""

    roles: Mapping[str, Built]
    tags: Mapping[str, str]
    tools: Built


def before_users(wiring: Wiring, answers: Answers, images: Images, root: Path) -> Iterator[Step]:
    """Yield what makes users, groups and directories."""
    files = _files(wiring, answers, images)
    yield from (step for step in files if _is_declaration(step.path))
    for name in ("/etc/subuid", "/etc/subgid"):
        file = below(root, name)
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        yield Write(path=name, content=subids.added(before, wiring.users).encode())
    confs = ("boxmaker.conf", "boxmaker-owner.conf")
    yield Run(argv=("systemd-sysusers", *confs), staged="--root")
    yield Run(argv=("systemd-tmpfiles", "--create", *confs), staged="--root")


def settled(wiring: Wiring, answers: Answers, root: Path, brought: Brought = NOTHING) -> Iterator[Step]:
    """Yield what is below /etc/boxmaker, but for what the owner has made theirs."""
    yield from mattermost.steps(wiring, answers.mattermost, brought)
    gids = {**wiring.users, "root": 0}
    modes = {file.path: file for file in wiring.files}
    bodies = {
        wiring.roles[role].config: settingsfiles.text(role, values).encode()
        for role, values in settingsfiles.values(wiring, answers).items()
    }
    seccomp = {wiring.tools.seccomp: (ROOT / "images" / "tool-seccomp.json").read_bytes()}
    for place, content in {**bodies, **seccomp}.items():
        path = str(wiring.at(place))
        if place in seccomp or settingsfiles.is_ours(below(root, path)):
            file = modes[place]
            yield Write(path=path, content=content, mode=int(file.mode, 8), gid=gids[file.group])
    yield Write(path=str(wiring.at("etc/roles.json")), content=(ROOT / "nix" / "roles.json").read_bytes())
    yield Write(path=str(wiring.at("etc/install/answers.toml")), content=answers_text(answers).encode())


def left_out(wiring: Wiring, answers: Answers, root: Path) -> Iterator[Step]:
    """Yield what ends an optional role that was here and is not wanted any more. What it keeps stays."""
    for name in set(wiring.roles) - set(wiring.running(answers.enabled)):
        role = wiring.roles[name]
        files = [path for path in hostfiles.of_a_role(wiring, name) if below(root, path).exists()]
        if files:
            account = accounts(wiring)[name]
            unit = f"{hostfiles.unit_name(name)}.service"
            yield Run(argv=(*_SYSTEMCTL, "stop", unit), account=account, may_fail=True)
            yield from _without_a_manager(account)
        yield from (Remove(path=path) for path in files)
        settings = str(wiring.at(role.config))
        if below(root, settings).exists() and settingsfiles.is_ours(below(root, settings)):
            yield Remove(path=settings)


def _without_a_manager(account: Account) -> Iterator[Step]:
    yield Run(argv=("loginctl", "disable-linger", account.name), may_fail=True)
    yield Run(argv=("systemctl", "stop", f"user@{account.uid}.service"), may_fail=True)


def units(wiring: Wiring, answers: Answers, images: Images) -> Iterator[Step]:
    """Yield the units, and the settings of this machine beside them."""
    yield from (step for step in _files(wiring, answers, images) if not _is_declaration(step.path))


def loaded(wiring: Wiring, images: Images) -> Iterator[Step]:
    """Yield what gives each user a manager that runs from boot, and its image."""
    yield Run(argv=("systemctl", "daemon-reload"))
    for account in (accounts(wiring)[party] for party in (TOOLS, *images.roles)):
        yield Run(argv=("loginctl", "enable-linger", account.name))
        yield Run(argv=("systemctl", "start", f"user@{account.uid}.service"))
        yield Delegated(account=account)
    for party, image in {**images.roles, TOOLS: images.tools}.items():
        load = ("podman", "load", "--quiet")
        yield Run(argv=load, account=accounts(wiring)[party], stdin=image.archive)
    file = next(file for file in wiring.files if file.path == wiring.tools.image_file)
    yield Write(
        path=str(wiring.at(file.path)),
        content=f"{images.tools.identity}\n".encode(),
        mode=int(file.mode, 8),
        gid=wiring.users[file.group],
    )


def started(wiring: Wiring, answers: Answers, *, anew: bool) -> Iterator[Step]:
    """Yield what starts everything. `anew`: what runs is of before, so end it first."""
    socket = f"{wiring.tools.user}.socket"
    yield Run(argv=("systemctl", "--global", "enable", socket), staged="--root")
    verb = "restart" if anew else "start"
    running = wiring.running(answers.enabled)
    for party, account in accounts(wiring).items():
        if party != TOOLS and party not in running:
            continue
        yield Run(argv=(*_SYSTEMCTL, "daemon-reload"), account=account)
        if party == TOOLS:
            yield Run(argv=(*_SYSTEMCTL, "start", socket), account=account)
        else:
            # A role is ready when it has checked its state, or the model server: that may take minutes.
            unit = f"{hostfiles.unit_name(party)}.service"
            yield Run(argv=(*_SYSTEMCTL, "--no-block", verb, unit), account=account)


def older_images(wiring: Wiring, images: Images) -> Iterator[Step]:
    """Yield what removes the images of revisions before: each user keeps the one that it runs."""
    for party, image in {**images.roles, TOOLS: images.tools}.items():
        script = 'podman images --quiet --no-trunc | grep -vx "sha256:$1" | xargs -r podman rmi --ignore'
        yield Run(argv=("sh", "-c", script, "-", image.identity), account=accounts(wiring)[party], may_fail=True)


def ended(wiring: Wiring) -> Iterator[Step]:
    """Yield what takes an installation away, but for state, settings, and the users that own them."""
    yield Run(argv=("systemctl", "--global", "disable", f"{wiring.tools.user}.socket"), staged="--root", may_fail=True)
    for party, account in accounts(wiring).items():
        unit = f"{wiring.tools.user}.socket" if party == TOOLS else f"{hostfiles.unit_name(party)}.service"
        # In order: a role says that it has stopped.
        yield Run(argv=(*_SYSTEMCTL, "stop", unit), account=account, may_fail=True)
        yield from _without_a_manager(account)
    for path in _removed(wiring):
        yield Remove(path=path)


def kept(wiring: Wiring) -> list[str]:
    """Return what `ended` leaves, and how it is removed, as lines for a person."""
    users, groups = " ".join(wiring.users), " ".join(edge.group for edge in wiring.edges)
    directories = sorted({str(wiring.at(path)) for role in wiring.roles.values() for path in role.keeps})
    return [
        f"state stays: {', '.join(directories)}",
        f"settings and grants stay, and the bot's token where there is one: {wiring.at('etc')}",
        f"their owners stay, with ids for containers: {users}",
        "to remove these too, for ever:",
        f"    rm -r {wiring.at('home')} {wiring.at('etc')}",
        f"    for user in {users}; do userdel $user; done; for group in {groups}; do groupdel $group; done",
    ]


def accounts(wiring: Wiring) -> dict[str, Account]:
    """Return the account of each party: the tools first, whose socket brokerd wants, then the roles."""
    users = {TOOLS: wiring.tools.user, **{name: role.user for name, role in wiring.roles.items()}}
    return {
        party: Account(name=user, uid=wiring.users[user], home=hostfiles.home(wiring, user))
        for party, user in users.items()
    }


def _files(wiring: Wiring, answers: Answers, images: Images) -> list[Write]:
    idle = set(wiring.roles) - set(wiring.running(answers.enabled))
    of_others = {path for name in idle for path in hostfiles.of_a_role(wiring, name)}
    checked_in = {f"/{path.relative_to(FILES)}": path.read_text(encoding="utf-8") for path in _checked_in()}
    credentials = mattermost.credentials(wiring, answers.mattermost)
    made = {
        **{path: text for path, text in checked_in.items() if path not in of_others},
        **hostfiles.machine(wiring, answers.settings, owner=answers.owner, tags=images.tags, credentials=credentials),
    }
    return [Write(path=path, content=content.encode()) for path, content in sorted(made.items())]


def _checked_in() -> list[Path]:
    return sorted(path for path in FILES.rglob("*") if path.is_file())


def _is_declaration(path: str) -> bool:
    return path.startswith(("/etc/sysusers.d/", "/etc/tmpfiles.d/"))


def _removed(wiring: Wiring) -> Iterator[str]:
    from deploy.quadlet.ownerprogram import COMMAND, LIBRARY

    yield from (COMMAND, LIBRARY)
    tags = dict.fromkeys(wiring.roles, "")
    no_settings = hostfiles.CLOSED
    yield from sorted({**hostfiles.fixed(wiring), **hostfiles.machine(wiring, no_settings, owner="root", tags=tags)})
    # Sockets, and images with whatever containers were made of them.
    yield from (str(wiring.at("home/run")), str(wiring.at("home/containers")))
    yield from (str(wiring.at(path)) for path in ("etc/roles.json", wiring.tools.image_file, wiring.tools.seccomp))
