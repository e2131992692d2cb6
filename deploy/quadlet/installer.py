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
from deploy.quadlet import answers, facts, installation, ownerprogram, settingsfiles
from deploy.quadlet.answers import Answers
from deploy.quadlet.installation import Images
from deploy.quadlet.steps import Step, Tree, Write, below

_HERE = Path("/")


def main(argv: Sequence[str], *, built: "Callable[[Wiring], Images] | None" = None) -> int:
    """Install, show what would be done, or take away; 1 with the reasons where that cannot be.

    `built` builds the images.
    """
    given = _parser().parse_args(argv)
    # Roles and the owner read most of what is made here; a root with another mask would shut them out.
    os.umask(0o022)
    wiring = wiring_file.load(ROOT / "nix" / "roles.json")
    root = given.root.absolute()
    try:
        if given.uninstall:
            _uninstall(wiring, root, check=given.check)
        else:
            _install(wiring, root, _answers(wiring, root, given), built or _built, check=given.check)
    except (Refusal, ConfigError) as refusal:
        print(f"boxmaker: {refusal}", file=sys.stderr)
        return 1
    return 0


def _install(wiring: Wiring, root: Path, told: Answers, built: Callable[[Wiring], Images], *, check: bool) -> None:
    _refuse(wiring, root, told, check=check)
    images = built(wiring)
    if check:
        _show(_everything(wiring, root, told, images), root)
        return
    changed = False
    for steps in _stages(wiring, root, told, images):
        changed |= carry_out(steps(), root, _say)
    for step in installation.started(wiring, anew=changed):
        carry_out([step], root, _say)
    carry_out(installation.older_images(wiring, images), root, _say)
    _say(_last_words(wiring, root, told))


def _stages(wiring: Wiring, root: Path, told: Answers, images: Images) -> list[Callable[[], Iterable[Step]]]:
    """Return the stages. Each is looked at when those before it are done: files can have been missing till then."""
    packages = Path(sysconfig.get_path("purelib"))
    return [
        lambda: installation.before_users(wiring, told, images, root),
        lambda: installation.settled(wiring, told, root),
        lambda: installation.units(wiring, told, images),
        lambda: ownerprogram.steps(packages, ownerprogram.interpreter()),
        lambda: installation.loaded(wiring, images),
    ]


def _everything(wiring: Wiring, root: Path, told: Answers, images: Images) -> Iterator[Step]:
    for stage in _stages(wiring, root, told, images):
        yield from stage()
    yield from installation.started(wiring, anew=True)
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


def _refuse(wiring: Wiring, root: Path, told: Answers, *, check: bool) -> None:
    """Raise Refusal with every reason against installing, before anything is built or changed."""
    found = facts.accounts(root)
    strangers = facts.strangers(found, wiring, told.owner)
    reasons = [*facts.taken(found, wiring), *strangers, *_edited(wiring, root, told)]
    if root == _HERE:
        reasons += [*facts.unable(facts.look()), *facts.owner(found, wiring, told.owner)]
        if os.geteuid() != 0 and not check:
            reasons.append("only root can install; --check shows what would be done, and --root DIR does it in there")
    upstream.check(told.upstream)
    ownerprogram.interpreter()
    answers.check(told, wiring)
    if reasons:
        raise Refusal("nothing was changed, since\n" + "\n".join(f"  - {reason}" for reason in reasons))


def _edited(wiring: Wiring, root: Path, told: Answers) -> Iterator[str]:
    for name, role in wiring.roles.items():
        path = below(root, str(wiring.at(role.config)))
        if not settingsfiles.is_ours(path):
            yield from settingsfiles.faults(path, name, told)


def _built(wiring: Wiring) -> Images:
    roles = {name: roleimages.built(name, say=_say) for name in wiring.roles}
    tags = {name: image.name.rpartition(":")[2] for name, image in roles.items()}
    return Images(roles=roles, tags=tags, tools=toolimage.built(say=_say))


def _answers(wiring: Wiring, root: Path, given: argparse.Namespace) -> Answers:
    return answers.joined(
        answers.path(wiring, root),
        upstream=given.upstream, owner=given.owner, n_ctx=given.n_ctx, slots=given.slots,
        grants=() if given.no_grants else given.grant,
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
    parser.add_argument("--check", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument("--uninstall", action="store_true", help="take everything away but state and settings")
    parser.add_argument("--root", type=Path, default=_HERE, metavar="DIR", help="install into a directory instead")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
