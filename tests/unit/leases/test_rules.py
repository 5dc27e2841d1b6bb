"""What all hosts go by, while some have not seen yet that it has changed."""

import asyncio
from dataclasses import replace

import pytest

from changefeed.leases.fleet import FleetRules
from changefeed.leases.fleet_record import changed_to, refuse_other_checkpoints
from changefeed.leases.lease import FleetRecord
from changefeed.leases.timing import Timing
from changefeed.runtime.errors import StoreRefused

THIRTY = replace(Timing.of(30), handoff_poll=0.1)  # as a test may have it


def rules(own: Timing = THIRTY) -> FleetRules:
    return FleetRules(own, "count", asyncio.get_running_loop().time)


def says(expiration: float, balance: str = "count", before: float = 0.0) -> FleetRecord:
    return FleetRecord(id="f", expiration=expiration, balance=balance, before=before)


@pytest.mark.parametrize("to", [6.0, 120.0])
async def test_a_host_lives_by_the_shorter_and_judges_by_the_longer_until_the_old_has_passed(
    to: float,
) -> None:
    of = rules()
    assert of.adopt(says(to))
    for _ in range(59):
        assert (of.shown.expiration, of.judged.expiration) == (min(to, 30), max(to, 30))
        assert not of.settled
        await asyncio.sleep(1)
    await asyncio.sleep(2)
    assert (of.shown, of.judged, of.settled) == (Timing.of(to), Timing.of(to), True)


async def test_a_long_expiration_is_waited_for_once_whatever_comes_after_it() -> None:
    of = rules(Timing.of(300))
    assert of.adopt(says(30))
    await asyncio.sleep(100)
    assert of.adopt(says(6))
    assert (of.shown.expiration, of.judged.expiration) == (6, 300)
    await asyncio.sleep(201)
    assert of.settled


async def test_a_host_that_starts_knows_what_others_may_still_go_by() -> None:
    of = rules(Timing.of(6))
    of.begin(says(6, before=30))
    assert (of.shown.expiration, of.judged.expiration) == (6, 30)
    await asyncio.sleep(61)
    assert of.settled


def test_the_record_says_what_was_before_until_that_has_passed() -> None:
    first = changed_to(FleetRecord(), 30, "count")
    assert (first.expiration, first.balance, first.before) == (30, "count", 0)
    second = changed_to(first, 6, "load")
    assert (second.expiration, second.balance, second.before) == (6, "load", 30)
    assert changed_to(second, 6, "load") == second
    assert changed_to(second, 10, "load").before == 30


def test_checkpoints_are_of_another_fleet_only_where_ownership_says_which_fleet_it_is() -> None:
    refuse_other_checkpoints(FleetRecord(id="one", checkpoints="one"))
    refuse_other_checkpoints(FleetRecord(checkpoints="one"))  # ownership was emptied
    for other in ("", "two"):
        with pytest.raises(StoreRefused):
            refuse_other_checkpoints(FleetRecord(id="one", checkpoints=other))
