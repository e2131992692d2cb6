"""Each role's image in a container with the flags that a role gets: its program starts, and nothing else is in it.

What a role does with its sockets is tested beside the launcher; here it is the image alone, without a mount.
"""

import json
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bxcore import wiring
from deploy.local import roleimages
from deploy.local.plan import ROOT
from deploy.local.refusal import Refusal
from deploy.local.roleimages import RoleImage
from deploy.local.toolhost import ToolHost
from images import build, closure, contents, table
from images.table import Image

CLOSED = wiring.load(ROOT / "nix" / "roles.json").closed
INTERPRETER = ("/usr/bin/python3", "-I", "-S")
ROLES = table.roles()
PROGRAMS = [image.program for image in table.load().values()]

UNUSED = (
    "cattr.preconf.", "cattrs.preconf.",  # formats that want a package of their own
    "urllib3.contrib.", "urllib3.http2.", "urllib3.util.ssltransport",  # for TLS, and for other interpreters
    "certifi.__main__", "charset_normalizer.__main__", "idna.__main__", "requests.__main__", "requests.help",
    "websocket._wsdump",  # a program for a terminal
)  # fmt: skip
"""Modules of packages that nothing imports here, by the beginnings of their names."""

DAEMON_THREADS = """
import threading, time
for _ in range(8):
    threading.Thread(target=lambda: [time.sleep(0.001) for _ in range(100_000)], daemon=True).start()
print("the end", flush=True)
"""


@attrs.frozen(kw_only=True)
class Role:
    """A loaded image, and how to run something in it."""

    stated: Image
    image: RoleImage
    host: ToolHost

    def run(self, *command: str) -> str:
        return self.host.podman(
            "run", "--rm", "--network=none", "--log-driver=none", *CLOSED,
            f"--security-opt=seccomp={self.host.seccomp_path}", self.image.name, *command,
        )  # fmt: skip

    def python(self, program: str) -> str:
        return self.run(*INTERPRETER, "-W", "error", "-c", program)


def tops_of_packages(image: Image) -> set[str]:
    """Return what can be imported of the packages that the image has."""
    packages = closure.stated(image, build.PYTHON, Path(sysconfig.get_path("purelib")))
    return {top for each in packages for top in closure._tops(each)}


@pytest.fixture(scope="module", params=list(ROLES.values()), ids=list(ROLES))
def role(request: pytest.FixtureRequest, tool_host: ToolHost) -> Iterator[Role]:
    stated: Image = request.param
    image = roleimages.built(stated.name)
    with image.archive.open("rb") as archive:
        tool_host._podman.need("load", "--quiet", stdin=archive)
    yield Role(stated=stated, image=image, host=tool_host)
    tool_host.podman("rmi", "--force", image.name)


def test_the_loaded_image_has_the_id_that_was_computed_and_says_what_it_is(role: Role) -> None:
    told = json.loads(role.host.podman("image", "inspect", role.image.name))[0]
    assert told["Id"] == role.image.identity
    assert role.image.name.endswith(f":{role.image.identity[:16]}")
    labels = told["Labels"]
    assert labels["org.opencontainers.image.title"] == role.stated.title
    assert {"org.opencontainers.image.version", "org.opencontainers.image.revision"} < set(labels)


def test_its_program_starts(role: Role) -> None:
    told = role.run(*INTERPRETER, "-W", "error", "-m", role.stated.program, "--help")
    assert told.startswith(f"usage: {role.stated.program} ")


def test_it_runs_its_program_by_itself(role: Role) -> None:
    with pytest.raises(Refusal, match=r"(?i)config"):  # which is not there
        role.run()


def test_its_packages_and_programs_are_those_of_the_table(role: Role) -> None:
    program = """
import json, os
library = os.path.dirname(os.__file__)
print(json.dumps([
    [n for n in os.listdir(library) if n.endswith(".dist-info")], os.listdir("/usr/bin"), os.listdir("/usr/lib"),
]))
"""
    packages, programs, libraries = json.loads(role.python(program))
    assert {name.split("-")[0].replace("_", "-").lower() for name in packages} == set(role.stated.packages)
    assert programs == ["python3"]
    assert [name for name in libraries if not name.startswith(("lib", "ld-", "python3."))] == []


def test_all_that_the_role_imports_can_be_imported_wherever_it_stands(role: Role) -> None:
    program = f"""
import ast, importlib, json, pathlib, pkgutil, sys
import bxcore, {role.stated.program} as role
failed, count = [], 0
def tried(name, *, attribute=None):
    global count
    count += 1
    try:
        module = importlib.import_module(name)
        if attribute and not hasattr(module, attribute):
            importlib.import_module(f"{{name}}.{{attribute}}")
    except Exception as error:
        failed.append(f"{{name}} {{attribute}}: {{error!r}}")
for package in (role, bxcore):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        tried(found.name)
for module in [m for n, m in sys.modules.items() if n.split(".")[0] in ("bxcore", role.__name__)]:
    for node in ast.walk(ast.parse(pathlib.Path(module.__file__).read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                tried(alias.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                tried(node.module, attribute=alias.name)
print(json.dumps([count, failed, sorted({{name.split(".")[0] for name in sys.modules}})]))
"""
    count, failed, loaded = json.loads(role.python(program))
    assert failed == []
    assert count > 50
    assert {*PROGRAMS, "bxctl", "site"}.intersection(loaded) == {role.stated.program}


def test_every_module_of_its_packages_can_be_imported(role: Role) -> None:
    program = f"""
import importlib, json, os, pkgutil
library = os.path.dirname(os.__file__)
failed, count = [], 0
for found in pkgutil.walk_packages([library], onerror=lambda name: None):
    top = found.name.split(".")[0]
    if top in {sorted(tops_of_packages(role.stated))!r} and not found.name.startswith({UNUSED!r}):
        count += 1
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed.append(f"{{found.name}}: {{error!r}}")
print(json.dumps([count, failed]))
"""
    count, failed = json.loads(role.python(program))
    assert failed == []
    assert (count > 20) == bool(role.stated.packages)


