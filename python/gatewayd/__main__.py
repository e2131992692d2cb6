"""gatewayd: conversations and approvals in Mattermost. Holds one secret, the bot's token, and no authority.

Listens for brokerd and for the owner at once; dials Mattermost and loopd, and is up while they are away. Ready when
the sockets are served and the server was asked for the first time. A bot that is none and an empty list of users end
the start.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bxcore import config, daemon, listener, logs, owndirectory
from bxcore.deadline import SystemClock
from bxcore.listener import Listening
from bxcore.secrets import SecretStore
from bxcore.server import Door, Server
from bxcore.settings.gatewayd import TOKEN, GatewaydSettings
from bxcore.wire.approvals import ApprovalClosed
from bxcore.wire.gateway import GatewayStatus
from gatewayd import account
from gatewayd.condition import Condition
from gatewayd.mattermost import Mattermost
from gatewayd.parts import Parts
from gatewayd.store import Store

DRAIN_SECONDS = 2
"""For requests that wait for the server; open questions let go at once."""

JOIN_MS = 2_000
RESERVED_CONNECTIONS = 2
"""How a question ended, and how things are, is heard where open questions hold every other connection."""

log = logs.get("gatewayd")


def main(argv: Sequence[str] | None = None) -> int:
    """Run gatewayd until it is told to stop. Exit codes: 0, 74 (state), 78 (configuration, no bot, nobody allowed)."""
    parser = argparse.ArgumentParser(prog="gatewayd", description="Conversations and approvals in Mattermost.")
    parser.add_argument("--config", type=Path, default=Path("/etc/boxmaker/gatewayd.toml"))
    options = parser.parse_args(argv)
    return daemon.run(lambda: _serve(options.config), role="gatewayd")


def _serve(config_path: Path) -> int:
    settings = config.load(config_path, GatewaydSettings)
    token = SecretStore(settings.secrets, environment=os.environ).get(TOKEN)
    clock = SystemClock()
    if not settings.allow.users:  # nothing can be built for nobody; this says who could be meant
        api = lambda: Mattermost(settings.mattermost, token)  # noqa: E731 - for one call
        account.check(api, settings, Condition(clock), stopping=threading.Event())
    owndirectory.check(settings.state)  # the queue holds what was said
    with ExitStack() as held:
        listening = _listening(settings, held)
        store = Store.open(settings.state, clock)
        held.callback(store.close)
        parts = Parts(settings, token, store=store, clock=clock)
        server = Server(_doors(settings, listening, parts), clock=clock, drain_seconds=DRAIN_SECONDS)
        daemon.stop_on_signal(server.stop)
        parts.start(tried=_say_ready, on_failure=server.stop)
        server.serve(before_drain=parts.stop)
        parts.join(JOIN_MS)
    if parts.failure is not None:
        raise parts.failure
    return 0


def _listening(settings: GatewaydSettings, held: ExitStack) -> Mapping[str, Listening]:
    paths = {"gateway": settings.listen.gateway, "gateway-owner": settings.listen.owner}
    return listener.open_sockets(paths, held)


def _doors(settings: GatewaydSettings, listening: Mapping[str, Listening], parts: Parts) -> list[Door]:
    handlers = {"gateway": parts.questions.handlers(), "gateway-owner": parts.owner.handlers()}
    reserved = frozenset({ApprovalClosed, GatewayStatus})
    return [
        Door(
            listening=opened,
            name=name,
            handlers=handlers[name],
            max_connections=settings.limits.connections,
            reserved=reserved & frozenset(handlers[name]),
            reserved_connections=RESERVED_CONNECTIONS,
        )
        for name, opened in listening.items()
    ]


def _say_ready() -> None:
    daemon.notify("READY=1")
    log.info("ready cpu_ms=%d", time.process_time_ns() // 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
