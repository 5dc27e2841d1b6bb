"""The keys of a range and its progress, together, under whatever happens to them."""

from dataclasses import fields

from tests.support.keys_world import Story, run

SEEDS = 120


def test_whatever_fails_each_key_stays_in_order_and_nothing_is_lost_or_done_twice() -> None:
    stories = [run(seed) for seed in range(SEEDS)]
    total = {x.name: sum(getattr(s, x.name) for s in stories) for x in fields(Story)}
    assert total["with_holes"] > SEEDS, total
    assert total["crashes"] > SEEDS / 2, total
    assert total["uncovered"] > 0, total
    assert total["letters"] > SEEDS, total
    assert total["refused"] > SEEDS / 4, total
    assert total["suspicions"] <= SEEDS / 100, total
    assert total["stands"] < SEEDS / 5, total
