"""`python3 -m toolkit.egress`: what it takes on stdin, and that it does with the real resolver what it should."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.egress import Canary
from tests.structure.sources import PYTHON
from toolkit import egressorder, socks
from toolkit.egressorder import BadOrder
from toolkit.socks import Reply

BAD_ORDERS = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a key too few": b'{"host":"a.example","port":443,"socket":"/s","total_bytes":1}',
    "a key too many": b'{"host":"a.example","port":443,"socket":"/s","total_bytes":1,"deadline_ms":1,"x":1}',
    "an address": b'{"host":"127.0.0.1","port":443,"socket":"/s","total_bytes":1,"deadline_ms":1}',
    "upper case": b'{"host":"A.example","port":443,"socket":"/s","total_bytes":1,"deadline_ms":1}',
    "a wildcard": b'{"host":"*.a.example","port":443,"socket":"/s","total_bytes":1,"deadline_ms":1}',
    "port as text": b'{"host":"a.example","port":"443","socket":"/s","total_bytes":1,"deadline_ms":1}',
    "port true": b'{"host":"a.example","port":true,"socket":"/s","total_bytes":1,"deadline_ms":1}',
    "port 0": b'{"host":"a.example","port":0,"socket":"/s","total_bytes":1,"deadline_ms":1}',
    "relative socket": b'{"host":"a.example","port":443,"socket":"s","total_bytes":1,"deadline_ms":1}',
    "no bytes": b'{"host":"a.example","port":443,"socket":"/s","total_bytes":0,"deadline_ms":1}',
}


@pytest.mark.parametrize("line", BAD_ORDERS.values(), ids=BAD_ORDERS.keys())
def test_what_brokerd_never_writes_is_no_order(line: bytes) -> None:
    with pytest.raises(BadOrder):
        egressorder.parse_order(line)


def _program() -> "subprocess.Popen[bytes]":
    code = f"import sys; sys.path.insert(0, {str(PYTHON)!r}); from toolkit import egress; sys.exit(egress.main())"
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_e5_the_program_itself_refuses_localhost_and_ends_with_its_leash(tmp_path: Path) -> None:
    """With the real resolver and dialler: localhost is granted here, resolves to loopback, and is not dialled."""
    path = tmp_path / "proxy.sock"
    with Canary() as canary, _program() as program:
        assert program.stdin is not None
        order = (
            f'{{"host":"localhost","port":{canary.port},"socket":"{path}","total_bytes":1000,"deadline_ms":60000}}\n'
        )
        program.stdin.write(order.encode())
        program.stdin.flush()
        while not (path.exists() and path.stat().st_mode & 0o777 == 0o666):
            assert program.poll() is None
            time.sleep(0.01)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(socks.greeting() + socks.request("localhost", canary.port))
            said = client.recv(2) + client.recv(10)
        out, errors = program.communicate(timeout=60)
        assert canary.heard == 0
    assert said[3] == Reply.NOT_PUBLIC
    record = f'{{"host":"localhost","port":{canary.port},"verdict":"not_public","address":null,"bytes":0}}\n'
    assert out == record.encode()
    assert (program.returncode, errors) == (0, b"")


def test_the_program_refuses_a_wrong_order() -> None:
    with _program() as program:
        out, errors = program.communicate(b"{}\n", timeout=60)
    assert (program.returncode, out) == (2, b"")
    assert errors.count(b"\n") == 1
