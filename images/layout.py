"""Where things lie in the tool image, and what of the host goes into it: tables, and nothing else.

brokerd keeps a list of its own with the places that no mount may cover (brokerd/mounts.py), since it
cannot import this file; a test compares the two with OWN. README.md explains each choice.
"""

NAME = "localhost/boxmaker/tools"

PROGRAMS = "usr/bin"
LIBRARY = "usr/lib"
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"

OWN = (
    "/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl",
    "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab",
    "/proc", "/sys", "/dev", "/run", "/tmp",
)  # fmt: skip
"""The image's own places. A mount at, above or below one of them would replace a part of the image."""

LINKS = {
    "bin": "usr/bin",
    "sbin": "usr/bin",
    "lib": "usr/lib",
    # The loader's path is fixed in every program; each machine's C library looks in another of these.
    "lib64": "usr/lib",
    "usr/sbin": "bin",
    "usr/lib64": "lib",
    "etc/mtab": "/proc/mounts",
    f"{PROGRAMS}/python": "python3",
}
"""Path in the image -> what it points to."""

MOUNT_POINTS = ("proc", "sys", "dev", "dev/shm", "run")
"""Empty directories that the container runtime mounts over. Podman would make them, each time."""

SCRATCH = "tmp"
"""Where a call gets its small tmpfs. The only path with a mode for everybody: runc gives the tmpfs the mode of the
directory below it, whatever its options say. Where no tmpfs is mounted it is as read-only as the rest."""

MOUNT_FILES = ("etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv")
"""The same, as empty files."""

TEXTS = {
    "etc/passwd": (
        "root:x:0:0:root:/:/bin/sh\ntool:x:1000:1000:tool:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    ),
    "etc/group": "root:x:0:\ntool:x:1000:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
"""Small files of the image's own. `nobody` keeps its name: Podman leaves that one out when it counts ids."""

APPLETS = (
    "[", "ash", "awk", "base64", "basename", "bc", "bunzip2", "bzcat", "bzip2", "cal", "cat", "chmod", "clear",
    "cmp", "cp", "cpio", "cut", "date", "dc", "dd", "df", "diff", "dirname", "dos2unix", "du", "echo", "ed",
    "egrep", "env", "expand", "expr", "factor", "false", "fgrep", "find", "fold", "free", "getopt", "grep",
    "groups", "gunzip", "gzip", "head", "hexdump", "id", "kill", "killall", "less", "link", "ln", "ls", "md5sum",
    "mkdir", "mktemp", "more", "mv", "nl", "nproc", "od", "paste", "patch", "pidof", "printf", "ps", "pwd",
    "readlink", "realpath", "rev", "rm", "rmdir", "sed", "seq", "sh", "sha1sum", "sha256sum", "sha512sum", "shuf",
    "sleep", "sort", "stat", "strings", "sync", "tac", "tail", "tar", "tee", "test", "time", "timeout", "touch",
    "tr", "true", "truncate", "uname", "unexpand", "uniq", "unix2dos", "unlink", "unxz", "unzip", "uudecode",
    "uuencode", "vi", "wc", "which", "whoami", "xargs", "xxd", "xz", "xzcat", "yes", "zcat",
)  # fmt: skip
"""The names under which busybox answers. What is left out either asks for a privilege or opens a network."""

COMMAND = ("/usr/bin/python3", "-I", "-S", "-m", "toolkit")
"""What a container of this image runs. -S: no site-packages to look for; ours lie in the library itself."""

ENVIRONMENT = {
    "HOME": "/tmp",  # a mount point in the image
    "LANG": "C.UTF-8",
    "PATH": f"/{PROGRAMS}",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SSL_CERT_FILE": f"/{CA_BUNDLE}",
}

USER = "1000:1000"

LEFT_OUT_DIRECTORIES = frozenset({
    "__pycache__", "__phello__", "curses", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3",
    "pydoc_data", "site-packages", "test", "tests", "tkinter", "turtledemo", "venv",
})  # fmt: skip
"""Of the standard library: tests, programs with windows, and what installs packages."""

LEFT_OUT_MODULES = frozenset(
    {"__hello__", "_distutils_system_mod", "antigravity", "sitecustomize", "this", "turtle", "usercustomize"}
)

LEFT_OUT_EXTENSIONS = (
    "_ctypes_test", "_curses", "_dbm", "_gdbm", "_test", "_tkinter", "_xx", "nis", "ossaudiodev", "readline", "xx",
)  # fmt: skip
"""Beginnings of extension modules that are tests, or that would bring a library along for nothing."""
