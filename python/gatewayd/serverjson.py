"""JSON of the server -> values. Pure.

Not bxcore.strictjson: posts carry whatever their authors' programs put into `props`, fractions included, and one such
post must not make a whole page unreadable. What is refused is what could not be kept or compared afterwards.
"""

import json
import re
from typing import Any, NoReturn

from gatewayd.posts import NotOurs

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(untrusted: bytes | str) -> Any:
    """Return the one value that `untrusted` spells. Raises NotOurs, which quotes nothing of it.

    Half a character (a lone surrogate) becomes U+FFFD, as the server itself would make it: no file could hold it.
    """
    try:
        text = untrusted if isinstance(untrusted, str) else str(untrusted, "utf-8")
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotOurs("expected JSON") from None
    return _whole(value) if _SURROGATE_ESCAPE.search(text) else value


def _refuse(_: str) -> NoReturn:
    raise NotOurs("expected JSON, got a number that is none")


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(item) for name, item in value.items()}
    return value
