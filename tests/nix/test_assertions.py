"""Every unsafe or impossible configuration is refused with a message that says what to do, and no good one is."""

import json
from collections.abc import Mapping

import pytest

from images import layout
from tests.nix.evaluation import CHAT, GOOD, NIX, Evaluated, Said, evaluate, evaluate_each, expression, needs_nix

pytestmark = needs_nix

UNITS_OWN = "/tmp"
"""Each unit has one of its own."""


def chat(**said: object) -> Said:
    return {"mattermost": {**CHAT, **said}}


REFUSED: dict[str, tuple[Said, str]] = {
    "no upstream": ({"upstream": ""}, "upstream is empty"),
    "https": ({"upstream": "https://model.example.com"}, "upstream is https"),
    "a path": ({"upstream": "http://192.0.2.7:8080/v1"}, 'no more than "http://host:port"'),
    "a query": ({"upstream": "http://192.0.2.7:8080?x"}, 'no more than "http://host:port"'),
    "a user": ({"upstream": "http://me@192.0.2.7:8080"}, 'no more than "http://host:port"'),
    "no scheme": ({"upstream": "192.0.2.7:8080"}, 'must begin with "http://" or "unix:/"'),
    "a relative socket": ({"upstream": "unix:model.sock"}, "name its socket by an absolute path"),
    "a socket through ..": ({"upstream": "unix:/srv/../run/model.sock"}, "name its socket by an absolute path"),
    "a socket in a shared directory": ({"upstream": "unix:/run/model.sock"}, "a directory of its own"),
    "a socket of a session": ({"upstream": "unix:/run/user/1000/model.sock"}, "a directory of its own"),
    "a socket in /tmp": ({"upstream": f"unix:{UNITS_OWN}/model/model.sock"}, "a directory of its own"),
    "a socket at the root": ({"upstream": "unix:/model.sock"}, "a directory of its own"),
    "a socket in the state": ({"upstream": "unix:/var/lib/boxmaker/run/model.sock"}, "a directory of its own"),
    "a quote in a socket's path": ({"upstream": 'unix:/srv/"m/model.sock'}, "name its socket by an absolute path"),
    "a comma in a socket's path": ({"upstream": "unix:/srv/m,ro=false/model.sock"}, "name its socket by an absolute"),
    "a line break in a socket's path": ({"upstream": "unix:/srv/m\nx/model.sock"}, "name its socket by an absolute"),
    "a doubled slash in a socket's path": ({"upstream": "unix://etc/model.sock"}, "name its socket by an absolute"),
    "a half address": ({"upstream": "http://127.1:8080"}, "neither a name nor an address written in full"),
    "a port too many": ({"upstream": "http://127.0.0.1:8080", "network": "pasta:-T,8081"}, "at port 8080"),
    "localhost, which no role can look up": (
        {"upstream": "http://localhost:8080", "network": "pasta:-T,8080"},
        "write 127.0.0.1 or [::1]",
    ),
    "another word for the loopback": (
        {"upstream": "http://0.0.0.0:8080", "network": "host"},
        "another word for this machine",
    ),
    "another kind of network": ({"network": "bridge"}, "network must be"),
    "loopback through pasta": ({"upstream": "http://127.0.0.1:8080"}, "loopback address, which pasta does not reach"),
    "localhost through pasta": ({"upstream": "http://localhost:8080"}, "loopback address"),
    "a name without addresses": (
        {"upstream": "http://model.example.com:8080"},
        "allowedAddresses.inferproxy is missing",
    ),
    "addresses of no role": ({"allowedAddresses": {"nobody": ["192.0.2.1"]}}, "allowedAddresses.nobody: there is no"),
    "addresses without a network": ({"allowedAddresses": {"loopd": ["192.0.2.1"]}}, "this role has no network"),
    "any address": ({"allowedAddresses": {"inferproxy": ["any"]}}, "must be one address"),
    "every address": ({"allowedAddresses": {"inferproxy": ["0.0.0.0/0"]}}, "must be one address"),
    "a relative home": ({"stateDir": "var/lib/boxmaker"}, "stateDir must be an absolute path"),
    "a home with a specifier": ({"stateDir": "/srv/%h"}, "stateDir must be an absolute path"),
    "the root as home": ({"stateDir": "/"}, "stateDir must be an absolute path"),
    "a long home": ({"stateDir": f"/srv/{'x' * 72}/boxmaker"}, "stateDir is too long"),
    "another one's home": ({"stateDir": "/var/lib/containers"}, "has to outlive a reboot and to be Boxmaker's alone"),
    "a person's home": ({"stateDir": "/home/alice/boxmaker"}, "has to outlive a reboot"),
    "all that varies": ({"stateDir": "/var"}, "has to outlive a reboot"),
    "every service's home": ({"stateDir": "/var/lib"}, "has to outlive a reboot"),
    "programs": ({"stateDir": "/bin/boxmaker"}, "has to outlive a reboot"),
    "a home that a reboot clears": ({"stateDir": "/run/boxmaker"}, "has to outlive a reboot"),
    "a home in etc": ({"stateDir": "/etc/boxmaker/state"}, "has to outlive a reboot"),
    "a home that holds etc": ({"stateDir": "/etc"}, "has to outlive a reboot"),
    "the root granted": ({"grantedPaths": ["/"]}, "absolute path without"),
    "a relative path granted": ({"grantedPaths": ["srv/notes"]}, "absolute path without"),
    "a path through .. granted": ({"grantedPaths": ["/srv/../etc"]}, "absolute path without"),
    "a quote in a path": ({"grantedPaths": ['/srv/"notes']}, "absolute path without"),
    "a line break in a granted path": ({"grantedPaths": ["/srv/notes\n/x"]}, "absolute path without"),
    "the home granted": ({"grantedPaths": ["/var/lib/boxmaker"]}, "which no tool may see"),
    "a part of the home granted": ({"grantedPaths": ["/var/lib/boxmaker/audit"]}, "which no tool may see"),
    "what holds the home granted": ({"grantedPaths": ["/var"]}, "which no tool may see"),
    "etc granted": ({"grantedPaths": ["/etc"]}, "which no tool may see"),
    "the store granted": ({"grantedPaths": ["/nix/store"]}, "would cover a part of the images"),
    "the programs granted": ({"grantedPaths": ["/usr/share"]}, "would cover a part of the images"),
    "the units' own /tmp granted": ({"grantedPaths": [f"{UNITS_OWN}/x"]}, "would cover a part of the images"),
    "one slot for both": ({"slots": {"main": 0, "background": 0}}, "slots.background is slots.main"),
    "a slot that is not there": ({"slots": {"background": 2}}, "numbered from 0"),
    "another agent on a slot": (
        {"otherAgents": {"scribe": [1]}},
        "otherAgents.scribe uses a slot of this Boxmaker",
    ),
    "another agent beyond the slots": ({"otherAgents": {"scribe": [2]}}, "a slot that the model server does not have"),
    "half a hash": ({"expect": {"templateSha256": "abc"}}, "64 hexadecimal digits"),
    "no owner": ({"owners": []}, "owners is empty"),
    "an unknown owner": ({"owners": ["bob"]}, "owners: bob is no user of this machine"),
    "a role as an owner": ({"owners": ["bx-loopd"]}, "an owner is a person"),
    "settings of no role": ({"settings": {"nobody": {}}}, "settings.nobody: there is no such role"),
    "a wired setting": ({"settings": {"loopd": {"listen": {"owner": "/x"}}}}, "settings.loopd.listen.owner cannot"),
    "settings of a role that is left out": ({"settings": {"gatewayd": {"limits": {}}}}, "or it is not enabled"),
    "addresses of a role that is left out": ({"allowedAddresses": {"gatewayd": ["192.0.2.1"]}}, "this role has no"),
    "no chat server": (chat(url=""), "mattermost.url must be"),
    "a chat server without a scheme": (chat(url="chat.example.org"), "mattermost.url must be"),
    "a chat server with a query": (chat(url="https://chat.example.org?x"), "mattermost.url must be"),
    "a chat server with a slash at its end": (chat(url="https://192.0.2.9/"), "mattermost.url must be"),
    "a half address of a chat server": (chat(url="https://127.1"), "mattermost.url is at 127.1, which is neither"),
    "a chat server on localhost": (chat(url="http://localhost:8065"), "mattermost.url is at localhost, another word"),
    "a name of a chat server without addresses": (
        chat(url="https://chat.example.org"),
        "allowedAddresses.gatewayd is missing: its server is a name (chat.example.org)",
    ),
    "nobody may speak": (chat(allowedUsers=[]), "mattermost.allowedUsers is empty"),
    "a name instead of an id": (chat(allowedUsers=["alice"]), '"alice" is no id of Mattermost'),
    "a name instead of a channel's id": (chat(allowedChannels=["~town"]), '"~town" is no id of Mattermost'),
    "an approver twice": (chat(approvers=["a" * 26, "a" * 26]), "an id stands twice"),
    "a link with a scheme": (chat(linkHosts=["https://example.org"]), "mattermost.linkHosts"),
    "no token": (chat(tokenCredential=""), "mattermost.tokenCredential must be"),
    "a token in the store": (chat(tokenCredential="/nix/store/x-token.cred"), "mattermost.tokenCredential must be"),
    "a token with a specifier": (chat(tokenCredential="/etc/%h/token.cred"), "mattermost.tokenCredential must be"),
    "what gatewayd is told twice": (
        {**chat(), "settings": {"gatewayd": {"allow": {"users": []}}}},
        "settings.gatewayd.allow.users cannot",
    ),
    "a setting with an option": ({"settings": {"loopd": {"slots": {"main": 1}}}}, "settings.loopd.slots.main cannot"),
    "another audit log": ({"settings": {"brokerd": {"audit": "/x"}}}, "settings.brokerd.audit cannot be set"),
    "a missing image": ({"images": {}}, "images.loopd is missing"),
    "an image of no role": (
        {"images": {"nobody": {"outPath": "/nix/store/x", "type": "derivation"}}},
        "images.nobody: there is no such role",
    ),
    "a grant with a strange name": ({"grants": {"Read Notes": str(NIX / "roles.nix")}}, "is no id of a grant"),
}
"""What is said beside GOOD, and a part of the message."""

