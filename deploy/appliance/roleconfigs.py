"""The settings of each role of an appliance, from its wiring. Pure.

What a machine decides comes in: the model server, the network of egress proxies.
"""

from pathlib import Path

from bxcore.wiring import Wiring
from deploy.local import configs
from deploy.local.configs import Served, quoted
from deploy.local.home import Home
from deploy.local.mattermost import Wish


def inferproxy(wiring: Wiring, upstream: str) -> str:
    """Return inferproxy.toml."""
    return configs.inferproxy(_home(wiring), upstream)


def loopd(wiring: Wiring, served: Served, *, small_model: bool, gateway: bool = False) -> str:
    """Return loopd.toml, which expects the server to stay what it is now. `gateway`: gatewayd runs."""
    return configs.loopd(_home(wiring), served, small_model=small_model, tools=True, gateway=gateway)


def gatewayd(wiring: Wiring, wanted: Wish) -> str:
    """Return gatewayd.toml. The token reaches it as a credential, certificates in a directory that it is shown."""
    ca_file = certificates(wiring) if wanted.ca_file else None
    return configs.gatewayd(_home(wiring), wanted, ca_file=ca_file, token=None)


def certificates(wiring: Wiring) -> Path:
    """Return where gatewayd finds the certificates of an authority of the owner's own."""
    return wiring.at("etc/gatewayd") / "ca.pem"


def brokerd(wiring: Wiring, *, egress_network: str, gateway: bool = False) -> str:
    """Return brokerd.toml. Nothing of Boxmaker's own may be shown to a tool, so granted folders lie elsewhere."""
    return f"""\
grants = {quoted(wiring.at("etc/grants"))}
audit = {quoted(wiring.at("home/audit"))}
state = {quoted(wiring.at("home/broker"))}
protect = [{quoted(wiring.places.home)}, {quoted(wiring.places.etc)}]

[listen]
broker = {quoted(wiring.socket("broker"))}
admin = {quoted(wiring.socket("admin"))}

[podman]
socket = {quoted(wiring.socket("tool-runner"))}
image_file = {quoted(wiring.at(wiring.tools.image_file))}
calls = {quoted(wiring.at(wiring.tools.calls))}
seccomp = {quoted(wiring.at(wiring.tools.seccomp))}

[egress]
network = {quoted(egress_network)}
{configs.asks(_home(wiring)) if gateway else ""}"""


def _home(wiring: Wiring) -> Home:
    return Home(Path(wiring.places.home))
