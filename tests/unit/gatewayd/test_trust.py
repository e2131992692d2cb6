"""Who is believed to be the server."""

import os
import ssl
from pathlib import Path

import pytest

from bxcore.errors import ConfigError
from gatewayd import trust
from tests.fakes.web_server import CERTIFICATES

CA_FILE = CERTIFICATES / "ca.pem"


def names(context: ssl.SSLContext) -> set[str]:
    return {str(certificate["subject"]) for certificate in context.get_ca_certs()}


def test_ca_file_is_believed_beside_the_hosts_store() -> None:
    assert names(trust.context(CA_FILE)) - names(trust.context(None)) == {
        "((('commonName', 'Boxmaker test authority'),),)"
    }
    assert names(trust.context(None)) <= names(trust.context(CA_FILE))


def test_the_hosts_store_is_what_openssl_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what a Python package brings along: with another store of the host, there is nothing else."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CA_FILE))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    trust.context.cache_clear()
    try:
        assert names(trust.context(None)) == {"((('commonName', 'Boxmaker test authority'),),)"}
    finally:
        trust.context.cache_clear()


def test_chain_and_name_are_verified() -> None:
    context = trust.context(CA_FILE)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize(
    ("host", "spoken"),
    [
        (ssl.TLSVersion.MINIMUM_SUPPORTED, ssl.TLSVersion.TLSv1_2),
        (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
    ],
    ids=lambda version: version.name,
)
def test_less_than_tls_1_2_is_never_spoken(
    host: ssl.TLSVersion, spoken: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the host's OpenSSL would allow; where it asks for more, that holds."""
    of_the_host = ssl.create_default_context()
    of_the_host.minimum_version = host
    monkeypatch.setattr(trust, "_of_the_host", lambda: of_the_host)
    trust.context.cache_clear()
    try:
        assert trust.context(None).minimum_version is spoken
    finally:
        trust.context.cache_clear()


def test_no_keys_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    trust.context.cache_clear()
    assert trust.context(None).keylog_filename is None
    assert not (tmp_path / "keys").exists()


def test_it_verifies_as_python_does_by_default() -> None:
    made, usual = trust.context(None), ssl.create_default_context()
    assert (made.verify_flags, made.options) == (usual.verify_flags, usual.options)
    assert made.get_ciphers() == usual.get_ciphers()


def test_a_host_may_believe_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `ca_file` alone counts."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    trust.context.cache_clear()
    try:
        assert names(trust.context(CA_FILE)) == {"((('commonName', 'Boxmaker test authority'),),)"}
    finally:
        trust.context.cache_clear()


def test_a_store_of_the_host_that_is_no_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_pipe(tmp_path / "store")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "store"))
    trust.context.cache_clear()
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE.*not a regular file.*\[ca_file_unfit\]$"):
        trust.context(None)


def test_a_process_reads_the_store_once() -> None:
    assert trust.context(CA_FILE) is trust.context(CA_FILE)


def missing(path: Path) -> None:
    """Nothing is there."""


def empty(path: Path) -> None:
    path.touch()


def a_key(path: Path) -> None:
    text = (CERTIFICATES / "server.pem").read_text()
    path.write_text(text[: text.index("-----BEGIN CERTIFICATE")])


def a_broken_one(path: Path) -> None:
    path.write_text(CA_FILE.read_text().replace("M", "N"))


def a_directory(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


UNFIT = [missing, empty, a_key, a_broken_one, a_directory, a_pipe]


@pytest.mark.parametrize("make", UNFIT, ids=lambda make: make.__name__)
def test_an_unfit_ca_file_is_a_fault_of_the_settings(tmp_path: Path, make: object) -> None:
    path = tmp_path / "ca.pem"
    assert callable(make)
    make(path)
    with pytest.raises(ConfigError, match=r"ca\.pem.*\[ca_file_unfit\]$"):
        trust.context(path)
