"""`python -m inferproxy --config FILE`: load, listen, forward until SIGTERM."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bxcore import daemon, listener
from inferproxy import config
from inferproxy.proxy import Proxy


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 stopped as asked, 78 the configuration or the socket is wrong."""
    arguments = _arguments(argv)
    return daemon.run(lambda: _serve(arguments.config, check=arguments.check), role="inferproxy")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="inferproxy", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="read the file, say what is wrong, start nothing")
    return parser.parse_args(argv)


def _serve(config_path: Path, *, check: bool) -> int:
    settings = config.load(config_path)
    if check:
        return 0
    with closing(listener.open_socket(settings.listen)) as listening:
        proxy = Proxy(listening, settings)
        daemon.stop_on_signal(proxy.stop)
        daemon.notify("READY=1")
        proxy.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
