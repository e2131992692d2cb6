"""loopd: runs the conversation. Holds no credential and no grant; its only peers are Unix sockets.

Builds the pieces, listens at once (so that clients can be told what is being waited for), tests
the model server in the background, and is ready when the tests pass. A test that fails stops loopd.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from zoneinfo import ZoneInfo

from bxcore import config, daemon, listener, logs
from bxcore.deadline import Clock, Deadline, SystemClock
from bxcore.files import DiskFiles
from bxcore.listener import Listening
from bxcore.server import Door, Server
from bxcore.settings.loopd import LoopdSettings
from bxcore.wire.channel import WaitReason
from loopd import baseline, selftest, statedir, toolbox
from loopd.brokerport import Broker, BrokerPort, NoBroker
from loopd.cancel import CancelToken
from loopd.channel import RESERVED, RESERVED_CONNECTIONS, Channel
from loopd.llama import ModelServer
from loopd.parts import Parts
from loopd.reports import Reports
from loopd.selftest import Check
from loopd.sessionlog import SessionStore
from loopd.sessions import Sessions
from loopd.slots import SlotGate
from loopd.waits import OnWait, Waits
from loopd.watch import ServerWatch

_DRAIN_SECONDS = 5
_JOIN_MS = 1_000
"""For turns that nobody listens to; the others have ended while the server drained."""

log = logs.get("loopd")


def main(argv: Sequence[str] | None = None) -> int:
    """Run loopd until it is told to stop. Exit codes: 0, 74 (state), 78 (configuration, failed self-test)."""
    parser = argparse.ArgumentParser(prog="loopd", description="Runs the conversation between owner and model.")
    parser.add_argument("--config", type=Path, default=Path("/etc/boxmaker/loopd.toml"))
    options = parser.parse_args(argv)
    return daemon.run(lambda: _serve(options.config), role="loopd")


def _serve(config_path: Path) -> int:
    settings = config.load(config_path, LoopdSettings)
    with ExitStack() as held:
        listening = _listening(settings, held)
        # Never given back: a turn that outlasts the drain may write until the process is gone.
        statedir.take(settings.state, DiskFiles())
        return _converse(settings, listening)


def _converse(settings: LoopdSettings, listening: Mapping[str, Listening]) -> int:
    parts, watch = _parts(settings, ZoneInfo(settings.time_zone))
    store = SessionStore(settings.state / statedir.SESSIONS, files=DiskFiles(), clock=parts.clock)
    sessions = Sessions(parts, store)
    channel = Channel(parts, sessions=sessions, reports=Reports(store), watch=watch)
    server = Server(_doors(settings, listening, channel), clock=parts.clock, drain_seconds=_DRAIN_SECONDS)
    daemon.stop_on_signal(server.stop)
    watch.start(on_ready=_say_ready, on_failure=server.stop)
    # Turns end before the workers are waited for: those wait for the turns' last events.
    server.serve(before_drain=sessions.interrupt)
    watch.stop()
    left = sessions.join(Deadline.after(parts.clock, milliseconds=_JOIN_MS))
    log.info("stopped turns_left=%d", left)
    if watch.failure is not None:
        raise watch.failure
    return 0


def _parts(settings: LoopdSettings, zone: ZoneInfo) -> tuple[Parts, ServerWatch]:
    clock = SystemClock()
    waits = Waits(
        slot_ms=settings.infer.slot_wait_ms,
        load_ms=settings.infer.load_wait_ms,
        liveness_ms=settings.infer.liveness_ms,
        stall_ms=settings.infer.stall_ms,
        connect_ms=settings.infer.connect_ms,
    )
    server = ModelServer(settings.infer.socket, clock=clock, waits=waits, model=settings.infer.model)
    gate = SlotGate(clock)

    def test(cancel: CancelToken, on_wait: OnWait) -> Sequence[Check]:
        return _test(server, settings, gate, clock, cancel=cancel, on_wait=on_wait)

    watch = ServerWatch(server=server, settings=settings, clock=clock, test=test)
    box = toolbox.Toolbox(
        clock=clock, broker=_broker(settings, clock), zone=zone, found=(toolbox.ECHO, *toolbox.remote())
    )
    return Parts(clock=clock, settings=settings, server=server, gate=gate, toolbox=box, watch=watch), watch


def _broker(settings: LoopdSettings, clock: Clock) -> BrokerPort:
    if settings.broker.socket is None:
        return NoBroker()
    return Broker(socket=settings.broker.socket, clock=clock, timeout_ms=settings.broker.timeout_ms)


def _test(
    server: ModelServer,
    settings: LoopdSettings,
    gate: SlotGate,
    clock: Clock,
    *,
    cancel: CancelToken,
    on_wait: OnWait,
) -> Sequence[Check]:
    """The self-test asks on the background slot alone: the main slot's cache belongs to the conversations."""
    front = baseline.make(sampling=settings.sampling, tools=toolbox.core_schemas())
    limit_ms = settings.limits.gate_wait_ms
    with gate.held(
        settings.slots.background,
        cancel=cancel,
        deadline=Deadline.after(clock, milliseconds=limit_ms),
        on_wait=lambda waited_ms: on_wait(WaitReason.OTHER_TURN, waited_ms, limit_ms),
    ):
        # All of them before the slot is given back: whoever reads the checks may take long over it.
        return list(selftest.run(server, settings=settings, baseline=front, cancel=cancel, on_wait=on_wait))


def _listening(settings: LoopdSettings, held: ExitStack) -> Mapping[str, Listening]:
    paths = {"owner": settings.listen.owner, "gateway": settings.listen.gateway}
    return listener.open_sockets(paths, held)


def _doors(settings: LoopdSettings, listening: Mapping[str, Listening], channel: Channel) -> list[Door]:
    return [
        Door(
            listening=opened,
            name=name,
            handlers=channel.gateway_handlers() if name == "gateway" else channel.handlers(),
            max_connections=settings.limits.connections,
            reserved=RESERVED,
            reserved_connections=RESERVED_CONNECTIONS,
        )
        for name, opened in listening.items()
    ]


def _say_ready() -> None:
    daemon.notify("READY=1")
    log.info("ready cpu_ms=%d", time.process_time_ns() // 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
