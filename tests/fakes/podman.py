"""A Podman service on a Unix socket: the part of its REST interface that brokerd uses, as 4.3.1 was seen to answer.

A container is a process of this machine in a group of its own, with the argv of the request: for tests of the
conversation, not of isolation. What a test wants to go wrong it says beforehand: `on(step, action)` calls
`action(exchange)` before a step is answered; `twist` changes what a created container is described as, and `program`
says what of this machine runs in the place of a container's own program. The same
tests run against this and against the real service (tests/container/test_podman_contract.py).
"""

import contextlib
import json
import os
import re
import secrets
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

API = "/v4.3.1/libpod"
IMAGE = "5" * 64

_FRAME = 65_536
_ROUTES = {
    "create": ("POST", r"/containers/create"),
    "init": ("POST", r"/containers/(?P<id>\w+)/init"),
    "inspect": ("GET", r"/containers/(?P<id>\w+)/json"),
    "attach": ("POST", r"/containers/(?P<id>\w+)/attach"),
    "start": ("POST", r"/containers/(?P<id>\w+)/start"),
    "list": ("GET", r"/containers/json"),
    "remove": ("DELETE", r"/containers/(?P<id>\w+)"),
    "exists": ("GET", r"/images/(?P<id>\w+)/exists"),
    "info": ("GET", r"/info"),
}


class Container:
    """One container: created, initialized, running, stopped."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.id = secrets.token_hex(32)
        self.spec = spec
        self.status = "created"
        self.process: subprocess.Popen[bytes] | None = None
        self.attached = False

    def start(self, argv: Sequence[str]) -> None:
        self.status = "running"
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=dict(self.spec["env"]),
        )

    def end(self) -> None:
        """Kill all of it. Its outputs are closed by whoever copies them, once they have been read."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(OSError):  # what it did not read
            cast(Any, self.process.stdin).close()
        if not self.attached:
            cast(Any, self.process.stdout).close()
            cast(Any, self.process.stderr).close()

    def state(self) -> dict[str, Any]:
        code = 0
        if self.process is not None and self.process.poll() is not None:
            self.status = "stopped"
            code = self.process.returncode
        return {"Status": self.status, "ExitCode": code if code >= 0 else 128 - code, "OOMKilled": False}

    def described(self) -> dict[str, Any]:
        """Return what inspecting it gives."""
        spec, argv = self.spec, self.spec["entrypoint"]
        binds = [mount for mount in spec["mounts"] if mount["type"] == "bind"]
        tmpfs = {m["destination"]: ",".join(_shown(m["options"])) for m in spec["mounts"] if m["type"] == "tmpfs"}
        own = spec["userns"]["nsmode"] == "auto"
        ids = ["0:1:1024"] if own else ["0:1:1000", "1000:0:1", "1001:1001:64536"]
        return {
            "Id": self.id,
            "Path": argv[0],
            "Args": argv[1:],
            "Image": spec["image"],
            "State": self.state(),
            "EffectiveCaps": None,
            "BoundingCaps": None,
            "Mounts": list(map(_mounted, binds)),
            "Config": {
                "User": spec["user"],
                "Env": [*(f"{name}={value}" for name, value in spec["env"].items()), f"HOSTNAME={spec['hostname']}"],
                "Labels": {**spec["labels"], "org.opencontainers.image.title": "an image has labels too"},
                "OpenStdin": spec["stdin"],
                "Tty": False,
                "Timeout": spec["timeout"],
            },
            "HostConfig": {
                "NetworkMode": spec["netns"]["nsmode"],
                "ReadonlyRootfs": spec["read_only_filesystem"],
                "Privileged": False,
                "CapAdd": [],
                "SecurityOpt": ["no-new-privileges"],
                "Devices": [],
                "PidMode": "private",
                "UTSMode": "private",
                "UsernsMode": "private",
                "IpcMode": "shareable",
                "OomScoreAdj": spec["oom_score_adj"],
                "LogConfig": {"Type": spec["log_configuration"]["driver"]},
                "IDMappings": {"UidMap": ids, "GidMap": ids},
                "Tmpfs": tmpfs,
                "Ulimits": [
                    {"Name": f"RLIMIT_{limit['type']}", "Soft": limit["soft"], "Hard": limit["hard"]}
                    for limit in spec["r_limits"]
                ],
            },
        }


def _shown(options: list[str]) -> list[str]:
    return [option for option in options if option != "notmpcopyup"] + ["rprivate"]


def _mounted(mount: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": mount["source"],
        "Destination": mount["destination"],
        "RW": "rw" in mount["options"],
        "Propagation": "rprivate",
        "Options": [option for option in mount["options"] if option not in {"ro", "rw", "rprivate"}],
    }


