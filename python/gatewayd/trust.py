"""Which certificates are believed: those of the host, and those of `ca_file`. Never certifi's.

The host's store is where an administrator's own authority is installed; a bundle inside a Python package would not
know it, and would go on believing what the host no longer does. Nor is less than TLS 1.2 spoken, whatever the host's
OpenSSL allows. Reads: the host's store and `ca_file`, once a process. Threads: any; a context is shared by all
connections.
"""

import functools
import ssl
from pathlib import Path

from bxcore.errors import ConfigError


class CaFileUnfit(ConfigError):
    """`[mattermost] ca_file` is not there, cannot be read, or holds no certificate."""

    code = "ca_file_unfit"


@functools.lru_cache(maxsize=2)  # a context holds the host's whole store: about 2 MB, and each thread has connections
def context(ca_file: Path | None) -> ssl.SSLContext:
    """Return how the server is verified: its chain and its name. Raises CaFileUnfit."""
    made = ssl.create_default_context()
    # Some systems build Python to leave this to OpenSSL, Debian 13 for one. A host that asks for more is left alone.
    made.minimum_version = max(made.minimum_version, ssl.TLSVersion.TLSv1_2)
    # Python would write the keys of every connection to the file that SSLKEYLOGFILE names, and the token is inside.
    made.keylog_filename = None  # type: ignore[assignment]  # which is how to take it back
    if ca_file is not None:
        _believe(made, ca_file)
    return made


def _believe(made: ssl.SSLContext, ca_file: Path) -> None:
    try:
        made.load_verify_locations(cafile=ca_file)
    except ssl.SSLError:
        raise CaFileUnfit(f"[mattermost] ca_file: expected certificates in PEM, found none in {ca_file}") from None
    except OSError as fault:
        raise CaFileUnfit(f"[mattermost] ca_file: cannot read {ca_file} ({fault.strerror})") from None
