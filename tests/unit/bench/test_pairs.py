from tests.bench import pairs
from tests.bench.pairs import Pair

THREE = [Pair(ours=5, other=4), Pair(ours=30, other=10), Pair(ours=7, other=5)]


def test_every_second_pair_is_taken_the_other_way_round() -> None:
    order: list[str] = []

    def take(name: str) -> float:
        order.append(name)
        return float(len(order))

    taken = pairs.alternated(3, ours=lambda: take("ours"), other=lambda: take("other"))
    assert order == ["ours", "other", "other", "ours", "ours", "other"]
    assert taken == [Pair(ours=1, other=2), Pair(ours=4, other=3), Pair(ours=5, other=6)]


def test_one_pair_that_went_wrong_does_not_move_the_median() -> None:
    assert pairs.median_difference(THREE) == 2
    assert pairs.median_ratio(THREE) == 7 / 5
    assert pairs.median_of_other(THREE) == 5


def test_the_difference_is_taken_within_each_pair() -> None:
    slower_and_slower = [Pair(ours=10 * number + 1, other=10 * number) for number in range(9)]
    assert pairs.median_difference(slower_and_slower) == 1
