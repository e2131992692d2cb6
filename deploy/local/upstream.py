"""The address typed as UPSTREAM=: refused before anything starts, and explained where nobody answers there.

Reads: inferproxy's log. What it takes for an address is inferproxy's own rule, kept in bxcore.settings.
"""

import re
from pathlib import Path

import attrs

from bxcore import logs
from bxcore.settings.inferproxy import InferproxySettings
from deploy.local import logfiles
from deploy.local.refusal import Refusal

_TUNNEL = (
    "https would keep inferproxy from seeing where a request ends; run "
    "`ssh -N -L 8080:localhost:8080 HOST` beside this and write http://127.0.0.1:8080"
)
_SHOWN_LINES = 50
_AWAY = re.compile(r'upstream away reason=(?:"([^"]*)"|(\S+))')


def check(address: str) -> None:
    """Raise Refusal, with what to write instead, where inferproxy would not take `address`."""
    fault = _fault(address)
    if fault is not None:
        raise Refusal(f"UPSTREAM={logs.escape(address)}: {_advice(address) or fault}")


def away(log: Path) -> str | None:
    """Return why inferproxy did not reach the server, in the kernel's words; None where its log does not say."""
    for line in reversed(logfiles.last_lines(log, _SHOWN_LINES)):
        if found := _AWAY.search(line):
            return found[1] or found[2]
    return None


def _fault(address: str) -> str | None:
    field = attrs.fields(InferproxySettings).upstream
    assert field.validator is not None
    try:
        field.validator(None, field, address)
    except ValueError as error:
        return str(error.args[0])
    return None


def _advice(address: str) -> str | None:
    """Return what to write instead, where that can be guessed."""
    if address.startswith("https:"):
        return _TUNNEL
    if address.startswith(("unix:", "/")):
        return f"write unix:{logs.escape(str(Path(address.removeprefix('unix:')).absolute()))}"
    rest = address.removeprefix("http://")
    nearest = f"http://{re.split('[/?#]', rest, maxsplit=1)[0]}"
    if "://" in rest or "@" in nearest or _fault(nearest) is not None:
        return None
    return f"write {logs.escape(nearest)}, without a path"
