"""A file tree as an OCI image archive, the same bytes for the same tree. Pure.

Format: OCI image layout 1.0 in a tar file, one layer, not compressed. The image's ID is the digest of its
configuration, which names the layer's digest: it survives every way of shipping the image, which the
manifest's digest does not. Invariant: no time, no owner, no order of the host's gets in.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_EPOCH = "1970-01-01T00:00:00Z"
_MEDIA = "application/vnd.oci.image"
_TAG_DIGITS = 16


@dataclass(frozen=True)
class File:
    """A regular file of root's that nobody may write."""

    content: bytes
    runs: bool = False


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Directory:
    """A directory that may be empty. Those that files need are made without being named."""

    everyone: bool = False
    """Anybody may write there, as in /tmp."""


Entry = File | Link | Directory


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a container of the image starts with, unless whoever starts it says otherwise."""

    repository: str
    tag: str | None
    """None: the tag is made from the content, so that a name names one content."""
    made_by: str
    architecture: str
    command: Sequence[str]
    user: str
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image: its ID, 64 hexadecimal digits, the name that it is loaded under, and its archive."""

    identity: str
    name: str
    archive: bytes


def archive(tree: Mapping[str, Entry], settings: Settings) -> Built:
    """Return the image of a tree, whose paths begin with no slash."""
    layer = _tar(_whole(tree))
    config = _json({
        "architecture": settings.architecture,
        "config": {
            "Cmd": list(settings.command),
            "Env": [f"{name}={value}" for name, value in sorted(settings.environment.items())],
            "Labels": dict(settings.labels),
            "User": settings.user,
            "WorkingDir": "/",
        },
        "created": _EPOCH,
        "history": [{"created": _EPOCH, "created_by": settings.made_by}],
        "os": "linux",
        "rootfs": {"diff_ids": [f"sha256:{_digest(layer)}"], "type": "layers"},
    })  # fmt: skip
    manifest = _json({
        "config": _described(config, "config.v1+json"),
        "layers": [_described(layer, "layer.v1.tar")],
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "schemaVersion": 2,
    })  # fmt: skip
    identity = _digest(config)
    name = f"{settings.repository}:{settings.tag or content_tag(identity)}"
    named = _described(manifest, "manifest.v1+json") | {"annotations": {"org.opencontainers.image.ref.name": name}}
    blobs = {f"blobs/sha256/{_digest(blob)}": File(blob) for blob in (layer, config, manifest)}
    index = _json({"manifests": [named], "schemaVersion": 2})
    outer = {"oci-layout": File(_json({"imageLayoutVersion": "1.0.0"})), "index.json": File(index), **blobs}
    return Built(identity=identity, name=name, archive=_tar(_whole(outer)))


def content_tag(identity: str) -> str:
    """Return the tag of an image that is named after its content."""
    return identity[:_TAG_DIGITS]


def _whole(tree: Mapping[str, Entry]) -> dict[str, Entry]:
    """Add the directories that lie above an entry."""
    parents = {str(parent) for path in tree for parent in PurePosixPath(path).parents if parent.name}
    return {**dict.fromkeys(parents, Directory()), **tree}


def _tar(tree: Mapping[str, Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, entry in sorted(tree.items()):
            member = tarfile.TarInfo(path)
            match entry:
                case Directory(everyone):
                    member.type, member.mode = tarfile.DIRTYPE, 0o1777 if everyone else 0o755
                    tar.addfile(member)
                case Link(target):
                    member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
                    tar.addfile(member)
                case File(content, runs):
                    member.size, member.mode = len(content), 0o755 if runs else 0o644
                    tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _described(blob: bytes, kind: str) -> dict[str, object]:
    return {"digest": f"sha256:{_digest(blob)}", "mediaType": f"{_MEDIA}.{kind}", "size": len(blob)}


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
