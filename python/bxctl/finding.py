"""What one check of `bxctl doctor` found, and how it is shown.

What was expected, what is there, why it matters, the command that mends it, and the runbook's entry.
"""

import json
from collections.abc import Iterable, Iterator

import attrs

from bxcore.wire.channel import CheckResult
from bxctl import render
from bxctl.render import Ink, Screen

AS_ROOT = "not for this user to see; run as root"


@attrs.frozen(kw_only=True)
class Finding:
    """One check. `passed` None: whoever runs this may not look, so nothing is known."""

    name: str
    passed: bool | None
    expected: str
    found: str
    why: str = ""
    command: str = ""
    runbook: str = ""


@attrs.frozen(kw_only=True)
class Fault:
    """One thing of many that is not as it should be."""

    expected: str
    found: str
    why: str
    command: str = ""


def room(name: str, *, held: str, faults: Iterable[Fault | None], runbook: str) -> Iterator[Finding]:
    """Yield a finding for each fault, or one that says what `held`. None among the faults could not be looked at."""
    found = list(faults)
    told = [one for one in found if one is not None]
    for fault in told:
        yield Finding(
            name=name,
            passed=False,
            expected=fault.expected,
            found=fault.found,
            why=fault.why,
            command=fault.command,
            runbook=runbook,
        )
    if unseen := len(found) - len(told):
        text = f"{render.count_of(unseen, 'thing')} {AS_ROOT}"
        yield Finding(name=name, passed=None, expected=held, found=text)
    elif not told:
        yield Finding(name=name, passed=True, expected=held, found=held)


def of_result(check: CheckResult) -> Finding:
    """Return a check that loopd made as a finding."""
    return Finding(
        name=check.name, passed=check.passed, expected=check.expected, found=check.found, runbook=check.runbook
    )


def show(finding: Finding, screen: Screen) -> None:
    """Print it for people."""
    name, found = render.safe_line(finding.name), render.safe_line(finding.found)
    if finding.passed:
        tick = screen.paint(screen.glyph("✓", "ok"), Ink.GOOD)
        screen.line(f"{tick} {name}: {found}")
        return
    if finding.passed is None:
        screen.line(f"{screen.paint(screen.glyph('·', '-'), Ink.DIM)} {name}: {found}")
        return
    cross = screen.paint(screen.glyph("✗", "FAILED"), Ink.BAD)
    screen.line(f"{cross} {name}")
    screen.line(f"    expected  {render.safe_line(finding.expected)}")
    screen.line(f"    found     {found}")
    if finding.why:
        screen.line(f"    why       {render.safe_line(finding.why)}")
    if finding.command:
        screen.line(f"    command   {render.safe_line(finding.command)}")
    if finding.runbook:
        screen.line(f"    mend it   docs/runbook.md, {render.safe_line(finding.runbook)}")


def json_line(finding: Finding) -> str:
    """Return it as one line of ASCII JSON: a `check_result` as loopd's, with `why` and `command` where it has them."""
    if finding.passed is None:
        body: dict[str, object] = {"kind": "check_skipped", "name": finding.name, "found": finding.found}
    else:
        body = {
            "kind": "check_result",
            "name": finding.name,
            "passed": finding.passed,
            "expected": finding.expected,
            "found": finding.found,
            "runbook": finding.runbook,
            **{key: value for key in ("why", "command") if (value := getattr(finding, key))},
        }
    return json.dumps(body, ensure_ascii=True, separators=(",", ":"))
