"""INV-1 and INV-11: a secret is found where the owner put it, and shows in nothing but what asks for it by name."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from bxcore import config
from bxcore.errors import EXIT_CONFIG, ConfigError
from bxcore.secrets import MOST_BYTES, Secret, SecretMissing, SecretRefused, SecretStore
from bxcore.settings import secrets as settings
from bxcore.settings.secrets import Backend, SecretSource, Sources

VALUE = "c4n4ry-hunter2"
NAME = "mattermost-token"


@attrs.frozen(kw_only=True)
class Settings:
    secrets: Sources = attrs.field(factory=dict, validator=settings.check_names)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return put(tmp_path / NAME, VALUE.encode())


def put(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def in_file(path: Path) -> SecretStore:
    return SecretStore({NAME: SecretSource(backend=Backend.FILE, path=path)}, environment={})


def in_environment(value: str) -> SecretStore:
    source = SecretSource(backend=Backend.ENVIRONMENT, variable="BX_TOKEN")
    return SecretStore({NAME: source}, environment={"BX_TOKEN": value})


def in_credentials(directory: Path) -> SecretStore:
    return SecretStore({}, environment={"CREDENTIALS_DIRECTORY": str(directory)})


def refusal(store: SecretStore, kind: type[ConfigError] = SecretRefused) -> str:
    with pytest.raises(kind) as caught:
        store.get(NAME)
    assert VALUE not in str(caught.value)
    assert caught.value.detail.startswith(f"secret {NAME}: ")
    return caught.value.detail.removeprefix(f"secret {NAME}: ")


BACKENDS: dict[str, Callable[[Path], SecretStore]] = {
    "credential": lambda path: in_credentials(path.parent),
    "environment": lambda path: in_environment(path.read_text()),
    "file": in_file,
}


# -- where secrets are found ------------------------------------------------------------------


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS.keys())
def test_a_secret_is_found(path: Path, make: Callable[[Path], SecretStore]) -> None:
    secret = make(path).get(NAME)
    assert secret.reveal() == VALUE
    assert secret.name == NAME


ENDS = {
    "no line end": (b"abc", "abc"),
    "one": (b"abc\n", "abc"),
    "one of Windows": (b"abc\r\n", "abc"),
    "two": (b"abc\n\n", "abc\n"),
    "several lines": (b"a\nb\n", "a\nb"),
    "blanks are kept": (b" abc \n", " abc "),
    "a lone return is kept": (b"abc\r", "abc\r"),
    "letters beyond ASCII": ("é🦞\n".encode(), "é🦞"),
    "the longest": (b"x" * MOST_BYTES + b"\r\n", "x" * MOST_BYTES),
}


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS.keys())
@pytest.mark.parametrize(("content", "value"), ENDS.values(), ids=ENDS.keys())
def test_one_line_end_is_no_part_of_it(
    tmp_path: Path, content: bytes, value: str, make: Callable[[Path], SecretStore]
) -> None:
    path = put(tmp_path / NAME, content)
    if make is BACKENDS["environment"]:
        assert in_environment(content.decode()).get(NAME).reveal() == value
    else:
        assert make(path).get(NAME).reveal() == value


UNUSABLE = {
    "empty": (b"", "is empty"),
    "only a line end": (b"\n", "is empty"),
    "one byte too long": (b"x" * (MOST_BYTES + 1), f"is longer than {MOST_BYTES} bytes"),
    "far too long, with a line end where reading stops": (
        b"x" * MOST_BYTES + b"\r\n" + b"y" * MOST_BYTES,
        f"is longer than {MOST_BYTES} bytes",
    ),
    "no text": (VALUE.encode() + b"\xff\xfe", "is no UTF-8 text"),
}


@pytest.mark.parametrize("make", [BACKENDS["file"], BACKENDS["credential"]], ids=["file", "credential"])
@pytest.mark.parametrize(("content", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_is_no_secret_is_refused(
    tmp_path: Path, content: bytes, why: str, make: Callable[[Path], SecretStore]
) -> None:
    assert refusal(make(put(tmp_path / NAME, content))).endswith(why)


@pytest.mark.parametrize("value", ["", "\n", "x" * (MOST_BYTES + 1), f"{VALUE}\udcff"], ids=ascii)
def test_what_is_no_secret_in_the_environment_is_refused(value: str) -> None:
    assert refusal(in_environment(value)).startswith("environment variable BX_TOKEN is ")


def test_a_missing_secret_has_a_code_and_names_the_place(tmp_path: Path) -> None:
    stores = {
        f"there is no {tmp_path / NAME}": [in_file(tmp_path / NAME), in_credentials(tmp_path)],
        "there is no environment variable BX_TOKEN": [
            SecretStore({NAME: SecretSource(backend=Backend.ENVIRONMENT, variable="BX_TOKEN")}, environment={})
        ],
        "this process was given no credentials (CREDENTIALS_DIRECTORY is not set)": [
            SecretStore({}, environment={}),
            SecretStore({}, environment={"CREDENTIALS_DIRECTORY": "relative"}),
        ],
    }
    for told, those in stores.items():
        assert [refusal(store, SecretMissing) for store in those] == [told] * len(those)
    assert (SecretMissing.code, SecretRefused.code, EXIT_CONFIG) == ("secret_missing", "secret_refused", 78)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", "-a", "a\n", "é", "a" * 65, "a.b"], ids=ascii)
def test_a_name_is_never_a_way_through_directories(tmp_path: Path, name: str) -> None:
    with pytest.raises(SecretMissing):
        in_credentials(tmp_path).get(name)


def test_a_credential_is_read_whatever_its_mode(tmp_path: Path) -> None:
    put(tmp_path / NAME, VALUE.encode(), mode=0o440)  # systemd opens it to the unit by an access list
    assert in_credentials(tmp_path).get(NAME).reveal() == VALUE


# -- an owner-only file -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o610, 0o666, 0o777], ids=oct)
def test_a_file_that_others_can_reach_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert refusal(in_file(path)) == f"{path} is open to others than its owner (mode {mode:04o}); expected 0600"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700], ids=oct)
def test_an_owners_file_is_read(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert in_file(path).get(NAME).reveal() == VALUE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_somebody_elses_file_is_refused(path: Path) -> None:
    os.chown(path, 4711, 4711)
    assert refusal(in_file(path)) == f"{path} belongs to uid 4711; expected 0, whom this role runs as"


def test_a_file_of_another_user_is_refused_for_who_is_not_root(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert refusal(in_file(path)) == f"{path} belongs to uid {uid}; expected {uid + 1}, whom this role runs as"


@pytest.mark.parametrize("make", [BACKENDS["file"], BACKENDS["credential"]], ids=["file", "credential"])
def test_a_link_is_refused(path: Path, tmp_path: Path, make: Callable[[Path], SecretStore]) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / NAME
    link.symlink_to(path)
    assert refusal(make(link)) == f"{link} cannot be opened: it is a symbolic link"


@pytest.mark.parametrize("make", [BACKENDS["file"], BACKENDS["credential"]], ids=["file", "credential"])
@pytest.mark.parametrize("strange", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], SecretStore], strange: Callable[[Path], object]
) -> None:
    strange(tmp_path / NAME)
    assert refusal(make(tmp_path / NAME)) == f"{tmp_path / NAME} cannot be opened: not a regular file"


def test_plain_text_backends_warn_at_each_reading(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    in_file(path).get(NAME)
    in_environment(VALUE).get(NAME)
    in_credentials(path.parent).get(NAME)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert [record.args for record in caplog.records] == [(NAME, str(path)), (NAME,)]
    assert VALUE not in caplog.text


def test_a_refused_file_does_not_warn(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.chmod(0o644)
    refusal(in_file(path))
    assert caplog.records == []


# -- settings ---------------------------------------------------------------------------------


def load(tmp_path: Path, text: str) -> Sources:
    path = tmp_path / "role.toml"
    path.write_text(text, encoding="utf-8")
    return config.load(path, Settings).secrets


def test_places_are_read_from_tables(tmp_path: Path) -> None:
    text = """\
