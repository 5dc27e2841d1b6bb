"""Which ranges need a lease, and which leases are not needed any more."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from changefeed.feeds.errors import FeedRefused, RangeUnknown
from changefeed.feeds.feed import Continuation, Feed, FeedRange, RangeId, StartAt
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.balancing.missing_leases import create_missing, parts_without_lease
from changefeed.host.balancing.range_sync import (
    RangeSynchronizer,
    delete_echoes,
    delete_finished,
)
from changefeed.host.events import HostEvents
from changefeed.host.settings import FeedSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.plan import assignable
from changefeed.leases.remembering import LeaseMemory, RememberingContainer
from tests.support import make
from tests.support.calls import Calls
from tests.support.ended_ranges import end_range
from tests.support.looking import lease_in
from tests.support.partless_feed import Handing, PartlessFeed
from tests.support.proxies import proxied
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

EVENTS = HostEvents(HostName("a"))
R0, R1, R2, R3, R4 = (RangeId(f"r{n}") for n in range(5))


async def first_leases(
    feed: Feed,
    leases: LeaseContainer,
    parallelism: int = 1,
    *,
    ranges: Sequence[FeedRange] | None = None,
    listed: Sequence[Lease] | None = None,
    memory: LeaseMemory | None = None,
    start: StartAt = "beginning",
) -> bool:
    """Create what is missing, by what the feed and the container list unless it is given."""
    return await create_missing(
        feed,
        leases,
        start,
        ranges=await feed.ranges() if ranges is None else ranges,
        leases=await leases.list() if listed is None else listed,
        events=EVENTS,
        memory=memory or LeaseMemory(),
        parallelism=parallelism,
    )


async def names(leases: LeaseContainer) -> set[RangeId]:
    return {x.range_id for x in await leases.list()}


async def created(feed: MemoryFeed, leases: MemoryLeases) -> list[str]:
    """Create what is missing; return what there is."""
    before = await leases.list()
    any_missing = await first_leases(feed, leases, start="now")
    after = sorted(await names(leases))
    assert any_missing == (len(after) > len(before))
    return [str(x) for x in after]


async def test_hosts_that_start_together_create_thousands_of_leases_between_them() -> None:
    leases, feed, hosts = MemoryLeases(), MemoryFeed(1_000), 20
    ranges = await feed.ranges()
    slow = Calls(lasting={"create": 0.01, "list": 0.01})
    await asyncio.gather(
        *(
            create_missing(
                feed,
                proxied(leases, slow),
                "now",
                ranges=ranges,
                leases=(),
                events=EVENTS,
                memory=LeaseMemory(),
                begin=Random(n).random,
            )
            for n in range(hosts)
        )
    )
    assert len(await leases.list()) == 1_000
    assert slow.count["create"] < 1_000 * hosts / 4


async def forgotten(leases: MemoryLeases, ranges: Sequence[FeedRange] = ()) -> list[str]:
    """Forget what is over; return what is gone."""
    before = await leases.list()
    did = await delete_finished(leases, ranges=ranges, leases=before, events=EVENTS)
    left = await names(leases)
    gone = [str(x.range_id) for x in before if x.range_id not in left]
    assert did == bool(gone)
    return gone


async def finish(leases: MemoryLeases, range_id: RangeId) -> None:
    stored = await lease_in(leases, range_id)
    await leases.replace(stored.finished())


async def checkpoint(leases: MemoryLeases, range_id: RangeId) -> None:
    stored = await lease_in(leases, range_id)
    taken = await leases.acquire(stored.taken_by(HostName("a"), Incarnation("a-1")))
    await leases.checkpoint(taken.advanced_to(Continuation("1")))


async def test_each_range_gets_a_lease_whose_start_is_settled_once() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    feed.append("k", range_id=R0)
    assert await created(feed, leases) == ["r0", "r1"]
    feed.append("k", range_id=R0)
    assert await created(feed, leases) == ["r0", "r1"]
    assert (await lease_in(leases)).continuation == "1"


async def test_a_child_gets_its_lease_from_whoever_reads_its_parent_to_the_end() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    await created(feed, leases)
    feed.split(R0)
    assert await created(feed, leases) == ["r0"]
    feed.split(R1)  # its children wait as well, though their parent has no lease
    assert await created(feed, leases) == ["r0"]


async def test_what_nobody_reads_any_more_keeps_no_child_waiting() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    await created(feed, leases)
    feed.split(R0)
    await finish(leases, R0)
    assert await created(feed, leases) == ["r0", "r1", "r2"]


async def test_in_a_new_container_each_range_gets_a_lease_but_for_a_later_era() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    feed.begin_era(1)
    assert await created(feed, leases) == ["r0", "r1", "r2"]


async def ended_and_its_children() -> MemoryLeases:
    """The lease of r0, read to its end, and those of its children r1 and r2."""
    leases = MemoryLeases()
    for name, parents in ((R0, ()), (R1, (R0,)), (R2, (R0,))):
        made = FeedRange(id=name, parents=parents)
        await leases.create(make.lease(made, at="0"))
    await finish(leases, R0)
    return leases


async def test_a_tombstone_stays_until_each_successor_has_a_checkpoint() -> None:
    leases = await ended_and_its_children()
    assert await forgotten(leases) == []
    await checkpoint(leases, R1)
    assert await forgotten(leases) == []
    await checkpoint(leases, R2)
    assert await forgotten(leases) == ["r0"]


async def test_a_tombstone_stays_as_long_as_the_feed_lists_its_range() -> None:
    leases = await ended_and_its_children()
    await checkpoint(leases, R1)
    await checkpoint(leases, R2)
    assert await forgotten(leases, [FeedRange(id=R0)]) == []
    assert await forgotten(leases, [FeedRange(id=R1), FeedRange(id=R2)]) == ["r0"]


async def looked(
    feed: Feed,
    leases: MemoryLeases,
    seconds: float = 1,
    *,
    owned: Callable[[], Collection[Lease]] = tuple,
) -> set[RangeId]:
    """Let a host look for ranges for so long; return of which there are leases then."""
    synchronizer = RangeSynchronizer(
        feed,
        leases,
        FeedSettings(),
        events=EVENTS,
        changed=lambda: None,
        owned=owned,
        memory=LeaseMemory(),
        patience=30.0,
        random=Random(1),
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(synchronizer.run(), seconds)
    return await names(leases)


class Splitting(MemoryFeed):
    """A feed whose first range is split as soon as it has been listed, and is then gone."""

    _gone = False

    async def start(self, found: FeedRange, at: StartAt) -> Continuation:
        if found.id == R0:
            if not self._gone:
                self.split(R0)
            self._gone = True
            raise RangeUnknown(R0)
        await asyncio.sleep(0.1)
        return await super().start(found, at)

    async def ranges(self) -> Sequence[FeedRange]:
        listed = await super().ranges()
        return [replace(x, parents=()) for x in listed if x.id != R0] if self._gone else listed


async def test_a_range_that_ends_right_after_it_was_listed_holds_up_no_other() -> None:
    assert await looked(Splitting(2), MemoryLeases()) == {R1}
    # It looks again sooner than otherwise.
    assert await looked(Splitting(2), MemoryLeases(), 6) == {R1, R2, R3}


async def test_a_range_that_was_forgotten_while_a_host_looked_stays_forgotten() -> None:
    leases = MemoryLeases()

    class Forgetting(PartlessFeed):
        async def ranges(self) -> Sequence[FeedRange]:
            found = await super().ranges()
            return [found[0]] if len(found) == 1 else found[1:]

    feed, calls = Forgetting(1), list[str]()
    await created(feed, leases)

    async def ends_meanwhile(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        if name in ("list", "ranges"):
            calls.append(name)
        if len(calls) == 1:  # between the two things that a look begins with
            await end_range(leases, FeedRange(id=R0), *feed.split(R0), at="0")
            stored = await lease_in(leases)
            await leases.delete(stored)
        return answer

    torn = proxied(leases, ends_meanwhile)
    assert await looked(proxied(feed, ends_meanwhile), torn, 3) == {R1, R2}


WHOLE = FeedRange(id=R0, low="0", high="8")
HALF = FeedRange(id=R1, low="0", high="4", parents=(R0,))
QUARTER = FeedRange(id=R4, low="0", high="2", parents=(R0, R1))
MERGED = FeedRange(id=R3, low="0", high="8", parents=(R0, R1, R2))


async def test_nothing_is_made_once_the_range_may_be_another_s() -> None:
    def lost() -> None:
        raise LeaseLost(make.lease(WHOLE), "it could not be renewed in time")

    leases = MemoryLeases()
    with pytest.raises(LeaseLost):
        await end_range(leases, WHOLE, HALF, check=lost)
    assert await leases.list() == []


OTHER_HALF = FeedRange(id=R2, low="4", high="8", parents=(R0,))
BESIDE = FeedRange(id=R4, low="8", high="a", parents=(R0, R2))


@pytest.mark.parametrize(
    ("successors", "there", "feed", "going_on"),
    [
        ([MERGED], HALF, Handing(1), {"r0": "7", "r3": "7"}),
        ([HALF, OTHER_HALF], HALF, PartlessFeed(1), {"r0": "7", "r1": "3", "r2": "7"}),
        ([HALF], HALF, Handing(1), {"r0": "7", "r1": "7"}),
        ([HALF], BESIDE, PartlessFeed(1), {"r0": "7", "r1": "7", "r4": "3"}),
    ],
    ids=[
        "for keys that went elsewhere: it is ended",
        "for keys that go on there: it stays",
        "for keys whose range lived on: it begins where that has ended",
        "for other keys: it stays, though it names the range an ancestor",
    ],
)
async def test_what_a_dead_owner_made_is_taken_up_where_the_range_has_ended(
    successors: Sequence[FeedRange], there: FeedRange, feed: Feed, going_on: dict[str, str]
) -> None:
    leases = await make.leases(make.lease(WHOLE, at="7"), make.lease(there, at="3"))
    await end_range(leases, WHOLE, *successors, at="7", feed=feed)
    found = [await lease_in(leases, x) for x in await names(leases)]
    assert {x.range_id: x.continuation for x in found if not x.ended} == going_on


async def test_a_range_that_ends_late_does_not_move_back_what_its_half_has_read() -> None:
    leases = await make.leases(make.lease(WHOLE, at="7"), make.lease(HALF, at="9"))
    await end_range(leases, HALF, QUARTER, feed=Handing(1))
    await end_range(leases, WHOLE, QUARTER, at="7", feed=Handing(1))
    assert (await lease_in(leases, R4)).continuation == Continuation("9")


async def test_a_merged_range_waits_for_a_late_range_whose_other_half_was_not_read() -> None:
    leases = await make.leases(make.lease(WHOLE, at="7"), make.lease(HALF, at="8"))
    await end_range(leases, HALF, MERGED, feed=Handing(1))
    stored = await lease_in(leases, R3)
    assert R0 in stored.range.parents


async def test_a_lease_that_was_read_is_never_ended_as_superseded() -> None:
    leases = await make.leases(make.lease(WHOLE, at="7"))
    taken = make.lease(HALF, at="3").taken_by(HostName("a"), Incarnation("a/1"))
    await leases.create(taken.released())
    await end_range(leases, WHOLE, MERGED)
    stored = await lease_in(leases, R1)
    assert not stored.ended


async def superseded() -> MemoryLeases:
    """Return leases of a range whose half went on elsewhere before anybody read it."""
    leases = await make.leases(make.lease(WHOLE, at="7"), make.lease(HALF, at="3"))
    await end_range(leases, WHOLE, MERGED, feed=Handing(1))
    await finish(leases, R0)
    return leases


async def test_a_lease_that_was_superseded_does_not_come_back_by_a_late_create() -> None:
    leases = await superseded()
    late = make.lease(HALF, at="3")
    assert (await leases.create(late)).ended
    assert [x.range_id for x in assignable(await leases.list())] == ["r3"]


async def test_a_superseded_lease_is_forgotten_once_others_read_its_keys() -> None:
    leases = await superseded()
    assert await forgotten(leases) == []
    await checkpoint(leases, R3)
    assert await forgotten(leases) == ["r0", "r1"]


async def test_a_superseded_lease_begins_after_all_where_its_keys_come_back() -> None:
    leases = await superseded()
    await end_range(leases, MERGED, replace(HALF, parents=(R3,)))
    stored = await lease_in(leases, R1)
    assert (stored.ended, stored.continuation) == (False, "9")


async def test_a_lease_that_a_late_write_created_again_is_deleted() -> None:
    leases = await make.leases(
        *(
            make.lease(x, at="3")
            for x in (MERGED, HALF, replace(HALF, id=R4, parents=(R3,)), replace(WHOLE, id=R2))
        )
    )
    await checkpoint(leases, R2)  # others read it: its owner decides, not we
    await checkpoint(leases, R3)
    owned = [x for x in await leases.list() if x.range_id == R3]
    assert await looked(MemoryFeed(0), leases, owned=lambda: owned) == {R2, R3, R4}


async def test_what_another_kind_of_processor_goes_on_in_is_no_echo() -> None:
    leases = MemoryLeases()
    theirs = replace(HALF, parents=())
    await leases.create(make.lease(WHOLE, at="3"))
    await leases.create(Lease(range=theirs, continuation=Continuation("9"), stamp=1e9))
    owned = [x for x in await leases.list() if x.range_id == WHOLE.id]
    await delete_echoes(leases, owned, await leases.list(), events=EVENTS)
    assert (await lease_in(leases, theirs.id)).continuation == "9"


async def test_what_goes_on_behind_a_range_that_others_have_read_already_is_no_echo() -> None:
    leases = MemoryLeases()
    echo = FeedRange(id=R2, low="4", high="8", parents=(R3,))
    for x in (WHOLE, HALF, replace(QUARTER, parents=(R1,)), echo):
        await leases.create(make.lease(x, at="9"))
    await checkpoint(leases, R1)  # by one that waits for no parents
    await finish(leases, R1)
    owned = [x for x in await leases.list() if x.range_id == R0]
    await delete_echoes(leases, owned, await leases.list(), events=EVENTS)
    assert await names(leases) == {R0, R1, R4}


async def test_what_a_host_came_to_own_during_a_listing_proves_no_lease_an_echo() -> None:
    leases = await make.leases(
        *(make.lease(x, at="3") for x in (WHOLE, replace(HALF, parents=())))
    )
    owners = iter([(), await leases.list()])
    assert await looked(MemoryFeed(0), leases, owned=lambda: next(owners)) == {R0, R1}


async def test_a_lease_that_waits_for_one_that_was_deleted_waits_no_more() -> None:
    leases = await make.leases(make.lease(HALF, at="7"))
    await looked(Handing(0), leases)
    stored = await lease_in(leases, R1)
    assert (stored.range.parents, stored.continuation) == ((), "7")


async def test_what_a_range_goes_on_in_waits_for_no_range_with_other_keys() -> None:
    leases = MemoryLeases()
    beside = FeedRange(id=R2, low="8", high="a", parents=(R0,))
    unbounded = FeedRange(id=R4)
    for x in (WHOLE, beside, unbounded):
        await leases.create(make.lease(x, at="7"))
    await end_range(leases, WHOLE, replace(HALF, parents=(R0, R2, R4)))
    assert (await lease_in(leases, R1)).range.parents == (R0, R4)


async def test_a_range_that_is_read_in_parts_is_not_created_as_a_whole() -> None:
    leases = MemoryLeases()
    for low, high in (("0", "4"), ("4", "8")):
        part = FeedRange(id=RangeId(f"{low}-{high}"), low=low, high=high)
        await leases.create(make.lease(part, at="7"))
    other = FeedRange(id=R4, low="8", high="a")
    await first_leases(Handing([R0, R4]), leases, ranges=[WHOLE, other], listed=[])
    assert await names(leases) == {"0-4", "4-8", "r4"}


@pytest.mark.parametrize(
    ("ended", "created"),
    [
        (FeedRange(id=R0, low="", high="8"), True),  # it was split, and is behind
        (FeedRange(id=R4, low="", high="8"), False),  # it may have been read in its place
        (FeedRange(id=R0, low="", high="2"), False),  # it was merged: others have the rest
    ],
)
async def test_a_tombstone_keeps_no_range_from_a_new_lease_that_it_was_split_into(
    ended: FeedRange,
    created: bool,  # noqa: FBT001 - what comes of it
) -> None:
    leases = MemoryLeases()
    half = FeedRange(id=R1, low="", high="4", parents=(R0,))
    other = FeedRange(id=R2, low="4", high="8", parents=(R0,))
    for lease in (replace(make.lease(ended), epoch=1).finished(), make.lease(other)):
        await leases.create(replace(lease, continuation=Continuation("0")))
    await first_leases(Handing([R1, R2, RangeId("2-4")]), leases, ranges=[half, other])
    assert (R1 in await names(leases)) == created


class TornListing(MemoryLeases):
    """Its next listing lacks one lease."""

    lacks: RangeId | None = None

    async def list(self) -> list[Lease]:
        lacking, self.lacks = self.lacks, None
        return [x for x in await super().list() if x.range_id != lacking]


async def test_a_part_that_only_one_listing_lacks_gets_no_second_lease() -> None:
    leases, memory = TornListing(), LeaseMemory()
    for low, high in (("", "4"), ("4", "8")):
        half = FeedRange(id=RangeId(f"{low}-{high}"), low=low, high=high)
        await leases.create(Lease(range=half, continuation=Continuation("0"), epoch=1))
    merged = FeedRange(id=R4, low="", high="8", parents=(RangeId("-4"), RangeId("4-8")))
    leases.lacks = RangeId("4-8")
    await first_leases(Handing(1), leases, ranges=[merged], memory=memory)
    assert sorted(await names(leases)) == ["-4", "4-8"]


class OldListing(MemoryLeases):
    """Its listings show what was there, whatever has been written since."""

    shown: Sequence[Lease] = ()

    async def list(self) -> list[Lease]:
        return [*self.shown]


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_merged_lease_that_no_listing_shows_comes_apart_only_if_it_was_deleted(
    *, deleted: bool
) -> None:
    leases, memory = OldListing(), LeaseMemory()
    merged = FeedRange(id=RangeId("-FF.1"), low="", high="FF", parents=(RangeId("-7F"),))
    lease = Lease(range=merged, continuation=Continuation('"0"'), epoch=3)
    stored = await leases.create(lease)
    memory.note([stored])
    if deleted:
        await leases.delete(stored)
    await first_leases(shifting(1), leases, 2, memory=memory)
    leases.shown = await MemoryLeases.list(leases)
    expected = ["-7F", "7F-FF"] if deleted else ["-FF.1"]
    assert sorted(await names(leases)) == expected


async def test_a_deleted_lease_goes_on_above_its_epochs_and_from_its_checkpoint() -> None:
    feed, stored, memory = MemoryFeed(1), MemoryLeases(), LeaseMemory()
    leases = RememberingContainer(stored, memory)
    await first_leases(feed, leases, listed=[], memory=memory)
    (lease,) = await leases.list()
    lease = await leases.acquire(lease.taken_by(HostName("a"), Incarnation("a-1")))
    await leases.checkpoint(lease.advanced_to(Continuation("7")))
    (lease,) = await stored.list()
    await stored.delete(lease)
    feed.append("k", range_id=R0)
    await first_leases(feed, leases, listed=[], memory=memory, start="now")
    found = await lease_in(stored)
    assert (found.epoch, found.continuation, found.owner) == (1, "7", None)


def held(low: str, high: str, *parents: RangeId, name: str = "", epoch: int = 0) -> Lease:
    found = make.feed_range(name or f"{low}-{high}", low, high, parents=parents)
    return Lease(range=found, epoch=epoch)


MERGED_OF_THREE = make.feed_range("r4", "", "8", parents=("r1", "r2", "r3"))
BEFORE, BETWEEN = make.feed_range("r0", "", "2"), make.feed_range("r4", "2", "8")
AFTER = make.feed_range("r3", "8", "a")
SPLIT = held("", "8", name="r0", epoch=1).finished()
LOW_HALF = held("", "4", R0, name="r1")


@pytest.mark.parametrize(
    ("ranges", "leases", "gaps"),
    [
        ([MERGED_OF_THREE], [held("2", "4", epoch=1), held("6", "8", epoch=1)], ["-2", "4-6"]),
        ([MERGED_OF_THREE], [held("2", "4", epoch=1)], ["-2", "4-8"]),
        (
            [MERGED_OF_THREE],
            [held("2", "4"), held("6", "8"), Lease(range=MERGED_OF_THREE).finished()],
            ["-2", "4-6"],
        ),
        (
            [BETWEEN, BEFORE, AFTER],
            [held("2", "4", epoch=1), Lease(range=BEFORE), Lease(range=AFTER)],
            ["4-8"],
        ),
        ([MERGED_OF_THREE], [], []),
        ([MERGED_OF_THREE], [Lease(range=MERGED_OF_THREE)], []),
        ([MERGED_OF_THREE], [held("4", "8"), held("", "4", epoch=1).finished()], []),
        ([MERGED_OF_THREE], [held("4", "8"), make.lease("r2")], []),
        ([SPLIT.range], [SPLIT, LOW_HALF], ["4-8"]),
        ([SPLIT.range], [SPLIT], ["-8"]),
        ([], [SPLIT, LOW_HALF], []),
        ([SPLIT.range], [SPLIT, held("", "8", name="r0", epoch=1)], []),
        ([BEFORE, BETWEEN], [held("", "1"), Lease(range=BETWEEN)], ["1-2"]),
        ([BEFORE, BETWEEN, AFTER], [held("", "9"), held("1", "3")], ["9-a"]),
    ],
    ids=[
        "of a merged range, none of whose parts is a range of the feed",
        "at its end",
        "beside its own lease, which has ended",
        "before the next range",
        "a new container",
        "it has a lease",
        "a part was read to its end",
        "a lease without bounds may hold the keys",
        "a part of what was split by hand",
        "all parts of what was split by hand",
        "no range of the feed",
        "two listings, one of before the split",
        "below the lease of another range",
        "a lease over several ranges",
    ],
)
def test_keys_of_a_range_that_no_lease_holds_are_found(
    ranges: Sequence[FeedRange], leases: Sequence[Lease], gaps: Sequence[str]
) -> None:
    assert [f"{low}-{high}" for _, low, high in parts_without_lease(ranges, leases)] == gaps


@pytest.mark.parametrize(
    ("parallelism", "created"),
    [
        (1, ["1", "2"]),
        (2, ["1", "2"]),
        (3, ["-3F", "3F-7F", "7F-BF", "BF-FF"]),
        (4, ["-3F", "3F-7F", "7F-BF", "BF-FF"]),
        (5, ["-2A", "2A-54", "54-7F", "7F-A9", "A9-D4", "D4-FF"]),
    ],
)
async def test_the_first_leases_are_of_parts_where_more_ranges_are_asked_for(
    parallelism: int, created: list[str]
) -> None:
    store, leases = ShiftingStore(), MemoryLeases()
    store.split(RangeId("0"))
    for _ in range(2):  # once they are there, nothing is missing
        await first_leases(ShiftingReader(store), leases, parallelism)
        assert sorted(await names(leases)) == created
    await first_leases(ShiftingReader(store), leases, 64)  # of another setting, later
    assert sorted(await names(leases)) == created


def shifting(ranges: int) -> Feed:
    store = ShiftingStore()
    while len(store.physical) < ranges:
        store.split(store.physical[0].id)
    return ShiftingReader(store)


@pytest.mark.parametrize("feed", [MemoryFeed(2), shifting(2)], ids=["log", "cosmos"])
async def test_a_host_creates_the_same_first_leases_as_one_that_is_just_doing_it(
    feed: Feed,
) -> None:
    whole = MemoryLeases()
    await first_leases(feed, whole, 8)
    cut = await whole.list()
    assert len(cut) == 8
    for there in range(1, 8):
        leases = MemoryLeases()
        for lease in cut[:there]:
            await leases.create(replace(lease, continuation=Continuation("0")))
        await first_leases(feed, leases, 8)
        assert await names(leases) == {x.range_id for x in cut}


async def test_what_is_missing_of_leases_that_were_read_is_created_as_one_part() -> None:
    feed, leases = shifting(1), MemoryLeases()
    first = Lease(range=FeedRange(id=RangeId("-3F"), low="", high="3F"), epoch=2)
    await leases.create(replace(first, continuation=Continuation('"0"')).finished())
    await first_leases(feed, leases, 4)
    assert sorted(await names(leases)) == ["-3F", "3F-FF"]


async def test_what_comes_of_a_range_is_made_by_its_reader_in_parts_or_not() -> None:
    feed, leases = MemoryFeed(5), MemoryLeases()
    await first_leases(feed, leases, 9)
    before = await leases.list()
    feed.split(R0)
    await first_leases(feed, leases, 9)  # seven ranges by now, each of which would be halved
    assert await leases.list() == before


async def test_a_listing_that_lacks_all_leases_makes_no_parts_beside_them() -> None:
    store, leases = ShiftingStore(), MemoryLeases()
    whole = FeedRange(id=RangeId("0"), low="", high="FF")
    await leases.create(Lease(range=whole, continuation=Continuation('"0"')))
    await first_leases(ShiftingReader(store), leases, 4, ranges=[whole], listed=[])
    assert [x.range_id for x in await leases.list()] == ["0"]


async def test_the_lease_of_a_part_that_was_deleted_is_created_again() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    await first_leases(feed, leases, 4)
    names = sorted(x.range_id for x in await leases.list())
    await leases.delete(next(x for x in await leases.list() if x.range_id == names[1]))
    await first_leases(feed, leases, 1)
    assert sorted(x.range_id for x in await leases.list()) == names


async def test_a_listing_that_lacks_all_parts_does_not_create_their_range() -> None:
    feed, leases = MemoryFeed(1), MemoryLeases()
    await first_leases(feed, leases, 4)
    for parallelism in (1, 4):
        await first_leases(feed, leases, parallelism, listed=[])
    assert len(await leases.list()) == 4


async def test_a_feed_that_reads_no_parts_refuses_more_ranges_than_it_has() -> None:
    leases = MemoryLeases()
    with pytest.raises(FeedRefused, match=r"feed\.parallelism is 4"):
        await first_leases(PartlessFeed(3), leases, 4)
    await first_leases(PartlessFeed(3), leases, 3)
    await first_leases(PartlessFeed(3), leases, 4)  # they are no first ones any more
    assert len(await leases.list()) == 3


async def test_a_part_that_was_merged_comes_back_where_the_feed_cuts_at_its_bounds() -> None:
    leases = MemoryLeases()
    low, high = FeedRange(id=R1, low="", high="4"), FeedRange(id=R2, low="4", high="8")
    for part in (low, high):
        tombstone = replace(make.lease(part), epoch=5, ended=True)
        await leases.create(replace(tombstone, continuation=Continuation("3")))
    merged = FeedRange(id=R0, low="", high="8", parents=(R1, R2))
    await leases.create(Lease(range=merged, continuation=Continuation("7"), epoch=6))
    parts = [replace(x, parents=(R0,)) for x in (low, high)]
    await end_range(leases, merged, *parts, at="7", feed=Handing(1))
    for name in (R1, R2):
        stored = await lease_in(leases, name)
        assert (stored.ended, stored.epoch, stored.continuation) == (False, 0, "7")
        assert stored.range.parents == (R0,)
