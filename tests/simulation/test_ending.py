"""What the end of a story must show, each broken once: a world of a few values."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make

from .ending import _CALM, _MAX_SECONDS, _STILL, Ending
from .loop import FreezingLoop
from .progress import Violation

if TYPE_CHECKING:
    from .world import World

A, B = HostName("a"), HostName("b")


class Few:
    """Two hosts that run, and a feed of some ranges."""

    def __init__(self, ranges: int) -> None:
        self.feed = MemoryFeed(ranges)
        self.leases = MemoryLeases()
        self.calls = Counter[tuple[str, str]]()
        self.missed: list[int] = []
        self.repeated = 0
        self.wild = False
        task = SimpleNamespace(done=lambda: False)
        self.running = {
            x: SimpleNamespace(
                host=SimpleNamespace(name=x, rules=SimpleNamespace(balance="count")),
                task=task,
            )
            for x in (A, B)
        }

    async def own(self, *owners: HostName | None, **more: Any) -> list[Lease]:
        for found, owner in zip(await self.feed.ranges(), owners, strict=False):
            await self.leases.create(make.lease(found, owner, at="0", **{"epoch": 1, **more}))
        return [*await self.leases.list()]

    def ending(self) -> Ending:
        source = SimpleNamespace(
            reader=lambda: self.feed,
            open_ranges=list,
            is_read_by=lambda owned: len(owned) == len(self.feed._ranges),
        )
        world = SimpleNamespace(
            source=source,
            stores=SimpleNamespace(records=self.leases),
            checker=SimpleNamespace(undelivered=lambda: self.missed, duplicates=self.repeated),
            wild=self.wild,
            graceful=True,
            raise_violation=lambda: None,
            start_what_ended=partial(asyncio.sleep, 0),
            processes=self.running,
            calls=self.calls,
            neighbours=SimpleNamespace(names=set()),
            mixed=False,
        )
        return Ending(cast("World", world))


@pytest.mark.parametrize(
    ("owners", "said"),
    [
        ((A,), "owned is"),
        ((A, None), "not everything is owned"),
        ((A, HostName("gone")), "owned by hosts that do not run"),
        ((A, A), "not spread evenly"),
    ],
)
async def test_a_fleet_that_is_not_whole_or_even_is_seen(
    owners: tuple[HostName | None, ...], said: str
) -> None:
    few = Few(2)
    await few.own(*owners)
    assert any(said in x for x in await few.ending()._unfinished())


async def test_changes_that_were_never_delivered_and_hosts_that_ended_are_seen() -> None:
    few = Few(2)
    await few.own(A, B)
    few.missed = [7]
    assert any(
        "1 changes were never delivered: [7]" in x for x in await few.ending()._unfinished()
    )
    few.running.clear()
    assert "no host is left running" in await few.ending()._unfinished()


async def test_leases_that_wait_for_ever_and_tombstones_are_seen() -> None:
    few = Few(1)
    (lease,) = await few.own(None, epoch=0)
    assert any("leases wait for ever" in x for x in await few.ending()._left_over())
    few = Few(1)
    (lease,) = await few.own(A)
    of_before = dataclasses.replace(lease.range, id=type(lease.range.id)("gone"))
    ended = replace(lease, range=of_before, end=make.CLOSED, checkpoint=Checkpoint.of_text("0"))
    await few.leases.create(ended)
    assert any("tombstones are left of ['gone']" in x for x in await few.ending()._left_over())


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(("list", 20), ("list_fleet", 18), ("members", 16)),
        *(("ranges", 6), ("replace", 60)),
    ],
)
def test_a_host_that_asks_or_writes_more_than_settings_say_is_seen(
    name: str, most: int
) -> None:
    few = Few(1)
    few.calls["a/1", name] = most // 2
    assert few.ending()._busy({}) == []
    few.calls["a/1", name] = most
    assert len(few.ending()._busy({})) == 1


@pytest.mark.parametrize("name", ["checkpoint", "create", "delete", "acquire"])
def test_a_write_that_a_still_fleet_has_no_reason_for_is_seen(name: str) -> None:
    few = Few(1)
    few.calls["a/1", name] = 1
    assert len(few.ending()._busy({})) == 1


def in_virtual_time(story: Coroutine[Any, Any, None]) -> None:
    loop = FreezingLoop()
    try:
        loop.run_until_complete(story)
    finally:
        loop.close()


def test_changes_that_came_twice_although_nothing_failed_are_seen() -> None:
    async def story() -> None:
        few = Few(2)
        await few.own(A, B)
        few.repeated = 1
        with pytest.raises(Violation, match="1 duplicates although nothing failed"):
            await few.ending().settle_down()

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("wild", "said", "after"),
    [(False, "nobody reads", _CALM), (True, "not everything is owned", _MAX_SECONDS + _STILL)],
)
def test_a_range_that_nobody_reads_is_seen_in_time(
    *, wild: bool, said: str, after: float
) -> None:
    async def story() -> None:
        few = Few(2)
        few.wild = wild
        await few.own(A, None)
        with pytest.raises(Violation, match=said):
            await few.ending().settle_down()
        assert asyncio.get_running_loop().time() == pytest.approx(after, abs=10)

    in_virtual_time(story())
