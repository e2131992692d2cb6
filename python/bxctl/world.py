"""What a bxctl command is handed: Boxmaker's home, the clock, the ways to the roles, the two output streams."""

import os
import sys
import time
from collections.abc import Callable

import attrs

from bxcore.deadline import Clock, SystemClock
from bxctl.adminport import AdminPort
from bxctl.gatewayport import GatewayPort
from bxctl.loopport import LoopPort
from bxctl.render import Screen
from bxctl.sockets import Home


@attrs.frozen(kw_only=True)
class World:
    """Everything outside of one command."""

    home: Home
    clock: Clock
    port: LoopPort
    admin: AdminPort
    gateway: GatewayPort
    screen: Screen
    errors: Screen
    pause: Callable[[float], None]


def of_process(home: Home) -> World:
    """Return this process's world."""
    clock = SystemClock()
    return World(
        home=home,
        clock=clock,
        port=LoopPort(home, clock),
        admin=AdminPort(home, clock),
        gateway=GatewayPort(home, clock),
        screen=Screen(sys.stdout, os.environ),
        errors=Screen(sys.stderr, os.environ),
        pause=time.sleep,
    )
