"""What `bxctl doctor` reads of Mattermost in the settings: nothing where it was left out, else each fault once."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bxctl import mattermostfiles
from bxctl.finding import Finding
from bxctl.machine import Machine

ALICE = "a" * 26
PEM = "-----BEGIN CERTIFICATE-----\n"


class Place:
    """A home with the three files in which all is well."""

    def __init__(self, home: Path) -> None:
        self.home, self.etc = home, home / "etc"
        self.etc.mkdir()
        run = home / "run"
        self.token = self.etc / "token"
        self.token.write_text("t")
        self.token.chmod(0o600)
        self.write("gatewayd", f"""\
state = "{home}/gateway"
[listen]
gateway = "{run}/gateway/gateway.sock"
owner = "{run}/gateway-owner/gateway.sock"
[mattermost]
url = "https://chat.example.org"
[loop]
socket = "{run}/loop-gateway/loop.sock"
[allow]
users = ["{ALICE}"]
[secrets.mattermost-token]
backend = "file"
path = "{self.token}"
""")  # fmt: skip
        self.write("brokerd", f"""\
grants = "{home}/g"
audit = "{home}/a"
state = "{home}/b"
[listen]
broker = "{run}/b"
admin = "{run}/a"
[podman]
socket = "{run}/p"
image_file = "{home}/i"
calls = "{home}/c"
seccomp = "{home}/s"
[gateway]
socket = "{run}/gateway/gateway.sock"
""")  # fmt: skip
        self.write("loopd", f"""\
state = "{home}"
[listen]
owner = "{run}/l"
gateway = "{run}/loop-gateway/loop.sock"
[infer]
socket = "{run}/i"
""")  # fmt: skip

    def write(self, role: str, text: str) -> None:
        (self.etc / f"{role}.toml").write_text(text)

    def replace(self, role: str, old: str, new: str) -> None:
        text = (self.etc / f"{role}.toml").read_text()
        assert old in text
        self.write(role, text.replace(old, new))

    def look(self) -> Iterator[Finding]:
        settings, findings = mattermostfiles.read(self.etc, Machine())
        yield from findings
        yield from mattermostfiles.checks(settings, self.home, Machine())

    def faults(self) -> list[Finding]:
        return [one for one in self.look() if one.passed is False]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_where_all_is_well_each_check_says_what_it_found(place: Place) -> None:
    assert [(one.name, one.passed) for one in place.look()] == [
        ("who may speak", True),
        ("address of Mattermost", True),
        ("token of Mattermost", True),
        ("sockets of Mattermost", True),
    ]


def test_where_mattermost_was_left_out_nothing_is_said(place: Place) -> None:
    (place.etc / "gatewayd.toml").unlink()
    place.replace("brokerd", f'[gateway]\nsocket = "{place.home}/run/gateway/gateway.sock"\n', "")
    assert list(place.look()) == []


def test_a_home_without_any_settings_has_no_mattermost(tmp_path: Path) -> None:
    settings, findings = mattermostfiles.read(tmp_path, Machine())
    assert findings == []
    assert list(mattermostfiles.checks(settings, tmp_path, Machine())) == []


def edit(role: str, old: str, new: str) -> Callable[[Place], None]:
    return lambda place: place.replace(role, old, new)


def open_token(place: Place) -> None:
    place.token.chmod(0o644)


def link_token(place: Place) -> None:
    place.token.rename(place.etc / "elsewhere")
    place.token.symlink_to(place.etc / "elsewhere")


def no_certificate(place: Place) -> None:
    (place.etc / "ca.pem").write_text("nothing")
    place.replace("gatewayd", '.org"\n', f'.org"\nca_file = "{place.etc}/ca.pem"\n')


def no_authority(place: Place) -> None:
    place.replace("gatewayd", '.org"\n', f'.org"\nca_file = "{place.etc}/ca.pem"\n')


UNJOINED = mattermostfiles.UNJOINED


def no_gatewayd(place: Place) -> None:
    (place.etc / "gatewayd.toml").unlink()


FAULTS: dict[str, tuple[Callable[[Place], object], str, str, str]] = {
    "nobody may speak": (edit("gatewayd", f'"{ALICE}"', ""), "nobody_allowed", "is empty", "its log names who wrote"),
    "http to elsewhere": (edit("gatewayd", "https://", "http://"), "mattermost_in_clear", "another machine", "https://"),
    "a token that others read": (open_token, "secret_refused", "mode 0644", "chmod 600"),
    "a token behind a link": (link_token, "secret_refused", "a symbolic link", "chmod 600"),
    "no token": (lambda place: place.token.unlink(), "secret_missing", "nothing is there", "mattermost.md"),
    "no certificate": (no_certificate, "config", "no certificate in PEM is in it", "openssl x509"),
    "no authority": (no_authority, "config", "No such file", ""),
    "brokerd does not ask": (edit("brokerd", "[gateway]\nsocket", "# socket"), UNJOINED, "nothing of it", "brokerd"),
    "brokerd asks elsewhere": (edit("brokerd", "gateway/gateway.sock", "g/g.sock"), UNJOINED, "g/g.sock", "brokerd"),
    "loopd does not listen": (edit("loopd", "gateway = ", "# gateway = "), UNJOINED, "nothing of it", "loopd.toml"),
    "no gatewayd": (no_gatewayd, UNJOINED, "there is no gatewayd.toml", "remove"),
    "a typo": (edit("gatewayd", "[allow]", "[alow]"), "config", "alow", "bxctl config check"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "code", "found", "command"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_told_once_with_its_entry_and_what_mends_it(
    place: Place, change: Callable[[Place], object], code: str, found: str, command: str
) -> None:
    change(place)
    (fault,) = place.faults()
    assert fault.runbook == code
    assert found in fault.found
    assert command in fault.command
    assert fault.why


def test_a_token_of_another_users_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    (fault,) = place.faults()
    assert fault.found == f"owner is uid {me}, not {me + 1}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8065", "http://[::1]:8065", "http://localhost"])
def test_a_server_on_this_machine_or_a_tunnel_needs_no_tls(place: Place, url: str) -> None:
    place.replace("gatewayd", "https://chat.example.org", url)
    assert place.faults() == []


SECRETS = {
    "a credential": ('backend = "credential"\n', "systemd hands to gatewayd alone"),
    "the environment": (
        'backend = "environment"\nvariable = "MM_TOKEN"\n',
        "environment variable MM_TOKEN: plain text",
    ),
}


@pytest.mark.parametrize(("table", "said"), SECRETS.values(), ids=SECRETS.keys())
def test_where_else_a_token_may_lie(place: Place, table: str, said: str) -> None:
    place.replace("gatewayd", f'backend = "file"\npath = "{place.token}"\n', table)
    (found,) = [one for one in place.look() if one.name == "token of Mattermost"]
    assert found.passed
    assert said in found.found


def test_the_token_itself_is_never_shown(place: Place) -> None:
    place.token.write_text("s3cr3t-s3cr3t")
    for change in (None, open_token, link_token):
        if change:
            change(place)
        assert all("s3cr3t" not in str(one) for one in place.look())


def test_certificates_that_the_container_is_not_shown_are_told(place: Place) -> None:
    (place.etc / "ca.pem").write_text(PEM)
    place.replace("gatewayd", '.org"\n', f'.org"\nca_file = "{place.etc}/ca.pem"\n')
    assert place.faults() == []
    (place.etc / "roles.json").write_text("{}")
    (fault,) = [one for one in place.faults() if one.name == "authority of Mattermost"]
    assert f"outside of {place.etc}/gatewayd" in fault.found
