"""How large an image is once it is unpacked: the bytes of its files, from the archive that `podman load` gets."""

import json
import tarfile
from pathlib import Path
from typing import Any


def unpacked_bytes(archive: Path) -> int:
    """Return the bytes of all regular files in the layers of an OCI archive; a hard link counts nothing."""
    with tarfile.open(archive) as whole:
        manifest = _json(whole, _blob(_json(whole, "index.json")["manifests"][0]))
        return sum(_layer_bytes(whole, _blob(layer)) for layer in manifest["layers"])


def _layer_bytes(whole: tarfile.TarFile, name: str) -> int:
    with tarfile.open(fileobj=whole.extractfile(name)) as layer:
        return sum(member.size for member in layer if member.isfile())


def _json(whole: tarfile.TarFile, name: str) -> Any:
    file = whole.extractfile(name)
    assert file is not None
    return json.load(file)


def _blob(described: dict[str, Any]) -> str:
    return f"blobs/{str(described['digest']).replace(':', '/')}"