class Exchange(BaseHTTPRequestHandler):
    """One request and its answer."""

    protocol_version = "HTTP/1.1"
    server: "FakePodman"

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        target = urlsplit(self.path)
        path = target.path.removeprefix(API)
        for step, (method, pattern) in _ROUTES.items():
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                self.server.asked.append(step)
                if not self.server.before(step, self):
                    getattr(self, f"do_{step}")(match.groupdict().get("id", ""), body, parse_qs(target.query))
                return
        self.answer(404, {"cause": "no such path", "message": "no such path", "response": 404})

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

    def do_create(self, _: str, spec: dict[str, Any], __: object) -> None:
        if spec["image"] not in self.server.images:
            return self.refuse(404, "image not known")
        container = Container(spec)
        self.server.containers[container.id] = container
        return self.answer(201, {"Id": container.id, "Warnings": []})

    def do_init(self, ident: str, *_: object) -> None:
        self.server.containers[ident].status = "initialized"
        self.answer(204)

    def do_inspect(self, ident: str, *_: object) -> None:
        container = self.server.containers.get(ident)
        if container is None:
            return self.refuse(404, "no such container")
        described = container.described()
        self.server.twist(described)
        return self.answer(200, described)

    def do_attach(self, ident: str, *_: object) -> None:
        self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n")
        self.wfile.write(b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        self.close_connection = True
        container = self.server.containers[ident]
        container.attached = True
        while container.process is None and ident in self.server.containers:
            time.sleep(0.001)
        if container.process is None:
            return
        process = container.process
        assert process.stdout is not None
        assert process.stderr is not None
        threading.Thread(target=self._feed, args=(process,), daemon=True).start()
        others = threading.Thread(target=self._copy, args=(2, process.stderr), daemon=True)
        others.start()
        self._copy(1, process.stdout)
        others.join()

    def do_start(self, ident: str, *_: object) -> None:
        container = self.server.containers[ident]
        container.start(self.server.program(container.spec))
        self.answer(204)

    def do_list(self, _: str, __: object, query: dict[str, list[str]]) -> None:
        wanted = dict(text.split("=", 1) for text in json.loads(query["filters"][0])["label"])
        found = [
            {"Id": container.id, "Labels": container.spec["labels"]}
            for container in list(self.server.containers.values())
            if self.server.ignores_filters or wanted.items() <= container.spec["labels"].items()
        ]
        self.answer(200, found)

    def do_remove(self, ident: str, *_: object) -> None:
        container = self.server.containers.pop(ident, None)
        if container is None:
            return self.refuse(404, "no such container")
        container.end()
        return self.answer(200, [{"Id": ident, "Err": None}])

    def do_exists(self, image: str, *_: object) -> None:
        self.answer(204 if image in self.server.images else 404)

    def do_info(self, *_: object) -> None:
        self.answer(200, {"store": {"graphRoot": self.server.storage, "runRoot": "", "volumePath": ""}})

    def refuse(self, status: int, cause: str) -> None:
        self.answer(status, {"cause": cause, "message": f"{cause}: /some/path", "response": status})

    def answer(self, status: int, value: object = None) -> None:
        body = b"" if status == 204 or value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _feed(self, process: "subprocess.Popen[bytes]") -> None:
        """Stdin of the container ends with the connection: the leash."""
        stdin = cast(Any, process.stdin)
        with contextlib.suppress(OSError, ValueError):
            while data := self.connection.recv(_FRAME):
                stdin.write(data)
                stdin.flush()
        with contextlib.suppress(OSError):
            stdin.close()

    def _copy(self, stream: int, source: Any) -> None:
        with contextlib.suppress(OSError, ValueError), source:
            while data := os.read(source.fileno(), _FRAME):
                with self.server.writing:
                    self.wfile.write(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        """Say nothing."""


Action = Callable[[Exchange], bool]
"""Called before a step is answered; True: it has been dealt with."""


class FakePodman(socketserver.ThreadingUnixStreamServer):
    """The service. A context manager; `die` ends it as kill -9 would, and its containers live on."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Exchange)
        self.path = path
        self.containers: dict[str, Container] = {}
        self.images = {IMAGE}
        self.asked: list[str] = []
        self.storage = str(path.parent / "storage")
        self.ignores_filters = False
        self.twist: Callable[[dict[str, Any]], None] = lambda _: None
        self.program: Callable[[Mapping[str, Any]], Sequence[str]] = lambda spec: spec["entrypoint"]
        self.writing = threading.Lock()
        self._actions: dict[str, Action] = {}
        self._open: set[Any] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def on(self, step: str, action: Action) -> None:
        self._actions[step] = action

    def before(self, step: str, exchange: Exchange) -> bool:
        action = self._actions.get(step)
        return action is not None and action(exchange)

    def get_request(self) -> Any:
        request, address = super().get_request()
        self._open.add(request)
        return request, address or ("", 0)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""

    def die(self) -> None:
        self.shutdown()
        self.server_close()
        self.path.unlink(missing_ok=True)
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(2)

    def __enter__(self) -> "FakePodman":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for container in self.containers.values():
            container.end()
        self.die()
        self._thread.join()
