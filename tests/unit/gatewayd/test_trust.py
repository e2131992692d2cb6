"""Who is believed to be the server."""

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
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_no_keys_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    trust.context.cache_clear()
    assert trust.context(None).keylog_filename is None


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


@pytest.mark.parametrize("make", [missing, empty, a_key, a_broken_one, a_directory], ids=lambda make: make.__name__)
def test_an_unfit_ca_file_is_a_fault_of_the_settings(tmp_path: Path, make: object) -> None:
    path = tmp_path / "ca.pem"
    assert callable(make)
    make(path)
    with pytest.raises(ConfigError, match=r"ca\.pem.*\[ca_file_unfit\]$"):
        trust.context(path)
