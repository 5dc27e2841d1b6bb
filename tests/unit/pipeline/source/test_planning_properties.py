"""Whatever becomes of ranges, queries and readers: each change once, and keys in order."""

import asyncio
from random import Random

import pytest

from changefeed.feeds.feed import Feed, RangeEnded, StartAt
from changefeed.host.balancing.missing_leases import create_missing
from changefeed.host.balancing.range_sync import delete_finished
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.workers.successors import create_successors
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.plan import assignable
from changefeed.leases.remembering import LeaseMemory
from changefeed.pipeline.lease_offsets import leases_of, offset_of, read_leases
from changefeed.pipeline.source.planning import next_offset, target_at
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
            await tended(feed, container, start)
            await read_a_little(story, feed, container)

    asyncio.run(live())
    with story.world.access() as access:
        story.offset = offset_of(asyncio.run(read_leases(container)), access)


async def tended(feed: Feed, container: MemoryLeases, start: StartAt) -> None:
    """Create and delete leases as hosts do."""
    leases = await container.list()
    ranges = await feed.ranges()
    events = HostEvents(HOST)
    await create_missing(
        feed,
        container,
        start,
        ranges=ranges,
        leases=leases,
        events=events,
        memory=LeaseMemory(),
    )
    await delete_finished(container, ranges=ranges, leases=leases, events=events)


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

    def _live_on(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise Died


async def read_a_little(story: Story, feed: Feed, container: MortalLeases) -> None:
    """Read some pages under leases. Hosts die between any two writes at a range's end."""
    random = story.random
    for lease in assignable(await container.list()):
        owned = await container.acquire(lease.taken_by(HOST, Incarnation("1")))
        assert owned.continuation is not None
        try:
            page = await feed.read(owned.range, owned.continuation, random.choice([1, 3, 50]))
        except RangeEnded as ended:
            container.writes_left = random.choice([None, None, None, 0, 1, 2, 3])
            try:
                await end(owned, ended, feed, container, random)
            except Died:
                container.writes_left = None
                await container.replace(owned.released())
            container.writes_left = None
            continue
        story.read += [(0, x.range_id, x.sequence, x.key, int(x.body)) for x in page.changes]
        owned = owned.advanced_to(page.continuation).released()
        await container.replace(
            owned.paused_because("tired") if random.random() < 0.1 else owned
        )


async def end(
    owned: Lease, ended: RangeEnded, feed: Feed, container: MemoryLeases, random: Random
) -> None:
    """End a lease as hosts do."""
    events = HostEvents(HOST)
    await create_successors(
        owned.range,
        ended.successors,
        feed=feed,
        container=container,
        retrier=Retrier(events, random),
        events=events,
        check=lambda: None,
    )
    await container.replace(owned.finished())
