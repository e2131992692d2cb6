"""What a role finds in its container, for the VM test: `python3 -I -S -c` with this text, in the running container.

Prints one JSON object. Tries what a role must not be able to do; nix/checks/vm.nix says what should have come of it.
tests/container/appliance looks far more closely, on machines that are no VM of NixOS.
"""

import json
import socket
import sys
from pathlib import Path


def tried(path: str) -> str:
    """Return whether a socket or file can be opened."""
    try:
        if path.endswith(".sock"):
            with socket.socket(socket.AF_UNIX) as asked:
                asked.connect(path)
        elif Path(path).is_dir():
            list(Path(path).iterdir())
        else:
            Path(path).read_bytes()
    except OSError as error:
        return type(error).__name__
    return "open"


def written(path: str) -> str:
    """Return whether a file can be made in a directory."""
    try:
        Path(path, "probe").write_bytes(b"")
    except OSError as error:
        return type(error).__name__
    return "written"


def reached(host: str, port: int) -> str:
    """Return whether a connection over TCP is made."""
    try:
        with socket.create_connection((host, port), timeout=3):
            return "reached"
    except OSError as error:
        return type(error).__name__


status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
asked = json.loads(sys.argv[1])
print(
    json.dumps(
        {
            "interfaces": sorted(name for _, name in socket.if_nameindex()),
            "capabilities": int(status["CapEff"], 16),
            "seccomp": status["Seccomp"].strip(),
            "opened": {path: tried(path) for path in asked["open"]},
            "written": {path: written(path) for path in asked["write"]},
            "reached": {host: reached(host, port) for host, port in asked["reach"]},
        }
    )
)
