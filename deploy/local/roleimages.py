"""The images of the roles of this checkout, built if they have to be. Writes: .state/role-images/, a directory each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local import builtimage, plan
from deploy.local.refusal import Refusal
from images import table

DIRECTORY = plan.ROOT / ".state" / "role-images"
_ARCHIVE = "image.tar"


@dataclass(frozen=True, kw_only=True)
class RoleImage:
    """A built image: its ID, 64 hexadecimal digits; its name, whose tag is made from its content; its archive."""

    role: str
    identity: str
    name: str
    archive: Path


def built(
    role: str, *, directory: Path = DIRECTORY, say: Callable[[str], None] = lambda _: None, check: bool = False
) -> RoleImage:
    """Return the image of the present sources; `say` is told if that takes time. Raises Refusal.

    `check`: the archive is compared with what was built, and built again where it is damaged.
    """
    image = table.roles().get(role)
    if image is None:
        raise Refusal(f"images/roles.toml has no table for a role {role}")
    script = ["role_image.py", "--role", role]
    told = builtimage.built(image, directory / role, archive=_ARCHIVE, script=script, say=say, check=check)
    identity, _, tag = told.partition(" ")
    return RoleImage(
        role=role, identity=identity, name=f"{image.repository}:{tag}", archive=directory / role / _ARCHIVE
    )
