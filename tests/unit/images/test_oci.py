"""An archive depends on the tree and the settings alone, and its ID is the digest of its configuration."""

import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from images import oci
from images.oci import Directory, Entry, File, Link

SETTINGS = oci.Settings(
    repository="localhost/x", tag=None, made_by="a test",
    architecture="amd64", command=["/run-me"], user="1000:1000", labels={"a": "b"},
)  # fmt: skip
TREE: dict[str, Entry] = {
    "a/b/c": File(b"content"),
    "a/run": File(b"#!", runs=True),
    "tmp": Directory(everyone=True),
    "empty": Directory(),
    "link": Link("a/b"),
}


def opened(archive: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(archive))


def content(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    assert member is not None
    return member.read()


def blob(tar: tarfile.TarFile, described: Mapping[str, Any]) -> bytes:
    return content(tar, f"blobs/sha256/{described['digest'].removeprefix('sha256:')}")


def layer(archive: bytes) -> tarfile.TarFile:
    tar = opened(archive)
    manifest = json.loads(blob(tar, json.loads(content(tar, "index.json"))["manifests"][0]))
    return opened(blob(tar, manifest["layers"][0]))


def test_every_digest_is_that_of_what_it_names() -> None:
    built = oci.archive(TREE, SETTINGS)
    tar = opened(built.archive)
    for name in tar.getnames():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(content(tar, name)).hexdigest() == name.rpartition("/")[2]
    manifest = json.loads(blob(tar, json.loads(content(tar, "index.json"))["manifests"][0]))
    config = blob(tar, manifest["config"])
    assert hashlib.sha256(config).hexdigest() == built.identity
    assert json.loads(config)["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_everything_is_roots_of_no_time_and_nobody_else_may_write_it() -> None:
    members = layer(oci.archive(TREE, SETTINGS).archive).getmembers()
    assert {(m.uid, m.gid, m.mtime) for m in members} == {(0, 0, 0)}
    modes = {m.name: m.mode for m in members if not m.issym()}
    assert modes == {
        "a": 0o755, "a/b": 0o755, "a/b/c": 0o644, "a/run": 0o755, "empty": 0o755, "tmp": 0o1777,
    }  # fmt: skip


@given(st.permutations(list(TREE.items())))
def test_the_order_in_which_a_tree_was_made_does_not_matter(items: list[tuple[str, Entry]]) -> None:
    assert oci.archive(dict(items), SETTINGS) == oci.archive(TREE, SETTINGS)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_other_contents_have_another_id(one: bytes, other: bytes) -> None:
    ids = {oci.archive({**TREE, "a/b/c": File(each)}, SETTINGS).identity for each in (one, other)}
    assert len(ids) == len({one, other})


def test_a_directory_comes_before_what_is_in_it() -> None:
    names = layer(oci.archive({"b-x": File(b""), "b/x": File(b""), "b.x/y": File(b"")}, SETTINGS).archive).getnames()
    assert names.index("b") < names.index("b/x")
    assert names.index("b.x") < names.index("b.x/y")


def test_an_image_without_a_tag_is_named_after_its_content() -> None:
    one, other = (oci.archive({**TREE, "a/b/c": File(each)}, SETTINGS) for each in (b"one", b"other"))
    assert one.name == f"localhost/x:{one.identity[:16]}"
    assert one.name != other.name
    tagged = oci.archive(TREE, dataclasses.replace(SETTINGS, tag="1"))
    assert tagged.name == "localhost/x:1"
