"""Fleets whose leases are kept by the heartbeats of their owners."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Change, RangeId
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason
from changefeed.runtime.errors import NameTaken, StoreUnavailable
from changefeed.testing.fleet import Fleet
from changefeed.testing.proxies import proxied
from tests.support.calls import Calls
from tests.support.looking import lease_in, start

R0 = RangeId("r0")
SETTLED = 25.0


NOT_NOW = StoreUnavailable("not now")


class Counted(Calls):
    """A fleet, what its hosts wrote into leases, and which of their calls fail."""

    def __init__(self, ranges: int = 1) -> None:
        super().__init__()
        self.leases = MemoryLeases()
        self.failing_once: set[str] = set()
        self.shown_first: list[Lease] = []
        self.fleet = Fleet(ranges=ranges, container=proxied(self.leases, self))

    async def __aenter__(self) -> Self:
        self.host = self.fleet.start("a")
        await asyncio.sleep(SETTLED)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fleet.__aexit__(None, None, None)

    def fail(self, *names: str) -> None:
        self.failing = dict.fromkeys(names, NOT_NOW)

    async def __call__(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await super().__call__(name, call)
        if name in self.failing_once:
            self.failing_once.discard(name)
            raise NOT_NOW
        if name == "list_fleet":
            return replace(answer, leases=[*self.shown_first, *answer.leases])
        return answer

    async def lease(self) -> Lease:
        return await lease_in(self.leases)

    async def writes_in(self, seconds: float) -> int:
        calls = await self.within(seconds)
        return calls["replace"] + calls["acquire"] + calls["checkpoint"]


async def test_at_rest_nothing_is_written_for_a_lease() -> None:
    counted = Counted(ranges=50)
    async with counted.fleet as fleet:
        start(fleet, "ab")
        await fleet.balanced()
        await asyncio.sleep(SETTLED)
        owners = await fleet.owners()
        assert await counted.writes_in(600) == 0
        assert await fleet.owners() == owners


async def test_a_host_whose_name_is_taken_looks_at_once_whether_its_leases_are() -> None:
    """Its listings fail: else the first of them would show it. Its fence comes later."""

    class Hangs:
        async def process(self, _changes: Sequence[Change]) -> None:
            await asyncio.Event().wait()

    counted = Counted()
    async with counted.fleet as fleet:
        fleet.use(Hangs)
        fleet.append("k")
        fleet.start("a")
        await asyncio.sleep(SETTLED)
        counted.fail("list", "list_fleet")
        (found,) = await counted.leases.members()
        other = Incarnation("another-start")
        await counted.leases.put_member(replace(found, incarnation=other))
        await counted.leases.acquire((await counted.lease()).taken_by(HostName("a"), other))
        await asyncio.sleep(15)
        assert fleet.log.closed == [("a", R0, CloseReason.LEASE_LOST)]
        with pytest.raises(NameTaken):
            await fleet.running.pop("a")
        del fleet.hosts["a"]


@pytest.mark.parametrize("calls", ["put_member list_fleet", "list list_fleet"])
async def test_leases_are_renewed_where_heartbeats_or_listings_get_no_answer(
    calls: str,
) -> None:
    async with Counted() as counted:
        epoch = (await counted.lease()).epoch
        counted.fail(*calls.split())
        assert 3 <= await counted.writes_in(100) <= 10
        assert (await counted.lease()).epoch == epoch


async def test_a_host_that_takes_many_leases_lists_meanwhile_those_that_it_has() -> None:
    counted = Counted(ranges=16 * 60)
    counted.lasting = {"acquire": 1.0}
    async with counted.fleet as fleet:
        fleet.start("a")
        await asyncio.sleep(70)
        assert len(fleet.hosts["a"].leases) == 16 * 60
        assert counted.count["list_fleet"] >= 10
        assert counted.count["acquire"] == 16 * 60
        assert counted.count["replace"] == 0