MACHINES: dict[str, tuple[Said, str]] = {
    "another backend": ({"virtualisation": {"oci-containers": {"backend": "docker"}}}, 'backend = "podman"'),
    "no user namespaces": ({"security": {"allowUserNamespaces": False}}, "allowUserNamespaces = true"),
    "a uid of ours": ({"users": {"users": {"bob": {"uid": 642}}}}, "the user bob has the uid 642"),
    "a gid of ours": ({"users": {"groups": {"own": {"gid": 643}}}}, "the group own has the gid 643"),
    "our user in another first group": ({"users": {"users": {"bx-loopd": {"group": "wheel"}}}}, "bx-loopd is Boxmaker"),
    "a member of a pair's group": (
        {"users": {"groups": {"bx-tool-runner": {"members": ["eve"]}}}},
        "eve is in the group bx-tool-runner",
    ),
    "a further group of a stranger": (
        {"users": {"users": {"eve": {"extraGroups": ["bx-broker"]}}}},
        "eve is in the group bx-broker",
    ),
    "a first group of a stranger": (
        {"users": {"users": {"eve": {"group": "bx-infer"}}}},
        "eve is in the group bx-infer",
    ),
    "an owner in a pair's group": (
        {"users": {"users": {"alice": {"extraGroups": ["bx-broker"]}}}},
        "alice is in the group bx-broker",
    ),
    "a stranger among the owners": (
        {"users": {"groups": {"bx-admin": {"members": ["alice", "eve"]}}}},
        "eve is in the group bx-admin",
    ),
    "a stranger in a role's group": (
        {"users": {"users": {"eve": {"group": "bx-loopd"}}}},
        "eve is in the group bx-loopd",
    ),
    "a pair's group under another key": (
        {"users": {"groups": {"own": {"name": "bx-tool-runner", "members": ["eve"]}}}},
        "eve is in the group bx-tool-runner",
    ),
    "a home around ours": (
        {"users": {"users": {"web": {"home": "/var/lib"}}}},
        "lies in the home of web",
    ),
    "our user as a person": ({"users": {"users": {"bx-loopd": {"isNormalUser": True}}}}, "changes it"),
    "our user with another uid": ({"users": {"users": {"boxmaker-tools": {"uid": 5}}}}, "changes it"),
    "our user in a group": ({"users": {"users": {"bx-loopd": {"extraGroups": ["wheel"]}}}}, "further group"),
    "a group with our user": ({"users": {"groups": {"wheel": {"members": ["boxmaker-tools"]}}}}, "further group"),
    "another container of the tools' user": (
        {"virtualisation": {"oci-containers": {"containers": {"web": {"podman": {"user": "boxmaker-tools"}}}}}},
        "the container web runs as a user of Boxmaker's",
    ),
}