def test_nothing_is_compiled_and_nothing_is_written(role: Role) -> None:
    program = f"""
import json, os, pkgutil, importlib, sys
seen = []
def watch(event, arguments):
    if event == "compile" and isinstance(arguments[1], (str, bytes)):
        name = os.fsdecode(arguments[1])
        if not name.startswith("<"):  # attrs and dataclasses make methods
            seen.append(f"compile {{name}}")
    elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append(f"open {{arguments[0]}}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "subprocess.Popen", "os.posix_spawn", "os.system"):
        seen.append(event)
sys.addaudithook(watch)
import {role.stated.program} as role
names = [m.name for m in pkgutil.walk_packages(role.__path__, role.__name__ + ".")]
for name in names:
    importlib.import_module(name)
files = [m.__spec__.cached for m in sys.modules.values() if getattr(getattr(m, "__spec__", None), "cached", None)]
print(json.dumps([len(files), [f for f in files if not os.path.exists(f)], seen]))
"""
    count, uncompiled, seen = json.loads(role.python(program))
    assert count > 30
    assert (uncompiled, seen) == ([], [])


def test_nothing_in_it_can_be_written_and_no_program_is_setuid(role: Role) -> None:
    program = """
import json, os, stat
writable, open_to_all, setuid, count = [], [], [], 0
for top, directories, files in os.walk("/"):
    if top in ("/proc", "/sys", "/dev"):
        directories.clear()
        continue
    for path in [top, *(os.path.join(top, name) for name in files)]:
        if not os.path.islink(path):
            mode, count = os.lstat(path).st_mode, count + 1
            writable += [path] if os.access(path, os.W_OK) else []
            open_to_all += [path] if mode & 0o022 else []
            setuid += [path] if mode & (stat.S_ISUID | stat.S_ISGID) else []
print(json.dumps([count, writable, open_to_all, setuid]))
"""
    count, *found = json.loads(role.python(program))
    assert count > 400
    # Podman makes this file for each container, and lets root of the container write it.
    assert [[path for path in paths if path != "/run/.containerenv"] for paths in found] == [[], [], []]


def test_there_is_no_shell(role: Role) -> None:
    for name in ("sh", "/bin/sh", "busybox", "cat"):
        with pytest.raises(Refusal, match=r"not found|no such file"):
            role.run(name)


def test_without_its_parts_the_standard_library_answers_as_before(role: Role) -> None:
    program = """
import decimal, datetime, hashlib, hmac, json, logging, random, secrets, shutil, socket, tempfile, time
print(json.dumps([
    sorted(hashlib.algorithms_guaranteed), hashlib.sha256(b"x").hexdigest(), hashlib.new("sha512", b"x").hexdigest(),
    hmac.new(b"k", b"x", "sha256").hexdigest(), hmac.compare_digest(b"a", b"a"), secrets.compare_digest("a", "b"),
    str(decimal.Decimal("1.10") + 1), datetime.datetime.strptime("2026-01-02", "%Y-%m-%d").day,
    time.strptime("2026-01-02", "%Y-%m-%d").tm_yday, "ß".encode("latin-1").hex(), "bücher.example".encode("idna").hex(),
    socket.getaddrinfo("127.0.0.1", 1)[0][4], random.Random(1).random(), "ü".encode("utf-16").hex(),
]))
"""
    here = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(role.python(program)) == json.loads(here.stdout)


def test_a_program_may_end_while_a_thread_runs(role: Role) -> None:
    assert role.python(DAEMON_THREADS) == "the end"


def test_only_loopd_knows_the_time_zones(role: Role) -> None:
    program = """
import json, zoneinfo
def known(name):
    try:
        return str(zoneinfo.ZoneInfo(name))
    except zoneinfo.ZoneInfoNotFoundError:
        return None
print(json.dumps([known("UTC"), known("Europe/Berlin"), known("Nowhere/Here")]))
"""
    expected = ["UTC", "Europe/Berlin", None] if role.stated.time_zones else [None, None, None]
    assert json.loads(role.python(program)) == expected


def test_only_who_dials_tls_believes_anybody(role: Role) -> None:
    program = """
import json
try:
    import ssl
    print(json.dumps(len(ssl.create_default_context().get_ca_certs())))
except ImportError:
    print(json.dumps(None))
"""
    found = json.loads(role.python(program))
    here = len(ssl.create_default_context(cafile=str(contents.ca_bundle())).get_ca_certs())
    assert found == (here if "tls" in role.stated.parts else None)


def test_only_who_keeps_a_queue_has_a_database(role: Role) -> None:
    program = """
import json
try:
    import sqlite3
    base = sqlite3.connect(":memory:")
    base.execute("create table posts (id text primary key) strict")
    print(json.dumps(base.execute("pragma journal_mode").fetchone()[0]))
except ImportError:
    print(json.dumps(None))
"""
    assert json.loads(role.python(program)) == ("memory" if "sqlite" in role.stated.parts else None)


def test_its_names_are_its_own(role: Role) -> None:
    program = """
import json, os, pwd, socket
print(json.dumps([[entry.pw_name for entry in pwd.getpwall()], sorted(os.environ), os.environ["HOME"]]))
"""
    users, environment, home = json.loads(role.python(program))
    assert users == ["root", "nobody"]
    usual = {"HOME", "HOSTNAME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "container", "TERM"}
    assert set(environment) <= usual | ({"SSL_CERT_FILE"} if role.stated.certificates else set())
    assert home == "/"
