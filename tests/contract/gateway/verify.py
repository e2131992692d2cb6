"""`make verify-mattermost`: runs this directory's suite against a real server, named or started here.

MATTERMOST_URL            a running server that may be thrown away: the suite makes a team, users, channels and bots
MATTERMOST_ADMIN          login of its administrator; without it the server must be fresh, and its first account is made
MATTERMOST_PASSWORD_FILE  where that one's password stands
MATTERMOST_BINARY         instead of an address: the server program, beside its i18n/ and templates/
MATTERMOST_DATABASE       for the program: postgres://… of PostgreSQL 14 or newer, an empty database that its role owns

Exit codes: pytest's; 2 where neither was named.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HELP = """There is no Mattermost server in the package indexes that this checkout reaches, so name one of yours:

  make verify-mattermost MATTERMOST_URL=http://127.0.0.1:8065
  make verify-mattermost MATTERMOST_BINARY=/opt/mattermost/bin/mattermost MATTERMOST_DATABASE=postgres://mm:mm@127.0.0.1/mm

It makes a team, users, channels and bots there: take one that you can throw away. docs/mattermost.md has more.
"""


def main() -> int:
    url, binary = os.environ.get("MATTERMOST_URL"), os.environ.get("MATTERMOST_BINARY")
    if url:
        return _suite(url)
    if not binary:
        sys.stderr.write(HELP)
        return 2
    database = os.environ.get("MATTERMOST_DATABASE")
    if not database:
        sys.stderr.write(f"MATTERMOST_DATABASE is missing: the server keeps everything in PostgreSQL.\n\n{HELP}")
        return 2
    with _server(Path(binary).resolve(), database) as started:
        return _suite(started)


def _suite(url: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", str(HERE.relative_to(ROOT))]
    return subprocess.run(command, env={**os.environ, "MATTERMOST_URL": url}, cwd=ROOT, check=False).returncode


@contextmanager
def _server(binary: Path, database: str) -> Iterator[str]:
    """Start the server with everything off that would leave this machine; the suite waits until it answers."""
    with tempfile.TemporaryDirectory(prefix="bxmm") as name:
        folder = Path(name)
        address = f"127.0.0.1:{_free_port()}"
        # Its texts and templates lie beside the program.
        process = subprocess.Popen(
            [str(binary)], env={**os.environ, **_settings(folder, address, database)}, cwd=binary.parents[1]
        )
        try:
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait()


def _settings(folder: Path, address: str, database: str) -> Mapping[str, str]:
    return {
        "MM_CONFIG": str(folder / "config.json"),
        "MM_SQLSETTINGS_DRIVERNAME": "postgres",
        "MM_SQLSETTINGS_DATASOURCE": database,
        "MM_SERVICESETTINGS_LISTENADDRESS": address,
        "MM_SERVICESETTINGS_SITEURL": f"http://{address}",
        "MM_SERVICESETTINGS_ENABLEBOTACCOUNTCREATION": "true",
        "MM_SERVICESETTINGS_WEBSERVERMODE": "disabled",
        "MM_SERVICESETTINGS_ENABLESECURITYFIXALERT": "false",
        "MM_LOGSETTINGS_ENABLEDIAGNOSTICS": "false",
        "MM_LOGSETTINGS_ENABLEFILE": "false",
        "MM_LOGSETTINGS_CONSOLELEVEL": "ERROR",
        "MM_ANNOUNCEMENTSETTINGS_ADMINNOTICESENABLED": "false",
        "MM_ANNOUNCEMENTSETTINGS_USERNOTICESENABLED": "false",
        "MM_PLUGINSETTINGS_ENABLE": "false",
        "MM_PLUGINSETTINGS_ENABLEMARKETPLACE": "false",
        "MM_EMAILSETTINGS_SENDEMAILNOTIFICATIONS": "false",
        "MM_EMAILSETTINGS_SENDPUSHNOTIFICATIONS": "false",
        "MM_FILESETTINGS_DIRECTORY": str(folder / "data"),
        "MM_TEAMSETTINGS_ENABLEOPENSERVER": "true",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