ACCEPTED: dict[str, Said] = {
    "the least": {},
    "a socket": {"upstream": "unix:/srv/model/model.sock"},
    "a name with addresses": {
        "upstream": "http://model.example.com:8080/",
        "allowedAddresses": {"inferproxy": ["192.0.2.7", "192.0.2.53"]},
    },
    "loopback in the host's network": {"upstream": "http://127.0.0.1:8080", "network": "host"},
    "loopback at its port": {"upstream": "http://[::1]:8080", "network": "pasta:-T,8080"},
    "another address of the host's own": {"upstream": "http://127.0.0.2:8080", "network": "host"},
    "options of a network": {"network": "pasta:-4,-m,1500,-i,eth0"},
    "a home on another disk": {"stateDir": "/mnt/disk/var/lib/boxmaker-2"},
    "a folder twice": {"grantedPaths": ["/srv/notes", "/srv/notes"]},
    "one slot, shared": {"expect": {"slots": 1}, "slots": {"main": 0, "background": 0}},
    "two agents whose slots differ": {"expect": {"slots": 4}, "otherAgents": {"scribe": [2, 3]}},
    "a chat server": chat(),
    "a chat server with all that can be said": chat(
        url="https://192.0.2.9:8443/chat",
        caFile="/etc/ssl/mine.pem",
        allowedChannels=["c" * 26],
        approvers=["d" * 26],
        linkHosts=["example.org", "*.example.org:8443"],
    ),
    "what is not enabled may be half said": {"mattermost": {"url": "chat.example.org"}},
    "root as an owner": {"owners": ["alice", "root"]},
    "folders beside the images'": {"grantedPaths": ["/srv/notes", "/home/alice/papers", "/usrlocal"]},
}


