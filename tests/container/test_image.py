"""The tool image does its work in a container with every flag that a call has, by a hand-written command line.

How brokerd starts its containers is tested beside brokerd's own tests; here it is the image and the filter alone.
"""

import json
from pathlib import Path

import pytest

from deploy.local.toolhost import ToolHost
from images import layout

FLAGS = (
    "--rm", "--pull=never", "--network=none", "--no-hosts", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all",
    "--security-opt=no-new-privileges", "--ipc=none", "--userns=auto", "--http-proxy=false", "--log-driver=none",
    "--tmpfs=/tmp:rw,size=4m,noexec,nosuid,nodev,mode=1777", "--passwd=false",
)  # fmt: skip

EPERM, ENOSYS = 1, 38


def inside(host: ToolHost, *command: str) -> str:
    return host.podman(
        "run", *FLAGS, f"--security-opt=seccomp={host.seccomp_path}", f"sha256:{host.image_id}", *command
    )


def python(host: ToolHost, program: str) -> str:
    return inside(host, "/usr/bin/python3", "-I", "-S", "-c", program)


def test_the_loaded_image_has_the_id_that_was_computed(tool_host: ToolHost) -> None:
    told = tool_host.podman("image", "inspect", "--format={{.Id}}", tool_host.image_id)
    assert told == tool_host.image_id


def test_all_of_the_toolkit_can_be_imported_and_nothing_of_the_roles(tool_host: ToolHost) -> None:
    program = """
import importlib, json, pkgutil, sys, toolkit
names = [m.name for m in pkgutil.walk_packages(toolkit.__path__, "toolkit.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(json.dumps([names, sys.path, sorted({name.split(".")[0] for name in sys.modules})]))
"""
    names, path, loaded = json.loads(python(tool_host, program))
    assert "toolkit.readfile" in names
    assert all(entry.startswith("/usr/lib/python3") for entry in path)
    assert not {"brokerd", "loopd", "site"} & set(loaded)


def test_nothing_had_to_be_compiled(tool_host: ToolHost) -> None:
    program = """
import importlib.util, json, pathlib, sys
import bs4, ssl, sqlite3, ctypes, asyncio, http.client, toolkit.readfile
files = [pathlib.Path(m.__file__) for m in sys.modules.values() if getattr(m, "__file__", None)]
compiled = lambda f: pathlib.Path(importlib.util.cache_from_source(str(f)))
plain = [str(f) for f in files if f.suffix == ".py" and not compiled(f).exists()]
print(json.dumps([len(files), plain]))
"""
    count, plain = json.loads(python(tool_host, program))
    assert count > 50
    assert plain == []


def test_a_shell_has_what_a_shell_wants(tool_host: ToolHost) -> None:
    script = (
        'for n in sh ls cat grep sed awk find head tail sort wc tr cut env true sleep; do which "$n" || exit 1; done'
    )
    assert inside(tool_host, "sh", "-c", f"{script} >/dev/null; echo a b | awk '{{print $2}}' | tr b c") == "c"


def test_the_certificate_authorities_are_found(tool_host: ToolHost) -> None:
    assert int(python(tool_host, "import ssl; print(len(ssl.create_default_context().get_ca_certs()))")) > 50


def test_the_user_has_a_name_and_no_privilege(tool_host: ToolHost) -> None:
    assert inside(tool_host, "id") == "uid=1000(tool) gid=1000(tool) groups=1000(tool)"
    assert (
        inside(tool_host, "sh", "-c", "grep -h '^Cap[A-Z]' /proc/self/status | grep -v '0000000000000000' | wc -l")
        == "0"
    )


def test_only_the_scratch_directory_can_be_written(tool_host: ToolHost) -> None:
    program = """
import json, os
found = []
for top, directories, files in os.walk("/"):
    if top.startswith(("/proc", "/sys", "/dev")):
        directories.clear()
        continue
    paths = [top, *(os.path.join(top, file) for file in files)]
    found += [path for path in paths if not os.path.islink(path) and os.access(path, os.W_OK)]
print(json.dumps(found))
"""
    assert json.loads(python(tool_host, program)) == ["/tmp"]


def test_no_program_is_setuid_for_the_kernel_either(tool_host: ToolHost) -> None:
    assert inside(tool_host, "find", "/usr", "/etc", "-perm", "/6000") == ""


