import pytest

from tests.bench.cachecount import Request, reread

FIRST = Request(prompt=86, cached=0, output=12)

CASES = {
    "nothing was asked": ([], 0),
    "the first prompt is new": ([FIRST], 0),
    "an extension costs the one token that all pay": ([FIRST, Request(prompt=114, cached=97, output=9)], 0),
    "a token less in the cache is a token read again": ([FIRST, Request(prompt=114, cached=96, output=9)], 1),
    "a cache that was lost": ([FIRST, Request(prompt=114, cached=0, output=9)], 97),
    "more in the cache than the conversation had is no gain": ([FIRST, Request(prompt=114, cached=105, output=9)], 0),
    "each request is held against the one before": (
        [FIRST, Request(prompt=114, cached=97, output=10), Request(prompt=140, cached=100, output=3)],
        23,
    ),
}


@pytest.mark.parametrize(("conversation", "tokens"), CASES.values(), ids=CASES.keys())
def test_reread(conversation: list[Request], tokens: int) -> None:
    assert reread(conversation) == tokens


def test_a_gain_in_one_request_does_not_pay_for_a_loss_in_another() -> None:
    gain, loss = Request(prompt=114, cached=105, output=6), Request(prompt=140, cached=109, output=3)
    assert reread([FIRST, gain, loss]) == 10
