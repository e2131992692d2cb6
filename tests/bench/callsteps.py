"""Where the time of one container goes, step by step, as brokerd asks Podman for it (brokerd.containers).

`durations` is pure. `taken` runs one container with brokerd's own code and notes when each step has ended, so that
what brokerd does between two steps counts with the later one, and the steps add up to the whole.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

from brokerd import attached, containers
from brokerd.containerplan import Plan
from brokerd.containers import Api, Podman, Work
from brokerd.exited import Stop
from tests.bench.sizes import Unmeasurable

CREATE, INIT, COMPARE, ATTACH = "create", "init", "inspect and compare", "attach"
START, OUTPUT, EXIT, REMOVE = "start", "read until the end of output", "exit code", "remove"

STEPS = (CREATE, INIT, COMPARE, ATTACH, START, OUTPUT, EXIT, REMOVE)

Event = tuple[str, float]
"""A step, and when it had ended, in seconds."""

_ENDINGS = {"/containers/create": CREATE, "/init": INIT, "/start": START}
_ID = re.compile("[0-9a-f]{64}")


def durations(began: float, events: Sequence[Event]) -> dict[str, float]:
    """Return the milliseconds of each step. A step that was asked for several times is one, to the end of its last."""
    found, last = dict[str, float](), began
    for step, ended in events:
        found[step] = found.get(step, 0.0) + (ended - last) * 1000
        last = ended
    return found


def step_of(method: str, target: str, *, started: bool) -> str:
    """Return which step a request belongs to. Podman is asked for its description twice: before and after the run."""
    if method == "DELETE":
        return REMOVE
    path = _ID.sub("ID", target.partition("?")[0])
    if path == "/containers/ID/json":
        return EXIT if started else COMPARE
    return next(step for ending, step in _ENDINGS.items() if path.endswith(ending))


def taken(podman: Podman, plan: Plan, work: Work) -> Mapping[str, float]:
    """Run one container; return the milliseconds of its steps."""
    events: list[Event] = []

    def note(step: str) -> None:
        events.append((step, time.perf_counter()))

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            answer = real(*given, **named)
            note(name)
            return answer

        return call

    real_ask = Api.ask

    def ask(self: Api, method: str, target: str, *given: Any, **named: Any) -> Any:
        answer = real_ask(self, method, target, *given, **named)
        note(step_of(method, target, started=any(step == START for step, _ in events)))
        return answer

    with (
        mock.patch.object(Api, "ask", ask),
        mock.patch.object(containers, "attach", noting(ATTACH, containers.attach)),
        mock.patch.object(attached, "pump", noting(OUTPUT, attached.pump)),
    ):
        began = time.perf_counter()
        exited = podman.run(plan, work, lambda: None)
    if exited.stop is not Stop.END or exited.exit != 0:
        raise Unmeasurable(f"the container did not do its work: {exited.stop.value}, exit code {exited.exit}")
    return durations(began, events)
