"""What is wrong with leases is seen before a host runs: keys held twice, or by none."""

from dataclasses import replace

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.coverage import check_coverage, overlaps, uncovered
from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.diagnostics import Diagnostic, Severity

START = Continuation("0")


def held(range_id: str, low: str, high: str, *parents: str, epoch: int = 1) -> Lease:
    ids = tuple(RangeId(x) for x in parents)
    found = FeedRange(id=RangeId(range_id), low=low, high=high, parents=ids)
    return Lease(range=found, epoch=epoch, continuation=START)


def physical(range_id: str, low: str, high: str, *parents: str) -> FeedRange:
    return held(range_id, low, high, *parents).range


def never_read(*leases: Lease, ranges: list[FeedRange]) -> list[Diagnostic]:
    return list(uncovered(leases, ranges, inherits=True, start="now"))


def without_lease(*leases: Lease, ranges: list[FeedRange]) -> list[Diagnostic]:
    return list(uncovered(leases, ranges, inherits=False, start="now"))


def test_leases_side_by_side_do_not_overlap() -> None:
    assert not list(overlaps([held("a", "", "7F"), held("b", "7F", "FF")]))


def test_leases_of_common_keys_overlap_and_are_named_with_their_bounds() -> None:
    leases = [held("b", "60", "FF"), held("c", "80", "90"), held("a", "", "7F")]
    first, second = overlaps(leases)
    assert "range a (00 to 7F) and range b (60 to FF) overlap" in first.text
    assert "range b (60 to FF) and range c (80 to 90)" in second.text
    assert {x.severity for x in (first, second)} == {Severity.PROBLEM}


def test_a_lease_that_waits_for_its_parent_may_hold_its_keys() -> None:
    parent = held("a", "", "FF")
    child = held("b", "", "7F", "a", epoch=0)
    grandchild = held("c", "", "3F", "b", epoch=0)
    assert not list(overlaps([grandchild, child, parent]))
    assert not list(overlaps([child, replace(parent, ended=True)]))


def test_a_lease_that_is_read_beside_its_parent_overlaps() -> None:
    parent, child = held("a", "", "FF"), held("b", "", "7F", "a")
    assert len(list(overlaps([parent, child]))) == 1
    foreign = replace(held("b", "", "7F", "a", epoch=0), owner=HostName("net-1"))
    assert len(list(overlaps([parent, foreign]))) == 1


def test_leases_whose_bounds_are_not_known_are_not_compared() -> None:
    assert not list(overlaps([held("a", "", ""), held("b", "", "FF")]))


def test_parts_that_hold_a_merged_range_together_leave_no_gap() -> None:
    merged = physical("3", "", "FF", "1", "2")
    assert not never_read(held("-7F", "", "7F"), held("7F-FF", "7F", "FF"), ranges=[merged])


def test_keys_between_the_parts_of_a_range_are_named_with_where_hosts_begin_them() -> None:
    merged = physical("3", "", "FF", "1", "2")
    parts = held("-3F", "", "3F"), held("7F-9F", "7F", "9F")
    (found,) = never_read(*parts, ranges=[merged])
    assert found.severity is Severity.WARNING
    assert "from 3F to 7F, 9F to FF of range 3" in found.text
    assert "feed.start (now)" in found.text


def test_keys_beside_a_lease_whose_bounds_are_not_known_are_never_read() -> None:
    ranges = [physical("3", "", "7F", "1"), physical("4", "7F", "FF", "2")]
    part = held("7F-9F", "7F", "9F")
    (found,) = never_read(held("1", "", ""), part, ranges=ranges)
    assert found.severity is Severity.PROBLEM
    assert "from 9F to FF of range 4" in found.text


