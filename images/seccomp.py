"""Write images/tool-seccomp.json: the system calls that a tool may make. Everything else is EPERM.

    images/seccomp.py [--check]

A list of what is allowed, by what it is for, so that a reader can judge it without knowing what is missing.
Made for a container without capabilities. x86-64 and aarch64; names that one of them lacks mean nothing there,
and the other calling conventions of x86-64 (32-bit, x32) are refused by the kernel's own check.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

OUTPUT = Path(__file__).with_name("tool-seccomp.json")

FILES = """
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
    fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fstat
    fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr lchown lgetxattr link linkat listxattr
    llistxattr lseek lstat mkdir mkdirat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev
    pwritev2 read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs
    statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes
    write writev
"""

MEMORY = "brk madvise mincore mmap mprotect mremap msync munmap"

PROCESSES = """
    arch_prctl execve execveat exit exit_group fork getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid
    getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid capget kill pidfd_open
    pidfd_send_signal prctl prlimit64 rseq sched_getaffinity sched_getattr sched_getparam sched_getscheduler
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_yield set_robust_list
    get_robust_list set_tid_address setpgid setpriority setrlimit setsid sysinfo tgkill times tkill uname vfork
    wait4 waitid
"""

SIGNALS = """
    alarm pause restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
    rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack signalfd signalfd4
"""

TIME = """
    clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
    timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""

WAITING = """
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex futex_requeue
    futex_wait futex_waitv futex_wake membarrier pipe pipe2 poll ppoll pselect6 select
"""

# Which networks there are is the container's business; which families, the table below.
SOCKETS = """
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg
    sendmsg sendto setsockopt shutdown
"""

RANDOM = "getrandom"

ALLOWED = (FILES, MEMORY, PROCESSES, SIGNALS, TIME, WAITING, SOCKETS, RANDOM)

FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
"""Of sockets. Not AF_VSOCK, which leaves a container without a network, nor AF_NETLINK, AF_ALG, AF_PACKET."""

TERMINAL = {
    "TCGETS": 0x5401, "TIOCGPGRP": 0x540F, "TIOCGWINSZ": 0x5413,
    "FIONREAD": 0x541B, "FIONBIO": 0x5421, "FIONCLEX": 0x5450, "FIOCLEX": 0x5451,
}  # fmt: skip
"""What ioctl may ask: is this a terminal, how wide, how much is there to read, and flags of descriptors."""

NEW_NAMESPACES = 0x7E02_0000
"""Every CLONE_NEW* flag that `clone` knows (NS, CGROUP, UTS, IPC, USER, PID, NET); CLONE_NEWTIME is clone3's."""

_EPERM, _ENOSYS = 1, 38
_ALLOW = "SCMP_ACT_ALLOW"


def profile() -> dict[str, object]:
    """Return the profile as container runtimes read it."""
    names = sorted({name for group in ALLOWED for name in group.split()})
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [
            {"names": names, "action": _ALLOW},
            *(_when("socket", 0, value, name) for name, value in FAMILIES.items()),
            _when("socketpair", 0, FAMILIES["AF_UNIX"], "AF_UNIX"),
            *(_when("ioctl", 1, value, name) for name, value in TERMINAL.items()),
            {
                "names": ["clone"],
                "action": _ALLOW,
                "args": [{"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
                "comment": "no new namespace",
            },
            # Its flags lie in memory, where a filter cannot look. The C library takes this for an old kernel.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        ],
    }


def _when(name: str, index: int, value: int, comment: str) -> dict[str, object]:
    equal = {"index": index, "value": value, "op": "SCMP_CMP_EQ"}
    return {"names": [name], "action": _ALLOW, "args": [equal], "comment": comment}


def text() -> str:
    return json.dumps(profile(), indent=1) + "\n"


def main(argv: Sequence[str]) -> int:
    """Write the file, or with --check say whether it is the one that would be written."""
    if "--check" not in argv:
        OUTPUT.write_text(text(), encoding="utf-8")
        return 0
    if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text():
        return 0
    print(f"{OUTPUT.name} is not what seccomp.py writes: make generate", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
