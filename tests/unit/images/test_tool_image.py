"""What the tool image has and no other: busybox under a shell's names."""

import subprocess

from images import contents, layout, table


def test_busybox_knows_its_other_names() -> None:
    told = subprocess.run([contents.busybox(), "--list"], capture_output=True, text=True, check=True)
    assert set(layout.APPLETS) - set(told.stdout.split()) == set()


def test_its_links_are_these_names_and_python() -> None:
    links = layout.links(table.image(table.TOOLS))
    of_programs = {path: target for path, target in links.items() if path.startswith(f"{layout.PROGRAMS}/")}
    assert of_programs == {
        f"{layout.PROGRAMS}/python": "python3",
        **{f"{layout.PROGRAMS}/{name}": "busybox" for name in layout.APPLETS},
    }


def test_its_user_has_a_name_and_a_shell() -> None:
    image = table.image(table.TOOLS)
    assert "tool:x:1000:1000:tool:/tmp:/bin/sh\n" in layout.texts(image)["etc/passwd"]
    assert layout.user(image) == layout.SHELL_USER


def test_it_alone_has_a_shell() -> None:
    images = table.load().values()
    assert [image.name for image in images if image.shell] == [table.TOOLS]
