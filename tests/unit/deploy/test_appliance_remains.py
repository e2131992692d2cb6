"""What a killed Podman leaves is known for what it is: catatonit, or Podman itself where that is not installed."""

import subprocess

import pytest

from deploy.appliance import remains

WAITS = {"catatonit -P": True, "podman": True, "podman -P": False, "conmon": False}


@pytest.mark.parametrize("words", WAITS)
def test_who_only_keeps_namespaces_is_known_by_its_words(words: str) -> None:
    # A shell under that name, which answers and then waits for more.
    argv, pipe = words.split(), subprocess.PIPE
    with subprocess.Popen(argv, executable="/bin/bash", stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"echo\n")
        process.stdin.flush()
        process.stdout.readline()
        assert remains.is_pause(process.pid) is WAITS[words]
        process.stdin.close()
