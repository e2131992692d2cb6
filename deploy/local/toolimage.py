"""The tool image of this checkout, built if it has to be. Writes: .state/tool-image/."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local import builtimage, plan
from images import table

DIRECTORY = plan.ROOT / ".state" / "tool-image"
_ARCHIVE = "tool-image.tar"


@dataclass(frozen=True, kw_only=True)
class Image:
    """A built image: its ID, 64 hexadecimal digits, and its archive."""

    identity: str
    archive: Path


def built(directory: Path = DIRECTORY, *, say: Callable[[str], None] = lambda _: None, check: bool = False) -> Image:
    """Return the image of the present sources; `say` is told if that takes time. Raises Refusal.

    `check`: the archive is compared with what was built, and built again where it is damaged.
    """
    image = table.image(table.TOOLS)
    identity = builtimage.built(image, directory, archive=_ARCHIVE, script=["tool_image.py"], say=say, check=check)
    return Image(identity=identity, archive=directory / _ARCHIVE)
