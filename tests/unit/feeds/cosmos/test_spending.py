"""How many request units a feed takes: never more than it may, and all it may."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.feeds.cosmos.address import AddressWrong
from changefeed.feeds.cosmos.spending import Budget, ClientOptions
from changefeed.feeds.errors import FeedUnavailable
from changefeed.testing.virtual_time import run_in_virtual_time


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), most=st.integers(5, 500), readers=st.integers(1, 8))
def test_no_stretch_of_time_costs_more_than_its_share(
    seed: int, most: int, readers: int
) -> None:
    random, budget = Random(seed), Budget(most)
    largest = most * 10.0
    asked: list[tuple[float, float]] = []

    async def read() -> None:
        clock = asyncio.get_running_loop().time
        while clock() < 300:
            try:
                reserved = await budget.reserve()
                begun, charge = clock(), random.uniform(1, largest)
                await asyncio.sleep(random.uniform(0, 0.2))
                budget.charged(charge, reserved)
                asked.append((begun, charge))
            except FeedUnavailable as later:
                await asyncio.sleep(later.retry_after or 0)

    async def all_of_them() -> None:
        await asyncio.gather(*(read() for _ in range(readers)))

    run_in_virtual_time(all_of_them())
    asked.sort()
    under_way = readers * largest  # what was sent before it was known what that costs
    for first in range(0, len(asked), 7):
        spent = 0.0
        for at, charge in asked[first:]:
            assert spent <= most * (at - asked[first][0]) + under_way + largest
            spent += charge
    least = 0.5 * most * (asked[-1][0] - asked[0][0]) - under_way  # it is not much slower
    assert sum(x for _, x in asked) >= least


async def test_a_wait_is_waited_for_and_a_long_one_is_told_instead() -> None:
    clock = asyncio.get_running_loop().time
    budget, began = Budget(1), clock()
    budget.charged(20, await budget.reserve())
    await budget.reserve()
    assert clock() == pytest.approx(began + 20)
    budget = Budget(1)
    budget.charged(100, await budget.reserve())
    with pytest.raises(FeedUnavailable, match="max_ru=1") as told:
        await budget.reserve()
    assert told.value.retry_after == pytest.approx(100)


def test_options_of_an_address_are_read_or_refused() -> None:
    given_all = {"priority": "low", "throughput_bucket": "2", "max_ru": "400"}
    assert ClientOptions.of(given_all).client_arguments == {
        "priority": "Low",
        "throughput_bucket": 2,
    }
    assert ClientOptions.of(given_all).max_ru == 400
    near = ClientOptions.of({"regions": "East US, West US"})
    assert near.client_arguments == {"preferred_locations": ["East US", "West US"]}
    assert ClientOptions.of({}).client_arguments == {}
    for name, wrong in [
        ("priority", "lowest"),
        ("throughput_bucket", "6"),
        ("max_ru", "0"),
        ("max_ru", "nan"),
        ("max_ru", "many"),
    ]:
        with pytest.raises(AddressWrong, match=f"{name}={wrong}"):
            ClientOptions.of({name: wrong})
