"""Ranges that operators split without the feed, and merge again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from changefeed.feeds.cosmos.positions import position
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Continuation, FeedRange, Page, RangeId
from changefeed.host.balancing.rebalance import above_parents
from changefeed.host.parts.leased_feed import LeasedFeed
from changefeed.host.parts.merging import merge
from changefeed.host.parts.splitting import split
from changefeed.host.settings import LeaseSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict
from changefeed.leases.lease import HostName, Incarnation, Lease, WriteId
from changefeed.leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership
from changefeed.leases.operations.pause import MERGING, SPLITTING, Claim, pause, resume
from changefeed.leases.separate_stores import SeparateStores
from changefeed.runtime.errors import UserError
from tests.support import make
from tests.support.looking import lease_in, now
from tests.support.partless_feed import PartlessFeed
from tests.support.proxies import Around, Cutting, proxied
from tests.support.shifting_feed import ShiftingReader, ShiftingStore, hash_of

ZERO, LOW, HIGH = RangeId("0"), RangeId("-7F"), RangeId("7F-FF")
QUARTERS = [RangeId(x) for x in ("-3F", "3F-7F", "7F-BF", "BF-FF")]
A, A1 = HostName("a"), Incarnation("a-1")
SETTINGS = LeaseSettings(expiration=30, renew_interval=10, max_handoff_time=10)


class Parted:
    """The leases of ranges of a store with nine changes, and what operators do to them."""

    def __init__(self, reader: type[ShiftingReader] = ShiftingReader) -> None:
        self.store = ShiftingStore()
        self.leases: LeaseContainer = MemoryLeases()
        self._reader = reader
        self.append(0, 9)

    def append(self, first: int, last: int) -> None:
        for n in range(first, last):
            self.store.append(f"k{n % 20}", b"%d" % n)

    def append_to(self, part: RangeId) -> None:
        low, _, high = part.partition("-")
        key = next(x for n in range(99) if low <= hash_of(x := f"k{n}") < high)
        self.store.append(key, b"the last")

    async def put(self, name: RangeId, at: int) -> Lease:
        """Store a lease that was read before, and has no owner."""
        found = _range(name)
        await self.leases.create(Lease(range=found, continuation=position(at), epoch=3))
        return await lease_in(self.leases, name)

    async def halves(self, low_at: int = 4, high_at: int = 4) -> None:
        await self.put(LOW, low_at)
        await self.put(HIGH, high_at)

    async def create(self, name: str, at: int, *parents: RangeId) -> None:
        """Store a lease that waits for its parents."""
        found = replace(_range(RangeId(name)), parents=parents)
        await self.leases.create(Lease(range=found, continuation=position(at)))

    def leased(self, through: LeaseContainer | None = None) -> LeasedFeed:
        feed = self._reader(self.store)
        return LeasedFeed(feed=feed, container=through or self.leases, settings=SETTINGS)

    async def split(
        self, name: RangeId = ZERO, into: int = 2, *, through: LeaseContainer | None = None
    ) -> Sequence[FeedRange]:
        return await split(self.leased(through), name, into)

    async def merge(
        self, *names: RangeId, patience: float = 0, through: LeaseContainer | None = None
    ) -> FeedRange:
        return await merge(self.leased(through), names or (LOW, HIGH), patience=patience)

    def before_high_ends(self, do: Callable[[Lease], Awaitable[None]]) -> LeaseContainer:
        """Return another way to the leases: something happens before ``HIGH`` is ended."""
        leases = self.leases

        class Interrupted(MemoryLeases):
            async def replace(self, lease: Lease) -> Lease:
                if lease.ended and lease.range_id == HIGH:
                    await do(lease)
                return await leases.replace(lease)

        through = Interrupted()
        through.__dict__.update(vars(leases))
        return through

    async def state(self) -> dict[str, str]:
        """Return what is said of each range: its position, and why it is not read."""
        whole = [await lease_in(self.leases, x.range_id) for x in await self.leases.list()]
        return {x.range_id: _said(x) for x in whole}


def _range(name: RangeId) -> FeedRange:
    """Return a part, or the one range that the store begins with."""
    low, _, high = name.partition("-") if "-" in name else ("", "", "FF")
    return FeedRange(id=name, low=low, high=high)


def _said(lease: Lease) -> str:
    words = ["ended"] * lease.ended + ["paused"] * (lease.paused is not None)
    return " ".join([str(lease.continuation).strip('"'), *words])


async def test_parts_begin_where_the_range_stood_and_wait_for_its_end() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    await parts.split(ZERO, 3)
    assert await parts.state() == {"0": "5 ended", "-55": "5", "55-AA": "5", "AA-FF": "5"}
    parents = {x.range.parents for x in await parts.leases.list() if not x.ended}
    assert parents == {(ZERO,)}


async def test_a_split_that_fails_leaves_the_range_to_be_read_as_before() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    conflict = LeaseConflict(make.lease("0"), "x")
    cut = Cutting(conflict, at=2, only=lambda x: x == "create")
    with pytest.raises(LeaseConflict):
        await parts.split(through=proxied(parts.leases, cut))
    assert await parts.state() == {"0": "5", "-7F": "5"}  # which waits for its parent
    assert await parts.split()


async def test_a_split_into_another_number_ends_what_waits_from_one_that_was_cut_off() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    await parts.create("-55", 3, ZERO)
    await parts.create(LOW, 3, ZERO)
    await parts.split()
    ended = {"0": "5 ended", "-55": "3 ended"}
    assert await parts.state() == ended | {"-7F": "5", "7F-FF": "5"}


async def test_a_lease_that_was_written_since_is_not_ended() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)

    async def resumed(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Another operator resumes the range after its parts were created, and a host reads."""
        stored = await lease_in(parts.leases, ZERO)
        if name == "replace" and len(await parts.leases.list()) == 3 and stored.owner is None:
            await parts.leases.acquire(replace(stored, paused=None).taken_by(A, A1))
        return await call()

    with pytest.raises(LeaseConflict):
        await parts.split(through=proxied(parts.leases, resumed))
    stored = await lease_in(parts.leases, ZERO)
    assert (stored.owner, stored.ended) == ("a", False)


