"""A Podman whose answers a test writes."""

import subprocess
from collections.abc import Callable
from typing import BinaryIO

from deploy.local import podmanconf
from deploy.local.podman import Podman
from deploy.local.toolplace import Place

Answer = tuple[int, str, str]


class ScriptedPodman(Podman[Place]):
    """Remembers what it was asked."""

    def __init__(self, place: Place, answer: Callable[[tuple[str, ...]], Answer]) -> None:
        super().__init__(place, podmanconf.Machine(runtime="runc", unified=False, bus=None))
        self._answer = answer
        self.asked: list[tuple[str, ...]] = []

    def run(self, *arguments: str, stdin: BinaryIO | None = None) -> "subprocess.CompletedProcess[str]":
        self.asked.append(arguments)
        code, said, complained = self._answer(arguments)
        return subprocess.CompletedProcess(arguments, code, said, complained)
