"""Does a grant fit a call? Constraints alone: mode, expiry and taint are weighed in brokerd.weighing. Pure.

Two questions with two answers. `fitting`: which grants may decide? What allows fits narrowly: for a
tool that replaces a file, the file's own path does not count, because its parent is what gets mounted.
What denies fits widely: also the file itself, and for a tool that sees all below its path also a path
below. `touching`: which grants speak of anything that the call can see? Their labels all count.
These run over every grant of a tool at every decision, so each grant is looked at once and briefly.
"""

from collections.abc import Iterable

import attrs

from brokerd.call import Call
from bxcore import paths
from bxcore.grants import Grant, Mode
from bxcore.hosts import Target
from bxcore.tools import Takes, ToolKind


@attrs.frozen(kw_only=True)
class Match:
    """The grant fits. `depth` is the number of components of its longest fitting path, 0 for a host."""

    depth: int


@attrs.frozen(kw_only=True)
class WhyNot:
    """The grant does not fit; `text` is for the owner, who wrote it. The model never reads this."""

    text: str


def match(grant: Grant, call: Call) -> Match | WhyNot:
    """Say whether `grant` fits `call`, and if not the first reason why not."""
    if grant.tool != call.kind.name:
        return WhyNot(text=f"it is for {grant.tool}")
    for depth, _ in fitting(touching((grant,), call), call):
        return Match(depth=depth)
    return WhyNot(text=_why_not(grant, call))


def touching(grants: Iterable[Grant], call: Call) -> list[Grant]:
    """Return those of the grants, all of the call's tool, that speak of anything that the call can see."""
    if call.kind.takes is Takes.PATHS:
        return [] if call.path is None else _touching_path(grants, call.path, call.kind)
    if call.kind.takes is Takes.HOSTS:
        return [] if call.target is None else _covering(grants, call.target)
    return list(grants)


def fitting(touching: Iterable[Grant], call: Call) -> list[tuple[int, Grant]]:
    """Return those of the touching grants that fit, each after the depth of its match."""
    if call.kind.takes is not Takes.PATHS or call.path is None:
        return [(0, grant) for grant in touching]
    holding = _holding(call.path)
    allowing = {path: depth for path, depth in holding.items() if path != call.path or not replaces_a_file(call.kind)}
    found = []
    for grant in touching:
        counting = holding if grant.mode is Mode.DENY else allowing
        depths = [counting[path] for path in grant.paths if path in counting]
        if grant.mode is Mode.DENY and call.kind.recursive:
            depths += _depths_below(grant, call.path)
        if depths:
            found.append((max(depths), grant))
    return found


def replaces_a_file(kind: ToolKind) -> bool:
    """Whether the tool puts a new file in the place of its path: then the parent is mounted, and must be granted."""
    return kind.writes and not kind.recursive


def _holding(path: str) -> dict[str, int]:
    """Return every path that holds `path`, itself too, with its number of components; nothing holds /."""
    # Equal texts are equal components here: grants and calls hold paths in the one spelling of bxcore.paths.
    parts = paths.parts(path)
    return {"/" + "/".join(parts[:count]): count for count in range(1, len(parts) + 1)}


def _touching_path(grants: Iterable[Grant], path: str, kind: ToolKind) -> list[Grant]:
    holding = frozenset(_holding(path))
    if not kind.recursive:
        return [grant for grant in grants if not holding.isdisjoint(grant.paths)]
    inside = _inside(path)
    found = []
    for grant in grants:
        for granted in grant.paths:
            if granted in holding or granted.startswith(inside):
                found.append(grant)
                break
    return found


def _inside(path: str) -> str:
    """Return what every path below `path` starts with, and no other."""
    return "/" if path == "/" else f"{path}/"


def _covering(grants: Iterable[Grant], target: Target) -> list[Grant]:
    found = []
    for grant in grants:
        for rule in grant.hosts:
            # The rule settles it. The end of the name is only the quicker question for a thousand that do not fit.
            if target.host.endswith(rule.host) and rule.covers(target):
                found.append(grant)
                break
    return found


def _depths_below(grant: Grant, path: str) -> list[int]:
    inside = _inside(path)
    return [len(paths.parts(granted)) for granted in grant.paths if granted.startswith(inside)]


def _why_not(grant: Grant, call: Call) -> str:
    if call.target is not None:
        elsewhere = (attrs.evolve(call.target, port=rule.port) for rule in grant.hosts)
        if any(_covering((grant,), target) for target in elsewhere):
            return "it names the host, with another port"
        return "none of its hosts is the host of the call"
    if call.path is not None and call.path in grant.paths:
        return "it names the file itself; what replaces a file needs a grant for the folder that holds it"
    return "none of its paths holds the path of the call"
