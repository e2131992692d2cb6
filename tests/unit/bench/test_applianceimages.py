from pathlib import Path

from images import oci
from images.oci import Directory, Entry, File, Link
from tests.bench import applianceimages


def test_an_image_is_as_large_as_its_files(tmp_path: Path) -> None:
    tree: dict[str, Entry] = {
        "usr/bin/a": File(b"x" * 700, runs=True),
        "usr/b": File(b"y" * 23),
        "c": Link("usr/b"),
        "d": Directory(),
    }
    settings = oci.Settings(
        repository="localhost/x", tag=None, made_by="a test", architecture="amd64", command=["/usr/bin/a"], user="0:0"
    )
    archive = tmp_path / "image.tar"
    archive.write_bytes(oci.archive(tree, settings).archive)
    assert applianceimages.unpacked_bytes(archive) == 723
