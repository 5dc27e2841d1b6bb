"""What all hosts go by, while some have not seen yet that it has changed."""

import asyncio
from dataclasses import replace

from changefeed.leases.lease import FleetRecord
from changefeed.leases.timing import FleetRules, Timing

THIRTY = replace(Timing.of(30), handoff_poll=0.1)  # as a test may have it


def rules(own: Timing = THIRTY) -> FleetRules:
    return FleetRules(own, "count", asyncio.get_running_loop().time)


def says(expiration: float, balance: str = "count", before: float = 0.0) -> FleetRecord:
    return FleetRecord(id="f", expiration=expiration, balance=balance, before=before)


async def test_a_long_expiration_is_waited_for_once_whatever_comes_after_it() -> None:
    of = rules(Timing.of(300))
    assert of.adopt(says(30))
    await asyncio.sleep(100)
    assert of.adopt(says(6))
    assert (of.shown.expiration, of.judged.expiration) == (6, 300)
    await asyncio.sleep(201)
    assert not of.adopt(says(6))
    assert of.settled


async def test_a_host_that_starts_knows_what_others_may_still_go_by() -> None:
    of = rules(Timing.of(6))
    of.begin(says(6, before=30))
    assert (of.shown.expiration, of.judged.expiration) == (6, 30)
    await asyncio.sleep(61)
    assert not of.adopt(says(6))
    assert of.settled
