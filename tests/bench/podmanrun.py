"""A plan of brokerd's as the command line of `podman run`: what one tool call is compared with.

`flags` is pure. `equal` asks Podman itself, by brokerd's own comparison, whether a container that is made with
these flags is the one that the plan describes: else the bench would compare two different things.
"""

import json
import os
import subprocess
from collections.abc import Sequence

import attrs

from brokerd import containerplan
from brokerd.containerplan import Ids, Network, Plan
from brokerd.mounts import Mount
from deploy.local import podmanconf
from deploy.local.toolhost import ToolHost
from tests.bench.sizes import Unmeasurable

_OF_RUN_ALONE = "--passwd=false"
"""`podman create` 4.3 does not know it."""


def flags(plan: Plan) -> list[str]:
    """Return what follows `podman run` or `podman create`, image and program included."""
    if plan.network is not Network.NONE:
        raise ValueError("only a tool's own container can be compared")
    bounds, program, *arguments = plan.bounds, *plan.argv
    return [
        "--rm",
        "--interactive",
        "--pull=never",
        *(f"--label={name}={value}" for name, value in plan.labels.items()),
        "--unsetenv-all",
        *(f"--env={name}={value}" for name, value in containerplan.ENVIRONMENT.items()),
        "--http-proxy=false",
        f"--hostname={containerplan.HOST_NAME}",
        f"--user={containerplan.USER}",
        "--workdir=/",
        "--network=none",
        "--no-hosts",
        "--userns=keep-id:uid=1000,gid=1000" if plan.ids is Ids.HOST_USER else _own_ids(),
        _OF_RUN_ALONE,
        "--cap-drop=all",
        "--cgroupns=private",
        "--image-volume=ignore",
        "--ipc=none",
        "--log-driver=none",
        f"--security-opt=mask={':'.join(containerplan.MASKED)}",
        "--security-opt=no-new-privileges",
        f"--security-opt=seccomp={plan.seccomp}",
        "--read-only",
        "--read-only-tmpfs=false",
        "--systemd=false",
        *map(_volume, plan.mounts),
        *(f"--tmpfs={where}:{','.join(options)}" for where, options in plan.tmpfs.items()),
        *(f"--ulimit={name.lower()}={most}:{most}" for name, most in plan.rlimits.items()),
        f"--memory={bounds.memory_bytes}b",
        f"--memory-swap={bounds.memory_bytes}b",
        f"--pids-limit={bounds.processes}",
        "--cpu-period=100000",
        f"--cpu-quota={1000 * bounds.cpu_percent}",
        "--oom-score-adj=1000",
        f"--timeout={bounds.lifetime_s}",
        "--stop-timeout=0",
        f"--entrypoint={json.dumps([program, *arguments])}",
        plan.image,
    ]


def _own_ids() -> str:
    return f"--userns=auto:size={containerplan.OWN_IDS}"


def _volume(mount: Mount) -> str:
    options = ["rw" if mount.writable else "ro", "noexec", "nosuid", "nodev", "bind", "rprivate"]
    return f"--volume={mount.source}:{mount.destination}:{','.join(options)}"


@attrs.frozen(kw_only=True)
class Ran:
    """What one `podman run` came to."""

    exit: int
    stdout: bytes
    stderr: bytes


class Command:
    """Podman's command line as the tool user, with the settings of a running tool host."""

    def __init__(self, host: ToolHost) -> None:
        self._place = host.place
        machine = podmanconf.look(host.user.uid)
        place = self._place
        self._environment = podmanconf.environment(
            machine, home=place.storage, runtime=place.runtime, settings=place.settings
        )

    def run(self, arguments: Sequence[str], stdin: bytes) -> Ran:
        """Run `podman run` to its end. Its stdin stays open until then: the tool ends when that closes."""
        process = self._started("run", *arguments)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            process.stdin.write(stdin)
            process.stdin.flush()
            stdout, stderr = process.stdout.read(), process.stderr.read()
            return Ran(exit=process.wait(), stdout=stdout, stderr=stderr)

    def need(self, *arguments: str) -> str:
        """Run another command, and return what it says."""
        process = self._started(*arguments)
        stdout, stderr = process.communicate(b"")
        if process.returncode:
            raise Unmeasurable(f"podman {arguments[0]}: {stderr.decode(errors='replace').strip()}")
        return stdout.decode().strip()

    def _started(self, *arguments: str) -> "subprocess.Popen[bytes]":
        user = self._place.user
        return subprocess.Popen(
            ["podman", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=os.fspath(self._place.storage),
            env=self._environment,
            user=user.uid if user.own else None,
            group=user.gid if user.own else None,
            extra_groups=() if user.own else None,
        )


def check_equal(command: Command, plan: Plan) -> None:
    """Raise Unmeasurable where the flags make another container than the plan."""
    made = command.need("create", *(flag for flag in flags(plan) if flag != _OF_RUN_ALONE)).splitlines()[-1]
    try:
        command.need("init", made)
        (described,) = json.loads(command.need("inspect", made))
        if differing := containerplan.differences(plan, described):
            raise Unmeasurable(f"the two containers are not alike: {', '.join(differing)}")
    finally:
        command.need("rm", "--force", "--time=0", made)
