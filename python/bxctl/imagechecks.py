"""Checks of `bxctl doctor`: the images are there, and are the right ones.

The tool image is named by its ID in a file; brokerd says which one it proved. A role's image is named by a tag made
from its contents. Which images a user's Podman has is read from its storage: no podman is run.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from bxcore.wire import admin
from bxctl import finding
from bxctl.finding import AS_ROOT, Fault, Finding
from bxctl.installed import Installed

IMAGE_UNFIT = "image_missing"

_ID_DIGITS = 64
_SHOWN = 12
_PROVED = "names an image that the tools' Podman has, and brokerd proved"
_SET_UP = "run the set-up again, it loads the image for {user} (on NixOS: systemctl restart {user})"
_LISTS = ("*-images/images.json", "*/*-images/images.json", ".local/share/*/storage/*-images/images.json")
"""Where containers/storage keeps its list: below the graph root, which may be a directory for each driver, or where
that lies in a user's home, as where systemd starts the containers: the storage directory is the home there.
"""


@attrs.frozen(kw_only=True)
class Image:
    """One image in a user's storage."""

    identity: str
    names: tuple[str, ...]


def images(installed: Installed, report: admin.BrokerStatusReport | None) -> Iterator[Finding]:
    """Check the tool image and each role's. `report`: what brokerd says, where it answers."""
    yield _tool_image(installed, report)
    for name, role in installed.roles.items():
        yield _role_image(installed, name, role.image, installed.wiring.at(role.storage))


def _tool_image(installed: Installed, report: admin.BrokerStatusReport | None) -> Finding:
    path = installed.wiring.at(installed.wiring.tools.image_file)
    name, expected = "tool image", f"{path} {_PROVED}"
    try:
        named = installed.machine.text(path).removesuffix("\n").removeprefix("sha256:")
    except PermissionError:
        return Finding(name=name, passed=None, expected=expected, found=AS_ROOT)
    except OSError as error:
        return Finding(
            name=name, passed=False, expected=expected, found=f"{path}: {error.strerror}", runbook=IMAGE_UNFIT
        )
    stored = _stored(installed, installed.wiring.at(installed.wiring.tools.storage))
    fault = _tool_fault(installed, named, report, stored)
    if fault is None and stored is None:
        return Finding(name=name, passed=None, expected=expected, found=AS_ROOT)
    (result,) = finding.room(name, held=named[:_SHOWN], faults=[] if fault is None else [fault], runbook=IMAGE_UNFIT)
    return attrs.evolve(result, expected=expected)


def _tool_fault(
    installed: Installed, named: str, report: admin.BrokerStatusReport | None, stored: list[Image] | None
) -> Fault | None:
    """Return what is wrong; None where nothing is, or where `stored` is not to be seen."""
    found = command = ""
    user, proved = installed.wiring.tools.user, None if report is None else report.image
    if len(named) != _ID_DIGITS or set(named) - set("0123456789abcdef"):
        found, command = "the file holds no image ID", _SET_UP.format(user=user)
    elif proved is not None and proved != named:
        # A file that is mounted by itself stays the old one for whoever has it mounted, once it was replaced.
        found = f"brokerd uses {proved[:_SHOWN]}, the file names {named[:_SHOWN]}: restart brokerd"
        command = "systemctl restart '*brokerd*'"
    elif stored is not None and named not in {image.identity for image in stored}:
        # Also where brokerd proved it: that was when it started, and images can be removed.
        found, command = f"{named[:_SHOWN]} is not loaded for {user}", _SET_UP.format(user=user)
    if not found:
        return None
    return Fault(expected=_PROVED, found=found, why="no tool runs in any other image", command=command)


def _role_image(installed: Installed, name: str, image: str, storage: Path) -> Finding:
    expected = f"an image {image} in the storage of {installed.wiring.roles[name].user}"
    stored = _stored(installed, storage)
    if stored is None:
        return Finding(name=f"image of {name}", passed=None, expected=expected, found=AS_ROOT)
    fitting = {one.identity: label for one in stored for label in one.names if _is_tag(label, image)}
    faults = [] if fitting else [_missing(expected)]
    told = ", ".join(sorted(f"{label} ({identity[:_SHOWN]})" for identity, label in fitting.items()))
    (result,) = finding.room(f"image of {name}", held=told or expected, faults=faults, runbook=IMAGE_UNFIT)
    return result


def _missing(expected: str) -> Fault:
    return Fault(expected=expected, found="none", why="the role's container is made from it; nothing is ever pulled")


def _is_tag(label: str, image: str) -> bool:
    """Whether a name is one of an image: the same repository, under any tag or digest."""
    rest = label.removeprefix(image)
    return label.startswith(image) and rest[:1] in {"", ":", "@"}


def _stored(installed: Installed, storage: Path) -> list[Image] | None:
    """Return the images in a user's storage; None where this user may not see them."""
    files = [path for pattern in _LISTS for path in installed.machine.found(storage, pattern)]
    try:
        if not files:
            installed.machine.names(storage)
        return [image for path in files for image in parse(installed.machine.text(path))]
    except PermissionError:
        return None
    except OSError:
        return []


def parse(text: str) -> list[Image]:
    """Return the images of a list of containers/storage. What is none is passed over: it is Podman's own file."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    entries = value if isinstance(value, list) else []
    return [
        Image(identity=entry["id"], names=tuple(map(str, entry.get("names") or ())))
        for entry in entries
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    ]
