"""The other side of the comparison must be told everything that brokerd asks for, or it has less to do."""

import attrs
import pytest

from brokerd.containerplan import Ids, Network
from brokerd.mounts import Mount
from tests.bench import podmanrun
from tests.fakes.plans import PLAN

MOUNT = Mount(source="/srv/notes", destination="/srv/notes", writable=False, device=1, inode=2)
FULL = attrs.evolve(PLAN, mounts=(MOUNT,), ids=Ids.HOST_USER)

SAID_BY = {
    "image": PLAN.image,
    "entrypoint": '--entrypoint=["/bin/sh", "-c", "true"]',
    "command": PLAN.image,  # nothing follows it
    "labels": "--label=boxmaker.call=1",
    "env": "--env=HOME=/tmp",
    "unsetenvall": "--unsetenv-all",
    "httpproxy": "--http-proxy=false",
    "hostname": "--hostname=tool",
    "user": "--user=1000:1000",
    "work_dir": "--workdir=/",
    "stdin": "--interactive",
    "mounts": "--volume=/srv/notes:/srv/notes:ro,noexec,nosuid,nodev,bind,rprivate",
    "cap_drop": "--cap-drop=all",
    "cgroupns": "--cgroupns=private",
    "image_volume_mode": "--image-volume=ignore",
    "ipcns": "--ipc=none",
    "log_configuration": "--log-driver=none",
    "manage_password": "--passwd=false",
    "mask": "--security-opt=mask=/proc/acpi:",
    "no_new_privileges": "--security-opt=no-new-privileges",
    "read_only_filesystem": "--read-only",
    "systemd": "--systemd=false",
    "volatile": "--rm",  # with it the command line asks for that too
    "netns": "--network=none",
    "use_image_hosts": "--no-hosts",
    "use_image_resolve_conf": "--network=none",  # without a network it writes none
    "userns": "--userns=keep-id:uid=1000,gid=1000",
    "seccomp_profile_path": "--security-opt=seccomp=/nowhere/seccomp.json",
    "r_limits": "--ulimit=nproc=64:64",
    "resource_limits": "--pids-limit=64",
    "oom_score_adj": "--oom-score-adj=1000",
    "timeout": "--timeout=60",
    "stop_timeout": "--stop-timeout=0",
}


def test_everything_that_brokerd_asks_for_is_known_here() -> None:
    assert set(FULL.spec()) == set(SAID_BY)


@pytest.mark.parametrize("flag", SAID_BY.values(), ids=SAID_BY.keys())
def test_everything_that_brokerd_asks_for_is_said(flag: str) -> None:
    assert any(said.startswith(flag) for said in podmanrun.flags(FULL))


def test_the_image_comes_last_so_that_its_program_gets_no_argument() -> None:
    assert podmanrun.flags(FULL)[-1] == PLAN.image


def test_every_limit_and_every_file_system_in_memory_is_said() -> None:
    said = podmanrun.flags(FULL)
    assert sum(flag.startswith("--ulimit=") for flag in said) == len(FULL.rlimits)
    assert sum(flag.startswith("--tmpfs=") for flag in said) == len(FULL.tmpfs)


def test_what_differs_between_plans_differs_here() -> None:
    other = attrs.evolve(PLAN, mounts=(attrs.evolve(MOUNT, writable=True),))
    said = podmanrun.flags(other)
    assert "--userns=auto:size=1024" in said
    assert "--volume=/srv/notes:/srv/notes:rw,noexec,nosuid,nodev,bind,rprivate" in said


def test_a_container_with_a_network_is_not_compared() -> None:
    with pytest.raises(ValueError, match="own container"):
        podmanrun.flags(attrs.evolve(PLAN, network=Network.HOST))
