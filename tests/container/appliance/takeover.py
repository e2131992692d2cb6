"""A role that was taken over: tries every path, socket and message, and says what worked.

A program as looks.py: standard library only, one JSON object in the first argument, and one line out, MARK and a list
of [thing, what]. Things are the wiring's own names ("home/sessions"), so that the list is the same on every machine.
With "podman" it also tries all of the paths once more from a container that it has Podman make, of the whole host.
"""

import base64
import http.client
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MARK = "@@takeover "
OF_A_THREAD = " of a thread's session"
"""Behind a kind: said of a session that is a thread of Mattermost. Told where the same of another one is refused."""
_WAIT_SECONDS = 3
_API = "/v4.0.0/libpod"
_HOST = "/host"
_NOT_TAKEN = ("forbidden", "bad_frame", "bad_message", "bad_version")

Row = tuple[str, str]


def paths(asked: dict[str, str], top: str = "") -> Iterator[Row]:
    """Try to read, to write and to remove, everywhere."""
    for name, path in asked.items():
        for what in _done_to(f"{top}{path}"):
            yield name, what


def places_to_write(asked: list[str]) -> Iterator[Row]:
    """Try to make a file in places that are nobody's."""
    for path in asked:
        if _works(lambda path=path: _made_and_removed(f"{path}/.taken-over")):  # type: ignore[misc]
            yield path, "writes"


def listeners(addresses: list[tuple[str, int]]) -> Iterator[Row]:
    """Try to reach somebody by the network."""
    for host, port in addresses:
        if _works(lambda host=host, port=port: socket.create_connection((host, port), 1).close()):  # type: ignore[misc]
            yield "a listener on the host's network", "connects"


def services(asked: dict[str, tuple[str, int]]) -> Iterator[Row]:
    """Try to reach what a role may be meant to reach by the network."""
    for name, (host, port) in asked.items():
        try:
            connection = http.client.HTTPConnection(host, port, timeout=_WAIT_SECONDS)
            connection.connect()
        except OSError:
            continue
        yield name, "connects"
        if _works(lambda connection=connection: connection.request("GET", "/")):  # type: ignore[misc]
            yield name, "speaks HTTP"
        connection.close()


def messages(asked: dict[str, str], frames: dict[str, str]) -> Iterator[Row]:
    """Send each kind of message on each socket, and things that are none."""
    for name, path in asked.items():
        if _call(path, b"") is None:
            continue
        yield name, "connects"
        if (spoken := _spoken_by_http(path)) is not None:
            yield name, spoken
            continue
        taken = {kind for kind, payload in frames.items() if _answers(path, payload)}
        for kind in taken:
            if kind.removesuffix(OF_A_THREAD) == kind or kind.removesuffix(OF_A_THREAD) not in taken:
                yield name, f"answers {kind}"


def _answers(path: str, payload: str) -> bool:
    return bool((answer := _call(path, base64.b64decode(payload))) and _is_taken(answer))


def through_podman(api: str, image: str, asked: dict[str, Any], program: str) -> Iterator[Row]:
    """Have the tool user's Podman run this very program in a container that sees all that the user can see."""
    order = {
        "image": image,
        "command": ["/usr/bin/python3", "-I", "-S", "-c", program, json.dumps({**asked, "podman": None, "top": _HOST})],
        "user": "0:0",
        "netns": {"nsmode": "host"},
        "privileged": True,
        "terminal": False,
        "mounts": [{"destination": _HOST, "source": "/", "type": "bind", "options": ["rbind", "rw"]}],
        "labels": {"boxmaker.owner": "taken-over"},
    }
    made = json.loads(_podman(api, "POST", "/containers/create", order))
    if "Id" not in made:
        yield "a container", f"not made: {made.get('cause')}"
        return
    where = f"/containers/{made['Id']}"
    try:
        _podman(api, "POST", f"{where}/start")
        _podman(api, "POST", f"{where}/wait")
        said = _unframed(_podman(api, "GET", f"{where}/logs?stdout=true&stderr=true"))
        rows = [line for line in said.splitlines() if line.startswith(MARK)]
        for thing, what in json.loads(rows[0].removeprefix(MARK)) if rows else [["a container", f"said {said[-300:]}"]]:
            yield f"container: {thing}", what
    finally:
        _podman(api, "DELETE", f"{where}?force=true")


def _done_to(path: str) -> list[str]:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return []
    tries: dict[str, Callable[[], object]]
    if stat.S_ISDIR(mode):
        beside = f"{path}/.taken-over"
        tries = {"lists": lambda: os.listdir(path), "writes": lambda: _made_and_removed(beside)}  # noqa: PTH208
    elif stat.S_ISREG(mode):
        tries = {"reads": lambda: _opened(path, os.O_RDONLY), "writes": lambda: _opened(path, os.O_WRONLY)}
    else:
        return []
    tries["removes"] = lambda: _moved_away(path)
    return [what for what, act in tries.items() if _works(act)]


def _works(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True


def _opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK))


def _made_and_removed(path: str) -> None:
    Path(path).write_bytes(b"x")
    Path(path).unlink()


def _moved_away(path: str) -> None:
    Path(path).rename(f"{path}.moved")
    Path(f"{path}.moved").rename(path)


def _call(path: str, payload: bytes) -> bytes | None:
    """Return what comes back, b"" for nothing; None where there is no connecting."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_WAIT_SECONDS)
        try:
            client.connect(path)
        except OSError:
            return None
        try:
            client.sendall(payload)
            return client.recv(65_536) if payload else b""
        except OSError:
            return b""


def _spoken_by_http(path: str) -> str | None:
    connection = _Unix(path)
    try:
        connection.request("GET", "/_ping")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return "speaks Podman's API" if answer.getheader("Libpod-Api-Version") else "speaks HTTP"


def _is_taken(answer: bytes) -> bool:
    """Say whether the message was one for this socket, whatever became of it."""
    try:
        (length,) = struct.unpack("!I", answer[:4])
        message = json.loads(answer[4 : 4 + length])["msg"]
    except (struct.error, ValueError, KeyError):
        return False
    return not (message["kind"] == "error" and message["body"]["code"] in _NOT_TAKEN)


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def _podman(api: str, method: str, path: str, order: object = None) -> bytes:
    connection = _Unix(api)
    try:
        body = json.dumps(order).encode() if order else None
        connection.request(method, f"{_API}{path}", body, {"Content-Type": "application/json"} if body else {})
        return connection.getresponse().read()
    finally:
        connection.close()


def _unframed(stream: bytes) -> str:
    text, at = b"", 0
    while at + 8 <= len(stream):
        (length,) = struct.unpack("!I", stream[at + 4 : at + 8])
        text, at = text + stream[at + 8 : at + 8 + length], at + 8 + length
    return text.decode("utf-8", "replace")


def rows(asked: dict[str, Any], program: str) -> list[Row]:
    top = asked.get("top", "")
    sockets = {name: f"{top}{path}" for name, path in asked["sockets"].items()}
    found = [*paths(asked["paths"], top), *messages(sockets, asked["frames"]), *listeners(asked["addresses"])]
    if not top:
        found += services(asked.get("services", {}))
        found += places_to_write(asked["places"])
    if asked.get("podman"):
        found += through_podman(asked["podman"], asked["image"], asked, program)
    return found


def main() -> None:
    asked = json.loads(sys.argv[1])
    # The program's own text, to be run once more somewhere else.
    program = Path("/proc/self/cmdline").read_bytes().split(b"\0")[4].decode()
    sys.stdout.write(f"{MARK}{json.dumps(rows(asked, program))}\n")
