"""The grammar of paths in grants and in tool calls: one spelling for each place, compared component by component.

Looks at the text alone; what a link makes of it is for brokerd.mounts, and what policy judges is the
resolved path. Nothing is folded or normalised: two spellings that differ in one byte are two paths. Pure.
"""

import re

MAX_BYTES = 4096
"""PATH_MAX of Linux; the kernel answers what is longer with an error."""

MAX_COMPONENT_BYTES = 255

# C0, DEL, C1 and the two line ends of Unicode: what a log or a terminal acts on instead of showing it.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class BadPath(ValueError):
    """The text is no path in the one form that is read. Says what was expected, never the text."""


def check(text: str) -> str:
    """Return `text` if it is an absolute path in its shortest form, or raise BadPath.

    Absolute, no `.` or `..` component, no empty one (so no `//` and no slash at the end), no control
    character, at most 4096 bytes of UTF-8 and 255 in a component. `/` itself is one.
    """
    if not text.startswith("/"):
        raise BadPath("expected an absolute path, one that starts with /")
    if _CONTROL.search(text):
        raise BadPath("expected a path without control characters or line ends")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadPath("expected a path of whole characters, without half a surrogate pair") from None
    if size > MAX_BYTES:
        raise BadPath(f"expected a path of at most {MAX_BYTES} bytes, got {size}")
    for component in parts(text):
        _check_component(component)
    return text


def check_grant(text: str) -> str:
    """Return `text` if a grant may name it, or raise BadPath. Stricter than `check`: not `/`, no `:`, no `,`."""
    check(text)
    if text == "/":
        raise BadPath("expected a path below /, which is everything")
    if ":" in text or "," in text:
        # They separate the fields of a mount wherever one is written as text.
        raise BadPath("expected a path without : and ,")
    return text


def parts(path: str) -> tuple[str, ...]:
    """Return the components of a checked path, outermost first; none for `/`."""
    return () if path == "/" else tuple(path[1:].split("/"))


def below(path: str, root: str) -> bool:
    """Whether `path` is `root` or lies inside it. Both are checked or resolved paths."""
    return path == root or root == "/" or path.startswith(f"{root}/")


def _check_component(component: str) -> None:
    if component == "":
        raise BadPath("expected a path without // and without a / at its end")
    if component in {".", ".."}:
        raise BadPath("expected a path without . and .. components")
    if len(component.encode()) > MAX_COMPONENT_BYTES:
        raise BadPath(f"expected components of at most {MAX_COMPONENT_BYTES} bytes")
