"""What a worker stores that is given no time to finish: all that is done, and no more."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from changefeed.feeds.feed import Change
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import Failure
from changefeed.testing.fleet import Fleet, Sections
from tests.support import make
from tests.support.handed import Handed, fleet_of, handed_to
from tests.support.looking import lease_in

IN_PAGES_OF_THREE = {"page_size": 3}


class Hangs(Handed):
    """Hangs in its second call."""

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await super().process(context, changes)
        if len(self.epochs) == 2:
            await asyncio.Event().wait()


async def cut_off(running: Fleet, name: str, match: str = "not in order") -> None:
    """SIGTERM, and a second one after a while: what is in hand is cancelled."""
    host, ended = running.hosts.pop(name), running.running.pop(name)
    host.stop()
    await asyncio.sleep(1)
    host.stop()
    with pytest.raises(Failure, match=match):
        await ended


async def test_who_is_cut_off_stores_what_the_policy_had_put_off() -> None:
    feed, container, observer = make.memory_feed(1, 6), MemoryLeases(), Hangs()
    parts: Sections = {"feed": IN_PAGES_OF_THREE, "observer": {"checkpoint": 3600}}
    async with fleet_of(lambda: observer, feed, container, parts) as running:
        running.start("a")
        await asyncio.sleep(2)
        assert (await lease_in(container)).position == "0"
        await cut_off(running, "a")
        assert observer.sequences == [1, 2, 3, 4, 5, 6]
        lease, reasons = await lease_in(container), [CloseReason.STOPPING]
        assert (lease.owner, lease.position, observer.reasons) == (None, "3", reasons)


@pytest.mark.parametrize(
    ("acknowledged", "stored"),
    [([], "0"), ([2, 4], "0"), ([2, 1, 4], "2")],
    ids=["none", "none of the first", "all up to a gap"],
)
async def test_who_is_cut_off_stores_nothing_that_is_not_acknowledged(
    acknowledged: list[int], stored: str
) -> None:
    class Acknowledges(Handed):
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            await super().process(context, changes)
            for sequence in acknowledged:
                context.acknowledge(changes[sequence - 1])

    observer = Acknowledges()
    parts = {"observer": {"checkpoint": "manual"}}
    async with handed_to(observer, 5, parts) as running:
        await asyncio.sleep(2)
        await cut_off(running, "a")
        assert observer.sequences == [1, 2, 3, 4, 5]
        lease = await lease_in(running.container)
        assert (lease.owner, lease.position) == (None, stored)


async def never() -> None:
    await asyncio.Event().wait()


async def test_an_observer_that_does_not_close_and_leaves_changes_repeats_them() -> None:
    observer = Handed()
    observer.close = lambda *_: never()  # type: ignore[method-assign]
    manual = {"observer": {"checkpoint": "manual"}}
    async with handed_to(observer, 6, manual) as running:
        await asyncio.sleep(2)
        await cut_off(running, "a", match=r"work in hand.*r0")


class Deaf(Handed):
    """Swallows every cancellation, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await super().process(context, changes)
        while not self.let_go.is_set():
            with suppress(asyncio.CancelledError):
                await self.let_go.wait()


@pytest.mark.parametrize("settings", [{}, {"timeout": 3600.0}, {"concurrency": 2}])
async def test_an_observer_that_swallows_every_cancellation_is_left_behind_with_its_lease(
    settings: dict[str, object],
) -> None:
    observer = Deaf()
    async with handed_to(observer, 6, {"observer": settings}) as running:
        await asyncio.sleep(2)
        stopping = asyncio.ensure_future(cut_off(running, "a", match=r"work in hand.*r0"))
        await asyncio.wait({stopping}, timeout=10)
        has_stopped = stopping.done()
        observer.let_go.set()
        await stopping
        assert has_stopped
        assert (await lease_in(running.container)).owner == "a"
