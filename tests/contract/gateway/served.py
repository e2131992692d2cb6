"""The fake Mattermost server as a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.process.role import ROOT


@contextmanager
def fake_server(*arguments: str) -> Iterator[str]:
    """Yield the address of a fake server that is as new as it can be."""
    program = [sys.executable, str(ROOT / "tests" / "fakes" / "mattermost.py"), "--port", "0", *arguments]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
