"""One host's rounds over a container, without workers of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from changefeed.feeds.feed import Feed
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.coordinator import Coordinator
from changefeed.host.discovery import Discovery
from changefeed.host.events import HostEvents
from changefeed.host.failures import Failures, Retrier
from changefeed.host.owned_lease import OwnedLease
from changefeed.host.renewer import LeaseRenewer
from changefeed.host.worker import Worker, WorkerPool
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import FleetRecord, HostName, Incarnation
from changefeed.leases.timing import FleetRules
from tests.support import make


def _nobody(owned: OwnedLease) -> Worker:
    raise AssertionError(f"{owned.range_id} needs no worker here")


def _raise(error: Exception) -> None:
    raise error


@asynccontextmanager
async def coordinating(
    container: LeaseContainer,
    name: str = "c",
    *,
    feed: Feed | None = None,
    parts: Mapping[str, Mapping[str, Any]] | None = None,
    stopping: bool = False,
    chance: int = 0,
) -> AsyncIterator[tuple[Coordinator, Discovery]]:
    """Give the rounds of a host, and its questions to the feed, neither of which run yet.
    One that is ``stopping`` creates and deletes leases, and takes none.
    """
    own = make.settings(name, {x: dict(y) for x, y in (parts or {}).items()})
    clock, events, random = (
        asyncio.get_running_loop().time,
        HostEvents(HostName(name)),
        Random(chance),
    )
    discovery = Discovery(
        feed or MemoryFeed(1),
        container,
        own.feed,
        events=events,
        changed=lambda: None,
        recorded=_ignored,
        timing=own.leases.timing,
        clock=clock,
    )
    rules = FleetRules(own.leases.timing, own.leases.balance, clock)
    renewer = LeaseRenewer(
        rules,
        renew_each=False,
        events=events,
        retrier=Retrier(events, random),
        random=random,
        failed=_raise,
    )
    async with asyncio.TaskGroup() as group:
        guard = Failures(
            events, failed=_raise, stopping=lambda: stopping, suspect="the observer"
        ).guard
        pool = WorkerPool(
            _nobody, group=group, renewer=renewer, guard=guard, ended=lambda: None
        )
        yield (
            Coordinator(
                HostName(name),
                Incarnation(f"{name}-1"),
                own,
                rules,
                container=container,
                pool=pool,
                discovery=discovery,
                events=events,
                random=random,
                clock=clock,
                wall=lambda: 0.0,
                stopping=lambda: stopping,
                list_fleet=container.list_fleet,
                ended={},
            ),
            discovery,
        )


async def _ignored(_: FleetRecord) -> None:
    """Go by nothing that the record says."""


async def tend(
    container: LeaseContainer,
    seconds: float,
    *,
    every: float = 1.0,
    **how: Any,
) -> None:
    """Let a host create and delete leases for so long, and own none."""
    async with coordinating(container, stopping=True, **how) as (coordinator, discovery):

        async def rounds() -> None:
            while True:
                decision = await coordinator.round()
                await asyncio.sleep(0.01 if decision.again else every)

        tasks = [asyncio.ensure_future(x) for x in (discovery.run(), rounds())]
        await asyncio.wait(tasks, timeout=seconds, return_when="FIRST_COMPLETED")
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
