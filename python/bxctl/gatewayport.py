"""What bxctl asks gatewayd on `gateway-owner`'s socket."""

from bxcore.deadline import Clock
from bxcore.wire import gateway
from bxctl.port import Port
from bxctl.sockets import Home

SERVER_MS = 120_000
"""How long an answer may take for which gatewayd asks the Mattermost server, one request after the other."""


class GatewayPort(Port):
    """gatewayd's owner socket."""

    only_with = " MATTERMOST=…"

    def __init__(self, home: Home, clock: Clock) -> None:
        super().__init__(home, home.gateway_socket, clock)

    def status(self) -> gateway.GatewayStatusReport:
        """Return how gatewayd is; it asks nobody for that."""
        return self.one(gateway.GatewayStatus(), gateway.GatewayStatusReport)

    def whoami(self) -> gateway.GatewayAccount:
        """Return what the server says of the bot now."""
        return self.one(gateway.GatewayWhoami(), gateway.GatewayAccount, idle_ms=SERVER_MS)

    def post(self, text: str) -> gateway.GatewayPostMade:
        """Say `text` to the first allowed user directly."""
        return self.one(gateway.GatewayPost(text=text), gateway.GatewayPostMade, idle_ms=SERVER_MS)
