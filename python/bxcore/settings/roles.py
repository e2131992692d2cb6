"""Which role reads which settings: the file of each is <role>.toml."""

from collections.abc import Mapping

from bxcore.settings.brokerd import BrokerdSettings
from bxcore.settings.gatewayd import GatewaydSettings
from bxcore.settings.inferproxy import InferproxySettings
from bxcore.settings.loopd import LoopdSettings

ROLES: Mapping[str, type] = {
    "inferproxy": InferproxySettings,
    "loopd": LoopdSettings,
    "brokerd": BrokerdSettings,
    "gatewayd": GatewaydSettings,
}

OPTIONAL = frozenset({"gatewayd"})
"""Roles that an owner may leave out: where there is no file there is no such role."""
