"""`make clean-tools`: takes away what the tools of this checkout keep on the machine.

Removes: the places (toolplace.py) of every home in .state, wherever they lie, with images and containers; and those
of checkouts that are gone. Leaves: conversations, grants, the audit log, and the user boxmaker-tools, which other
checkouts may use. Invariants: a place that somebody uses is left whole; no file is lost that tools or the owner put
into a folder.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "python")]

from deploy.local import podman, podmanconf, starter, toolplace, tooluser  # noqa: E402 - the path comes first
from deploy.local.home import refuse_another_users  # noqa: E402
from deploy.local.podman import Podman  # noqa: E402
from deploy.local.progress import Progress  # noqa: E402
from deploy.local.refusal import Refusal  # noqa: E402
from deploy.local.toolplace import Place  # noqa: E402
from deploy.local.tooluser import ToolUser  # noqa: E402

EXIT_LEFT = 1


def main(state: Path = ROOT / ".state") -> int:
    """Return 0 where nothing of this checkout is left but what is somebody's."""
    progress = Progress(sys.stderr, speaker="make clean-tools")
    try:
        refuse_another_users(state)
        user = tooluser.find()
        machine = podmanconf.look(user.uid)
        cleaned = [_cleaned(Podman(place, machine), state, progress) for place in places(state, user)]
    except Refusal as refusal:
        progress.say(str(refusal))
        return EXIT_LEFT
    shutil.rmtree(state / "tool-image", ignore_errors=True)
    if not all(cleaned):
        return EXIT_LEFT
    progress.say("images and containers of this checkout's tools are gone from this machine")
    if user.own:
        _tell_of_the_user(user, progress)
    return 0


def places(state: Path, user: ToolUser) -> Iterator[Place]:
    """Return the places of all homes in `state`, and those whose homes are gone."""
    tests = (path for name in ("container-tests", "bench") for path in sorted((state / name).glob("*")))
    below = [state, state / "demo", *tests]
    for home in below:
        inside = Place(path=home / "tools", user=user)
        if inside.home.is_file():
            yield inside
    lost = {place.path for place in toolplace.lost(user)}
    for place in toolplace.elsewhere(user):
        of = place.of()
        if place.path in lost or (of is not None and of.is_relative_to(state.resolve())):
            yield place


def _cleaned(tools: Podman[Place], state: Path, progress: Progress) -> bool:
    """Clean one place. Returns whether only what is somebody's is left."""
    place = tools.place
    progress.doing(f"removing {place.path}")
    lock = place.lock()
    if lock is None:
        progress.say(f"{place.path} is in use and stays: leave make chat, make demo or make test first")
        return False
    with lock:
        tools.run("rm", "--all", "--force", "--time=0")
        podman.end_leftovers(place.api_socket)
        of = place.of()
        ours = of is not None and of != state.resolve() and of.is_relative_to(state.resolve())
        keep = set() if ours or untouched(place.shared) else {place.shared, place.home}
        # Through Podman: what is in there belongs to ids that only it may act as.
        gone = {place.storage, place.runtime / "containers", place.shared} - keep
        tools.run("unshare", "rm", "-rf", *map(str, sorted(gone)))
        podman.end_pause_process(place)
        try:
            for path in set(place.path.iterdir()) - keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not keep:
                place.path.rmdir()
        except OSError as error:
            progress.say(f"{place.path} stays: {error.filename or place.path}: {error.strerror}")
            return False
    if keep:
        progress.say(
            f"kept {place.shared}: there are files that you or tools wrote. When you have them: rm -r {place.path}"
        )
    else:
        progress.say(f"removed {place.path}")
    return True


def untouched(shared: Path) -> bool:
    """Say whether there is nothing but the sample folder, as it was made."""
    try:
        return all(_is_sample(path, path.relative_to(shared)) for path in shared.rglob("*"))
    except OSError:
        return False  # what cannot be looked at may be somebody's


def _is_sample(path: Path, name: Path) -> bool:
    if path.is_symlink():
        return False
    if name == Path("sample"):
        return path.is_dir()
    sample = starter.SAMPLES.get(name.name) if name.parent == Path("sample") else None
    return sample is not None and path.is_file() and path.read_bytes() == sample.encode()


def _tell_of_the_user(user: ToolUser, progress: Progress) -> None:
    if others := [str(place.path) for place in toolplace.elsewhere(user)]:
        progress.say(f"the user {user.name} stays, for {', '.join(others)}")
    else:
        progress.say(f"the user {user.name} stays; this removes it, and its ids: userdel {user.name}")


if __name__ == "__main__":
    sys.exit(main())
