"""Positions that cross between hosts and Spark."""

import dataclasses
from collections.abc import Sequence
from contextlib import closing

import pytest
from msgspec.structs import replace

from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.checkpoint import Checkpoint, Hole, hash_of
from changefeed.leases.lease import (
    Lease,
    RangeEnd,
    require_position,
)
from changefeed.pipeline.lease_offsets import leases_of, offset_of
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.planning import first_offset, next_offset
from changefeed.pipeline.source.spark import start_of
from changefeed.runtime.errors import UserError
from tests.support import make
from tests.support.pipeline_feeds import memory_access
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

R0, R1, R2 = (RangeId(f"r{n}") for n in range(3))


def test_a_query_goes_on_from_a_part_with_all_keys_of_its_range_and_from_no_other() -> None:
    feed = MemoryFeed(1)
    for n in range(10):
        feed.append(f"k{n}")
    with memory_access(feed) as access:
        half = next_offset(access, first_offset(access, "beginning"), limit=4)
        (whole,) = leases_of(half, access)
        low, high = feed.split(whole.range, 2)
        joined = feed.merge([low, high])
        split = whole.ended_in(goes_on(whole, low, high, by="split"))
        parts = [replace(whole, range=x, epoch=1) for x in (low, high)]
        with pytest.raises(UserError, match="merge its parts"):
            offset_of([split], access)
        with pytest.raises(UserError, match="merge its parts"):
            offset_of([split, *parts], access)
        at_seven = [x.advanced_to(Position("7")) for x in parts]
        ended = [x.ended_in(goes_on(x, joined, by="merge")) for x in at_seven]
        with pytest.raises(UserError, match="merge its parts"):
            offset_of([split, ended[0], at_seven[1]], access)
        merged = replace(at_seven[0], range=joined)
        for leases in ([split, *ended], [split, *ended, merged]):
            offset = offset_of(leases, access)
            assert {x: y.position for x, y in offset.marks.items()} == {R0: "7"}


def goes_on(lease: Lease, *ranges: FeedRange, by: str) -> RangeEnd:
    return make.end(*ranges, at=require_position(lease), by=by)


def of_two_halves() -> tuple[ShiftingStore, Sequence[Lease]]:
    """Return a feed of one range whose children take over positions, and leases of its
    halves, which hosts have read up to its second and third change.
    """
    store = ShiftingStore()
    for n in range(4):
        store.append(f"k{n}", b"")
    (whole,) = store.physical
    halves = ShiftingReader(store).split(whole, 2)
    return store, [make.lease(x, at=f'"{n}"', epoch=1) for n, x in enumerate(halves, start=2)]


def shown(store: ShiftingStore, *leases: Lease) -> dict[str, str]:
    """Return where a query reads on from leases."""
    with closing(FeedAccess(store.open, position_traits())) as access:
        return {x: y.position for x, y in offset_of(leases, access).marks.items()}


def test_what_hosts_have_not_come_to_create_is_read_where_its_range_has_ended() -> None:
    store, (low, high) = of_two_halves()
    parts = ShiftingReader(store).split(low.range, 2)
    split = low.ended_in(goes_on(low, *parts, by="split"))
    first, second = (x.id for x in parts)
    expected = {first: '"2"', second: '"2"', high.range_id: '"3"'}
    assert shown(store, split, high) == expected
    begun = make.lease(parts[0], at='"3"', epoch=1)
    assert shown(store, split, begun, high) == {**expected, first: '"3"'}


def test_an_observer_learns_what_hosts_have_done_behind_positions_and_the_source_not() -> None:
    feed = MemoryFeed(1)
    feed.append("k")
    with memory_access(feed) as access:
        (lease,) = leases_of(first_offset(access, "beginning"), access)
        position = require_position(lease)
        checkpoint = Checkpoint(position, 7, (Hole(hash_of("k"), 1, 2),))
        offset = offset_of([replace(lease, checkpoint=checkpoint)], access)
        kept = Offset.of(offset.as_text())
        assert kept.done == {lease.range_id: checkpoint}
        assert kept == offset
        options = Options(feed="", starting_at=kept)
        assert start_of(access, options) == first_offset(access, "beginning")


def test_ranges_of_a_merge_that_was_cut_off_are_read_on() -> None:
    store, (low, high) = of_two_halves()
    joined = dataclasses.replace(
        store.physical[0], id=RangeId("-FF"), of=RangeId("0"), generation=(0, 2)
    )
    low = low.advanced_to(Position('"3"'))
    ended = [x.ended_in(goes_on(x, joined, by="merge")) for x in (low, high)]
    both = {low.range_id: '"3"', high.range_id: '"3"'}
    assert shown(store, ended[0], high.paused_because("a merge")) == both
    assert shown(store, *ended) == {"-FF": '"3"'}
    merged = make.lease(joined, at='"4"', epoch=1)
    assert shown(store, *ended, merged) == {"-FF": '"4"'}
    # It has been split again, and its own tombstone was deleted first.
    below = ShiftingReader(store).split(joined, 5)
    again = [make.lease(x, at='"4"', epoch=1) for x in below]
    assert shown(store, *ended, *again) == {x.id: '"4"' for x in below}
