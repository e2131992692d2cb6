"""A server under test, and the few requests that the tests make of it by hand, without loopd's client."""

import http.client
import json
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bxcore.deadline import SystemClock
from loopd.llama import ModelServer
from loopd.waits import Waits
from tests.fakes.llama_server import FakeLlama, Reply

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "deploy" / "local" / "model_server.py"
PATIENCE_SECONDS = 60

Json = dict[str, Any]

STREAM: Mapping[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_progress": True,
    "timings_per_token": True,
    "reasoning_control": True,
    "cache_prompt": True,
    "temperature": 0,
}
"""The fields that loopd sends with every request, but for the configured sampling."""


class Peer:
    """A server that listens on `path`. `prepare` tells the fake what to say; a real model says what it likes."""

    n_batch = 256

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left running."""

    def start(self) -> None:
        """Begin to listen; a real server may take a moment, and then a longer one for its model."""

    def kill(self) -> None:
        """End it as a crash would."""

    def prepare(self, *replies: Reply) -> None:
        """Tell a fake what to answer next."""

    def client(self, **waits: int) -> ModelServer:
        return ModelServer(self.path, clock=SystemClock(), waits=Waits(**waits))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the JSON of the answer. `body` may be bytes, to send what is no JSON."""
        with Opened(self.path, method, path, body) as opened:
            return opened.status, json.loads(opened.rest())

    def begin(self, **fields: Any) -> "Opened":
        """Send a completion request; headers may or may not have come when this returns."""
        return Opened(self.path, "POST", "/v1/chat/completions", {**STREAM, **fields})

    def events(self, **fields: Any) -> list[Json]:
        """Return the events of a whole completion, [DONE] left out."""
        with self.begin(**fields) as opened:
            assert opened.status == 200, opened.rest()
            return list(opened.events())

    def busy(self, slot: int) -> bool:
        _, slots = self.ask("GET", "/slots")
        return bool(slots[slot]["is_processing"])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait; looking at /slots more often than this would keep the server from noticing who left."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(1.5)


class FakePeer(Peer):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fake = FakeLlama(path, n_batch=self.n_batch)

    def __enter__(self) -> "FakePeer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.fake.start()

    def kill(self) -> None:
        self.fake.kill()

    def prepare(self, *replies: Reply) -> None:
        self.fake.say(*replies)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.01)


class RealPeer(Peer):
    """llama.cpp's server with the small model, in a process of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "RealPeer":
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        argv = [model_python(), str(LAUNCHER), "--listen", str(self.path)]
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )

    def wait_until_ready(self) -> Json:
        """Return what the launcher announces."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the model server did not start, exit code {self.process.wait()}")
        announced: Json = json.loads(line)
        return announced

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None and process.stdout is not None:
            process.kill()
            process.wait()
            process.stdout.close()


class UpstreamPeer(Peer):
    """A server that somebody else runs, behind our own forwarder."""

    def __init__(self, path: Path, upstream: str) -> None:
        super().__init__(path)
        self._config = path.with_suffix(".toml")
        self._config.write_text(f'listen = "{path}"\nupstream = "{upstream}"\n', encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "UpstreamPeer":
        argv = [sys.executable, "-m", "inferproxy", "--config", str(self._config)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        self._process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.path.exists():
            assert time.monotonic() < deadline, "inferproxy did not begin to listen"
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()


class Opened:
    """A request that was sent, and its connection. Close it in the middle to be a client that leaves."""

    def __init__(self, path: Path, method: str, target: str, body: Any) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SECONDS)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._connection = http.client.HTTPConnection("model")
        self._connection.sock = self._socket
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, target, body=sent, headers={"Content-Type": "application/json"})
        self._answer: http.client.HTTPResponse | None = None

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        if self._answer is not None:
            self._answer.close()
        self._connection.close()
        self._socket.close()

    @property
    def answer(self) -> http.client.HTTPResponse:
        """Waits for the headers."""
        if self._answer is None:
            self._answer = self._connection.getresponse()
        return self._answer

    @property
    def status(self) -> int:
        return self.answer.status

    def has_bytes_within(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], seconds)[0])

    def rest(self) -> bytes:
        return self.answer.read()

    def events(self) -> Iterator[Json]:
        """Yield each event; the last line of a whole stream is [DONE], and a test fails where it is missing."""
        while True:
            line = self.answer.readline()
            assert line, "the stream ended without [DONE]"
            if line.startswith(b"data: [DONE]"):
                return
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str, **fields: Any) -> Json:
    return {"role": "assistant", "content": text, **fields}


def fresh(text: str = "Say something.") -> list[Json]:
    """A conversation that no slot has seen: it begins with a text of its own."""
    return [{"role": "system", "content": f"Conversation {uuid.uuid4()}."}, user(text)]


def delta_of(event: Json) -> Json:
    choices = event["choices"]
    found: Json = choices[0]["delta"] if choices else {}
    return found


def text_of(events: list[Json]) -> str:
    return "".join(delta_of(event).get("content") or "" for event in events)


def reasoning_of(events: list[Json]) -> str:
    return "".join(delta_of(event).get("reasoning_content") or "" for event in events)


def usage_of(events: list[Json]) -> tuple[int, int, int]:
    """(prompt, cached, generated) of a whole stream."""
    usage = events[-1]["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]


def model_python() -> str:
    chosen = os.environ.get("BOXMAKER_MODEL_PYTHON") or str(ROOT / ".state" / "model-venv" / "bin" / "python")
    if not Path(chosen).exists():
        raise AssertionError(
            f"no model server: {chosen} does not exist. `deploy/local/setup.sh model` makes it, "
            "or name another interpreter that has xllamacpp in BOXMAKER_MODEL_PYTHON"
        )
    return chosen
