"""Positions that cross between hosts and Spark."""

from dataclasses import replace

import pytest

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.lease_offsets import leases_of, offset_of, read_leases
from changefeed.pipeline.source.planning import first_offset, next_offset
from tests.support.pipeline_feeds import drained, memory_access

R0, R1 = RangeId("r0"), RangeId("r1")


def test_hosts_go_on_where_a_query_has_stopped_and_a_query_where_hosts_have() -> None:
    feed = MemoryFeed(1)
    for n in range(10):
        feed.append(f"k{n}")
    with memory_access(feed) as access:
        half = next_offset(access, first_offset(access, "beginning"), limit=4)
        leases = leases_of(half, access)
        assert [(x.range_id, x.continuation, x.ended) for x in leases] == [(R0, "4", False)]
        assert offset_of(leases, access) == half
        feed.split(R0)
        end, _ = drained(access, half)
        assert end.marks.keys() == {RangeId("r0"), R1, RangeId("r2")}
        crossed = leases_of(end, access)
        assert [x.ended for x in crossed] == [True, False, False]
        assert crossed[1].range.parents == (R0,)
        assert offset_of(crossed, access) == end


async def test_leases_are_not_taken_from_a_living_host() -> None:
    container = MemoryLeases()
    lease = Lease(range=(await MemoryFeed(1).ranges())[0], continuation=Continuation("7"))
    await container.create(lease)
    (found,) = await read_leases(container)
    assert found.continuation == "7"
    await container.replace(found.taken_by(HostName("h1"), Incarnation("1")))
    with pytest.raises(PipelineRefused, match="h1 owns the lease of range 'r0'"):
        await read_leases(container)


def test_a_query_goes_on_from_a_part_with_all_keys_of_its_range_and_from_no_other() -> None:
    feed = MemoryFeed(1)
    for n in range(10):
        feed.append(f"k{n}")
    with memory_access(feed) as access:
        half = next_offset(access, first_offset(access, "beginning"), limit=4)
        (whole,) = leases_of(half, access)
        split = replace(whole, epoch=1).split_up()
        parts = [replace(whole, range=x, epoch=1) for x in feed.cut(whole.range, 2)]
        with pytest.raises(PipelineRefused, match="merge its parts"):
            offset_of([split, *parts], access)
        merged = replace(parts[0], range=feed.joined([x.range for x in parts]))
        merged = replace(merged, continuation=Continuation("7"))
        offset = offset_of([split, *(x.split_up() for x in parts), merged], access)
        assert {x: y.continuation for x, y in offset.marks.items()} == {R0: "7"}
