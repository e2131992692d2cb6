"""Which certificates are believed: those of the host, and those of `ca_file`. Never certifi's.

The host's store is where an administrator's own authority is installed; a bundle inside a Python package would not
know it, and would go on believing what the host no longer does. Nor is less than TLS 1.2 spoken, whatever the host's
OpenSSL allows. Reads: the host's store and `ca_file`, once a process. Threads: any; a context is shared by all
connections.
"""

import functools
import os
import ssl
import stat
import sys
from pathlib import Path

from bxcore.errors import ConfigError


class CaFileUnfit(ConfigError):
    """`[mattermost] ca_file` is not there, cannot be read, or holds no certificate; or the host's store is no file."""

    code = "ca_file_unfit"


@functools.lru_cache(maxsize=2)  # a context holds the host's whole store: about 2 MB, and each thread has connections
def context(ca_file: Path | None) -> ssl.SSLContext:
    """Return how the server is verified: its chain and its name. Raises CaFileUnfit."""
    made = _of_the_host()
    # Some systems build Python to leave this to OpenSSL, Debian 13 for one. A host that asks for more is left alone.
    made.minimum_version = max(made.minimum_version, ssl.TLSVersion.TLSv1_2)
    if ca_file is not None:
        _believe(made, ca_file)
    return made


def _of_the_host() -> ssl.SSLContext:
    """As ssl.create_default_context, which would write the keys of all connections where SSLKEYLOGFILE says."""
    paths = ssl.get_default_verify_paths()
    store = Path(os.environ.get(paths.openssl_cafile_env, paths.openssl_cafile))
    if store != Path(os.devnull) and _is_no_file(store):  # a pipe is read until somebody writes, and a device for ever
        raise CaFileUnfit(f"{paths.openssl_cafile_env}: {store} is not a regular file")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which verifies the chain and the name
    made.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if sys.version_info >= (3, 13):
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return made


def _is_no_file(path: Path) -> bool:
    """Say whether something else is there."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False  # nothing is there, or it cannot be read: whoever opens it says so


def _believe(made: ssl.SSLContext, ca_file: Path) -> None:
    if _is_no_file(ca_file):
        raise CaFileUnfit(f"[mattermost] ca_file: {ca_file} is not a regular file")
    try:
        made.load_verify_locations(cafile=ca_file)
    except ssl.SSLError:
        raise CaFileUnfit(f"[mattermost] ca_file: expected certificates in PEM, found none in {ca_file}") from None
    except OSError as fault:
        raise CaFileUnfit(f"[mattermost] ca_file: cannot read {ca_file} ({fault.strerror})") from None