WITH_ROOT: Said = {"users": {"users": {"root": {"uid": 0}}}}


@pytest.fixture(scope="module")
def evaluated() -> Mapping[str, Evaluated]:
    """Every case above, by its name."""
    cases = {
        **{name: ({**GOOD, **said}, {}) for name, (said, _) in REFUSED.items()},
        **{name: (GOOD, machine) for name, (machine, _) in MACHINES.items()},
        **{name: ({**GOOD, **said}, WITH_ROOT) for name, said in ACCEPTED.items()},
    }
    assert len(cases) == len(REFUSED) + len(MACHINES) + len(ACCEPTED)
    return dict(zip(cases, evaluate_each(cases.values()), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_configuration_is_refused_with_a_word_on_what_to_do(
    evaluated: Mapping[str, Evaluated], name: str
) -> None:
    refused, message = evaluated[name].refused, REFUSED[name][1]
    assert [each for each in refused if message in each], refused
    assert all(each.startswith("services.boxmaker.") for each in refused)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_that_cannot_hold_it_is_refused(evaluated: Mapping[str, Evaluated], name: str) -> None:
    refused, message = evaluated[name].refused, MACHINES[name][1]
    assert [each for each in refused if message in each], refused


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_good_configuration_is_refused_nothing(evaluated: Mapping[str, Evaluated], name: str) -> None:
    assert evaluated[name].refused == ()


def test_no_place_of_the_images_own_can_be_granted() -> None:
    refused = evaluate({**GOOD, "grantedPaths": list(layout.OWN)}).refused
    assert [path for path in layout.OWN if not any(f": {path} would cover" in each for each in refused)] == []


def test_the_example_machine_is_refused_nothing() -> None:
    said = expression(NIX / "checks" / "machine.nix")["services"]["boxmaker"]
    grants = {name: str(NIX.parent / "deploy" / "example" / "grants" / f"{name}.toml") for name in said["grants"]}
    assert evaluate(json.loads(json.dumps({**said, "grants": grants}))).refused == ()


def test_every_refusal_of_the_module_is_shown_by_a_case() -> None:
    """The messages that the tables above show, against those that the file holds."""
    text = (NIX / "assertions.nix").read_text(encoding="utf-8")
    written = text.count("(refuse (") + text.count("(refuse\n") + text.count("refuseEach") - 1  # its definition
    assert written > 0
    shown = {message for _, message in (*REFUSED.values(), *MACHINES.values())}
    assert len(shown) >= written - 1, (written, len(shown))  # a missing credential is shown in test_machine.py
