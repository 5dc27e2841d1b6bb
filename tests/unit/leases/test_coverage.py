"""What is wrong with leases is seen before a host runs: keys held twice, or by none."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.coverage import check_coverage, overlaps, uncovered
from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.diagnostics import Diagnostic, Severity
from tests.support import make


def physical(range_id: str, low: str, high: str, *parents: str) -> FeedRange:
    return make.feed_range(range_id, low, high, parents=parents)


def held(range_id: str, low: str, high: str, *parents: str, epoch: int = 1) -> Lease:
    return make.lease(physical(range_id, low, high, *parents), at="0", epoch=epoch)


def ended(range_id: str, low: str, high: str) -> Lease:
    return replace(held(range_id, low, high), ended=True)


def found_in(
    leases: Sequence[Lease], ranges: Sequence[FeedRange], *, inherits: bool = True
) -> list[Diagnostic]:
    return list(uncovered(leases, ranges, inherits=inherits, start="now"))


ALL = held("a", "", "FF")
LOWER = held("b", "", "7F", "a")
FOREIGN = replace(held("b", "", "7F", "a", epoch=0), owner=HostName("net-1"))
WAITING = [held("b", "", "7F", "a", epoch=0), held("c", "", "3F", "b", epoch=0)]


@pytest.mark.parametrize(
    ("leases", "count"),
    [
        ([held("a", "", "7F"), held("b", "7F", "FF")], 0),
        ([*WAITING, ALL], 0),  # they wait for their parent
        ([WAITING[0], ended("a", "", "FF")], 0),
        ([held("a", "", ""), held("b", "", "FF")], 0),  # the bounds of one are not known
        ([ALL, LOWER], 1),  # it is read beside its parent
        ([ALL, FOREIGN], 1),
    ],
)
def test_leases_overlap_where_both_may_be_read(leases: Sequence[Lease], count: int) -> None:
    assert len(list(overlaps(leases))) == count


def test_leases_of_common_keys_are_named_with_their_bounds() -> None:
    leases = [held("b", "60", "FF"), held("c", "80", "90"), held("a", "", "7F")]
    first, second = overlaps(leases)
    assert "range a (00 to 7F) and range b (60 to FF)" in first.text
    assert "range b (60 to FF) and range c (80 to 90)" in second.text
    assert {x.severity for x in (first, second)} == {Severity.PROBLEM}


MERGED = physical("3", "", "FF", "1", "2")
SPLIT = ended("1", "", "7F")
TWO = [physical("1", "", "7F"), physical("2", "7F", "FF")]
CHILDREN = [physical("3", "", "7F", "1"), physical("4", "7F", "FF", "2")]


@pytest.mark.parametrize(
    ("leases", "ranges", "severity", "keys"),
    [
        (
            [held("-3F", "", "3F"), held("7F-9F", "7F", "9F")],
            [MERGED],
            Severity.WARNING,
            "from 3F to 7F, 9F to FF of range 3",
        ),
        (
            [held("1", "", ""), held("7F-9F", "7F", "9F")],
            CHILDREN,
            Severity.PROBLEM,
            "from 9F to FF of range 4",
        ),
        (  # a range that was split by hand
            [SPLIT, held("2", "7F", "FF")],
            TWO,
            Severity.WARNING,
            "from 00 to 7F of range 1",
        ),
        (
            [SPLIT, held("-3F", "", "3F"), held("2", "7F", "FF")],
            TWO,
            Severity.WARNING,
            "from 3F to 7F of range 1",
        ),
        ([SPLIT, held("2", "7F", "FF"), held("9", "", "")], TWO, Severity.PROBLEM, "range 1"),
        ([held("2", "7F", "FF")], TWO, Severity.WARNING, "range 1 (00 to 7F)"),
        ([held("2", "", "")], CHILDREN, Severity.WARNING, "range 3"),
    ],
)
def test_keys_that_no_lease_holds_are_named(
    leases: Sequence[Lease], ranges: Sequence[FeedRange], severity: Severity, keys: str
) -> None:
    (found,) = found_in(leases, ranges)
    assert found.severity is severity
    assert keys in found.text


@pytest.mark.parametrize(
    ("leases", "ranges"),
    [
        ([held("-7F", "", "7F"), held("7F-FF", "7F", "FF")], [MERGED]),
        (
            [held("0", "", "")],
            [physical("1", "", "7F", "0"), physical("2", "7F", "FF", "0")],
        ),
    ],
)
def test_parts_of_a_merged_range_and_a_lease_without_bounds_leave_no_gap(
    leases: Sequence[Lease], ranges: Sequence[FeedRange]
) -> None:
    assert not found_in(leases, ranges)


def test_what_is_read_by_its_own_id_may_wait_for_the_lease_of_an_ancestor() -> None:
    ranges = [
        physical("a", "", "FF"),
        physical("b", "", "FF", "a"),
        physical("c", "", "FF", "b"),
    ]
    assert not found_in([ALL], ranges, inherits=False)
    assert len(found_in([ended("a", "", "FF")], ranges, inherits=False)) == 2


async def checked(feed: MemoryFeed, *leases: Lease) -> list[Diagnostic]:
    container = MemoryLeases()
    for lease in leases:
        await container.create(lease)
    return [x async for x in check_coverage(feed, container, start="beginning")]


async def test_leases_as_hosts_keep_them_need_no_word() -> None:
    feed = MemoryFeed(2)
    assert not await checked(feed)
    assert not await checked(feed, *[make.lease(x, at="0") for x in await feed.ranges()])


async def test_a_lease_at_the_end_of_its_range_says_where_it_goes_on() -> None:
    feed = MemoryFeed(1)
    (only,) = await feed.ranges()
    low, high = feed.split(only.id)
    (found,) = await checked(feed, make.lease(only, at="0"))
    assert found.severity is Severity.FINE
    assert f"{low.id}, {high.id}" in found.text


async def test_a_lease_of_a_range_that_the_feed_never_had_is_a_problem() -> None:
    (only,) = await MemoryFeed(1).ranges()
    leases = make.lease(only, at="0"), make.lease("r7", at="0")
    (found,) = await checked(MemoryFeed(1), *leases)
    assert (found.severity, "r7" in found.text) == (Severity.PROBLEM, True)


async def test_a_position_that_the_feed_refuses_comes_with_the_command_that_mends_it() -> None:
    (only,) = await MemoryFeed(1).ranges()
    (found,) = await checked(MemoryFeed(1), make.lease(only, at="x"))
    assert found.severity is Severity.PROBLEM
    assert "changefeed reset r0" in found.advice


async def test_a_lease_that_its_store_cannot_give_is_named_and_the_others_are_looked_at() -> (
    None
):
    class Broken(MemoryLeases):
        async def read(self, range_id: RangeId) -> Lease | None:
            if range_id == "r0":
                raise ContainerRefused("its checkpoint is missing")
            if range_id == "r1":
                raise ContainerUnavailable("away for a moment")
            return await super().read(range_id)

    feed, leases = MemoryFeed(3), Broken()
    for one in await feed.ranges():
        await leases.create(make.lease(one, at="wrong", epoch=1))
    found = [x async for x in check_coverage(feed, leases, start="now")]
    assert [(x.severity, x.text) for x in found[:2]] == [
        (Severity.PROBLEM, "range r0: its checkpoint is missing"),
        (Severity.WARNING, "range r1: away for a moment"),
    ]
    assert found[2].text.startswith("range r2: ")
