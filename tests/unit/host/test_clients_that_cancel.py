"""Clients of feeds and lease containers that cancel a call by themselves: no host minds."""

import asyncio

import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.membership import Membership
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.cancellation import UnexpectedCancellation
from changefeed.testing.fleet import Fleet


async def test_a_host_ends_where_a_task_of_its_own_was_cancelled_by_what_it_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cancelled(_: Membership) -> None:
        await asyncio.sleep(30)
        raise asyncio.CancelledError

    monkeypatch.setattr(Membership, "keep_alive", cancelled)
    container = MemoryLeases()
    async with Fleet(MemoryFeed(2), container) as fleet:
        fleet.start("a")
        with pytest.raises(UnexpectedCancellation):
            await asyncio.wait_for(fleet.running["a"], 60)
        assert {x.owner for x in await container.list()} == {None}