async def test_an_owner_that_does_not_release_loses_the_range_as_to_a_steal() -> None:
    parts = Parted()
    stored = await parts.put(ZERO, 5)
    await parts.leases.acquire(stored.taken_by(A, A1))
    await parts.split()
    assert 40 <= now() < 41
    assert (await parts.state())["0"] == "5 ended"


async def test_parts_at_one_position_are_merged_there_and_others_at_their_common_end() -> None:
    parts = Parted()
    await parts.halves()
    await parts.merge()
    assert await parts.state() == {"-7F": "4 ended", "7F-FF": "4 ended", "0": "4"}
    parts = Parted()
    parts.append_to(HIGH)
    await parts.halves(9, 10)
    await parts.merge()
    assert await parts.state() == {"-7F": "10 ended", "7F-FF": "10 ended", "0": "10"}


async def test_parts_with_something_left_to_read_are_not_merged_and_not_stopped() -> None:
    parts = Parted()
    parts.append_to(HIGH)
    await parts.halves(10, 9)
    before = {x.range_id: x.version for x in await parts.leases.list()}
    with pytest.raises(UserError, match="different positions"):
        await parts.merge(patience=3)
    assert {x.range_id: x.version for x in await parts.leases.list()} == before


async def test_a_merge_that_is_refused_lets_go_on_what_an_earlier_one_has_stopped() -> None:
    parts = Parted()
    parts.append_to(HIGH)
    await parts.halves(10, 9)
    await pause(parts.leases, [HIGH], MERGING)  # and then it was cut off
    with pytest.raises(UserError, match="read on"):
        await parts.merge()
    assert await parts.state() == {"-7F": "10", "7F-FF": "9"}


async def test_a_merge_that_an_operator_has_paused_keeps_no_other_part_stopped() -> None:
    parts = Parted()
    await parts.halves()
    await pause(parts.leases, [LOW], "an operator says so")
    await pause(parts.leases, [HIGH], MERGING)
    with pytest.raises(UserError, match="is paused"):
        await parts.merge()
    assert await parts.state() == {"-7F": "4 paused", "7F-FF": "4"}


