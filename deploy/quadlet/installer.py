"""Install Boxmaker on a host with systemd and Podman, as units of the roles' own users. Run by deploy/quadlet/install.

Run it again to upgrade, or to change an answer. Specified in docs/other-linux.md.
"""

import argparse
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bxcore import wiring as wiring_file
from bxcore.errors import ConfigError
from bxcore.wiring import Wiring
from deploy.local import roleimages, toolimage, upstream
from deploy.local.plan import ROOT
from deploy.local.refusal import Refusal
from deploy.quadlet import answers, facts, installation, mattermost, ownerprogram, settingsfiles
from deploy.quadlet.answers import Answers
from deploy.quadlet.installation import Images
from deploy.quadlet.mattermost import Brought
from deploy.quadlet.steps import Step, Tree, Write, below

_HERE = Path("/")


Builder = Callable[[Wiring, Sequence[str]], Images]
"""Builds the images of these roles, and of the tools."""


def main(argv: Sequence[str], *, built: Builder | None = None) -> int:
    """Install, show what would be done, or take away; 1 with the reasons where that cannot be."""
    given = _parser().parse_args(argv)
    # Roles and the owner read most of what is made here; a root with another mask would shut them out.
    os.umask(0o022)
    wiring = wiring_file.load(ROOT / "nix" / "roles.json")
    root = given.root.absolute()
    try:
        if given.uninstall:
            _uninstall(wiring, root, check=given.check)
        else:
            told = _answers(wiring, root, given)
            brought = Brought(token=given.mattermost_token, authority=given.mattermost_ca)
            _install(wiring, root, told, brought, built or _built, check=given.check)
    except (Refusal, ConfigError) as refusal:
        print(f"boxmaker: {refusal}", file=sys.stderr)
        return 1
    return 0


def _install(wiring: Wiring, root: Path, told: Answers, brought: Brought, built: Builder, *, check: bool) -> None:
    _refuse(wiring, root, told, brought, check=check)
    images = built(wiring, tuple(wiring.running(told.enabled)))
    if check:
        _show(_everything(wiring, root, told, brought, images), root)
        return
    # A token is another one without a file that shows it.
    changed = brought.token is not None
    for steps in _stages(wiring, root, told, brought, images):
        changed |= carry_out(steps(), root, _say)
    for step in installation.started(wiring, told, anew=changed):
        carry_out([step], root, _say)
    carry_out(installation.older_images(wiring, images), root, _say)
    _say(_last_words(wiring, root, told))


def _stages(
    wiring: Wiring, root: Path, told: Answers, brought: Brought, images: Images
) -> list[Callable[[], Iterable[Step]]]:
    """Return the stages. Each is looked at when those before it are done: files can have been missing till then."""
    packages = Path(sysconfig.get_path("purelib"))
    return [
        lambda: installation.before_users(wiring, told, images, root),
        lambda: installation.left_out(wiring, told, root),
        lambda: installation.settled(wiring, told, root, brought),
        lambda: installation.units(wiring, told, images),
        lambda: ownerprogram.steps(packages, ownerprogram.interpreter()),
        lambda: installation.loaded(wiring, images),
    ]


def _everything(wiring: Wiring, root: Path, told: Answers, brought: Brought, images: Images) -> Iterator[Step]:
    for stage in _stages(wiring, root, told, brought, images):
        yield from stage()
    yield from installation.started(wiring, told, anew=True)
    yield from installation.older_images(wiring, images)


def carry_out(steps: Iterable[Step], root: Path, say: Callable[[str], None]) -> bool:
    """Do what there is to do. Returns whether a file is another one than before. Raises Refusal."""
    changed = False
    for step in steps:
        if step.needed(root):
            say(step.told())
            step.do(root)
            changed |= isinstance(step, Write | Tree)
    return changed


def _uninstall(wiring: Wiring, root: Path, *, check: bool) -> None:
    if root == _HERE and os.geteuid() != 0 and not check:
        raise Refusal("only root can take an installation away")
    steps = installation.ended(wiring)
    if check:
        _show(steps, root)
    else:
        carry_out(steps, root, _say)
    for line in installation.kept(wiring):
        _say(line)


def _refuse(wiring: Wiring, root: Path, told: Answers, brought: Brought, *, check: bool) -> None:
    """Raise Refusal with every reason against installing, before anything is built or changed."""
    found = facts.accounts(root)
    strangers = facts.strangers(found, wiring, told.owner)
    reasons = [*facts.taken(found, wiring), *strangers, *_edited(wiring, root, told)]
    if root == _HERE:
        machine = facts.look()
        reasons += [*facts.unable(machine), *facts.owner(found, wiring, told.owner)]
        reasons += mattermost.old(told.mattermost, machine.version)
        if os.geteuid() != 0 and not check:
            reasons.append("only root can install; --check shows what would be done, and --root DIR does it in there")
    upstream.check(told.upstream)
    ownerprogram.interpreter()
    answers.check(told, wiring)
    mattermost.check(told.mattermost, brought, wiring, root)
    if reasons:
        raise Refusal("nothing was changed, since\n" + "\n".join(f"  - {reason}" for reason in reasons))


