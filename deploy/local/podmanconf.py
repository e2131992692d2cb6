"""Podman's settings for the tool user, as text, and which of them this machine calls for.

Reads: /sys/fs/cgroup, the PATH. No file of the system's is changed: the two files are named by
CONTAINERS_CONF and CONTAINERS_STORAGE_CONF.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from deploy.local.refusal import Refusal

DRIVERS = ("overlay", "vfs")
"""Best first. vfs copies the image for each container: slow, and works everywhere."""

_PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the settings depend on. `bus` is the user's systemd, where there is one to ask for cgroups."""

    runtime: str
    unified: bool
    bus: Path | None


def look(uid: int) -> Machine:
    """Look at this machine. Raises Refusal where no runtime is installed."""
    unified = _UNIFIED.exists()
    bus = Path(f"/run/user/{uid}/bus")
    # Beside the old hierarchies crun 1.8 refuses to work; with the new one alone it is the better of the two.
    wanted = ("crun", "runc") if unified else ("runc", "crun")
    for name in wanted:
        if shutil.which(name, path=_PROGRAMS):
            return Machine(runtime=name, unified=unified, bus=bus if unified and bus.exists() else None)
    raise Refusal("neither crun nor runc is installed: deploy/local/setup.sh podman installs one")


def containers(machine: Machine) -> str:
    """Return containers.conf."""
    # Locks in files: those in shared memory belong to the user, and a second service of the same user, as a
    # test run beside `make chat`, would free them all when it starts.
    manager = "" if machine.bus else 'cgroup_manager = "cgroupfs"\n'
    return f'[engine]\nruntime = "{machine.runtime}"\n{manager}events_logger = "file"\nlock_type = "file"\n'


def storage(driver: str, root: Path) -> str:
    """Return storage.conf. Each driver has a directory: libpod's database holds on to the one that it began with."""
    # Without the first of the two paths, Podman 4 puts a user's images below HOME. Its run directory it takes
    # from XDG_RUNTIME_DIR whatever is said here.
    graph = json.dumps(str(root / driver))
    return f'[storage]\ndriver = "{driver}"\nrootless_storage_path = {graph}\ngraphroot = {graph}\n'


def environment(machine: Machine, *, home: Path, runtime: Path, settings: Path) -> dict[str, str]:
    """Return all that Podman may know of an environment."""
    bus = {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={machine.bus}"} if machine.bus else {}
    return {
        "CONTAINERS_CONF": os.fspath(settings / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": os.fspath(settings / "storage.conf"),
        "HOME": os.fspath(home),
        "LANG": "C.UTF-8",
        "PATH": _PROGRAMS,
        "TMPDIR": os.fspath(home),
        "XDG_RUNTIME_DIR": os.fspath(runtime),
        **bus,
    }
