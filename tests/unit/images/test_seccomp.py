"""The filter lists what is allowed, and the checked-in file is the one that the list gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from images import seccomp

# What a container without capabilities could still do harm with, or leave its walls by.
REFUSED = [
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "keyctl", "add_key", "request_key", "ptrace", "process_vm_readv",
    "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "syslog", "acct", "kexec_load", "kexec_file_load",
    "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "settimeofday", "clock_settime",
    "sethostname", "setdomainname", "quotactl", "name_to_handle_at", "open_by_handle_at", "iopl", "ioperm",
    "vhangup", "mknod", "mknodat", "personality", "modify_ldt", "fanotify_init", "vmsplice", "migrate_pages",
    "move_pages", "mbind", "set_mempolicy", "socketcall", "memfd_create", "memfd_secret", "mq_open", "mq_unlink",
    "shmget", "shmat", "semget", "msgget", "uselib", "setuid", "setgid", "setgroups", "capset",
    "landlock_create_ruleset", "seccomp", "remap_file_pages", "inotify_init1", "fanotify_mark", "lookup_dcookie",
    "nfsservctl",
]  # fmt: skip


def rules() -> list[dict[str, Any]]:
    profile = seccomp.profile()
    assert isinstance(profile["syscalls"], list)
    return profile["syscalls"]


def test_the_file_is_the_one_that_is_generated() -> None:
    assert seccomp.OUTPUT.read_text(encoding="utf-8") == seccomp.text()
    assert seccomp.main(["--check"]) == 0


def test_a_stale_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "tool-seccomp.json"
    stale.write_text(seccomp.text().replace('"read",', '"read", "ptrace",'))
    monkeypatch.setattr(seccomp, "OUTPUT", stale)
    assert seccomp.main(["--check"]) == 1
    seccomp.main([])
    assert seccomp.main(["--check"]) == 0


def test_what_is_not_listed_is_refused() -> None:
    profile = json.loads(seccomp.text())
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)
    assert all(arch["subArchitectures"] == [] for arch in profile["archMap"])


@pytest.mark.parametrize("name", REFUSED)
def test_no_rule_allows(name: str) -> None:
    assert [rule for rule in rules() if name in rule["names"]] == []


@pytest.mark.parametrize(
    "name", ["openat2", "execve", "renameat2", "fsync", "statx", "close_range", "rseq", "prlimit64"]
)
def test_the_tools_may_call(name: str) -> None:
    assert [rule["action"] for rule in rules() if name in rule["names"]] == ["SCMP_ACT_ALLOW"]


def allows(name: str, **arguments: int) -> bool:
    """Judge a call as the kernel does: one rule that fits is enough. Arguments are named a0, a1, …"""
    fitting = [rule for rule in rules() if name in rule["names"] and rule["action"] == "SCMP_ACT_ALLOW"]
    return any(all(fits(test, arguments[f"a{test['index']}"]) for test in rule.get("args", ())) for rule in fitting)


def fits(test: dict[str, Any], value: int) -> bool:
    if test["op"] == "SCMP_CMP_MASKED_EQ":
        return bool(value & test["value"] == test["valueTwo"])
    assert test["op"] == "SCMP_CMP_EQ"
    return bool(value == test["value"])


@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_a_thread_may_be_made_and_no_namespace(flag: int) -> None:
    thread = 0x3D0F00
    assert allows("clone", a0=thread)
    assert allows("clone", a0=17)  # SIGCHLD: a fork
    assert not allows("clone", a0=thread | flag)


@pytest.mark.parametrize("family", range(64))
def test_sockets_of_three_families(family: int) -> None:
    assert allows("socket", a0=family) == (family in (1, 2, 10))
    assert allows("socketpair", a0=family) == (family == 1)


def test_input_cannot_be_put_into_a_terminal() -> None:
    assert allows("ioctl", a1=0x5401)
    assert not allows("ioctl", a1=0x5412)  # TIOCSTI
    assert not allows("ioctl", a1=0x541C)  # TIOCLINUX


def test_clone3_looks_like_an_old_kernel() -> None:
    assert [(rule["action"], rule["errnoRet"]) for rule in rules() if "clone3" in rule["names"]] == [
        ("SCMP_ACT_ERRNO", 38)
    ]
