"""brokerd: the only role with authority. Decides every tool call, records it, runs it in a container of its own.

Locks and checks the audit log, gives every call that the last run left an end, finds out what this host can
enforce, and serves. A bad grant or a missing container service does not stop it: it denies, and says why.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from brokerd import mounts, places, recovery
from brokerd.approvals import Approvals
from brokerd.audit import AuditLog
from brokerd.broker import Broker
from brokerd.claims import Claims
from brokerd.condition import Condition
from brokerd.containers import Podman
from brokerd.couriers import Couriers, LocalCourier
from brokerd.egress import Egress
from brokerd.expiryclock import ExpiryClock
from brokerd.gatewaycourier import Answering, GatewayCourier
from brokerd.grantdesk import GrantDesk
from brokerd.grantpaths import PathReview
from brokerd.grantset import GrantFiles
from brokerd.ledger import Ledger
from brokerd.pace import Pace
from brokerd.reach import ToolUser
from brokerd.reading import Reading
from brokerd.recovery import Found
from brokerd.requests import RESERVED, RESERVED_CONNECTIONS, Requests, Socket
from brokerd.runner import Runner, protected_by
from brokerd.running import Running
from brokerd.sessionstate import SessionStates
from brokerd.tending import Tending
from bxcore import config, daemon, listener, logs
from bxcore.deadline import SystemClock
from bxcore.files import DiskFiles
from bxcore.listener import Listening
from bxcore.server import Door, Handler, Server
from bxcore.settings.brokerd import BrokerdSettings

SWEEP_SECONDS = 5
"""How long the start waits for the first sweep and the probe. Where Podman is slower, calls are denied until then."""

DRAIN_SECONDS = 8
"""Containers that are stopped have their results recorded in that time."""

COURIER_JOIN_MS = 3_000
"""After the drain, for the chat to be told which questions were withdrawn."""

log = logs.get("brokerd")


def main(argv: Sequence[str] | None = None) -> int:
    """Run brokerd until it is told to stop. Exit codes: 0, 74 (state, a broken audit log), 78 (configuration)."""
    parser = argparse.ArgumentParser(prog="brokerd", description="Decides, records and runs tool calls.")
    parser.add_argument("--config", type=Path, default=Path("/etc/boxmaker/brokerd.toml"))
    parser.add_argument(
        "--accept-break",
        action="store_true",
        help="go on with an audit log that was changed or cut, and record that you accept it (see bxctl audit verify)",
    )
    options = parser.parse_args(argv)
    return daemon.run(lambda: _serve(options.config, accept_break=options.accept_break), role="brokerd")


def _serve(config_path: Path, *, accept_break: bool) -> int:
    settings = config.load(config_path, BrokerdSettings)
    places.check(settings)
    with ExitStack() as held:
        listening = _listening(settings, held)
        clock = SystemClock()
        audit = AuditLog.open(settings.audit, settings.state, disk=DiskFiles(), clock=clock, accept_break=accept_break)
        held.callback(audit.close)
        parts = _parts(settings, config_path, audit, clock)
        tending = Tending(parts.runner.tend, every_ms=settings.podman.sweep_ms)
        found = _begin(parts, audit, tending)
        requests = _requests(parts, found)
        server = Server(_doors(settings, listening, requests.table()), clock=clock, drain_seconds=DRAIN_SECONDS)
        daemon.stop_on_signal(server.stop)
        _say_ready(parts)
        # Questions are withdrawn and containers stopped first: the workers wait for their ends.
        server.serve(before_drain=parts.broker.stop)
        tending.stop()
        if parts.gateway is not None and not parts.gateway.join(COURIER_JOIN_MS):
            parts.gateway.stop()
    return 0


@attrs.frozen(kw_only=True)
class _Parts:
    """The pieces, built."""

    broker: Broker
    approvals: Approvals
    gateway: GatewayCourier | None
    claims: Claims
    ledger: Ledger
    reading: Reading
    files: GrantFiles
    runner: Runner
    running: Running
    time: ExpiryClock
    audit_dir: Path
    podman_socket: Path


def _parts(settings: BrokerdSettings, config_path: Path, audit: AuditLog, clock: SystemClock) -> _Parts:
    disk = DiskFiles()
    ledger = Ledger(audit, _states(settings, audit, disk))
    time_kept = ExpiryClock(settings.state / "clock", disk, clock)
    files = GrantFiles(settings.grants, clock=clock)
    runner = _runner(settings, config_path, clock)
    reading = Reading(grants=files, resolve=mounts.resolve, effects=runner.effects)
    couriers = Couriers([LocalCourier()])
    approvals = Approvals(
        ledger=ledger,
        reading=reading,
        couriers=couriers,
        limits=settings.approvals,
        clock=clock,
        now=time_kept.now_ms,
    )
    gateway = _gateway(settings, clock, approvals.answer)
    if gateway is not None:
        couriers.add(gateway)
    running, claims = Running(settings.limits.running, clock), Claims()
    broker = Broker(
        ledger=ledger,
        reading=reading,
        approvals=approvals,
        claims=claims,
        runner=runner,
        running=running,
        pace=Pace(clock, per_second=settings.limits.denials_per_second),
        now=time_kept.now_ms,
    )
    return _Parts(
        broker=broker,
        approvals=approvals,
        gateway=gateway,
        claims=claims,
        ledger=ledger,
        reading=reading,
        files=files,
        runner=runner,
        running=running,
        time=time_kept,
        audit_dir=settings.audit,
        podman_socket=settings.podman.socket,
    )


def _states(settings: BrokerdSettings, audit: AuditLog, disk: DiskFiles) -> SessionStates:
    """Return the sessions' labels, from the audit log where their directory is new: without it all would look fresh."""
    states = SessionStates(settings.state / "sessions", disk)
    if not states.is_whole:
        sessions = states.make_whole(audit.records())
        if audit.head.seq:
            log.warning("labels of all sessions computed from the audit log sessions=%d", sessions)
    return states