def _edited(wiring: Wiring, root: Path, told: Answers) -> Iterator[str]:
    for name, role in wiring.running(told.enabled).items():
        path = below(root, str(wiring.at(role.config)))
        if not settingsfiles.is_ours(path):
            yield from settingsfiles.faults(path, name, told)


def _built(_: Wiring, running: Sequence[str]) -> Images:
    roles = {name: roleimages.built(name, say=_say) for name in running}
    tags = {name: image.name.rpartition(":")[2] for name, image in roles.items()}
    return Images(roles=roles, tags=tags, tools=toolimage.built(say=_say))


def _answers(wiring: Wiring, root: Path, given: argparse.Namespace) -> Answers:
    if given.mattermost_plain_token and given.mattermost_token is None:
        raise Refusal("--mattermost-plain-token says how --mattermost-token FILE is kept, and comes with it")
    return answers.joined(
        answers.path(wiring, root),
        upstream=given.upstream, owner=given.owner, n_ctx=given.n_ctx, slots=given.slots,
        grants=() if given.no_grants else given.grant,
        chat=answers.Chat(
            none=given.no_mattermost, url=given.mattermost,
            users=None if given.mattermost_user is None else tuple(given.mattermost_user),
            # Said with the token: how it is kept is decided when it is handed over.
            sealed=None if given.mattermost_token is None else not given.mattermost_plain_token,
            authority=given.mattermost_ca is not None,
        ),
    )  # fmt: skip


def _show(steps: Iterable[Step], root: Path) -> None:
    for step in steps:
        print(f"{'would' if step.needed(root) else 'as it is:'} {step.told()}")


def _say(line: str) -> None:
    print(f"boxmaker: {line}", file=sys.stderr)


def _last_words(wiring: Wiring, root: Path, told: Answers) -> str:
    kept = [
        str(wiring.at(role.config))
        for role in wiring.roles.values()
        if not settingsfiles.is_ours(below(root, str(wiring.at(role.config))))
    ]
    lines = [f"kept as you changed it: {path}" for path in kept]
    for name in set(wiring.roles) - set(wiring.running(told.enabled)):
        settings = str(wiring.at(wiring.roles[name].config))
        if below(root, settings).exists():
            lines.append(f"{settings} stays, as you changed it: bxctl doctor asks for {name} until you remove it")
    if told.grants:
        users = (wiring.roles["brokerd"].user, wiring.tools.user)
        lines += [f"granted folders must be open to {' and '.join(users)}; docs/other-linux.md has the commands"]
    lines.append(f"done. As {told.owner}, after logging in anew: bxctl doctor, then bxctl chat")
    return "\nboxmaker: ".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deploy/quadlet/install", description="Install or upgrade Boxmaker here.")
    parser.add_argument("--upstream", metavar="URL", help="the model server: http://host:port or unix:/path")
    parser.add_argument("--owner", metavar="USER", help="who uses bxctl and writes grants")
    parser.add_argument("--n-ctx", type=int, metavar="N", help="tokens of one slot (131072)")
    parser.add_argument("--slots", type=int, metavar="N", help="slots of the model server (2)")
    granted = parser.add_mutually_exclusive_group()
    granted.add_argument("--grant", type=Path, action="append", metavar="DIR",
                         help="a folder that grants may speak of; once for each, instead of all before")  # fmt: skip
    granted.add_argument("--no-grants", action="store_true", help="no folder any more")
    chatting = parser.add_mutually_exclusive_group()
    chatting.add_argument("--mattermost", metavar="URL", help="your Mattermost server, for conversations there")
    chatting.add_argument("--no-mattermost", action="store_true", help="no Mattermost any more")
    parser.add_argument("--mattermost-user", action="append", metavar="ID",
                        help="who may speak there, by their id; once for each, instead of all before")  # fmt: skip
    parser.add_argument("--mattermost-token", type=Path, metavar="FILE", help="where the bot's token is now")
    parser.add_argument("--mattermost-plain-token", action="store_true",
                        help="keep it in a file that gatewayd's user alone may read, not as a credential")  # fmt: skip
    parser.add_argument("--mattermost-ca", type=Path, metavar="FILE", help="certificates of an authority of your own")
    parser.add_argument("--check", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument("--uninstall", action="store_true", help="take everything away but state and settings")
    parser.add_argument("--root", type=Path, default=_HERE, metavar="DIR", help="install into a directory instead")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
