"""What NixOS takes for a chat server, for an id and for a host is what gatewayd and the installer elsewhere take."""

import json
from pathlib import Path
from typing import Any

import pytest

from bxcore import hosts, wiring
from bxcore.settings import gatewayd as settings
from deploy.local.refusal import Refusal
from deploy.quadlet import mattermost
from deploy.quadlet.mattermost import Brought, Mattermost
from tests.nix.evaluation import NIX, PERSON, expression, needs_nix
from tests.nix.test_upstream import HOSTS

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")

URLS = (
    *(f"https://{host}" for host in HOSTS),
    *(f"http://{host}:8065" for host in HOSTS),
    "https://192.0.2.9/chat", "https://192.0.2.9:8443/chat/a-b_c.d~e", "https://192.0.2.9/", "https://192.0.2.9//a",
    "https://192.0.2.9:0", "https://192.0.2.9:080", "https://192.0.2.9:99999", "https://me@192.0.2.9", "ftp://192.0.2.9",
    "HTTPS://192.0.2.9", "https://", "192.0.2.9", "https://192.0.2.9?a", "https://192.0.2.9#a", "https://192.0.2.9 ",
    "https://192.0.2.9\n", "https://a_b.example.org", "",
)  # fmt: skip


def asked(directory: Path, function: str, texts: tuple[str, ...]) -> list[Any]:
    """Ask a function of mattermost.nix about each of the texts, or each of them as an address for one of its values."""
    caller = directory / "caller.nix"
    caller.write_text(f'{{ texts }}: let chat = url: import {NIX}/mattermost.nix {{ said = {{ inherit url; }}; }}; in\n'
                      f"map ({function}) (builtins.fromJSON texts)\n", encoding="utf-8")  # fmt: skip
    found = expression(caller, texts=json.dumps(texts))
    assert isinstance(found, list)
    return found


def test_a_server_is_the_same_to_nixos_and_to_the_installer(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("not-a-real-token")
    values = (
        "url: let c = chat url; in "
        "{ inherit (c) isAddress network; inherit (c.server) isOdd isLoopback isLedIn addresses; }"
    )
    for url, found in zip(URLS, asked(tmp_path, values, URLS), strict=True):
        refused = not found["isAddress"] or found["isOdd"] or (found["isLoopback"] and not found["isLedIn"])
        said = Mattermost(url=url, users=(PERSON,))
        try:
            mattermost.check(said, Brought(token=token), DECLARED, tmp_path)
        except Refusal:
            assert refused, url
        else:
            assert not refused, url
            assert mattermost.network(said) == found["network"], url


def test_what_nixos_takes_for_an_address_gatewayd_takes_too(tmp_path: Path) -> None:
    answers = asked(tmp_path, "url: (chat url).isAddress", URLS)
    taken = [url for url, is_address in zip(URLS, answers, strict=True) if is_address]
    assert len(taken) > 20
    for url in taken:
        settings.Mattermost(url=url)


def test_without_an_address_there_is_no_server_to_let_in(tmp_path: Path) -> None:
    assert asked(tmp_path, "url: (chat url).server.addresses", ("", "nonsense", "https://192.0.2.9")) == [
        [], [], ["192.0.2.9"],
    ]  # fmt: skip


IDS = (PERSON, "z" * 26, "a" * 25, "a" * 27, "A" * 26, "alice", "", "a" * 25 + "-", "a" * 26 + "\n")


def test_an_id_is_what_gatewayd_takes_for_one(tmp_path: Path) -> None:
    for text, is_id in zip(IDS, asked(tmp_path, '(chat "").isId', IDS), strict=True):
        if is_id:
            settings.Allow(users=(text,))
        else:
            with pytest.raises(ValueError, match="users"):
                settings.Allow(users=(text,))


NAMES = (
    "example.org", "*.example.org", "a-b.example.org:8443", "example.org:443", "localhost", "xn--bcher-kva.example",
    "https://example.org", "example.org/", "example.org/a", "example..org", ".example.org", "example.org.",
    "-a.example.org", "127.0.0.1", "[::1]", "*", "a.*.example.org", "example.org:0", "", "EXAMPLE.org",
)  # fmt: skip


def test_a_host_that_nixos_takes_gatewayd_takes_too(tmp_path: Path) -> None:
    taken = [text for text, is_host in zip(NAMES, asked(tmp_path, '(chat "").isHost', NAMES), strict=True) if is_host]
    assert taken == list(NAMES[:6])
    for text in taken:
        hosts.rule(text)


CREDENTIALS = ("/etc/boxmaker-credentials/mattermost-token.cred", "/var/lib/x/a_b+c.cred")
NO_CREDENTIALS = (
    "", "token.cred", "/nix/store/x/token.cred", "/etc/../nix/store/x", "/etc/a b.cred", "/etc/%h.cred", "/etc/a:b",
    "/etc//x", "/etc/x/", "/etc/x\n",
)  # fmt: skip


def test_the_token_lies_at_a_plain_path_outside_of_the_store(tmp_path: Path) -> None:
    texts = (*CREDENTIALS, *NO_CREDENTIALS)
    taken = dict(zip(texts, asked(tmp_path, '(chat "").isCredential', texts), strict=True))
    assert [text for text, is_credential in taken.items() if is_credential] == list(CREDENTIALS)
