"""Whatever becomes of ranges, queries and readers: each change once, and keys in order."""

import asyncio
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Child, Feed, RangeEnded, StartAt
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import (
    HostName,
    Incarnation,
    Lease,
    RangeEnd,
    require_position,
)
from changefeed.leases.memory import MemoryLeases
from changefeed.pipeline.lease_offsets import leases_of, offset_of
from changefeed.pipeline.source.planning import next_offset, target_at
from changefeed.testing.virtual_time import run_in_virtual_time
from tests.support.coordinating import tend
from tests.support.pipeline_stories import Anew, Shifting, Story

HOST = HostName("h")


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", [Anew, Shifting])
def test_whatever_happens_each_change_is_read_once_and_the_changes_of_a_key_in_order(
    kind: type[Anew] | type[Shifting], seed: int
) -> None:
    random = Random(seed)
    story = Story(kind(random), random)
    for _ in range(15):
        story.happens()
        story.batch()
    story.to_the_end()
    assert sorted(x[4] for x in story.read) == [n for _, n in story.written]
    assert len({(name, sequence) for _, name, sequence, _, _ in story.read}) == len(story.read)
    for key in {key for key, _ in story.written}:
        rows = [x for x in story.read if x[3] == key]
        assert [x[4] for x in rows] == [n for k, n in story.written if k == key]
        places = [(generation, sequence) for generation, _, sequence, _, _ in rows]
        assert places == sorted(places)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kind", [Anew, Shifting])
def test_a_run_up_to_a_moment_reads_all_of_before_it_and_nothing_of_later(
    kind: type[Anew] | type[Shifting], seed: int
) -> None:
    random = Random(seed)
    world = kind(random)
    story = Story(world, random)
    for _ in range(5):
        story.happens()
        story.batch()
        story.within = None
    with world.access() as access:
        within, before = target_at(access, "now"), len(story.written)
        while True:
            story.happens()
            end = next_offset(
                access, story.offset, limit=random.choice([None, 5]), within=within
            )
            if end == story.offset:
                break
            story.read += story.rows(story.offset, end)
            story.offset = end
    assert sorted(x[4] for x in story.read) == list(range(before))


@pytest.mark.parametrize("seed", [*range(15), 109])  # 109: an end with a child that has ended
@pytest.mark.parametrize("start", ["beginning", "now"])
@pytest.mark.parametrize("kind", [Anew, Shifting])
def test_hosts_and_queries_take_turns_and_each_change_is_read_once_and_keys_in_order(
    kind: type[Anew] | type[Shifting], start: StartAt, seed: int
) -> None:
    random = Random(seed)
    story = Story(kind(random), random)
    for _ in range(4):
        for _ in range(random.randrange(4)):
            story.happens()
            story.batch()
        story.within = None
        hosts_go_on(story, start)
    story.to_the_end()
    assert sorted(x[4] for x in story.read) == [n for _, n in story.written]
    for key in {key for key, _ in story.written}:
        numbers = [x[4] for x in story.read if x[3] == key]
        assert numbers == [n for k, n in story.written if k == key]


def hosts_go_on(story: Story, start: StartAt) -> None:
    """Cross over to hosts, let them live for a while, and cross back."""
    container = MortalLeases()
    with story.world.access() as access:
        leases = leases_of(story.offset, access)
    feed = story.world.reader()

    async def live() -> None:
        for x in leases:
            await container.create(x)
        for _ in range(story.random.randrange(6)):
            story.happens()
            await tended(feed, container, start, story.random)
            await read_a_little(story, feed, container)
            await merge(feed, container, story.random)

    run_in_virtual_time(live())
    with story.world.access() as access:
        story.offset = offset_of(asyncio.run(read_all(container)), access)


async def read_all(container: MemoryLeases) -> list[Lease]:
    found = [await container.read(x.range_id) for x in await container.list()]
    return [x for x in found if x is not None]


class Died(Exception):
    """The host is gone, in the middle of what it did."""


class MortalLeases(MemoryLeases):
    """A container whose host dies before one of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None

    async def create(self, lease: Lease) -> Lease:
        self._live_on()
        return await super().create(lease)

    async def replace(self, lease: Lease) -> Lease:
        self._live_on()
        return await super().replace(lease)

    async def delete(self, lease: Lease) -> None:
        self._live_on()
        await super().delete(lease)

    def mortal(self, random: Random) -> None:
        """Let the host die soon, or not at all."""
        self.writes_left = random.choice([None, None, None, 0, 1, 2, 3])

    def _live_on(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise Died


IMPATIENT = {"leases": {"expiration": 0.1}, "timing": {"ranges_interval": 30.0}}
"""A key that seems to have no lease gets one soon."""


async def tended(feed: Feed, container: MortalLeases, start: StartAt, random: Random) -> None:
    """Create and delete leases as hosts do. None is patient, so any key that seems to have no
    lease gets one at once, and would be read again from ``start``.
    """
    container.mortal(random)
    with suppress(Died, TimeoutError):
        parts = {**IMPATIENT, "feed": {"start": start}}
        await tend(container, 1, feed=feed, parts=parts)
    container.writes_left = None


async def read_a_little(story: Story, feed: Feed, container: MortalLeases) -> None:
    """Read some pages under leases. Hosts die before or after they end one."""
    random = story.random
    for lease in KeyMap(await container.list(), ranges=await feed.ranges()).readable():
        owned = await container.acquire(lease.taken_by(HOST, Incarnation("1")))
        after = require_position(owned)
        try:
            page = await feed.read(owned.range, after, random.choice([1, 3, 50]))
        except RangeEnded as ended:
            dies = random.random() < 0.2
            end = RangeEnd(children=tuple(ended.children))
            await container.replace(owned.released() if dies else owned.ended_in(end))
            continue
        story.read += [(0, x.range_id, x.sequence, x.key, int(x.body)) for x in page.changes]
        owned = owned.advanced_to(page.position)
        await container.replace(left(owned, feed, random))


def left(owned: Lease, feed: Feed, random: Random) -> Lease:
    """Leave a lease for another host, now and then paused or, in Cosmos DB, in two parts. Of
    other feeds, queries read no parts.
    """
    event = random.random()
    if event < 0.1:
        return owned.released().paused_because("tired")
    if event < 0.2 and feed.children_inherit_positions:
        with suppress(FeedRefused):
            at = require_position(owned)
            parts = [Child(range=x, start=at) for x in feed.split(owned.range, 2)]
            return owned.ended_in(RangeEnd(children=tuple(parts), by="split"))
    return owned.released()


async def merge(feed: Feed, container: MemoryLeases, random: Random) -> None:
    """Merge two ranges as an operator does, who may be cut off between their ends."""
    leases = [await container.read(x.range_id) for x in await container.list()]
    at_rest = [x for x in leases if x is not None and not (x.ended or x.paused)]
    for one, two in pairwise(sorted(at_rest, key=lambda x: x.range.low)):
        if one.range.high != two.range.low or one.position != two.position:
            continue
        with suppress(FeedRefused):
            joined = Child(
                range=feed.merge([one.range, two.range]), start=require_position(one)
            )
            end = RangeEnd(children=(joined,), by="merge")
            await container.replace(one.ended_in(end))
            cut_off = random.random() < 0.3
            await container.replace(
                two.paused_because("a merge") if cut_off else two.ended_in(end)
            )
            return
