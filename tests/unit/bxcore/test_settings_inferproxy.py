"""Two programs describe inferproxy.toml; they must accept and refuse the same files."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bxcore import config
from bxcore.errors import ConfigError
from bxcore.settings.inferproxy import InferproxySettings
from inferproxy import config as own

GOOD = 'listen = "/run/infer.sock"\nupstream = "http://127.0.0.1:8080"\n'

FILES = {
    "the least": GOOD,
    "every limit": GOOD
    + "max_connections = 1\naccept_burst = 10000\naccept_per_second = 2\nidle_ms = 1000\nconnect_ms = 60000\n",
    "a path upstream": 'listen = "/i"\nupstream = "unix:/run/llama.sock"\n',
    "a host without a port": 'listen = "/i"\nupstream = "http://llama"\n',
    "IPv6": 'listen = "/i"\nupstream = "http://[::1]:8080/"\n',
    "https": 'listen = "/i"\nupstream = "https://127.0.0.1:8080"\n',
    "no scheme": 'listen = "/i"\nupstream = "127.0.0.1:8080"\n',
    "a path behind the host": 'listen = "/i"\nupstream = "http://127.0.0.1:8080/v1"\n',
    "a query": 'listen = "/i"\nupstream = "http://127.0.0.1:8080?x"\n',
    "a user": 'listen = "/i"\nupstream = "http://me@127.0.0.1:8080"\n',
    "a port that is none": 'listen = "/i"\nupstream = "http://127.0.0.1:port"\n',
    "a port too large": 'listen = "/i"\nupstream = "http://127.0.0.1:70000"\n',
    "an open bracket": 'listen = "/i"\nupstream = "http://[::1"\n',
    "a relative path": 'listen = "/i"\nupstream = "unix:llama.sock"\n',
    "no upstream": 'listen = "/i"\n',
    "an empty upstream": 'listen = "/i"\nupstream = ""\n',
    "no listen": 'upstream = "http://127.0.0.1:8080"\n',
    "an empty listen": 'listen = ""\nupstream = "http://127.0.0.1:8080"\n',
    "a relative listen": 'listen = "infer.sock"\nupstream = "http://127.0.0.1:8080"\n',
    "an unknown key": GOOD + "max_conections = 5\n",
    "a limit too small": GOOD + "max_connections = 0\n",
    "a limit too large": GOOD + "max_connections = 129\n",
    "a limit as text": GOOD + 'idle_ms = "5000"\n',
    "a limit as truth": GOOD + "accept_burst = true\n",
    "a limit as fraction": GOOD + "connect_ms = 5000.0\n",
    "a NUL in listen": GOOD.replace("infer.sock", "\\u0000"),
    "a NUL in a path upstream": 'listen = "/i"\nupstream = "unix:/a\\u0000"\n',
    "a NUL in the host": GOOD.replace("127", "\\u0000"),
    "a line break in the host": GOOD.replace("127", "\\r\\n1"),
    "a space in the host": GOOD.replace("127", "1 2"),
    "a host without a name": GOOD.replace("127.0.0.1", "a..b"),
    "a host of too long a name": GOOD.replace("127.0.0.1", "a" * 64),
    "a host with other letters": GOOD.replace("127.0.0.1", "bücher"),
    "port 0": GOOD.replace("8080", "0"),
    "nested too deeply": GOOD + "x = " + "[" * 3000 + "]" * 3000,
    "a number of 5,000 digits": GOOD + "idle_ms = " + "9" * 5000,
    "longer than is read": GOOD + "#" * 65_536,
    "a byte-order mark": "\ufeff" + GOOD,
    "not TOML": "listen = \n",
    "empty": "",
    "a key twice": GOOD + 'listen = "/j"\n',
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_both_readers_agree(tmp_path: Path, content: str) -> None:
    path = tmp_path / "inferproxy.toml"
    path.write_text(content)
    assert _accepts(lambda: own.load(path)) == _accepts(lambda: config.load(path, InferproxySettings))


@pytest.mark.parametrize("read", [own.load, lambda path: config.load(path, InferproxySettings)], ids=["own", "bxctl"])
def test_neither_waits_for_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "inferproxy.toml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        read(path)


def _accepts(read: Callable[[], object]) -> bool:
    try:
        read()
    except ConfigError:
        return False
    return True


def test_both_have_the_same_fields_and_defaults() -> None:
    ours, theirs = (
        {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
        for kind in (InferproxySettings, own.Config)
    )
    assert ours == theirs