async def test_parts_that_can_be_merged_no_more_go_on_after_a_cut_off_attempt() -> None:
    class Split(ShiftingReader):
        """Its ranges have split since parts of them were made."""

        def joined(self, parts: Sequence[FeedRange]) -> FeedRange:
            raise UserError(f"{len(parts)} parts are of several ranges")

    parts = Parted(Split)
    await parts.halves()
    await pause(parts.leases, [HIGH], MERGING)
    with pytest.raises(UserError, match="several ranges"):
        await parts.merge()
    assert await parts.state() == {"-7F": "4", "7F-FF": "4"}


async def test_parts_whose_ends_differ_are_not_merged() -> None:
    class Lagging(ShiftingReader):
        """It is asked at two replicas, and one of them is behind."""

        async def read(self, found: FeedRange, after: Continuation, limit: int) -> Page:
            page = await super().read(found, after, limit)
            seen = position(8) if found.id == LOW else page.continuation
            return Page(changes=(), continuation=seen)

    parts = Parted(Lagging)
    await parts.halves(8, 9)
    with pytest.raises(UserError, match="different positions"):
        await parts.merge()


async def test_a_merge_that_was_cut_off_between_two_ends_is_completed_by_the_next() -> None:
    parts = Parted()
    await parts.halves()

    async def die(_: Lease) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await parts.merge(through=parts.before_high_ends(die))
    cut = {"-7F": "4 ended", "7F-FF": "4 paused", "0": "4"}
    assert await parts.state() == cut
    assert await resume(parts.leases, None) == []  # it is for the command to go on with
    await parts.merge()
    assert await parts.state() == cut | {"7F-FF": "4 ended"}


@pytest.mark.parametrize("paused", [None, MERGING])  # resumed, or moved by a later merge
async def test_a_merge_that_was_cut_off_and_whose_rest_went_on_is_undone(
    paused: str | None,
) -> None:
    parts = Parted()
    await parts.leases.replace((await parts.put(LOW, 4)).finished())
    rest = await parts.put(HIGH, 7)
    await parts.leases.replace(rest.paused_because(paused))
    await parts.create("0", 4, LOW, HIGH)
    parts.append_to(HIGH)
    with pytest.raises(UserError, match="different positions"):
        await parts.merge(patience=2)
    assert await parts.state() == {"-7F": "4", "7F-FF": "7", "0": "4 ended"}


async def test_the_rest_of_a_merge_that_was_cut_off_is_not_ended_under_an_owner() -> None:
    parts = Parted()
    await parts.leases.replace((await parts.put(LOW, 4)).finished())
    resumed = await parts.put(HIGH, 4)
    await parts.leases.acquire(resumed.taken_by(A, A1))
    await parts.create("0", 4, LOW, HIGH)
    await parts.merge(patience=2)
    assert now() >= 40  # its owner was asked to release it
    assert await parts.state() == {"-7F": "4 ended", "7F-FF": "4 ended", "0": "4"}


async def test_where_others_write_to_a_part_before_its_end_all_go_on_as_before() -> None:
    parts = Parted()
    await parts.halves()

    async def reset(lease: Lease) -> None:
        raise LeaseConflict(lease, "reset meanwhile")

    with pytest.raises(LeaseConflict):
        await parts.merge(through=parts.before_high_ends(reset))
    assert await parts.state() == {"-7F": "4", "7F-FF": "4", "0": "4 ended"}


@pytest.mark.parametrize("and_read", [False, True])
async def test_where_others_end_a_part_the_rest_goes_on_unless_a_host_reads_what_came_of_it(
    *, and_read: bool
) -> None:
    parts = Parted()
    await parts.halves()

    async def others_end_it(lease: Lease) -> None:
        await parts.leases.replace(lease.stamped(write_id=WriteId("theirs"), stamp=0.0))
        if and_read:
            merged = await lease_in(parts.leases, "0")
            await parts.leases.acquire(merged.taken_by(A, A1))

    with pytest.raises(LeaseConflict):
        await parts.merge(through=parts.before_high_ends(others_end_it))
    opened = {"-7F": "4 ended", "0": "4"} if and_read else {"-7F": "4", "0": "4 ended"}
    assert await parts.state() == opened | {"7F-FF": "4 ended"}


