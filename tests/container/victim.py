"""A brokerd in little, to be killed: runs one call, and says on stdout before each step which one it is.

    python victim.py '{"api_socket": …, "image_id_file": …, "calls_dir": …, "seccomp_path": …, "home": …,
                       "owner": …, "directory": …, "command": …, "seq": …}'

It waits for a line on stdin after each step that it names, so that whoever kills it does so exactly there.
"""

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from brokerd import attached, containers
from brokerd.containers import Api, Podman
from brokerd.probe import Held
from brokerd.protected import Protected
from brokerd.runner import Runner
from tests.container import realrunner
from tests.fakes import calls, plans

_main = threading.get_ident()


def step(name: str) -> None:
    """Name a step and wait to be told to go on."""
    if threading.get_ident() == _main:
        print(name, flush=True)
        sys.stdin.readline()


def main() -> None:
    given = json.loads(sys.argv[1])
    host = SimpleNamespace(
        **{name: Path(given[name]) for name in ("api_socket", "image_id_file", "calls_dir", "seccomp_path")}
    )
    settings = realrunner.settings(host, Path(given["home"]))
    podman = Podman(host.api_socket, clock=plans.CLOCK, owner=given["owner"])
    runner = Runner(settings, podman=podman, egress=None, clock=plans.CLOCK, protected=Protected.of(settings))
    runner._probed = (runner.image(), Held(held=(), missing=()))  # by whoever kills it: not what is looked at here
    text = json.dumps({"directory": given["directory"], "command": given["command"]})
    decision = realrunner.approved(calls.call("shell", text=text))
    _name_the_steps()
    runner.run(decision, seq=given["seq"], started=lambda *_: step("recorded"), cancelled=lambda: False)
    step("ended")


def _name_the_steps() -> None:
    ask, attach, pump = Api.ask, containers.attach, attached.pump

    def asked(self: Api, method: str, target: str, *others: Any, **named: Any) -> Any:
        what = target.partition("?")[0].rpartition("/")[2]
        step(f"before {method} {'container' if len(what) == 64 else what}")
        answer = ask(self, method, target, *others, **named)
        step(f"after {method} {'container' if len(what) == 64 else what}")
        return answer

    def attaching(*given: Any) -> Any:
        step("before attach")
        return attach(*given)

    def pumping(*given: Any) -> Any:
        step("running")
        return pump(*given)

    Api.ask = asked  # type: ignore[method-assign]
    containers.attach = attaching  # type: ignore[assignment]
    attached.pump = pumping  # type: ignore[assignment]


if __name__ == "__main__":
    main()
