"""What systemd hands a unit as a credential is readable in the role's container, to the role alone.

systemd cannot be the first process here; its part is played: a directory of root's that an access list opens to the
unit's user, closed to everybody else, or, as older ones on a file system without such lists do, the user's own.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxcore import wiring
from deploy.appliance import roleplan
from deploy.local import roleimages
from deploy.local.plan import ROOT
from deploy.local.refusal import Refusal
from deploy.local.toolhost import ToolHost

WIRING = wiring.load(ROOT / "nix" / "roles.json")
NAME = "mattermost-token"
VALUE = "not-a-real-token"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="handing a file to another user needs root")

READ = f"""
import json, os
place = os.environ["CREDENTIALS_DIRECTORY"]
with open(os.open(os.path.join(place, "{NAME}"), os.O_RDONLY | os.O_NOFOLLOW)) as file:
    print(json.dumps([file.read(), sorted(os.listdir(place))]))
"""
WRITE = """
import os
open(os.path.join(os.environ["CREDENTIALS_DIRECTORY"], "more"), "w")
"""


@pytest.fixture
def place(tool_host: ToolHost) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir=tool_host.shared_dir))
    (directory / NAME).write_text(VALUE)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def image(tool_host: ToolHost) -> Iterator[str]:
    """The smallest image: what it is shown is looked at, and not its program."""
    built = roleimages.built("inferproxy")
    with built.archive.open("rb") as archive:
        tool_host._podman.need("load", "--quiet", stdin=archive)
    yield built.name
    tool_host.podman("rmi", "--force", built.name)


def by_access_list(place: Path, uid: int) -> None:
    (place / NAME).chmod(0o400)
    place.chmod(0o500)
    subprocess.run(["setfacl", "-m", f"u:{uid}:r", place / NAME], check=True)
    subprocess.run(["setfacl", "-m", f"u:{uid}:rx", place], check=True)


def by_owner(place: Path, uid: int) -> None:
    os.chown(place / NAME, uid, -1)
    (place / NAME).chmod(0o400)
    os.chown(place, uid, -1)
    place.chmod(0o500)


def run(host: ToolHost, image: str, shown: tuple[str, ...], program: str) -> str:
    return host.podman(
        "run", "--rm", "--network=none", "--log-driver=none", *WIRING.closed,
        f"--security-opt=seccomp={host.seccomp_path}", *shown, image, "/usr/bin/python3", "-I", "-S", "-c", program,
    )  # fmt: skip


@pytest.mark.parametrize("hand_over", [by_access_list, by_owner])
def test_a_role_reads_its_credential_and_can_change_nothing_there(
    tool_host: ToolHost, place: Path, image: str, hand_over: Callable[[Path, int], None]
) -> None:
    hand_over(place, tool_host.user.uid)
    shown = roleplan.secrets(WIRING, "gatewayd", place)
    assert json.loads(run(tool_host, image, shown, READ)) == [VALUE, [NAME]]
    with pytest.raises(Refusal, match=r"Read-only|read-only|Permission"):
        run(tool_host, image, shown, WRITE)


def test_what_no_access_list_opens_is_closed_to_the_role(tool_host: ToolHost, place: Path, image: str) -> None:
    (place / NAME).chmod(0o400)
    subprocess.run(["setfacl", "-m", f"u:{tool_host.user.uid}:x", place], check=True)
    with pytest.raises(Refusal, match="Permission denied"):
        run(tool_host, image, roleplan.secrets(WIRING, "gatewayd", place), READ)
