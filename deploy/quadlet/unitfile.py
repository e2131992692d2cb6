"""Options of `podman run` as lines of a Quadlet unit, and the text of a unit. Pure.

Quadlet turns the lines back into the same words: by their own key where it has one, else by PodmanArgs. Podman 5.0
knows every key in here; tests/container/test_quadlet.py asks the real generator.
"""

import re
from collections.abc import Iterable, Mapping

Lines = Iterable[tuple[str, str]]

# Longest first where one is the beginning of another.
_KEYS: Mapping[str, str] = {
    "--cap-add=": "AddCapability",
    "--cap-drop=": "DropCapability",
    "--hostname=": "HostName",
    "--mount=": "Mount",
    "--network=": "Network",
    "--pids-limit=": "PidsLimit",
    "--pull=": "Pull",
    "--read-only-tmpfs=": "ReadOnlyTmpfs",
    "--security-opt=mask=": "Mask",
    "--security-opt=seccomp=": "SeccompProfile",
    "--stop-timeout=": "StopTimeout",
    "--ulimit=": "Ulimit",
    "--user=": "User",
}

_SWITCHES: Mapping[str, tuple[str, str]] = {
    "--read-only": ("ReadOnly", "true"),
    "--security-opt=no-new-privileges": ("NoNewPrivileges", "true"),
}

# Quadlet takes a quoted path with a comma in it apart, and passes % and $ on, to systemd's own replacing.
_UNSAFE = re.compile(r"[\s\"'\\$%\x00-\x1f\x7f]")


class Unwritable(ValueError):
    """The word would be another one by the time that Podman gets it."""


def line(option: str) -> tuple[str, str]:
    """Return key and value of one option. Raises Unwritable."""
    plain(option)
    if option in _SWITCHES:
        return _SWITCHES[option]
    for begin, key in _KEYS.items():
        if option.startswith(begin):
            return key, option.removeprefix(begin)
    return "PodmanArgs", option


def plain(word: str) -> str:
    """Return the word, which neither systemd nor Quadlet changes. Raises Unwritable for any other."""
    if _UNSAFE.search(word):
        raise Unwritable(f"a unit cannot hold {word!r}: blanks, quotes, backslash, $ and % mean something there")
    return word


def text(head: str, sections: Mapping[str, Lines]) -> str:
    """Return a unit: a comment, then its sections."""
    parts = [head]
    for name, lines in sections.items():
        parts.append("\n".join([f"[{name}]", *(f"{key}={value}" for key, value in lines)]))
    return "\n\n".join(parts) + "\n"
