"""Boxmaker's home directory, and where its parts lie in it. Looks at no file below it."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOME = Path("/var/lib/boxmaker")


@dataclass(frozen=True)
class Home:
    """The directory that BOXMAKER_HOME or --home names. `chosen` is false for the default one."""

    path: Path
    chosen: bool

    @property
    def loop_socket(self) -> Path:
        """The socket on which loopd serves bxctl."""
        return self.path / "run" / "loop-owner" / "loop.sock"

    @property
    def admin_socket(self) -> Path:
        """The socket on which brokerd serves bxctl."""
        return self.path / "run" / "admin" / "admin.sock"

    @property
    def gateway_socket(self) -> Path:
        """The socket on which gatewayd serves bxctl."""
        return self.path / "run" / "gateway-owner" / "gateway.sock"

    @property
    def audit(self) -> Path:
        """Brokerd's audit log, one file a day."""
        return self.path / "audit"

    @property
    def audit_head(self) -> Path:
        """The audit log's head as brokerd keeps it outside of the log (bxcore.audithead)."""
        return self.path / "broker" / "audit-head"

    @property
    def history(self) -> Path:
        """What the owner typed in `bxctl chat`: in a home of the owner's, else among the owner's own files."""
        return (self.path if _is_ours(self.path) else _own_state()) / "bxctl-history"

    @property
    def settings(self) -> Path:
        """Where a checkout keeps its <role>.toml files; an installed system has /etc/boxmaker."""
        return self.path / "etc"

    @property
    def in_checkout(self) -> bool:
        """Whether this is the home that `make chat` starts everything in."""
        return self.path.absolute() == _ROOT / ".state" and (_ROOT / "deploy" / "local" / "chat.py").is_file()

    @property
    def starts(self) -> str | None:
        """What starts the roles of this home, where a launcher does; None for an installed system."""
        if self.in_checkout:
            return "make chat"
        try:
            return "make appliance" if self.chosen and (self.path.parent / "etc" / "roles.json").is_file() else None
        except OSError:
            return None  # closed to us

    def command(self, rest: str) -> str:
        """Return the command line that the owner can paste to run `bxctl rest` with this home, from any directory."""
        words = [_program()]
        # A checkout's own bxctl looks into the checkout's home by itself.
        if self.chosen and not (words[0] == str(_CHECKOUT_PROGRAM) and self.in_checkout):
            words += ["--home", str(self.path.absolute())]
        return f"{shlex.join(words)} {rest}"


def _is_ours(directory: Path) -> bool:
    """Say whether files may be put there. An appliance's home is root's."""
    try:
        return directory.stat().st_uid == os.geteuid()
    except OSError:
        return True  # it is not there; what is put there says so


def _own_state() -> Path:
    # As the XDG base directory specification has it: a relative path counts as none.
    chosen = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".local" / "state") / "boxmaker"


_ROOT = Path(__file__).resolve().parents[2]
_CHECKOUT_PROGRAM = _ROOT / ".state" / "venv" / "bin" / "bxctl"


def _program() -> str:
    """Return what runs bxctl: its name where the shell would find the same one, else where it stands."""
    beside = Path(sys.executable).parent / "bxctl"  # not resolved: an environment's interpreter is a link
    if not os.access(beside, os.X_OK):
        return "bxctl"
    found = shutil.which("bxctl")
    return "bxctl" if found is not None and beside.samefile(found) else str(beside)


def home(chosen: Path | None) -> Home:
    """Return the home that was chosen, or the default one."""
    return Home(path=chosen or DEFAULT_HOME, chosen=chosen is not None)
