"""A role with two doors and nothing behind them: `python -m tests.process.small_server DIRECTORY`.

`owner` answers loop_status, streams session_show without end, holds session_list until the peer
leaves or the server is stopped, fails at self_test. `gateway` answers loop_status alone.
"""

import resource
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from bxcore import daemon, listener
from bxcore.deadline import SystemClock
from bxcore.server import Door, Request, Server
from bxcore.wire.channel import LoopStatus, LoopStatusReport, SelfTest, SessionList, SessionRecord, SessionShow

HELD_MS = 3_600_000

REPORT = LoopStatusReport(
    ready=True,
    waiting_for=None,
    running_turns=0,
    open_sessions=0,
    model=None,
    n_ctx=0,
    main_slot=0,
    background_slot=1,
)


def status(request: Request) -> None:
    request.answer(REPORT, final=True)


def stream(request: Request) -> None:
    line = 0
    while True:
        line += 1
        request.answer(SessionRecord(epoch=0, line=line, text="x" * 10_000, more=False), final=False)


def hold(request: Request) -> None:
    request.answer(SessionRecord(epoch=0, line=1, text="held", more=False), final=False)
    request.wait_peer(HELD_MS)


def fail(_: Request) -> None:
    raise ZeroDivisionError("the owner's words")


def serve(directory: Path, descriptors: int | None) -> int:
    if descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with ExitStack() as stack:
        owner, gateway = (
            stack.enter_context(closing(listener.open_socket(directory / name / "loop.sock")))
            for name in ("loop-owner", "loop-gateway")
        )
        handlers = {LoopStatus: status, SessionShow: stream, SessionList: hold, SelfTest: fail}
        doors = [
            Door(listening=owner, name="owner", handlers=handlers),
            Door(listening=gateway, name="gateway", handlers={LoopStatus: status}),
        ]
        server = Server(doors, clock=SystemClock(), drain_seconds=0.1)
        daemon.stop_on_signal(server.stop)
        daemon.notify("READY=1")
        server.serve()
    return 0


if __name__ == "__main__":
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
    sys.exit(daemon.run(lambda: serve(Path(sys.argv[1]), limit), role="small"))
