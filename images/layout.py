"""Where things lie in the images: tables, and what an image of these has. Pure.

brokerd keeps a list of its own with the places that no mount of a tool's may cover (brokerd/mounts.py), since it
cannot import this file; a test compares the two with OWN. README.md explains each choice.
"""

from images.table import Image

PROGRAMS = "usr/bin"
LIBRARY = "usr/lib"
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
TIME_ZONES = "usr/share/zoneinfo"

OWN = (
    "/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl",
    "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab",
    "/proc", "/sys", "/dev", "/run", "/tmp",
)  # fmt: skip
"""The tool image's own places. A mount at, above or below one of them would replace a part of the image."""

LINKS = {
    "bin": "usr/bin",
    "sbin": "usr/bin",
    "lib": "usr/lib",
    # The loader's path is fixed in every program; each machine's C library looks in another of these.
    "lib64": "usr/lib",
    "usr/sbin": "bin",
    "usr/lib64": "lib",
    "etc/mtab": "/proc/mounts",
}
"""Path in an image -> what it points to."""

SHELL_LINKS = {f"{PROGRAMS}/python": "python3"}
"""The same, where a shell is: what people type."""

MOUNT_POINTS = ("proc", "sys", "dev", "dev/shm", "run")
"""Empty directories that the container runtime mounts over. Podman would make them, each time."""

SCRATCH = "tmp"
"""Where a call gets its small tmpfs. The only path with a mode for everybody: runc gives the tmpfs the mode of the
directory below it, whatever its options say. Where no tmpfs is mounted it is as read-only as the rest."""

MOUNT_FILES = ("etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv")
"""The same, as empty files."""

TEXTS = {
    "etc/passwd": "root:x:0:0:root:/:\nnobody:x:65534:65534:nobody:/:\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
"""Small files of the images' own. `nobody` keeps its name: Podman leaves that one out when it counts ids."""

SHELL_TEXTS = {
    "etc/passwd": (
        "root:x:0:0:root:/:/bin/sh\ntool:x:1000:1000:tool:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    ),
    "etc/group": "root:x:0:\ntool:x:1000:\nnogroup:x:65534:\n",
}
"""What is different where a shell is."""

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

USER, SHELL_USER = "65534:65534", "1000:1000"
"""Who a container runs as unless whoever starts it says another: nobody, and the user of a shell."""


def links(image: Image) -> dict[str, str]:
    return {**LINKS, **(SHELL_LINKS | dict.fromkeys(_applets(), "busybox") if image.shell else {})}


def texts(image: Image) -> dict[str, str]:
    return {**TEXTS, **(SHELL_TEXTS if image.shell else {})}


def user(image: Image) -> str:
    return SHELL_USER if image.shell else USER


def command(image: Image) -> tuple[str, ...]:
    """Return what a container runs by itself. -S: no site-packages to look for; ours lie in the library itself."""
    return (f"/{PROGRAMS}/python3", "-I", "-S", "-m", image.program)


def environment(image: Image) -> dict[str, str]:
    return {
        "HOME": f"/{SCRATCH}" if image.shell else "/",
        "LANG": "C.UTF-8",
        "PATH": f"/{PROGRAMS}",
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"SSL_CERT_FILE": f"/{CA_BUNDLE}"} if image.certificates else {}),
    }


def _applets() -> list[str]:
    return [f"{PROGRAMS}/{name}" for name in APPLETS]