async def test_a_merge_that_was_away_undoes_nothing_that_another_completes() -> None:
    parts = Parted()
    await parts.halves()

    async def sleep(_: Lease) -> None:
        await asyncio.sleep(50)

    through = parts.before_high_ends(sleep)
    away = asyncio.create_task(outcome(parts.merge(through=through)))
    await asyncio.sleep(1)
    await parts.merge()
    assert "stopped for too long" in await away
    assert await parts.state() == {"-7F": "4 ended", "7F-FF": "4 ended", "0": "4"}


async def test_parts_of_a_merge_that_was_cut_off_are_merged_with_no_others_before() -> None:
    parts = Parted()
    await parts.leases.replace((await parts.put(QUARTERS[0], 4)).finished())
    await parts.put(QUARTERS[1], 4)
    await parts.put(HIGH, 4)
    await parts.create(LOW, 4, *QUARTERS[:2])
    before = await parts.state()
    with pytest.raises(UserError, match=r"changefeed merge -3F 3F-7F"):
        await parts.merge(QUARTERS[1], HIGH)
    assert await parts.state() == before


async def test_what_another_merge_has_ended_stays_ended_and_its_rest_can_be_merged() -> None:
    parts = Parted()
    low, middle, high, top = QUARTERS
    for name in QUARTERS:
        part = await parts.put(name, 4)
        if name in {low, middle}:
            await parts.leases.replace(part.finished())
    await parts.create(LOW, 4, low, middle)
    await parts.create("3F-BF", 4, middle, high)
    with pytest.raises(UserError, match="try again"):
        await parts.merge(middle, high)
    assert (await parts.state())[middle] == "4 ended"
    await parts.merge(high, top)
    assert (await parts.state())["3F-BF"] == "4 ended"


async def test_an_end_without_an_answer_is_known_when_it_is_found() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    lost = ContainerUnavailable("the answer was lost")
    ends = Cutting(lost, at=2, after=True, only=lambda x: x == "replace")
    await parts.split(through=proxied(parts.leases, ends))
    assert (await parts.state())["0"] == "5 ended"


