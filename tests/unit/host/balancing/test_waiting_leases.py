"""Leases that wait for one that was deleted by hand, and those that only seem to."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.host.balancing.waiting_leases import free_from_deleted_parents, waits_for_ever
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make
from tests.support.looking import lease_in

GONE, LOW, HIGH, NEXT = (RangeId(x) for x in ("gone", "low", "high", "next"))


def lease(name: RangeId, low: str, high: str, *parents: RangeId, epoch: int = 0) -> Lease:
    found = FeedRange(id=name, low=low, high=high, parents=parents)
    return Lease(range=found, continuation=Continuation("7"), epoch=epoch)


WAITS = lease(LOW, "", "8", GONE)


async def test_a_lease_whose_parent_was_deleted_waits_no_more_and_begins_where_it_was() -> None:
    leases = await make.leases(WAITS)
    listed = await leases.list()
    assert await free_from_deleted_parents(leases, listed, listed)
    stored = await lease_in(leases, LOW)
    assert (stored.range.parents, stored.continuation) == ((), "7")


async def test_parents_that_have_ended_are_kept() -> None:
    leases = MemoryLeases()
    ended = lease(HIGH, "8", "FF", epoch=1).finished()
    await leases.create(lease(NEXT, "", "FF", GONE, HIGH))
    await leases.create(ended)
    listed = await leases.list()
    assert await free_from_deleted_parents(leases, listed, listed)
    assert (await lease_in(leases, NEXT)).range.parents == (HIGH,)


@pytest.mark.parametrize("torn_twice", [False, True])
async def test_a_parent_that_is_there_is_waited_for_though_listings_lack_it(
    *, torn_twice: bool
) -> None:
    leases = await make.leases(WAITS)
    torn = await leases.list()
    await leases.create(lease(GONE, "", "FF", epoch=1))
    second = torn if torn_twice else await leases.list()
    assert not await free_from_deleted_parents(leases, torn, second)
    assert (await lease_in(leases, LOW)).range.parents == (GONE,)


@pytest.mark.parametrize(
    "before",
    [
        lease(NEXT, "", "FF", epoch=1),
        lease(NEXT, "4", "C"),
        Lease(range=FeedRange(id=NEXT), epoch=1),
    ],
    ids=["read", "not read yet", "without bounds"],
)
def test_a_lease_waits_while_another_may_have_its_keys_before_it(before: Lease) -> None:
    assert waits_for_ever(WAITS, [WAITS])
    assert not waits_for_ever(WAITS, [WAITS, before])


def test_a_lease_with_other_keys_and_one_that_comes_after_it_hold_nothing_up() -> None:
    beside = lease(HIGH, "8", "FF", epoch=1)
    after = lease(NEXT, "", "FF", LOW, HIGH)
    assert waits_for_ever(WAITS, [WAITS, beside, after])
    assert waits_for_ever(WAITS, [WAITS, beside.finished(), replace(after, epoch=0)])


@pytest.mark.parametrize(
    "other",
    [replace(WAITS, epoch=1), WAITS.finished(), lease(LOW, "", "8")],
    ids=["owned before", "ended", "without parents"],
)
def test_a_lease_that_does_not_wait_is_known_without_a_look_at_others(other: Lease) -> None:
    """It is asked of each: for thousands, a look at each pair would block the event loop."""

    class NotToBeRead(tuple[Lease, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Lease]:
            raise AssertionError("the others were looked at")

    assert not waits_for_ever(other, NotToBeRead())
