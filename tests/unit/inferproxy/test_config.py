from pathlib import Path

import pytest

from bxcore.errors import ConfigError
from inferproxy import config
from inferproxy.config import Config, Upstream

MINIMAL = 'listen = "/run/infer/infer.sock"\nupstream = "http://127.0.0.1:8080"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inferproxy.toml"


def faults(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    return caught.value.detail.replace(str(path), "F")


def test_two_keys_are_enough(path: Path) -> None:
    path.write_text(MINIMAL)
    upstream = Upstream(host="127.0.0.1", port=8080)
    assert config.load(path) == Config(listen=Path("/run/infer/infer.sock"), upstream=upstream)


def test_every_limit_can_be_set(path: Path) -> None:
    path.write_text(
        MINIMAL + "max_connections = 1\naccept_burst = 2\naccept_per_second = 3\nidle_ms = 4000\nconnect_ms = 50\n"
    )
    read = config.load(path)
    limits = (read.max_connections, read.accept_burst, read.accept_per_second, read.idle_ms, read.connect_ms)
    assert limits == (1, 2, 3, 4000, 50)


UPSTREAMS = {
    "a name": ("http://straylight:8080", Upstream(host="straylight", port=8080)),
    "a final slash": ("http://straylight:8080/", Upstream(host="straylight", port=8080)),
    "no port": ("http://straylight", Upstream(host="straylight", port=80)),
    "IPv6": ("http://[::1]:8080", Upstream(host="::1", port=8080)),
    "a Unix socket": ("unix:/run/llama.sock", Upstream(path="/run/llama.sock")),
}


@pytest.mark.parametrize(("written", "meant"), UPSTREAMS.values(), ids=UPSTREAMS.keys())
def test_an_upstream_is_an_address(path: Path, written: str, meant: Upstream) -> None:
    path.write_text(f'listen = "/x"\nupstream = "{written}"\n')
    assert config.load(path).upstream == meant


NO_UPSTREAMS = [
    "127.0.0.1:8080",
    "http://",
    "http://host:port",
    "http://host:99999",
    "http://[::1",
    "http://host/v1",
    "http://host?x=1",
    "http://host#x",
    "http://user:word@host",
    "https://host",
    "http://host:0",
    "http://a b",
    "http://a..b",
    "http://a\\u0000b",
    "http://a\\r\\nb",
    "unix:relative",
    "unix:/a\\u0000",
    "ftp://host",
]


@pytest.mark.parametrize("written", NO_UPSTREAMS)
def test_what_is_more_or_less_than_an_address_is_refused(path: Path, written: str) -> None:
    assert faults(path, f'listen = "/x"\nupstream = "{written}"\n').startswith(
        'F:2: upstream: expected "http://host:port"'
    )


def test_https_is_refused_with_the_reason(path: Path) -> None:
    assert "cannot be forwarded unread" in faults(path, 'listen = "/x"\nupstream = "https://host"\n')


BAD = {
    "an unknown key": (MINIMAL + "max_conections = 3\n", "F:3: max_conections: unknown key"),
    "an unknown table": (MINIMAL + "[limits]\nmax_connections = 3\n", "F:3: limits: unknown key"),
    "a boolean": (MINIMAL + "idle_ms = true\n", "F:3: idle_ms: expected a whole number from 1000 to 86400000"),
    "a float": (MINIMAL + "idle_ms = 9e5\n", "F:3: idle_ms: expected a whole number from 1000 to 86400000"),
    "too small": (MINIMAL + "max_connections = 0\n", "F:3: max_connections: expected a whole number from 1 to 128"),
    "too large": (MINIMAL + "max_connections = 129\n", "F:3: max_connections: expected a whole number from 1 to 128"),
    "a number for a path": ('listen = 3\nupstream = "http://h"\n', "F:1: listen: expected an absolute path"),
    "an empty path": ('listen = ""\nupstream = "http://h"\n', "F:1: listen: expected an absolute path"),
    "a relative path": ('listen = "x"\nupstream = "http://h"\n', "F:1: listen: expected an absolute path"),
    "a NUL in a path": ('listen = "/\\u0000"\nupstream = "http://h"\n', "F:1: listen: expected an absolute path"),
    "nested too deeply": (MINIMAL + "\nx = [\n" + "[" * 3000 + "\n", "F:5: not TOML: nested too deeply"),
    "too many digits": (MINIMAL + f"\nx = {'9' * 5000}\ny = 1\n", "F:4: not TOML: a number of too many digits"),
    "too long": (MINIMAL + "#" * 65_536, "F: longer than the 65536 bytes that are read"),
    "a missing key": ('upstream = "http://h"\n', "F:1: listen: missing"),
}


@pytest.mark.parametrize(("text", "fault"), BAD.values(), ids=BAD.keys())
def test_a_fault_names_file_line_and_key(path: Path, text: str, fault: str) -> None:
    assert faults(path, text) == fault


def test_all_faults_come_at_once_in_the_order_of_the_file(path: Path) -> None:
    text = 'colour = "red"\nidle_ms = "long"\nupstream = "h"\n'
    keys = [fault.split(": ")[1] for fault in faults(path, text).splitlines()]
    assert sorted(keys) == ["colour", "idle_ms", "listen", "upstream"]
    assert keys.index("idle_ms") < keys.index("upstream")


def test_the_fault_never_shows_a_value(path: Path) -> None:
    assert "hunter2" not in faults(path, 'listen = "/x"\nupstream = "http://me:hunter2@host"\n')


def test_what_is_not_toml_is_refused_with_its_place(path: Path) -> None:
    assert "line 2" in faults(path, MINIMAL.replace("upstream =", "upstream"))


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"inferproxy\.toml: cannot read: No such file"):
        config.load(path)


def test_what_is_not_utf8_is_refused(path: Path) -> None:
    path.write_bytes(b'listen = "\xff"\n')
    with pytest.raises(ConfigError, match="not UTF-8 from byte 10 on"):
        config.load(path)
