"""`bxctl config check`: would every role start with these files? Starts nothing, changes nothing, asks no server."""

from pathlib import Path

from bxcore import config, tomlfile
from bxcore.errors import ConfigError
from bxcore.settings.gatewayd import GatewaydSettings
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
        found: object = config.load(path, settings)
    except ConfigError as error:
        return error.detail
    if isinstance(found, GatewaydSettings) and not found.allow.users:
        line = tomlfile.line_of(tomlfile.read(path).lines(), ("allow", "users"))
        return f"{path}:{line}: allow.users: nobody may speak; write your id there [nobody_allowed]"
    tick = world.screen.paint(world.screen.glyph("✓", "ok"), Ink.GOOD)
    world.screen.line(f"{tick} {path}")
    if isinstance(found, GatewaydSettings) and found.mattermost.in_clear:
        url = safe_block(found.mattermost.url)
        warning = f"  {url}: the bot's token is sent there in the clear; write https:// [mattermost_in_clear]"
        world.screen.say(warning, Ink.WARN, hang=2)
    return None


def _unknown(path: Path) -> str:
    return f"{path}: no role reads a file of this name; there are {', '.join(_names())}"


def _names() -> list[str]:
    return [f"{role}.toml" for role in ROLES]
