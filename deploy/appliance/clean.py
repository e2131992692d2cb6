"""`make clean-appliance`: takes away what the appliances of this checkout keep on the machine.

Removes: images and containers of every place (place.py) of a state in .state, wherever it lies, and of checkouts that
are gone; all of a place of the tests', and of one in which nobody said anything; the built images of the roles. Leaves,
and names: conversations, grants, settings, the audit log, folders of tools'; and the users. Invariant: a place that
somebody uses is left whole.
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "python")]

from bxcore import wiring as wirings  # noqa: E402 - the path comes first
from deploy.appliance import host, users  # noqa: E402
from deploy.appliance import place as places  # noqa: E402
from deploy.appliance.place import Place  # noqa: E402
from deploy.local import cleantools, starter  # noqa: E402
from deploy.local.home import ROLES, refuse_another_users  # noqa: E402
from deploy.local.progress import Progress  # noqa: E402
from deploy.local.refusal import Refusal  # noqa: E402

EXIT_LEFT = 1


def main(state: Path) -> int:
    """Return 0 where nothing of this checkout is left but what is somebody's."""
    progress = Progress(sys.stderr, speaker="make clean-appliance")
    try:
        refuse_another_users(state)
        wiring = wirings.load(ROLES)
        found = users.find(wiring)
        ours = [place for place in places.every(wiring, found) if _is_of(place, state)]
        lost = [place for place in places.lost(wiring, found) if place not in ours]
        cleaned = [_cleaned(place, progress, whole=_is_of_tests(place, state)) for place in (*ours, *lost)]
    except Refusal as refusal:
        progress.say(str(refusal))
        return EXIT_LEFT
    shutil.rmtree(state / "role-images", ignore_errors=True)
    if not all(cleaned):
        return EXIT_LEFT
    progress.say("images and containers of this checkout's appliances are gone from this machine")
    if found.own:
        names = ", ".join(sorted(found.users))
        progress.say(f"the users stay, which other checkouts may use: {names}. userdel NAME removes one, and its ids")
    return 0


def _is_of(place: Place, state: Path) -> bool:
    of = place.of()
    return of is not None and of.is_relative_to(state.resolve())


def _is_of_tests(place: Place, state: Path) -> bool:
    of = place.of()
    below = (state.resolve() / name for name in ("container-tests", "bench"))
    return of is not None and any(of.is_relative_to(directory) for directory in below)


def _cleaned(place: Place, progress: Progress, *, whole: bool) -> bool:
    """Clean one place. Returns whether only what is somebody's is left."""
    progress.doing(f"removing images and containers of {place.path}")
    lock = place.lock()
    if lock is None:
        progress.say(f"{place.path} is in use and stays: leave make appliance or make test first")
        return False
    with lock:
        host.empty(place)
        kept = [] if whole else [path for path in _somebodys(place) if _holds_something(path)]
        try:
            _remove(place, kept)
        except OSError as error:
            progress.say(f"{place.path} stays: {error.filename or place.path}: {error.strerror}")
            return False
    if kept:
        names = ", ".join(str(path.relative_to(place.path)) for path in kept)
        progress.say(
            f"kept in {place.path} what was said, allowed or written there: {names}. "
            f"When you do not want it: rm -r {place.path}"
        )
    else:
        progress.say(f"removed {place.path}")
    return True


def _somebodys(place: Place) -> list[Path]:
    """Return what cannot be made again, where somebody used it."""
    wiring = place.wiring
    said = [wiring.at(path) for role in wiring.roles.values() for path in role.keeps]
    grants = [] if _are_the_first(place) else [place.etc]
    shared = [] if cleantools.untouched(place.shared) else [place.shared]
    return [*said, *grants, *shared]


def _are_the_first(place: Place) -> bool:
    """Say whether the grants are those that were written at the beginning, and all of them."""
    found = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in place.grants.glob("*")}
    return not found or found == starter.grants(place.shared / "sample")


def _holds_something(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _remove(place: Place, kept: list[Path]) -> None:
    """Remove the place but what is kept, with what a next start needs to find that again."""
    if not kept:
        shutil.rmtree(place.path)
        return
    ours = (place.path / name for name in ("podman", "run", "notify", "credentials"))
    for path in (*ours, place.model):
        shutil.rmtree(path, ignore_errors=True)
    for path in (place.wiring.at("home/containers"), place.wiring.at("home/run")):
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(ROOT / ".state"))
