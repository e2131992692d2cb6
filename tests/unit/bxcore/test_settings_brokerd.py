"""brokerd.toml: what several keys must hold together. The single keys are looked at with every role's settings."""

from pathlib import Path

import pytest

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.settings.brokerd import BrokerdSettings

GOOD = """\
grants = "/e/grants"
audit = "/v/audit"
state = "/v/broker"
[listen]
broker = "/r/b/broker.sock"
admin = "/r/a/admin.sock"
[podman]
socket = "/r/podman.sock"
image_file = "/e/image"
calls = "/r/calls"
seccomp = "/e/seccomp.json"
"""


def load(tmp_path: Path, text: str) -> BrokerdSettings:
    path = tmp_path / "brokerd.toml"
    path.write_text(text)
    return config.load(path, BrokerdSettings)


def test_by_default_half_of_the_connections_are_left_when_every_question_is_open(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert (settings.approvals.open, settings.limits.connections) == (16, 32)


@pytest.mark.parametrize(
    "more",
    [
        "[limits]\nconnections = 16\n",
        "[approvals]\nopen = 32\n",
        "[limits]\nconnections = 100\n[approvals]\nopen = 200\n",
    ],
)
def test_open_questions_never_take_every_connection(tmp_path: Path, more: str) -> None:
    with pytest.raises(ConfigError, match="expected fewer questions than connections") as caught:
        load(tmp_path, GOOD + more)
    assert "approvals.open is " in caught.value.detail
    assert "limits.connections " in caught.value.detail


def test_one_connection_that_is_left_is_enough(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD + "[limits]\nconnections = 8\n[approvals]\nopen = 7\n")
    assert settings.approvals.open == 7
