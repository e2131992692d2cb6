"""What NixOS takes for the place of a model server is what the installer elsewhere takes for one."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

from bxcore import wiring
from deploy.appliance import roleplan
from deploy.quadlet import modelserver
from images import layout
from tests.nix.evaluation import GOOD, NIX, Said, evaluate_each, expression, needs_nix

pytestmark = needs_nix

DECLARED = wiring.load(NIX / "roles.json")

NIXOS_TOO = tuple(map(Path, ("/nix", "/tmp", "/usr", "/var/tmp")))  # named, not used
"""Below these NixOS refuses more: the store is shown nowhere, and each unit has a /tmp of its own."""

PLACES = (
    "/", "/etc", "/home", "/home/alice", "/home/alice/model", "/media", "/mnt", "/mnt/disk", "/nix/store", "/opt",
    "/opt/model", "/root", "/run/dbus", "/run/lock", "/run/model", "/run/systemd", "/run/user", "/run/user/1000",
    "/run/user/1000/model", "/srv", "/srv/model", "/usr", "/usr/share/model", "/var", "/var/cache", "/var/lib",
    "/var/lib/boxmaker", "/var/lib/boxmaker/run/infer", "/var/lib/model", "/var/log", "/etc/boxmaker/grants",
)  # fmt: skip

HOSTS = (
    "127.0.0.1", "127.0.0.2", "127.255.0.9", "0.0.0.0", "0.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1",
    "256.0.0.1", "1.2.3", "1.2.3.4", "1.2.3.4.", "01.2.3.4", "192.0.2.7", "localhost", "LOCALHOST", "LocalHost.",
    "model.localhost", "localhost.example.com", "notlocalhost", "127.0.0.1.example.com", "model-1.example.com",
    "MODEL", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::0001]", "[0::1]", "[::ffff:7f00:1]", "[::FFFF:7fff:2]",
    "[::ffff:0:0]", "[0:0:0:0:0:ffff::]", "[::ffff:127.0.0.1]", "[::ffff:c000:207]", "[2001:db8::7]",
    "[1:2:3:4:5:6:7:8]", "[::7f00:1]", "[::10]", "[1::]",
)  # fmt: skip

RANGES = (
    "192.0.2.7", "192.0.2.0/24", "10.0.0.0/8", "255.255.255.255/32", "2001:db8::7", "2001:db8::/32", "fe80::/64",
    "fd00::/16", "::1", "::1/128", "1:2:3:4:5:6:7:8", "localhost",
)  # fmt: skip
NO_RANGES = (
    "", "any", "any ", "1.2.3.4 any", "0.0.0.0/0", "0.0.0.0/0 ", "0.0.0.0/00", "0.0.0.0/1", "128.0.0.0/1", "64.0.0.0/7",
    "1.2.3.4/33", "1.2.3.4/08", "1.2.3", "1.2.3.256", "01.2.3.4", "::/0", "::/1", "2000::/3", "fc00::/15", "::1/129",
    "1::2::3", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "12345::", "::ffff:1.2.3.4", "a\nb", "1.2.3.4\n::/0",
    "1.2.3.4\n", "link-local", "multicast", "localhost ", "model.example.com", "@x",
)  # fmt: skip

NETWORKS = (
    "host", "pasta", "pasta:-T,8080", "pasta:-4", "pasta:-6,-m,9000,-i,eth0.7,-T,80", "slirp4netns",
    "slirp4netns:enable_ipv6=true", "slirp4netns:mtu=1500,enable_ipv6=false",
)  # fmt: skip
NO_NETWORKS = (
    "", "none", "bridge", "container:x", "ns:/proc/1/ns/net", "host:x", "pasta:", "pasta:-T,auto", "pasta:-T,8080,",
    "pasta:-t,8080", "pasta:-T,0", "pasta:--map-gw", "pasta:--map-host-loopback,192.0.2.1", "pasta:--pid,/x",
    "pasta:-l,/x", "pasta:-T 8080", "pasta\n", "pasta:-4\n--privileged", "slirp4netns:allow_host_loopback=true",
    "slirp4netns:port_handler=rootlesskit", "slirp4netns:cidr=127.0.0.0/8", "pasta:-i,a b",
)  # fmt: skip


def asked(directory: Path, function: str, texts: tuple[str, ...]) -> list[Any]:
    """Ask a function of upstream.nix about each of the texts, or each of them for one of its values."""
    caller = directory / "caller.nix"
    caller.write_text(f"{{ texts }}: let model = upstream: import {NIX}/upstream.nix {{ inherit upstream; }}; in\n"
                      f"map ({function}) (builtins.fromJSON texts)\n", encoding="utf-8")  # fmt: skip
    found = expression(caller, texts=json.dumps(texts))
    assert isinstance(found, list)
    return found


def test_one_address_or_a_narrow_range_is_allowed_and_nothing_else(tmp_path: Path) -> None:
    texts = (*RANGES, *NO_RANGES)
    taken = dict(zip(texts, asked(tmp_path, '(model "").isRange', texts), strict=True))
    assert [text for text, is_range in taken.items() if is_range] == list(RANGES)


def test_a_network_has_no_option_that_opens_this_machine(tmp_path: Path) -> None:
    texts = (*NETWORKS, *NO_NETWORKS)
    taken = dict(zip(texts, asked(tmp_path, '(model "").isNetwork', texts), strict=True))
    assert [text for text, is_network in taken.items() if is_network] == list(NETWORKS)


def test_an_upstream_is_the_same_server_to_nixos_and_to_the_installer(tmp_path: Path) -> None:
    upstreams = tuple(f"http://{host}:8080" for host in HOSTS)
    values = "text: { inherit (model text) isTcp isOdd isLoopback isLedIn; }"
    for upstream, found in zip(upstreams, asked(tmp_path, values, upstreams), strict=True):
        refused = not found["isTcp"] or found["isOdd"] or (found["isLoopback"] and not found["isLedIn"])
        assert refused == bool(list(modelserver.faults(upstream, DECLARED))), upstream
        if not refused:
            assert modelserver.network(upstream) == ("pasta:-T,8080" if found["isLoopback"] else "pasta"), upstream


def test_a_name_is_no_address_and_an_address_is_allowed_as_it_is(tmp_path: Path) -> None:
    upstreams = tuple(f"http://{host}" for host in ("192.0.2.7", "[2001:db8::7]", "LOCALHOST", "a.example.com", "9"))
    found = asked(tmp_path, "text: (model text).addresses", upstreams)
    assert found == [["192.0.2.7"], ["2001:db8::7"], ["localhost"], [], []]


def test_the_directories_that_inferproxy_must_not_see_are_those_of_the_other_launchers() -> None:
    owns = map(Path, layout.OWN)
    wanted = {*map(Path, PLACES), *chain.from_iterable((own, own.parent, own / "model") for own in owns)}
    directories = sorted({*wanted, *roleplan._CROWDED, *(place / "x" for place in roleplan._PERSONS)})
    cases: list[tuple[Said, Said]] = [
        ({**GOOD, "upstream": f"unix:{str(one).rstrip('/')}/model.sock"}, {}) for one in directories
    ]
    for directory, evaluated in zip(directories, evaluate_each(cases), strict=True):
        refused = any("a directory of its own" in message for message in evaluated.refused)
        if not any(directory.is_relative_to(more) for more in NIXOS_TOO):
            assert refused == bool(roleplan.unfit_socket_directory(directory, DECLARED)), directory
        else:
            assert refused, directory