# Number on x86-64, and arguments with which the call would succeed or fail for another reason than the filter.
REFUSED = {
    "unshare(NEWUSER)": (272, 0x10000000), "clone(NEWUSER)": (56, 0x10000011), "setns": (308, 0), "mount": (165, 0),
    "ptrace(TRACEME)": (101, 0), "keyctl": (250, 0), "add_key": (248, 0), "bpf": (321, 0), "perf_event_open": (298, 0),
    "userfaultfd": (323, 0), "io_uring_setup": (425, 1), "memfd_create": (319, 0), "mq_open": (240, 0),
    "shmget": (29, 0), "process_vm_readv": (310, 0), "name_to_handle_at": (303, 0), "personality": (135, 0),
    "chroot": (161, 0), "fsopen": (430, 0), "open_tree": (428, 0), "pidfd_getfd": (438, 0),
}  # fmt: skip


def test_dangerous_system_calls_are_refused(tool_host: ToolHost) -> None:
    program = f"""
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
def tried(number, first):
    return ctypes.get_errno() if libc.syscall(number, first, 0, 0, 0, 0) == -1 else 0
print(json.dumps({{name: tried(*call) for name, call in {REFUSED!r}.items()}}))
"""
    if tool_host.podman("info", "--format={{.Host.Arch}}") != "amd64":
        pytest.skip("the numbers are those of x86-64; test_seccomp.py judges the same list by name")
    assert json.loads(python(tool_host, program)) == dict.fromkeys(REFUSED, EPERM)


def test_sockets_that_leave_a_container_are_refused(tool_host: ToolHost) -> None:
    program = """
import json, socket
def tried(family, kind):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return error.errno
    return 0
ordinary = {"unix": (1, 1), "inet": (2, 1), "inet6": (10, 1)}
others = {"netlink": (16, 3), "packet": (17, 3), "alg": (38, 5), "vsock": (40, 1)}
print(json.dumps({name: tried(*pair) for name, pair in {**ordinary, **others}.items()}))
"""
    assert json.loads(python(tool_host, program)) == {
        "unix": 0, "inet": 0, "inet6": 0, "netlink": EPERM, "packet": EPERM, "alg": EPERM, "vsock": EPERM,
    }  # fmt: skip


def test_what_a_tool_needs_still_works(tool_host: ToolHost) -> None:
    program = """
import asyncio, json, multiprocessing.pool, os, shutil, socket, sqlite3, subprocess, tempfile, threading
told = [subprocess.run(["sh", "-c", "echo child"], capture_output=True, text=True).stdout.strip()]
thread = threading.Thread(target=told.append, args=("thread",)); thread.start(); thread.join()
async def child():
    process = await asyncio.create_subprocess_exec("echo", "task", stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()
told.append(asyncio.run(child()))
one, other = socket.socketpair(); one.sendall(b"pair"); told.append(other.recv(4).decode())
with tempfile.TemporaryDirectory() as directory:
    open(f"{directory}/a", "w").write("copy"); shutil.copy2(f"{directory}/a", f"{directory}/b")
    os.replace(f"{directory}/b", f"{directory}/c"); told.append(open(f"{directory}/c").read())
told.append(sqlite3.connect(":memory:").execute("select 'rows'").fetchone()[0])
print(json.dumps(told))
"""
    assert json.loads(python(tool_host, program)) == ["child", "thread", "task", "pair", "copy", "rows"]


def test_a_program_may_end_while_a_thread_runs(tool_host: ToolHost) -> None:
    program = """
import threading, time
for _ in range(8):
    threading.Thread(target=lambda: [time.sleep(0.001) for _ in range(100_000)], daemon=True).start()
print("the end", flush=True)
"""
    assert python(tool_host, program) == "the end"


def test_it_does_not_say_how_its_interpreter_was_built(tool_host: ToolHost) -> None:
    program = """
import json, sysconfig
print(json.dumps([sysconfig.get_path("stdlib"), sysconfig.get_config_var("CONFIG_ARGS")]))
"""
    library, arguments = json.loads(python(tool_host, program))
    assert library.startswith("/usr/lib/python3")
    assert arguments is None


def test_a_granted_folder_may_lie_beside_the_images_own(tool_host: ToolHost, open_dir: Path) -> None:
    (open_dir / "hello").write_text("granted\n")
    for place in ("/etc/nixos", "/usr/share/doc", "/home/me/notes"):
        mount = f"--mount=type=bind,src={open_dir},dst={place},ro=true"
        told = tool_host.podman("run", *FLAGS, mount, tool_host.image_id, "cat", f"{place}/hello")
        assert told == "granted"


def test_the_places_of_the_image_are_all_there(tool_host: ToolHost) -> None:
    assert inside(tool_host, "ls", "-d", *layout.OWN).splitlines() == sorted(layout.OWN)
