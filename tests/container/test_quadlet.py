"""Podman's own generator reads the units, and what systemd would run holds every option of the plan.

The generator comes with Podman 4.4 and newer; on a machine with an older one these tests are counted as not run. To run
them with a generator that lies elsewhere, name it: QUADLET=/path/to/quadlet.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bxcore import wiring as wiring_file
from deploy.appliance import roleplan
from deploy.quadlet import hostfiles
from deploy.quadlet.installation import FILES
from tests.structure import sources

WIRING = wiring_file.load(sources.ROOT / "nix" / "roles.json")
PLACES = (
    "/usr/libexec/podman/quadlet",
    "/usr/lib/podman/quadlet",
    "/usr/lib/systemd/user-generators/podman-user-generator",
)
GENERATOR = next((path for path in (os.environ.get("QUADLET", ""), *PLACES) if path and Path(path).exists()), None)
ANALYZE = shutil.which("systemd-analyze")

SETTINGS = {
    "a server on a network": roleplan.Settings(
        upstream="http://model.example.com:8080",
        network="pasta",
        granted=(Path("/srv/notes"), Path("/srv/Bücher")),
        outbound="pasta",
    ),
    "a server on this machine": roleplan.Settings(
        upstream="http://127.0.0.1:8080", network="pasta:-T,8080", outbound="pasta:-T,8065"
    ),
    "a server on a socket": roleplan.Settings(upstream="unix:/srv/model/model.sock", network="pasta"),
}

# What Quadlet adds of itself, and what the unit says of how it is started.
OF_THE_UNIT = {
    "--name", "--cidfile", "--replace", "--rm", "--log-driver", "--cgroups", "--sdnotify", "-d", "--stop-timeout",
}  # fmt: skip

IN_TWO_WORDS = {
    "--cap-add", "--cap-drop", "--hostname", "--log-driver", "--mount", "--name", "--network", "--pids-limit", "--pull",
    "--security-opt", "--stop-timeout", "--ulimit", "--user",
}  # fmt: skip
"""Options whose value Quadlet writes as a word of its own."""

needs_generator = pytest.mark.skipif(
    GENERATOR is None, reason="Quadlet's generator is not installed: it comes with Podman 4.4 and newer (Debian 13)"
)


def generated(
    role: str, settings: roleplan.Settings, directory: Path, credentials: Mapping[str, str] | None = None
) -> str:
    """Return the service that the generator makes of a role's unit and this machine's drop-in."""
    assert GENERATOR is not None
    tags = dict.fromkeys(WIRING.roles, "0123abcd")
    top = f"/etc/containers/systemd/users/{WIRING.roles[role].uid}"
    shutil.copytree(FILES / top.removeprefix("/"), directory, dirs_exist_ok=True)
    made = hostfiles.machine(WIRING, settings, owner="alice", tags=tags, credentials=credentials or {})
    for path, text in made.items():
        if path.startswith(f"{top}/"):
            file = directory / path.removeprefix(f"{top}/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    told = subprocess.run(
        [GENERATOR, "-user", "-dryrun"],
        env={"QUADLET_UNIT_DIRS": str(directory), "PATH": os.defpath, "HOME": "/"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    complaints = [line for line in told.stderr.splitlines() if "Loading source" not in line]
    assert complaints == []
    return told.stdout


def words(service: str) -> list[str]:
    (line,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


def options(argv: list[str], image: str) -> list[str]:
    """Return the options of `podman run` in the form of the plan: one word each, mounts by `src`."""
    rest = iter(argv[2 : argv.index(image)])
    found = [f"{word}={next(rest)}" if word in IN_TWO_WORDS else word for word in rest]
    return [word.replace("--mount=type=bind,source=", "--mount=type=bind,src=") for word in found]


@needs_generator
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("role", WIRING.roles)
def test_what_systemd_would_run_is_what_the_plan_says(role: str, settings: roleplan.Settings, tmp_path: Path) -> None:
    argv = words(generated(role, settings, tmp_path))
    image = f"localhost/boxmaker/{role}:0123abcd"
    assert argv[:2] == ["/usr/bin/podman", "run"]
    assert argv[argv.index(image) + 1 :] == list(roleplan.command(WIRING, role))
    found = [option for option in options(argv, image) if option.partition("=")[0] not in OF_THE_UNIT]
    assert sorted(found) == sorted(roleplan.options(WIRING, role, settings))


@needs_generator
@pytest.mark.parametrize("role", WIRING.roles)
def test_systemd_is_told_by_the_role_that_it_is_ready(role: str, tmp_path: Path) -> None:
    service = generated(role, SETTINGS["a server on a network"], tmp_path)
    assert "--sdnotify=container" in words(service)
    for line in ("Type=notify", "NotifyAccess=all", "Delegate=yes", "WantedBy=default.target"):
        assert line in service.splitlines()


@needs_generator
def test_a_role_is_shown_the_credential_that_systemd_opens_for_it(tmp_path: Path) -> None:
    sealed = "/etc/boxmaker/gatewayd/mattermost-token.cred"
    service = generated("gatewayd", SETTINGS["a server on a network"], tmp_path, {"mattermost-token": sealed})
    assert f"LoadCredentialEncrypted=mattermost-token:{sealed}" in service.splitlines()
    found = options(words(service), "localhost/boxmaker/gatewayd:0123abcd")
    place = Path("/run/user/644/credentials/bx-gatewayd.service")
    assert set(roleplan.secrets(WIRING, "gatewayd", place)) <= set(found)


@needs_generator
def test_a_unit_that_the_generator_does_not_take_is_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bx-loopd.container.d"
    bad.mkdir()
    (bad / "20-bad.conf").write_text("[Container]\nNoSuchKey=1\n")
    with pytest.raises(AssertionError):
        generated("loopd", SETTINGS["a server on a network"], tmp_path)


@needs_generator
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
@pytest.mark.parametrize("role", WIRING.roles)
def test_systemd_finds_nothing_to_say_about_the_services(role: str, tmp_path: Path) -> None:
    (tmp_path / "units").mkdir()
    service = generated(role, SETTINGS["a server on a network"], tmp_path / "units")
    # The generator names each service that it prints.
    (tmp_path / f"bx-{role}.service").write_text(service.partition("\n")[2], encoding="utf-8")
    assert _verified(tmp_path / f"bx-{role}.service") == []


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_finds_nothing_to_say_about_the_tools_units(tmp_path: Path) -> None:
    for kind in ("socket", "service"):
        shutil.copy(FILES / f"etc/systemd/user/boxmaker-tools.{kind}", tmp_path)
    assert _verified(tmp_path / "boxmaker-tools.socket") == []


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_says_what_is_wrong_with_a_unit(tmp_path: Path) -> None:
    bad = tmp_path / "bad.service"
    bad.write_text("[Service]\nExecStart=/nowhere\nNoSuchKey=1\n")
    assert _verified(bad) != []


def _verified(unit: Path) -> list[str]:
    """Return what systemd-analyze says about this unit itself, in the manager of a user."""
    assert ANALYZE is not None
    told = subprocess.run(
        [ANALYZE, "--user", "--man=no", "verify", unit],
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(unit.parent), "HOME": str(unit.parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [line for line in (told.stdout + told.stderr).splitlines() if str(unit.parent) in line]
