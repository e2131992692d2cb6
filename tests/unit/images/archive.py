"""A built image, opened: its configuration, and the files of its one layer."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import attrs

from images import contents

LIBRARY = f"{contents.PACKAGES}/"


@attrs.frozen(kw_only=True)
class Opened:
    identity: str
    name: str
    config: dict[str, Any]
    """The whole configuration; what a container starts with is its "config"."""
    layer: tarfile.TarFile
    members: dict[str, tarfile.TarInfo]

    @property
    def size(self) -> int:
        """Bytes, unpacked."""
        return sum(member.size for member in self.members.values())

    def read(self, name: str) -> bytes:
        return _content(self.layer, name)

    def files(self, suffix: str = "") -> list[str]:
        return [name for name, member in self.members.items() if member.isfile() and name.endswith(suffix)]

    def library(self, suffix: str = ".py") -> list[str]:
        """Return what lies where Python code does, by its path there."""
        return [name.removeprefix(LIBRARY) for name in self.files(suffix) if name.startswith(LIBRARY)]

    def packages(self) -> set[str]:
        """Return the distributions, by their names as in poetry.lock."""
        infos = {name.split("/")[0] for name in self.library("") if ".dist-info/" in name}
        return {info.split("-")[0].replace("_", "-").lower() for info in infos}


def read(path: Path) -> Opened:
    with tarfile.open(path) as outer:
        named = json.loads(_content(outer, "index.json"))["manifests"][0]
        manifest = json.loads(_content(outer, _blob(named)))
        layer = tarfile.TarFile(fileobj=io.BytesIO(_content(outer, _blob(manifest["layers"][0]))))
        return Opened(
            identity=manifest["config"]["digest"].removeprefix("sha256:"),
            name=named["annotations"]["org.opencontainers.image.ref.name"],
            config=json.loads(_content(outer, _blob(manifest["config"]))),
            layer=layer,
            members={member.name: member for member in layer.getmembers()},
        )


def _blob(described: dict[str, str]) -> str:
    return f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    assert member is not None
    return member.read()
