"""The rules of policy once more: slow, plain, and written from the rules before brokerd.policy was.

Knows nothing of the code under test: grants, calls and answers are its own plain values, paths are
lists of components that are walked one by one, and nothing is precomputed. Where the two disagree,
read the rule and find out which of them is wrong.

The rules. A grant *speaks of* a call where it is for its tool and one of its paths is the call's path
or an ancestor of it (or, where the tool sees all below its path, lies below it), or one of its hosts
is the call's. A deny grant *fits* what it speaks of. Any other grant fits where one of its paths is
the call's path or an ancestor, or its host is the call's; where the tool replaces a file, that file
itself does not count, since its parent is what gets mounted. Expired is `now >= expires`.
"""

from dataclasses import dataclass, field

RANK = ["public", "private", "secret"]
READS_ALL_BELOW = {"search_files", "shell"}
REPLACES_A_FILE = {"write_file", "edit_file"}
ALWAYS_ASKED_ABOUT = {"shell"}


@dataclass
class PlainGrant:
    id: str
    tool: str
    mode: str
    max_taint: str = "secret"
    result_class: str = "private"
    untrusted: bool = True
    expires: int | None = None
    paths: list[str] = field(default_factory=list)
    hosts: list[tuple[str, int]] = field(default_factory=list)
    """Name (perhaps with `*.` before it) and port."""


@dataclass
class PlainCall:
    tool: str
    path: str | None = None
    host: str | None = None
    port: int = 0


@dataclass
class Answer:
    """`verdict` is allowed, ask or denied; the grant is the one that decided, if one did."""

    verdict: str
    grant: str | None
    reason: str | None = None
    labels: tuple[str, bool] | None = None


def components(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def is_at_or_above(upper: str, lower: str) -> bool:
    above, below = components(upper), components(lower)
    while len(below) > len(above):
        below.pop()
    return above == below


def is_host(rule: tuple[str, int], call: PlainCall) -> bool:
    name, port = rule
    if call.host is None or port != call.port:
        return False
    asked, ruled = call.host.split("."), name.split(".")
    if ruled[0] != "*":
        return asked == ruled
    ruled = ruled[1:]
    while len(asked) > len(ruled) + 1:
        asked = asked[1:]
    return len(asked) == len(ruled) + 1 and asked[1:] == ruled


def paths_spoken_of(grant: PlainGrant, call: PlainCall) -> list[str]:
    if call.path is None:
        return []
    upwards = [path for path in grant.paths if is_at_or_above(path, call.path)]
    downwards = [path for path in grant.paths if is_at_or_above(call.path, path)]
    return upwards + downwards if call.tool in READS_ALL_BELOW else upwards


def speaks_of(grant: PlainGrant, call: PlainCall) -> bool:
    if grant.tool != call.tool:
        return False
    return bool(paths_spoken_of(grant, call)) or any(is_host(rule, call) for rule in grant.hosts)


def paths_that_fit(grant: PlainGrant, call: PlainCall) -> list[str]:
    if grant.mode == "deny":
        return paths_spoken_of(grant, call)
    found = []
    for path in grant.paths:
        if call.path is None or not is_at_or_above(path, call.path):
            continue
        if call.tool in REPLACES_A_FILE and components(path) == components(call.path):
            continue
        found.append(path)
    return found


def fits(grant: PlainGrant, call: PlainCall) -> bool:
    if grant.tool != call.tool:
        return False
    return bool(paths_that_fit(grant, call)) or any(is_host(rule, call) for rule in grant.hosts)


def is_expired(grant: PlainGrant, now: int) -> bool:
    return grant.expires is not None and now >= grant.expires


def is_too_tainted(grant: PlainGrant, taint: str) -> bool:
    return RANK.index(taint) > RANK.index(grant.max_taint)


def depth(grant: PlainGrant, call: PlainCall) -> int:
    return max([len(components(path)) for path in paths_that_fit(grant, call)], default=0)


def first_of(grants: list[PlainGrant], call: PlainCall) -> PlainGrant:
    """The longest matched path, then the smallest id."""
    best = grants[0]
    for grant in grants[1:]:
        deeper = depth(grant, call) > depth(best, call)
        as_deep = depth(grant, call) == depth(best, call)
        if deeper or (as_deep and grant.id < best.id):
            best = grant
    return best


def result_labels(grants: list[PlainGrant], call: PlainCall) -> tuple[str, bool]:
    """The highest class and the union of untrusted, over all that speak of the call: expired ones, deny ones, all."""
    highest, untrusted = "public", False
    for grant in grants:
        if speaks_of(grant, call):
            if RANK.index(grant.result_class) > RANK.index(highest):
                highest = grant.result_class
            untrusted = untrusted or grant.untrusted
    return highest, untrusted


def judge(grants: list[PlainGrant], call: PlainCall, taint: str, now: int) -> Answer:
    fitting = [grant for grant in grants if fits(grant, call)]
    denying = [grant for grant in fitting if grant.mode == "deny" and not is_expired(grant, now)]
    if denying:
        return Answer("denied", first_of(denying, call).id, "denied_by_grant")
    for mode, verdict in (("ask", "ask"), ("auto", "allowed")):
        usable = [
            grant
            for grant in fitting
            if grant.mode == mode and not is_expired(grant, now) and not is_too_tainted(grant, taint)
        ]
        if usable:
            said = "ask" if call.tool in ALWAYS_ASKED_ABOUT else verdict
            return Answer(said, first_of(usable, call).id, labels=result_labels(grants, call))
    could_allow = [grant for grant in fitting if grant.mode != "deny"]
    if any(not is_expired(grant, now) and is_too_tainted(grant, taint) for grant in could_allow):
        return Answer("denied", None, "taint_too_high")
    if any(is_expired(grant, now) for grant in could_allow):
        return Answer("denied", None, "grant_expired")
    return Answer("denied", None, "no_grant")


def judge_again(asked: Answer, grants: list[PlainGrant], call: PlainCall, taint: str, now: int) -> Answer:
    """What a yes to `asked` comes to: as a new call, and the grant that asked must still say something."""
    again = judge(grants, call, taint, now)
    if again.verdict == "denied":
        return again
    asking = [grant for grant in grants if grant.id == asked.grant and fits(grant, call)]
    if not asking:
        return Answer("denied", None, "no_grant")
    if is_expired(asking[0], now):
        return Answer("denied", None, "grant_expired")
    if is_too_tainted(asking[0], taint):
        return Answer("denied", None, "taint_too_high")
    assert asked.labels is not None
    assert again.labels is not None
    strictest = max(asked.labels[0], again.labels[0], key=RANK.index), asked.labels[1] or again.labels[1]
    return Answer("allowed", again.grant, labels=strictest)
