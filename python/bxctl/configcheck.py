"""`bxctl config check`: would every role start with these files? Starts nothing and changes nothing."""

from pathlib import Path

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.settings.roles import OPTIONAL, ROLES
from bxctl.exits import Exit
from bxctl.render import Ink, safe_block
from bxctl.sockets import Home
from bxctl.world import World

SYSTEM_SETTINGS = Path("/etc/boxmaker")


class NoSettings(ConfigError):
    """There is no directory with configuration files."""

    code = "config"


def run(world: World, *, directory: Path | None) -> int:
    """Check each <role>.toml in `directory` and say of each whether it can be read."""
    folder = directory or default_folder(world.home)
    if not folder.is_dir():
        raise NoSettings(f"{folder} is not a directory; it should hold {', '.join(_names())}")
    wanted = {role: cls for role, cls in ROLES.items() if role not in OPTIONAL or _is_there(folder / f"{role}.toml")}
    faults = [fault for role, settings in wanted.items() if (fault := _check(world, folder, role, settings))]
    faults += [_unknown(path) for path in sorted(folder.glob("*.toml")) if path.stem not in ROLES]
    for fault in faults:
        world.screen.line(safe_block(fault))
    if faults:
        world.screen.line(f"{len(faults)} of these files would stop a start. [{NoSettings.code}]", Ink.BAD)
    return Exit.FAILED if faults else Exit.OK


def default_folder(home: Home) -> Path:
    """Return where the files lie: in the home of a checkout, beside that of `make appliance`, else in /etc/boxmaker."""
    if home.settings.is_dir():
        return home.settings
    beside = home.path.parent / "etc"
    return beside if home.chosen and (beside / "roles.json").is_file() else SYSTEM_SETTINGS


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _check(world: World, folder: Path, role: str, settings: type) -> str | None:
    path = folder / f"{role}.toml"
    try:
        config.load(path, settings)
    except ConfigError as error:
        return error.detail
    tick = world.screen.paint(world.screen.glyph("✓", "ok"), Ink.GOOD)
    world.screen.line(f"{tick} {path}")
    return None


def _unknown(path: Path) -> str:
    return f"{path}: no role reads a file of this name; there are {', '.join(_names())}"


def _names() -> list[str]:
    return [f"{role}.toml" for role in ROLES]
