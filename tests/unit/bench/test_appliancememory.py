import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import appliancememory
from tests.bench.appliancememory import CLIENTS, CONMON, NETWORK, OTHER, PAUSE, ROLES, SERVICE

WORDS = {
    ROLES: ["/usr/bin/python3", "-I", "-S", "-m", "loopd"],
    CONMON: ["/usr/bin/conmon", "--api-version", "1"],
    SERVICE: ["podman", "system", "service", "--time=0", "unix:///x/podman.sock"],
    CLIENTS: ["podman", "run", "--rm", "--name=boxmaker-loopd"],
    PAUSE: ["catatonit", "-P"],
    NETWORK: ["/usr/bin/slirp4netns", "--mtu=65520"],
    OTHER: [],
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_process_is_known_by_its_command_line(kind: str) -> None:
    assert appliancememory.kind(WORDS[kind]) == kind


def test_a_podman_without_words_waits_as_catatonit_does() -> None:
    assert appliancememory.kind(["podman"]) == PAUSE


def test_what_an_appliance_started_belongs_to_it_with_all_that_it_started(tmp_path: Path) -> None:
    inner = "import sys; print(flush=True); sys.stdin.read()"
    # Started with no environment, so that it does not name the place itself.
    outer = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {inner!r}], env={{}}))"
    argv = [sys.executable, "-c", outer]
    with subprocess.Popen(argv, env={"PLACE": str(tmp_path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        found = appliancememory.held(tmp_path)
        other = appliancememory.held(tmp_path / "another")
        assert started.stdin is not None
        started.stdin.close()
    assert [each.words[2] for each in found] == [outer, inner]
    assert all(0 < each.shared_out <= each.resident for each in found)
    assert list(appliancememory.megabytes(found)) == [ROLES]
    assert other == []