def test_the_keys_of_a_range_that_was_split_by_hand_get_a_lease_again() -> None:
    split = replace(held("1", "", "7F"), ended=True)
    ranges = [physical("1", "", "7F"), physical("2", "7F", "FF")]
    other = held("2", "7F", "FF")
    (found,) = never_read(split, other, ranges=ranges)
    assert found.severity is Severity.WARNING
    assert "from 00 to 7F of range 1: hosts will create one" in found.text
    (found,) = never_read(split, held("-3F", "", "3F"), other, ranges=ranges)
    assert "from 3F to 7F of range 1: hosts will create one" in found.text
    (found,) = never_read(split, other, held("9", "", ""), ranges=ranges)
    assert found.severity is Severity.PROBLEM


def test_a_range_that_hosts_will_begin_where_no_lease_stood_is_a_warning() -> None:
    (found,) = never_read(
        held("2", "7F", "FF"), ranges=[physical("1", "", "7F"), physical("2", "7F", "FF")]
    )
    assert found.severity is Severity.WARNING
    assert "range 1 (00 to 7F) has no lease" in found.text
    assert "feed.start (now)" in found.text


def test_a_lease_without_bounds_holds_all_that_descends_from_its_range() -> None:
    ranges = [physical("1", "", "7F", "0"), physical("2", "7F", "FF", "0")]
    assert not never_read(held("0", "", ""), ranges=ranges)
    (found,) = never_read(held("2", "", ""), ranges=ranges)
    assert "range 1" in found.text


def test_what_is_read_by_its_own_id_may_wait_for_the_lease_of_an_ancestor() -> None:
    ranges = [
        physical("a", "", "FF"),
        physical("b", "", "FF", "a"),
        physical("c", "", "FF", "b"),
    ]
    assert not without_lease(held("a", "", "FF"), ranges=ranges)
    ended = replace(held("a", "", "FF"), ended=True)
    assert len(without_lease(ended, ranges=ranges)) == 2


async def checked(feed: MemoryFeed, *leases: Lease) -> list[Diagnostic]:
    container = MemoryLeases()
    for lease in leases:
        await container.create(lease)
    return [x async for x in check_coverage(feed, container, start="beginning")]


async def test_before_any_host_has_run_there_is_nothing_to_say() -> None:
    assert not await checked(MemoryFeed(2))


async def test_leases_as_hosts_keep_them_are_fine() -> None:
    feed = MemoryFeed(2)
    ranges = await feed.ranges()
    assert not await checked(feed, *[Lease(range=x, continuation=START) for x in ranges])


async def test_a_lease_at_the_end_of_its_range_says_where_it_goes_on() -> None:
    feed = MemoryFeed(1)
    (only,) = await feed.ranges()
    low, high = feed.split(only.id)
    (found,) = await checked(feed, Lease(range=only, continuation=START))
    assert found.severity is Severity.FINE
    assert f"it goes on in {low.id}, {high.id}" in found.text


async def test_a_lease_of_a_range_that_the_feed_never_had_is_a_problem() -> None:
    (only,) = await MemoryFeed(1).ranges()
    lease = Lease(range=only, continuation=START)
    other = Lease(range=FeedRange(id=RangeId("r7")), continuation=START)
    (found,) = await checked(MemoryFeed(1), lease, other)
    assert (found.severity, "no range r7" in found.text) == (Severity.PROBLEM, True)


async def test_a_position_that_the_feed_refuses_comes_with_the_command_that_mends_it() -> None:
    (only,) = await MemoryFeed(1).ranges()
    (found,) = await checked(MemoryFeed(1), Lease(range=only, continuation=Continuation("x")))
    assert found.severity is Severity.PROBLEM
    assert found.advice == "start it again where you choose: changefeed reset r0 --to=…"


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
        await leases.create(Lease(range=one, epoch=1, continuation=Continuation("wrong")))
    found = [x async for x in check_coverage(feed, leases, start="now")]
    assert [(x.severity, x.text) for x in found[:2]] == [
        (Severity.PROBLEM, "range r0: its checkpoint is missing"),
        (Severity.WARNING, "range r1: away for a moment"),
    ]
    assert found[2].text.startswith("range r2: ")
