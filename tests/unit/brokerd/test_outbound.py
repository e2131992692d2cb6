"""Row E17: what a call could carry out is judged by what its session has read, however harmless its host.

A name to look up, a query and a path each carry text, so every http_fetch counts as sending, a HEAD as well.
"""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from brokerd import policy
from brokerd.call import FRESH
from bxcore import hosts
from bxcore.timestamp import Timestamp
from bxcore.wire.tools import DataClass, DenyReason, ToolDenied, ToolResult
from tests.fakes import calls
from tests.fakes.brokered import Brokered, grant_text

WAYS_OUT = {
    "in the labels of a name": "https://the-owners-pin-is-1234.example.org/",
    "in a query": "https://www.example.org/?q=the-owners-pin-is-1234",
    "in a path": "https://www.example.org/the-owners-pin-is-1234",
    "nothing at all": "https://www.example.org/",
}


@pytest.fixture
def brokered(tmp_path: Path) -> Iterator[Brokered]:
    made = Brokered(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("url", WAYS_OUT.values(), ids=WAYS_OUT.keys())
@pytest.mark.parametrize("session", DataClass)
@pytest.mark.parametrize("max_taint", DataClass)
def test_e17_max_taint_is_about_the_call_and_not_about_its_host(
    url: str, session: DataClass, max_taint: DataClass
) -> None:
    grant = calls.grant(tool="http_fetch", hosts=(hosts.rule("*.example.org"),), max_taint=max_taint)
    labels = attrs.evolve(FRESH, data_class=session)
    outcome = policy.decide(calls.grant_set(grant), calls.call("http_fetch", url=url), labels, Timestamp(1))
    order = [DataClass.PUBLIC, DataClass.PRIVATE, DataClass.SECRET]
    if order.index(session) <= order.index(max_taint):
        assert isinstance(outcome, policy.Decision)
    else:
        assert isinstance(outcome, policy.Denial)
        assert outcome.reason is DenyReason.TAINT_TOO_HIGH


@pytest.mark.parametrize("url", WAYS_OUT.values(), ids=WAYS_OUT.keys())
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_e17_a_session_that_has_read_a_secret_sends_nothing_by_a_grant_for_less(
    brokered: Brokered, url: str, method: str
) -> None:
    brokered.grant("vault", more='result_class = "secret"', max_taint="secret")
    brokered.grant("web", text=grant_text("http_fetch", hosts='["*.example.org"]', max_taint="private"))
    fetch = {"tool": "http_fetch", "url": url, "method": method}
    assert isinstance(brokered.ask(brokered.request(**fetch)), ToolResult)
    assert isinstance(brokered.ask(), ToolResult)
    answer = brokered.ask(brokered.request(**fetch))
    assert isinstance(answer, ToolDenied)
    assert answer.reason is DenyReason.TAINT_TOO_HIGH
    assert len(brokered.containers.ran) == 2
