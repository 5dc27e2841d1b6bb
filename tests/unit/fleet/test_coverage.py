"""What is wrong with leases is seen before a host runs: keys held twice, or by none.

Which keys these are is the key map's to say (``test_keymap``); here is what a person reads.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.coverage import check_coverage, uncovered
from changefeed.leases.fleet_record import join_fleet
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.diagnostics import Diagnostic, Severity
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from tests.support import make
from tests.support.partless_feed import PartlessFeed


def spanning(low: str, high: str, generation: int = 0) -> FeedRange:
    """Return a range that is named by its bounds."""
    return make.feed_range(f"{low}-{high}", low, high, generation=(generation, 0))


def held(found: FeedRange, *, epoch: int = 1) -> Lease:
    return make.lease(found, at="0", epoch=epoch)


def ended(found: FeedRange, *children: FeedRange) -> Lease:
    return held(found).ended_in(make.end(*children))


def found_in(leases: Sequence[Lease], ranges: Sequence[FeedRange]) -> list[Diagnostic]:
    """Return what ``doctor`` says of leases, and of the ranges that the feed lists."""
    return list(uncovered(KeyMap(leases, ranges=ranges), start="now"))


WHOLE, LOW, HIGH = spanning("", "FF"), spanning("", "7F", 1), spanning("7F", "FF", 1)
MERGED = spanning("", "FF", 2)


@pytest.mark.parametrize(
    ("leases", "severity", "keys"),
    [
        ([held(HIGH)], Severity.WARNING, "from 00 to 7F"),
        ([held(spanning("", "3F", 1)), held(HIGH)], Severity.WARNING, "from 3F to 7F"),
        (
            [held(LOW), ended(HIGH, spanning("7F", "9F", 2))],
            Severity.PROBLEM,
            "from 9F to FF",
        ),
    ],
    ids=["half is deleted", "a quarter is deleted", "an end names less than it had"],
)
def test_keys_that_no_lease_holds_are_named(
    leases: Sequence[Lease], severity: Severity, keys: str
) -> None:
    (found,) = found_in(leases, [LOW, HIGH])
    assert found.severity is severity
    assert keys in found.text


def test_keys_that_two_leases_hold_are_named_with_both() -> None:
    found = found_in([held(WHOLE), held(LOW), held(HIGH)], [LOW, HIGH])
    assert {x.severity for x in found} == {Severity.PROBLEM}
    for one, half in zip(found, (LOW, HIGH), strict=True):
        assert f"range {WHOLE.id} " in one.text
        assert f"range {half.id} " in one.text


@pytest.mark.parametrize(
    ("leases", "ranges"),
    [
        ([held(LOW), held(HIGH)], [MERGED]),
        ([held(WHOLE)], [LOW, HIGH]),
        (
            [held(make.feed_range("0"))],
            [replace(x, parents=(RangeId("0"),)) for x in (LOW, HIGH)],
        ),
        ([ended(WHOLE, LOW, HIGH)], [LOW, HIGH]),
        ([ended(WHOLE, LOW, HIGH), held(LOW), held(HIGH, epoch=0)], [LOW, HIGH]),
        ([ended(WHOLE, LOW, HIGH), held(LOW), held(spanning("7F", "9F", 2))], [LOW, HIGH]),
        ([ended(LOW, MERGED), ended(HIGH, MERGED)], [MERGED]),
        ([ended(LOW, MERGED), held(HIGH)], [HIGH, MERGED]),
        ([make.closed(held(LOW)), held(HIGH)], [LOW, HIGH]),
    ],
    ids=[
        "the feed has merged them",
        "the feed has split it",
        "the feed has split what has no bounds",
        "its children are to come",
        "one child has come",
        "the rest of a child is to come",
        "what is merged is to come",
        "what is merged waits for the other half",
        "half is closed for good",
    ],
)
def test_leases_as_hosts_leave_them_at_any_moment_need_no_word(
    leases: Sequence[Lease], ranges: Sequence[FeedRange]
) -> None:
    assert not found_in(leases, ranges)


async def checked(feed: MemoryFeed, *leases: Lease) -> list[Diagnostic]:
    container = MemoryLeases()
    for lease in leases:
        await container.create(lease)
    return [x async for x in check_coverage(feed, container, start="beginning")]


async def test_no_host_is_expected_to_read_what_a_feed_reads_only_with_others() -> None:
    (only,) = await MemoryFeed(1).ranges()
    low, _ = MemoryFeed(1).split(only, 2)
    severities = [
        (await checked(x(1), held(low)))[0].severity for x in (MemoryFeed, PartlessFeed)
    ]
    assert severities == [Severity.WARNING, Severity.PROBLEM]


async def test_a_lease_at_the_end_of_its_range_says_where_it_goes_on() -> None:
    feed = MemoryFeed(1)
    (only,) = await feed.ranges()
    low, high = feed.split_range(only.id)
    (found,) = await checked(feed, make.lease(only, at="0"))
    assert found.severity is Severity.FINE
    assert f"{low.id}, {high.id}" in found.text


async def test_a_lease_of_a_range_that_the_feed_never_had_is_a_problem() -> None:
    (only,) = await MemoryFeed(1).ranges()
    leases = make.lease(only, at="0"), make.lease("r7", at="0")
    (found,) = await checked(MemoryFeed(1), *leases)
    assert (found.severity, "r7" in found.text) == (Severity.PROBLEM, True)


async def test_leases_about_another_feed_are_a_problem_and_compared_with_none() -> None:
    container = MemoryLeases()
    await join_fleet(container, "another")
    await container.create(make.lease("r7", at="0"))
    (found,) = [x async for x in check_coverage(MemoryFeed(1), container, start="now")]
    assert (found.severity, "another" in found.text) == (Severity.PROBLEM, True)


async def test_a_lease_that_its_store_cannot_give_is_named_and_the_others_are_looked_at() -> (
    None
):
    class Broken(MemoryLeases):
        async def read(self, range_id: RangeId) -> Lease | None:
            if range_id == "r0":
                raise StoreRefused("its checkpoint is missing")
            if range_id == "r1":
                raise StoreUnavailable("away for a moment")
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
