"""Boxmaker's home directory, and where its parts lie in it. Pure: looks at no file."""

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
    def audit(self) -> Path:
        """Brokerd's audit log, one file a day."""
        return self.path / "audit"

    @property
    def audit_head(self) -> Path:
        """The audit log's head as brokerd keeps it outside of the log (bxcore.audithead)."""
        return self.path / "broker" / "audit-head"

    @property
    def history(self) -> Path:
        """What the owner typed in `bxctl chat`."""
        return self.path / "bxctl-history"

    @property
    def settings(self) -> Path:
        """Where a checkout keeps its <role>.toml files; an installed system has /etc/boxmaker."""
        return self.path / "etc"

    def command(self, rest: str) -> str:
        """Return the command line that the owner can type to run `bxctl rest` with this home."""
        return f"bxctl --home {self.path} {rest}" if self.chosen else f"bxctl {rest}"


def home(chosen: Path | None) -> Home:
    """Return the home that was chosen, or the default one."""
    return Home(path=chosen or DEFAULT_HOME, chosen=chosen is not None)
