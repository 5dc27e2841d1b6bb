"""What the reader of a range that has ended writes into the leases of others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make
from tests.support.ended_ranges import end_range
from tests.support.looking import lease_in
from tests.support.partless_feed import Handing
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

START = Continuation("0")


class StaleLeases(MemoryLeases):
    """Lists nothing the first time, as a replica that lags behind."""

    stale = True

    async def list(self) -> Sequence[Lease]:
        listed = () if self.stale else await super().list()
        self.stale = False
        return listed


def span(name: str, low: str, high: str, *parents: str) -> FeedRange:
    return FeedRange(id=RangeId(name), low=low, high=high, parents=tuple(map(RangeId, parents)))


async def test_what_waited_for_a_range_is_not_read_beside_what_that_goes_on_in() -> None:
    """The feed has split it, and merged that again before the reader came to the end."""
    container = StaleLeases()
    ended, half = span("0", "00", "ff"), span("1", "00", "80", "0")
    await container.create(Lease(range=ended, continuation=START, epoch=1))
    await container.create(Lease(range=half, continuation=START))
    await end_range(container, ended, span("3", "00", "ff", "0"), at="0", feed=Handing(1))
    waited, followed = await container.read(half.id), await container.read(RangeId("3"))
    assert waited is None or waited.ended
    assert followed is not None
    assert not followed.ended


async def test_what_the_next_reader_wrote_is_not_undone_by_one_that_was_released() -> None:
    """An operator released the range; the feed merged its halves before it was read again."""
    container = MemoryLeases()
    ended = Lease(range=span("0", "00", "ff", "4"), continuation=START, epoch=1)
    await container.create(ended)
    half = span("1", "00", "80", "0")
    superseded = await container.create(Lease(range=half, continuation=START))
    await container.replace(superseded.finished())
    before = await container.read(half.id)

    async def released() -> None:
        raise LeaseLost(ended, "it is now held by 'b'")

    async def create(name: str) -> None:
        await end_range(
            container, ended.range, span(name, "00", "80", "0"), at="7", prove=released
        )

    with pytest.raises(LeaseLost):
        await create("1")
    assert await container.read(half.id) == before
    with pytest.raises(LeaseLost):
        await create("5")
    assert await container.read(RangeId("5")) is None
    ancestor = Lease(range=span("4", "00", "80"), continuation=START, epoch=1)
    before = await container.create(ancestor.finished())
    with pytest.raises(LeaseLost):
        await create("4")
    assert await container.read(before.range_id) == before
    waiting = Lease(range=replace(half, id=RangeId("2")), continuation=START)
    before = await container.create(waiting)
    with pytest.raises(LeaseLost):
        await create("3")
    assert await container.read(before.range_id) == before


@pytest.mark.parametrize(
    ("between", "begins_at"),
    [
        (span("3", "00", "40", "0"), "9"),
        (span("3", "00", "40"), "9"),  # its lease has lost its parents: the feed has them
        (span("2", "00", "40", "6"), "7"),  # does not come of the ended range
        (span("3", "10", "40", "0"), "7"),  # has read some of its keys only
        (span("3", "00", "40", "0", "4"), "7"),  # split, merged, and to be split again
    ],
    ids=["after it", "without parents", "beside it", "of other keys", "before it"],
)
async def test_a_range_that_is_found_at_its_end_again_moves_nothing_that_was_read_since(
    between: FeedRange, begins_at: str
) -> None:
    """Its first owner died there; a host of another kind, which waits for nobody, went on."""
    container = MemoryLeases()
    ended = span("0", "00", "ff", *(["3"] if "4" in between.parents else []))
    await container.create(Lease(range=ended, continuation=START, epoch=1))
    read = await container.create(Lease(range=between, continuation=Continuation("9"), epoch=1))
    await container.replace(read.finished())
    last = span("5", "00", "20", "0", "3")
    await container.create(make.lease(last, at="9"))
    await end_range(container, ended, last, at="7", feed=ShiftingReader(ShiftingStore()))
    assert (await lease_in(container, last.id)).continuation == begins_at


@pytest.mark.parametrize(
    ("between", "created"),
    [
        (span("3", "00", "40", "0"), False),
        (span("3", "00", "40"), False),
        (span("2", "00", "40"), True),  # does not come of the ended range
        (span("3", "10", "40", "0"), True),  # has some of its keys only
    ],
    ids=["after it", "without parents", "beside it", "of other keys"],
)
async def test_what_another_reads_already_goes_on_from_there_and_not_from_the_end_found_late(
    between: FeedRange, *, created: bool
) -> None:
    """A host of another kind took it before the end was written, and it has come further."""
    container = MemoryLeases()
    ended = span("0", "00", "ff")
    await container.create(Lease(range=ended, continuation=START, epoch=1))
    await container.create(Lease(range=between, continuation=Continuation("9"), epoch=1))
    last = span("5", "00", "20", "0", "3")
    await end_range(container, ended, last, at="7", feed=ShiftingReader(ShiftingStore()))
    assert (await container.read(last.id) is not None) == created
