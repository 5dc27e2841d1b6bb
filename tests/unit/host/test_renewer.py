"""When leases are renewed, as the loop times it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.renewer import LeaseRenewer
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import HostName, Lease
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from tests.support import make
from tests.support.looking import now

if TYPE_CHECKING:
    from changefeed.host.owned_lease import OwnedLease

LESS_THAN_CLOCKS_TELL = 1e-15


class Held:
    """A lease whose fence lies so many seconds ahead, and what became of its renewals."""

    def __init__(self, name: str = "r0", left: float = 29.0) -> None:
        self.lease = make.lease(name)
        self.range_id = self.lease.range_id
        self.lost = self.given_up = self.doubted = False
        self.renewed: list[float] = []
        self.lasting = 0.0
        self.raises: list[Exception] = []
        self.begun = 0
        self._until = now() + left

    @property
    def time_left(self) -> float:
        return max(0.0, self._until - now())

    def beat(self) -> None:
        self._until = now() + 29.0

    def check(self) -> None:
        if not self.time_left:
            self.lost = True
            raise LeaseLost(self.lease, "it could not be renewed in time")

    async def renew(self, change: Callable[[Lease], Lease]) -> None:
        self.begun += 1
        self.doubted = False
        await asyncio.sleep(self.lasting)
        if self.raises:
            raise self.raises.pop()
        self.lease = change(self.lease)
        self.renewed.append(now())
        self.beat()


class Story:
    """One renewer, of the usual settings; ``described`` is what is known of its ranges."""

    def __init__(self, *, renew_each: bool = False) -> None:
        events = HostEvents(HostName("a"))
        self.failed: list[Exception] = []
        self.described: Callable[[Lease], Lease] = lambda x: x
        self.renewer = LeaseRenewer(
            make.rules(),
            renew_each=renew_each,
            events=events,
            retrier=Retrier(events, Random(0)),
            random=Random(0),
            failed=self.failed.append,
        )

    def keep(self, held: Held) -> Held:
        self.renewer.keep(cast("OwnedLease", held), self._described)
        return held

    def _described(self, lease: Lease) -> Lease:
        return self.described(lease)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.renewer.run())
        yield
        assert not task.done()
        task.cancel()


async def test_where_others_may_come_each_is_renewed_in_each_interval_and_not_all_at_once() -> (
    None
):
    story = Story(renew_each=True)
    async with story.running():
        held = [story.keep(Held(f"r{n}")) for n in range(50)]
        await asyncio.sleep(100)
        assert {len(x.renewed) for x in held} <= {9, 10}
        assert len({x.renewed[0] for x in held}) > 10


async def test_what_heartbeats_keep_is_renewed_once_they_fail_with_time_for_another_try() -> (
    None
):
    story = Story()
    async with story.running():
        held = story.keep(Held())
        for _ in range(20):
            await asyncio.sleep(10)
            held.beat()
        assert held.renewed == []
        held.raises = [StoreUnavailable("not now")]
        await asyncio.sleep(28)
        assert (held.lost, held.begun, len(held.renewed)) == (False, 2, 1)


async def test_a_listing_that_finds_trouble_has_it_said_once_in_an_interval() -> None:
    story = Story()
    async with story.running():
        held = story.keep(Held())

        def failing(lease: Lease) -> Lease:
            return lease.with_health(lease.health.failed(now(), "no such table"))

        story.described = failing
        await asyncio.sleep(5)
        assert held.renewed == [], "nobody has looked"
        story.renewer.listed()
        await asyncio.sleep(2)
        assert len(held.renewed) == 1
        story.described = lambda x: x.with_health(make.lease().health)
        story.renewer.listed()
        await asyncio.sleep(5)
        assert len(held.renewed) == 1
        await asyncio.sleep(5)
        story.renewer.listed()
        await asyncio.sleep(1)
        assert len(held.renewed) == 2


async def test_a_slow_renewal_holds_up_no_other_and_is_not_begun_twice() -> None:
    story = Story(renew_each=True)
    async with story.running():
        slow, other = story.keep(Held("slow")), story.keep(Held("other"))
        slow.lasting = 25.0
        await asyncio.sleep(26)
        assert slow.begun == 1
        assert len(other.renewed) >= 2


@pytest.mark.parametrize("left", [5.0, LESS_THAN_CLOCKS_TELL])
async def test_what_cannot_be_renewed_is_lost_at_its_fence(left: float) -> None:
    await asyncio.sleep(1000)  # what is added to a clock at 0 is never rounded away
    story = Story()
    async with story.running():
        held = story.keep(Held(left=left))
        held.lasting = 1e9
        await asyncio.sleep(left + 0.2)
        assert held.lost
        assert held.begun <= 2


async def test_a_refusal_is_told_and_the_other_leases_are_kept() -> None:
    story = Story(renew_each=True)
    async with story.running():
        refused, other = story.keep(Held("refused")), story.keep(Held("other"))
        refused.raises = [StoreRefused("no")]
        await asyncio.sleep(35)
        assert [str(x) for x in story.failed] == ["no"]
        assert len(other.renewed) >= 3


async def test_a_lease_that_was_let_go_is_renewed_no_more() -> None:
    story = Story(renew_each=True)
    async with story.running():
        held = story.keep(Held())
        held.lasting = 5.0
        await asyncio.sleep(10)
        story.renewer.let_go(RangeId("r0"))
        before = len(held.renewed)
        await asyncio.sleep(30)
        assert len(held.renewed) == before