[secrets.a]
backend = "file"
path = "/etc/boxmaker/a"
[secrets.b-2]
backend = "environment"
variable = "B"
[secrets.c_3]
"""
    assert load(tmp_path, text) == {
        "a": SecretSource(backend=Backend.FILE, path=Path("/etc/boxmaker/a")),
        "b-2": SecretSource(backend=Backend.ENVIRONMENT, variable="B"),
        "c_3": SecretSource(backend=Backend.CREDENTIAL),
    }
    assert load(tmp_path, "") == {}


WRONG = {
    "a secret in the file": (
        f'[secrets.a]\nsecret = "{VALUE}"',
        "2: secrets.a.secret: unknown key",
    ),
    "a secret instead of a table": (f'[secrets]\na = "{VALUE}"', "2: secrets.a: expected a table, got text"),
    "no table of tables": (f'secrets = "{VALUE}"', "1: secrets: expected a table, got text"),
    "file without a path": (
        '[secrets.a]\nbackend = "file"',
        '1: secrets.a: path: expected with backend "file", and only there',
    ),
    "path without a file": (
        '[secrets.a]\npath = "/x"',
        '1: secrets.a: path: expected with backend "file", and only there',
    ),
    "environment without a variable": (
        '[secrets.a]\nbackend = "environment"',
        '1: secrets.a: variable: expected with backend "environment", and only there',
    ),
    "variable without the environment": (
        '[secrets.a]\nvariable = "X"',
        '1: secrets.a: variable: expected with backend "environment", and only there',
    ),
    "no name of a variable": (
        f'[secrets.a]\nbackend = "environment"\nvariable = "{VALUE}"',
        "1: secrets.a: variable: expected the name of an environment variable",
    ),
    "relative path": (
        '[secrets.a]\nbackend = "file"\npath = "x"',
        "3: secrets.a.path: expected an absolute path, got text",
    ),
    "no backend of ours": (
        '[secrets.a]\nbackend = "vault"',
        '2: secrets.a.backend: expected one of "credential", "environment", "file", got text',
    ),
    "no name": (
        '[secrets."../a"]',
        "1: secrets: expected names of 1 to 64 characters of a-z, 0-9, - and _",
    ),
}


@pytest.mark.parametrize(("text", "fault"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_table_is_told_with_its_line_and_without_its_value(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert [line.split(".toml:")[1] for line in caught.value.detail.split("\n")] == [fault]
    assert VALUE not in str(caught.value)


# -- the type ---------------------------------------------------------------------------------


def test_a_secret_is_not_changed_into_another_by_its_class() -> None:
    with pytest.raises(AttributeError):
        Secret(NAME, VALUE).value = "x"  # type: ignore[attr-defined]


def test_two_secrets_of_one_name_do_not_mix() -> None:
    one, other = Secret(NAME, "one"), Secret(NAME, "other")
    assert (one.reveal(), other.reveal()) == ("one", "other")