def _gateway(settings: BrokerdSettings, clock: SystemClock, answer: Answering) -> GatewayCourier | None:
    if settings.gateway.socket is None:
        return None
    # Twice as many as may be open: a question that is over is on its way until the chat was told.
    return GatewayCourier(settings.gateway, answer=answer, clock=clock, most=2 * settings.approvals.open)


def _runner(settings: BrokerdSettings, config_path: Path, clock: SystemClock) -> Runner:
    podman = Podman(settings.podman.socket, clock=clock)
    egress = Egress(settings, podman=podman)
    protected = protected_by(settings, config=config_path)
    return Runner(settings, podman=podman, egress=egress, clock=clock, protected=protected)


def _begin(parts: _Parts, audit: AuditLog, tending: Tending) -> Found:
    """Remove what the last run left running, then record the end of what it left open, before anything is served.

    A service that takes its time must not keep the owner from asking: the sweep goes on meanwhile.
    """
    tending.start()
    if not tending.first(seconds=SWEEP_SECONDS):
        log.warning("no tool can run yet, the first sweep and the probe still go on code=podman_slow")
    found = recovery.recover(audit, parts.ledger, parts.reading)
    parts.claims.learn(recovery.recent(parts.audit_dir))
    return found


def _requests(parts: _Parts, found: Found) -> Requests:
    desk = GrantDesk(
        files=parts.files,
        reading=parts.reading,
        ledger=parts.ledger,
        paths=PathReview(protected=lambda: parts.runner.protected, user=lambda: ToolUser.of(parts.podman_socket)),
        now=parts.time.now_ms,
    )
    return Requests(
        broker=parts.broker,
        approvals=parts.approvals,
        desk=desk,
        ledger=parts.ledger,
        condition=_condition(parts, found.told()),
    )


def _condition(parts: _Parts, told: str | None) -> Condition:
    return Condition(
        ledger=parts.ledger,
        reading=parts.reading,
        approvals=parts.approvals,
        running=parts.running,
        runner=parts.runner,
        told=told,
    )


def _listening(settings: BrokerdSettings, held: ExitStack) -> Mapping[Socket, Listening]:
    paths = {
        Socket.BROKER: settings.listen.broker,
        Socket.ADMIN: settings.listen.admin,
        Socket.STATE: settings.listen.state,
    }
    return listener.open_sockets(paths, held)


def _doors(
    settings: BrokerdSettings,
    listening: Mapping[Socket, Listening],
    table: Mapping[Socket, Mapping[type, Handler]],
) -> list[Door]:
    return [
        Door(
            listening=opened,
            name=name.value,
            handlers=table[name],
            max_connections=settings.limits.connections,
            reserved=RESERVED & frozenset(table[name]),
            reserved_connections=RESERVED_CONNECTIONS,
        )
        for name, opened in listening.items()
    ]


def _say_ready(parts: _Parts) -> None:
    """Say in one line what holds here, and that brokerd serves."""
    report = _condition(parts, None).report()
    log.info(
        "ready image=%s limits=%s missing=%s grants=%d denies=%s audit=%d cpu_ms=%d",
        report.image or "-",
        ",".join(report.limits_held) or "-",
        ",".join(report.limits_missing) or "-",
        report.grants,
        "-" if report.denies is None else report.denies.value,
        report.audit_seq,
        time.process_time_ns() // 1_000_000,
    )
    daemon.notify("READY=1")


if __name__ == "__main__":
    sys.exit(main())