def asleep(seconds: float, *, at: int | None = None) -> Around:
    """Let listings take a while: the one of a number, after which it is awake, or each."""
    listings = 0

    async def around(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal listings
        listings += name == "list"
        if name == "list" and at in (None, listings):
            await asyncio.sleep(seconds)
        return await call()

    return around


async def outcome(doing: Awaitable[object]) -> str:
    try:
        await doing
    except UserError as refused:
        return str(refused)
    return "done"


async def test_of_two_splits_of_one_range_at_once_one_is_done_and_the_other_refused() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    slow = proxied(parts.leases, asleep(3))
    first, second = await asyncio.gather(
        outcome(parts.split(through=slow)), outcome(parts.split(ZERO, 3, through=slow))
    )
    assert first == "done"
    assert "range 0 has ended" in second
    assert await parts.state() == {"0": "5 ended", "-7F": "5", "7F-FF": "5"}


async def test_of_two_merges_of_one_part_at_once_one_is_done_and_the_other_refused() -> None:
    parts = Parted()
    low, middle, high = *QUARTERS[:2], HIGH
    for name in (low, middle, high):
        await parts.put(name, 4)
    slow = proxied(parts.leases, asleep(3))
    first, second = await asyncio.gather(
        outcome(parts.merge(low, middle, through=slow)),
        outcome(parts.merge(middle, high, through=slow)),
    )
    assert first == "done"
    assert "range 3F-7F has ended" in second
    ended = {low: "4 ended", middle: "4 ended"}
    assert await parts.state() == ended | {HIGH: "4", LOW: "4"}


async def test_a_range_that_a_run_has_stopped_and_died_is_another_s_after_a_while() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    await pause(parts.leases, [ZERO], Claim(SPLITTING).reason)
    said = list[str]()
    await split(replace(parts.leased(), say=said.append), ZERO, 2)
    assert 40 <= now() < 41
    assert (await parts.state())["0"] == "5 ended"
    assert "range 0 in hand" in said[0]


async def test_a_run_that_has_waited_for_an_owner_is_given_time_for_its_writes() -> None:
    parts = Parted()
    stored = await parts.put(ZERO, 5)
    await parts.leases.acquire(stored.taken_by(A, A1))
    slow = proxied(parts.leases, asleep(15))
    first = asyncio.create_task(outcome(parts.split(through=slow)))
    await asyncio.sleep(16)
    assert "range 0 has ended" in await outcome(parts.split(ZERO, 3))
    assert await first == "done"


async def test_a_run_that_was_away_while_another_took_its_range_writes_no_more() -> None:
    """The machine is suspended in the second listing: after the range was stopped."""
    parts = Parted()
    await parts.put(ZERO, 5)
    through = proxied(parts.leases, asleep(50, at=2))
    away = asyncio.create_task(outcome(parts.split(ZERO, 3, through=through)))
    await asyncio.sleep(1)
    await parts.split()
    assert "stopped for too long" in await away
    assert await parts.state() == {"0": "5 ended", "-7F": "5", "7F-FF": "5"}


async def test_a_merge_that_was_away_for_so_long_creates_nothing() -> None:
    parts = Parted()
    await parts.halves()
    away = await outcome(parts.merge(through=proxied(parts.leases, asleep(50, at=2))))
    assert "stopped for too long" in away
    assert await parts.state() == {"-7F": "4", "7F-FF": "4"}


async def test_what_cannot_be_split_is_refused_with_its_reason() -> None:
    parts = Parted()
    assert "no lease" in await outcome(parts.split())
    stored = await parts.put(ZERO, 5)
    partless = replace(parts.leased(), feed=PartlessFeed(1))
    assert "cannot be read in parts" in await outcome(split(partless, ZERO, 2))
    stored = await parts.leases.replace(stored.paused_because("maintenance"))
    assert "maintenance" in await outcome(parts.split())
    stored = await parts.leases.replace(stored.paused_because(None))
    await parts.put(LOW, 2)
    assert "earlier split or merge" in await outcome(parts.split())
    await parts.leases.replace(stored.finished())
    assert "has ended" in await outcome(parts.split())
    await parts.create(HIGH, 5)
    assert "not been read yet" in await outcome(parts.split(HIGH))


async def test_what_cannot_be_merged_is_refused_with_its_reason() -> None:
    parts = Parted()
    assert "no lease" in await outcome(parts.merge())
    assert "no lease" in await outcome(parts.merge(RangeId("\udcff"), HIGH))
    await parts.put(LOW, 5)
    await parts.put(RangeId("9F-FF"), 5)
    assert "whose keys touch" in await outcome(parts.merge(LOW, RangeId("9F-FF")))
    parts.store.split(ZERO)
    await parts.put(HIGH, 5)
    with pytest.raises(FeedRefused, match="several physical ranges"):
        await parts.merge()


async def test_beside_a_host_of_another_kind_nothing_is_split() -> None:
    parts = Parted()
    stored = await parts.put(ZERO, 5)
    await parts.leases.replace(replace(stored, owner=HostName("net")))
    assert "net is a host of another kind" in await outcome(parts.split())
    await parts.leases.put_member(make.member("net"))
    await parts.split()  # of ours: handed over, not taken yet


@pytest.mark.parametrize("merges", [False, True])
async def test_a_checkpoint_that_was_left_behind_under_a_name_is_not_gone_on_from(
    *, merges: bool
) -> None:
    parts, checkpoints = Parted(), MemoryCheckpoints()
    name = RangeId("0") if merges else LOW
    await checkpoints.create(make.checkpoint(name, position(2), epoch=4))
    parts.leases = SeparateStores(MemoryOwnership(), checkpoints)
    for lease in (LOW, HIGH) if merges else (ZERO,):
        await parts.put(lease, 5)

    async def do() -> object:
        return await (parts.merge() if merges else parts.split())

    assert "others have written" in await outcome(do())
    assert name not in {x.range_id for x in await parts.leases.list()}
    await do()
    made = await lease_in(parts.leases, name)
    assert (made.epoch, made.continuation) == (0, position(5))


async def test_a_part_that_comes_back_under_its_name_begins_above_the_epochs_it_had() -> None:
    ended = {LOW: 7, HIGH: 4}
    merged = make.lease("-FF", parents=(LOW, HIGH))
    assert above_parents(merged, ended).epoch == 7
    assert above_parents(replace(merged, epoch=2), ended).epoch == 2
    assert above_parents(make.lease("0"), ended).epoch == 0
