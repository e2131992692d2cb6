"""One user's image storage: opened with the driver that works, holding what it should and nothing older.

Writes: storage.conf, and Podman's own files of that user. Invariant: it is a cache. What is in it can be loaded again,
so a store that does not open is put aside and made anew.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from deploy.local import podmanconf
from deploy.local.podman import Account, Podman
from deploy.local.refusal import Refusal

_DAMAGED = ".damaged-"


class Archive(Protocol):
    """An image as a file: its ID, 64 hexadecimal digits, and where it is."""

    @property
    def identity(self) -> str: ...

    @property
    def archive(self) -> Path: ...


ArchiveT = TypeVar("ArchiveT", bound=Archive)
ArchiveT_co = TypeVar("ArchiveT_co", bound=Archive, covariant=True)


class Builder(Protocol[ArchiveT_co]):
    """Returns the image of the present sources. `check`: with an archive that was compared with what was built."""

    def __call__(self, *, check: bool) -> ArchiveT_co: ...


def opened(store: Podman[Account]) -> str:
    """Open the storage with the best driver that works here, with no container in it. Returns the driver."""
    place = store.place
    reasons = []
    for driver in podmanconf.DRIVERS:
        place.write(place.settings / "storage.conf", podmanconf.storage(driver, place.storage))
        reason = _refused(store) and _refused_anew(store, place.storage / driver)
        if reason is None:
            _remove_damaged(store)
            return driver
        reasons.append(reason)
    raise Refusal(f"podman does not work for {place.user.name}: {reasons[0]}")


def hold(store: Podman[Account], build: Builder[ArchiveT], *, say: Callable[[str], None], what: str) -> ArchiveT:
    """Have this image, and no other, in a store that can make a container of it. Returns it.

    `what` names it for the one who waits. A damaged store or archive is made anew, once. Raises Refusal.
    """
    try:
        return _held_of(store, build(check=False), say=say, what=what)
    except Refusal as refusal:
        say(f"{what} is put into a new store: {refusal}")
    return renewed(store, build, say=say, what=what)


def renewed(store: Podman[Account], build: Builder[ArchiveT], *, say: Callable[[str], None], what: str) -> ArchiveT:
    """Have this image in a store that begins empty. Raises Refusal."""
    for driver in podmanconf.DRIVERS:
        _put_aside(store.place.storage / driver)
    opened(store)
    return _held_of(store, build(check=True), say=say, what=what)


def _held_of(store: Podman[Account], image: ArchiveT, *, say: Callable[[str], None], what: str) -> ArchiveT:
    wanted = f"sha256:{image.identity}"
    held = _held(store)
    if wanted not in held:
        say(f"loading {what}")
        with image.archive.open("rb") as archive:
            store.need("load", "--quiet", stdin=archive)
        if wanted not in _held(store):
            raise Refusal(f"podman loaded {what} under another ID than {image.identity}")
    if older := held - {wanted}:
        store.need("rmi", "--force", *sorted(older))
    # A store may know an image whose files are gone: that shows only here.
    store.need("create", "--network=none", wanted, "none")
    sweep(store)
    return image


def sweep(store: Podman[Account]) -> None:
    """End and remove every container in it."""
    store.need("rm", "--all", "--force", "--time=0")


def _held(store: Podman[Account]) -> set[str]:
    return set(store.need("images", "--quiet", "--no-trunc").split())


def _refused(store: Podman[Account]) -> str | None:
    """Open the store and sweep it. Returns why it does not open."""
    try:
        sweep(store)
    except Refusal as refusal:
        return str(refusal)
    return None


def _refused_anew(store: Podman[Account], directory: Path) -> str | None:
    """Open a new store in place of one that may be damaged. It held images, which are loaded again, and no data."""
    _put_aside(directory)
    return _refused(store)


def _put_aside(directory: Path) -> None:
    if directory.exists():
        directory.replace(directory.with_name(f"{directory.name}{_DAMAGED}{time.time_ns()}"))


def _remove_damaged(store: Podman[Account]) -> None:
    if damaged := list(store.place.storage.glob(f"*{_DAMAGED}*")):
        # Through Podman: what is in there belongs to ids that only it may act as.
        store.run("unshare", "rm", "-rf", *map(str, damaged))
