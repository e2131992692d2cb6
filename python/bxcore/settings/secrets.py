"""Where each secret of a role lies: the tables [secrets.NAME] of its configuration file.

    [secrets.mattermost-token]
    backend = "file"
    path = "/etc/boxmaker/mattermost-token"

A secret without a table is a systemd credential of its own name. The file says where, never what.
"""

import re
from enum import Enum
from pathlib import Path

import attrs

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Backend(Enum):
    """CREDENTIAL: a file that systemd hands the unit. The other two hold the secret in plain text."""

    CREDENTIAL = "credential"
    ENVIRONMENT = "environment"
    FILE = "file"


def is_name(text: str) -> bool:
    """Whether a secret can be called so; such a name is also a file name and nothing else."""
    return _NAME.fullmatch(text) is not None


def check_names(_: object, attribute: "attrs.Attribute[Sources]", value: "Sources") -> None:
    """Validate a field that holds the tables by name."""
    if not all(map(is_name, value)):
        raise ValueError(f"{attribute.name}: expected names of 1 to 64 characters of a-z, 0-9, - and _")


@attrs.frozen(kw_only=True)
class SecretSource:
    """Where one secret lies: `variable` for the environment, `path` for a file, neither for a credential."""

    backend: Backend = Backend.CREDENTIAL
    variable: str | None = None
    path: Path | None = None

    def __attrs_post_init__(self) -> None:
        if (self.backend is Backend.ENVIRONMENT) != (self.variable is not None):
            raise ValueError('variable: expected with backend "environment", and only there')
        if (self.backend is Backend.FILE) != (self.path is not None):
            raise ValueError('path: expected with backend "file", and only there')
        if self.variable is not None and not _VARIABLE.fullmatch(self.variable):
            raise ValueError("variable: expected the name of an environment variable")


Sources = dict[str, SecretSource]
"""What a role's settings hold: `secrets: Sources = attrs.field(factory=dict, validator=check_names)`."""
