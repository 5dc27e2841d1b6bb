"""How a user tests an observer, and what becomes of it in a fleet: with any pytest."""

import asyncio
import functools
from collections.abc import Sequence

import pytest

from changefeed import Change
from changefeed.testing import Fleet, deliver, make_changes
from samples.embedding.prices import Prices


def test_the_newest_price_of_an_article_is_kept() -> None:
    newest: dict[str, float] = {}
    changes = make_changes(("tea", {"price": 3}), ("milk", {"price": 1}), ("tea", {"price": 4}))
    done = asyncio.run(deliver(functools.partial(Prices, newest), changes))
    assert (newest, done.failure) == ({"tea": 4, "milk": 1}, None)


def test_an_article_that_is_deleted_has_no_price() -> None:
    newest: dict[str, float] = {}
    changes = make_changes(("tea", {"price": 3}), ("tea", None))
    asyncio.run(deliver(functools.partial(Prices, newest), changes))
    assert newest == {}


def test_a_change_without_a_price_is_not_done() -> None:
    changes = make_changes(("tea", {"price": 3}), ("milk", {}))
    done = asyncio.run(deliver(functools.partial(Prices, {}), changes, batch_size=1))
    assert isinstance(done.failure, KeyError)
    assert [x.key for x in done.unfinished] == ["milk"]


async def slow(changes: Sequence[Change]) -> None:
    await asyncio.sleep(0.1 * len(changes))


@pytest.mark.changefeed_fleet(ranges=4, observer=slow, settings={"feed": {"page_size": 10}})
async def test_a_crash_repeats_one_batch_of_a_range_at_most(changefeed_fleet: Fleet) -> None:
    fleet = changefeed_fleet
    fleet.start("anna")
    fleet.start("ben")
    await fleet.balanced()
    for n in range(1000):
        fleet.append(f"key-{n}")
    await asyncio.sleep(3)
    await fleet.kill("anna")
    await fleet.caught_up()
    assert len(fleet.log.times) == 1000
    assert fleet.log.repeats <= 2 * 10  # anna had two ranges
