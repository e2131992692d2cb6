"""What the installer does, as values that can be shown before they are carried out. Starts programs; decides nothing.

Below a staging root files are written, and of the commands only those that can work on such a tree are run.
"""

import compileall
import os
import py_compile
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deploy.local.refusal import Refusal

PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHOWN_LINES = 5


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user that commands run as. Its manager is systemd's, where it lingers."""

    name: str
    uid: int
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """All that such a command may know of an environment."""
        runtime = f"/run/user/{self.uid}"
        return {
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
            "HOME": self.home,
            "LANG": "C.UTF-8",
            "PATH": PROGRAMS,
            "XDG_RUNTIME_DIR": runtime,
        }


class Step(Protocol):
    """One thing to do."""

    def needed(self, root: Path) -> bool:
        """Say whether there is anything to do."""

    def told(self) -> str:
        """Return it as a line for a person."""

    def do(self, root: Path) -> None:
        """Do it. Raises Refusal with the words of what failed."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """A file, whole or not at all; root's, or of `uid`. `gid`: who else may read it, where the mode says so."""

    path: str
    content: bytes
    mode: int = 0o644
    gid: int = 0
    uid: int = 0

    def needed(self, root: Path) -> bool:
        there = below(root, self.path)
        return there.is_symlink() or not there.is_file() or not self._is(there)

    def _is(self, there: Path) -> bool:
        status = there.stat()
        owned = os.geteuid() != 0 or (status.st_uid, status.st_gid) == (self.uid, self.gid)
        return owned and stat.S_IMODE(status.st_mode) == self.mode and there.read_bytes() == self.content

    def told(self) -> str:
        return f"write {self.path} (mode {self.mode:04o})"

    def do(self, root: Path) -> None:
        path = below(root, self.path)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        # Closed until it is whole and its owner's: it may be a secret.
        unfinished.touch(mode=0o600, exist_ok=False)
        unfinished.write_bytes(self.content)
        if os.geteuid() == 0:
            os.chown(unfinished, self.uid, self.gid)
        unfinished.chmod(self.mode)
        unfinished.replace(path)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A directory of Python's modules, replaced as a whole; their compiled form lies beside them."""

    path: str
    files: Mapping[str, bytes]

    def needed(self, root: Path) -> bool:
        top = below(root, self.path)
        there = {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if _is_source(path)}
        return there != self.files

    def told(self) -> str:
        return f"write {len(self.files)} files below {self.path}"

    def do(self, root: Path) -> None:
        top = below(root, self.path)
        unfinished = top.with_name(f".{top.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for name, content in self.files.items():
            Write(path=f"/{name}", content=content).do(unfinished)
        checked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(unfinished, quiet=2, invalidation_mode=checked, stripdir=str(unfinished))
        # Last: till here the one before it can be used.
        shutil.rmtree(top, ignore_errors=True)
        unfinished.replace(top)


@dataclass(frozen=True, kw_only=True)
class Remove:
    """A file, or a directory with all that is in it; of a link the link alone."""

    path: str

    def needed(self, root: Path) -> bool:
        return os.path.lexists(below(root, self.path))

    def told(self) -> str:
        return f"remove {self.path}"

    def do(self, root: Path) -> None:
        path = below(root, self.path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        parent = path.parent
        # What a unit and its drop-ins leave empty was made for them.
        while _is_of_a_unit(parent) and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent


@dataclass(frozen=True, kw_only=True)
class Run:
    """A command. `account`: who runs it, else root. `staged`: the option with which it works on a staging tree."""

    argv: Sequence[str]
    account: Account | None = None
    staged: str | None = None
    stdin: Path | None = None
    may_fail: bool = False

    def needed(self, root: Path) -> bool:
        return root == Path("/") or self.staged is not None

    def told(self) -> str:
        line = shlex.join(self.argv)
        who = f" (as {self.account.name})" if self.account else ""
        return f"run {line}{f' <{self.stdin.name}' if self.stdin else ''}{who}"

    def do(self, root: Path) -> None:
        argv = list(self.argv)
        if root != Path("/") and self.staged is not None:
            argv.insert(1, f"{self.staged}={root}")
        ended = self._run(argv)
        if ended.returncode != 0 and not self.may_fail:
            said = "\n".join(ended.stderr.strip().splitlines()[-_SHOWN_LINES:])
            raise Refusal(f"{self.told()}: it failed with exit code {ended.returncode}\n{said}")

    def _run(self, argv: list[str]) -> "subprocess.CompletedProcess[str]":
        environment = {"LANG": "C.UTF-8", "PATH": PROGRAMS}
        if self.account:
            number = str(self.account.uid)
            argv = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--", *argv]
            environment = self.account.environment
        with (self.stdin or Path(os.devnull)).open("rb") as stdin:
            return subprocess.run(
                argv,
                stdin=stdin,
                env=environment,
                cwd="/",
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )


@dataclass(frozen=True, kw_only=True)
class Delegated:
    """A user's manager may give memory and processes to its units, or a role's limits would not hold."""

    account: Account

    def needed(self, root: Path) -> bool:
        return root == Path("/")

    def told(self) -> str:
        return f"make sure that {self.account.name} may limit memory and processes of its units"

    def do(self, root: Path) -> None:
        slice_ = below(root, f"/sys/fs/cgroup/user.slice/user-{self.account.uid}.slice")
        file = slice_ / f"user@{self.account.uid}.service" / "cgroup.controllers"
        found = file.read_text(encoding="utf-8").split() if file.exists() else []
        if missing := sorted({"memory", "pids"} - set(found)):
            raise Refusal(
                f"systemd gives {' and '.join(missing)} to no unit of {self.account.name}, so limits would not hold: "
                "give user@.service a drop-in with [Service] Delegate=memory pids, and run this again"
            )


def below(root: Path, path: str) -> Path:
    """Return where a path of the host lies below the root."""
    return root / path.removeprefix("/")


def _is_of_a_unit(directory: Path) -> bool:
    return directory.name.endswith((".container.d", ".service.d")) or directory.parent.name == "users"


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
