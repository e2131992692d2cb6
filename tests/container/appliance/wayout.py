"""Every way out of a place that has no network, tried by a tool: a program as looks.py, run as a file of the folder.

Writes one line to stdout: MARK and a JSON object of what looks.py calls network, kinds of socket, abstract names, and
sockets. Its one argument is a file with what to try.
"""

import json
import os
import sys
from pathlib import Path

from tests.container.appliance import looks

MARK = "@@wayout "


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # A program that ignores these goes nowhere, and one that minds them neither.
    os.environ.update(http_proxy="", https_proxy="", ALL_PROXY="")
    found = {
        "network": looks.network([(host, port) for host, port in asked["addresses"]], asked["dns port"]),
        "kinds of socket": looks.kinds_of_socket(),
        "abstract names": looks.abstract(asked["abstract"]),
        "sockets": looks.sockets(asked["paths"]),
    }
    sys.stdout.write(f"{MARK}{json.dumps(found)}\n")
