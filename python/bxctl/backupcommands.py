"""The command line of `bxctl backup`. Each command imports its own module when it runs, see cli."""

from pathlib import Path

import click

from bxctl.sockets import Home

_pass_home = click.make_pass_decorator(Home)


@click.group()
def backup() -> None:
    """Copy what Boxmaker keeps, check the copy, put it back.

    Plain files and a list of them. Made while everything runs; restored only into an empty place.
    No secret is ever in one.
    """


_backup_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
_backup_json = click.option("--json", is_flag=True, help="JSON in place of words.")


@backup.command("create")
@_backup_directory
@click.option(
    "--etc",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Where grants and role files lie (etc/ below the home if there is one, else /etc/boxmaker).",
)
@_backup_json
@_pass_home
def backup_create(where: Home, *, directory: Path, etc: Path | None, json: bool) -> int:
    """Make a backup in the new directory DIR, while the roles run."""
    from bxctl import backupcreate as verb
    from bxctl import world
    from bxctl.configcheck import default_folder

    return verb.create(world.of_process(where), directory, etc=etc or default_folder(where), json=json)


@backup.command("verify")
@_backup_directory
@_backup_json
@_pass_home
def backup_verify(where: Home, *, directory: Path, json: bool) -> int:
    """Check every file of a backup. Exit code 0: whole and sound; 1: anything else."""
    from bxctl import backupverify as verb
    from bxctl import world

    return verb.verify(world.of_process(where), directory, json=json)


@backup.command("restore")
@_backup_directory
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="HOME", required=True, help="An empty home, where nothing runs."
)
@click.option("--etc", type=click.Path(path_type=Path), metavar="DIR", help="Restore grants and role files there too.")
@click.option("--accept-faults", is_flag=True, help="Restore also what was faulty when the backup was made.")
@_backup_json
@_pass_home
def backup_restore(
    where: Home, *, directory: Path, into: Path, etc: Path | None, accept_faults: bool, json: bool
) -> int:
    """Put a backup that verifies into an empty place, whole or not at all."""
    from bxctl import backuprestore as verb
    from bxctl import world

    wish = verb.Wish(backup=directory, into=into, etc=etc, accept_faults=accept_faults)
    return verb.restore(world.of_process(where), wish, json=json)
