"""Ranges that operators split without the feed, and merge again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from changefeed.feeds.cosmos.positions import position
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Continuation, FeedRange, Page, RangeId
from changefeed.host.balancing.rebalance import above_parents
from changefeed.host.parts.leased_feed import LeasedFeed
from changefeed.host.parts.merging import merge
from changefeed.host.parts.splitting import split
from changefeed.host.settings import LeaseSettings
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict
from changefeed.leases.lease import Checkpoint, HostName, Incarnation, Lease, Member, WriteId
from changefeed.leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership
from changefeed.leases.operations.pause import MERGING, SPLITTING, Claim, pause, resume
from changefeed.leases.separate_stores import SeparateStores
from changefeed.runtime.errors import UserError
from tests.support.fleet import Fleet, Parts
from tests.support.partless_feed import PartlessFeed
from tests.support.proxies import Cutting, proxied
from tests.support.shifting_feed import ShiftingReader, ShiftingStore, hash_of

ZERO, LOW, HIGH = RangeId("0"), RangeId("-7F"), RangeId("7F-FF")
SETTINGS = LeaseSettings(expiration=30, renew_interval=10, max_handoff_time=10)


def written(changes: int) -> ShiftingStore:
    store = ShiftingStore()
    append(store, 0, changes)
    return store


def over(container: MemoryLeases, kind: type[MemoryLeases]) -> MemoryLeases:
    """Return another way to the same leases."""
    through = kind()
    through.__dict__.update(vars(container))
    return through


def before_high_ends(
    container: MemoryLeases, do: Callable[[Lease], Awaitable[None]]
) -> MemoryLeases:
    """Return another way to the leases: something happens before ``HIGH`` is ended."""

    class Interrupted(MemoryLeases):
        async def replace(self, lease: Lease) -> Lease:
            if lease.ended and lease.range_id == HIGH:
                await do(lease)
            return await container.replace(lease)

    return over(container, Interrupted)


def append(store: ShiftingStore, first: int, last: int) -> None:
    for n in range(first, last):
        store.append(f"k{n % 20}", b"%d" % n)


def leased(
    store: ShiftingStore, container: MemoryLeases, through: MemoryLeases | None = None
) -> LeasedFeed:
    return LeasedFeed(
        feed=ShiftingReader(store), container=through or container, settings=SETTINGS
    )


async def state(container: MemoryLeases) -> dict[str, str]:
    """Return what is said of each range: its position, and why it is not read."""
    whole = [await container.read(x.range_id) for x in await container.list()]
    return {x.range_id: _said(x) for x in whole if x is not None}


def _said(lease: Lease) -> str:
    words = ["ended"] * lease.ended + ["paused"] * (lease.paused is not None)
    return " ".join([str(lease.continuation).strip('"'), *words])


async def put(
    container: MemoryLeases, name: RangeId, low: str, high: str, at: int, *parents: RangeId
) -> Lease:
    """Store a lease that was read before, and has no owner."""
    found = FeedRange(id=name, low=low, high=high, parents=parents)
    await container.create(Lease(range=found, continuation=position(at), epoch=3))
    stored = await container.read(name)
    assert stored is not None
    return stored


async def halves(container: MemoryLeases, low_at: int, high_at: int) -> None:
    await put(container, LOW, "", "7F", low_at)
    await put(container, HIGH, "7F", "FF", high_at)


async def within(seconds: float, true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(seconds):
        while not await true():  # noqa: ASYNC110 - it is looked up in leases
            await asyncio.sleep(0.5)


async def test_a_range_under_load_is_split_between_two_hosts_and_merged_when_it_rests() -> None:
    store, container = written(400), MemoryLeases()
    reader = ShiftingReader(store)
    parts: Parts = {"feed": {"start": "beginning", "page_size": 10}}
    async with Fleet(reader, container, parts=parts, pace=0.02) as fleet:
        for name in ("a", "b"):
            fleet.start(name)
        await within(60, lambda: said(len(fleet.log.changes) >= 50))
        made = await split(leased(store, container), ZERO, 2)
        assert [x.id for x in made] == [LOW, HIGH]
        owners = lambda: fleet.owners()  # noqa: E731, PLW0108 - read at each look
        await within(60, lambda: both_own(owners))
        append(store, 400, 600)
        merged = await merge(leased(store, container), [HIGH, LOW], patience=600)
        append(store, 600, 700)
        await within(60, lambda: said(len(fleet.log.changes) >= 700))
        assert (merged.id, len(fleet.log.changes)) == ("-FF", 700)
        assert set(await fleet.owners()) == {"-FF"}
        of_keys: dict[str, list[int]] = {}
        for change in fleet.log.changes:
            of_keys.setdefault(change.key, []).append(int(change.body))
        assert all(x == sorted(x) for x in of_keys.values())


async def said(true: object) -> bool:
    await asyncio.sleep(0)
    return bool(true)


async def both_own(owners: Callable[[], Awaitable[dict[RangeId, HostName | None]]]) -> bool:
    found = await owners()
    return found.keys() == {LOW, HIGH} and set(found.values()) == {"a", "b"}


async def test_parts_begin_where_the_range_stood_and_wait_for_its_end() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    await split(leased(store, container), ZERO, 3)
    assert await state(container) == {"0": "5 ended", "-55": "5", "55-AA": "5", "AA-FF": "5"}
    parents = {x.range.parents for x in await container.list() if not x.ended}
    assert parents == {(ZERO,)}


async def test_a_split_that_fails_leaves_the_range_to_be_read_as_before() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    cut = Cutting(
        LeaseConflict(Lease(range=FeedRange(id=ZERO)), "x"),
        at=2,
        only=lambda x: x == "create",
    )
    with pytest.raises(LeaseConflict):
        await split(leased(store, container, proxied(container, cut)), ZERO, 2)
    assert await state(container) == {"0": "5", "-7F": "5"}  # which waits for its parent
    assert await split(leased(store, container), ZERO, 2)


async def test_a_split_into_another_number_ends_what_waits_from_one_that_was_cut_off() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    left = FeedRange(id=RangeId("-55"), low="", high="55", parents=(ZERO,))
    await container.create(Lease(range=left, continuation=position(3)))
    same = FeedRange(id=LOW, low="", high="7F", parents=(ZERO,))
    await container.create(Lease(range=same, continuation=position(3)))
    await split(leased(store, container), ZERO, 2)
    assert await state(container) == {
        "0": "5 ended",
        "-55": "3 ended",
        "-7F": "5",
        "7F-FF": "5",
    }


async def test_a_lease_that_was_written_since_is_not_ended() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)

    class Resuming(MemoryLeases):
        """Another operator resumes the range after its parts were created, and a host reads."""

        async def replace(self, lease: Lease) -> Lease:
            stored = await container.read(ZERO)
            if lease.ended and stored is not None and stored.owner is None:
                await container.acquire(
                    replace(stored, paused=None).taken_by(HostName("a"), Incarnation("1"))
                )
            return await container.replace(lease)

    through = over(container, Resuming)
    with pytest.raises(LeaseConflict):
        await split(leased(store, container, through), ZERO, 2)
    stored = await container.read(ZERO)
    assert stored is not None
    assert (stored.owner, stored.ended) == ("a", False)


async def test_an_owner_that_does_not_release_loses_the_range_as_to_a_steal() -> None:
    store, container = written(9), MemoryLeases()
    stored = await put(container, ZERO, "", "FF", 5)
    await container.acquire(stored.taken_by(HostName("dead"), Incarnation("1")))
    before = asyncio.get_running_loop().time()
    await split(leased(store, container), ZERO, 2)
    assert 40 <= asyncio.get_running_loop().time() - before < 41
    assert (await state(container))["0"] == "5 ended"


async def test_parts_at_one_position_are_merged_at_once_and_others_at_their_common_end() -> (
    None
):
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)
    await merge(leased(store, container), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "4 ended", "7F-FF": "4 ended", "-FF": "4"}
    container = MemoryLeases()
    await put(container, LOW, "", "7F", 9)
    store.append(key_in(HIGH), b"x")
    await put(container, HIGH, "7F", "FF", 10)
    await merge(leased(store, container), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "10 ended", "7F-FF": "10 ended", "-FF": "10"}


def key_in(part: RangeId) -> str:
    low, _, high = part.partition("-")
    return next(x for n in range(99) if low <= hash_of(x := f"k{n}") < high)


async def test_a_range_that_there_is_not_is_not_looked_for_one_by_one() -> None:
    class Strict(MemoryLeases):
        async def read(self, range_id: RangeId) -> Lease | None:
            range_id.encode()  # as stores do
            return await super().read(range_id)

    store, container = written(40), MemoryLeases()
    await halves(container, 41, 41)
    strict = leased(store, container, over(container, Strict))
    with pytest.raises(UserError, match="there is no lease of a range"):
        await merge(strict, [RangeId("\udcff"), HIGH], patience=3)


async def test_parts_with_something_left_to_read_are_not_merged_and_not_stopped() -> None:
    store, container = written(40), MemoryLeases()
    store.append(key_in(HIGH), b"the last")
    await halves(container, 41, 40)
    before = {x.range_id: x.version for x in await container.list()}
    with pytest.raises(UserError, match="are at different positions"):
        await merge(leased(store, container), [LOW, HIGH], patience=3)
    assert {x.range_id: x.version for x in await container.list()} == before


async def test_a_merge_that_is_refused_lets_go_on_what_an_earlier_one_has_stopped() -> None:
    store, container = written(40), MemoryLeases()
    store.append(key_in(HIGH), b"the last")
    await halves(container, 41, 40)
    await pause(container, [HIGH], MERGING)  # and then it was cut off
    with pytest.raises(UserError, match="read on as before"):
        await merge(leased(store, container), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "41", "7F-FF": "40"}


async def test_a_merge_that_an_operator_has_paused_meanwhile_keeps_no_other_part_stopped() -> (
    None
):
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)
    await pause(container, [LOW], "an operator says so")
    await pause(container, [HIGH], MERGING)
    with pytest.raises(UserError, match="is paused"):
        await merge(leased(store, container), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "4 paused", "7F-FF": "4"}


async def test_parts_that_can_be_merged_no_more_go_on_after_an_attempt_that_was_cut_off() -> (
    None
):
    class Split(ShiftingReader):
        """Its ranges have split since parts of them were made."""

        def joined(self, parts: Sequence[FeedRange]) -> FeedRange:
            raise UserError(f"{len(parts)} parts are of several ranges")

    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)
    await pause(container, [HIGH], MERGING)
    fleet = LeasedFeed(feed=Split(store), container=container, settings=SETTINGS)
    with pytest.raises(UserError, match="of several ranges"):
        await merge(fleet, [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "4", "7F-FF": "4"}


async def test_parts_whose_ends_differ_are_not_merged() -> None:
    class Lagging(ShiftingReader):
        """It is asked at two replicas, and one of them is behind."""

        async def read(self, range_id: RangeId, after: Continuation, limit: int) -> Page:
            page = await super().read(range_id, after, limit)
            seen = position(8) if range_id == LOW else page.continuation
            return Page(changes=(), continuation=seen)

    store, container = written(9), MemoryLeases()
    await halves(container, 8, 9)
    fleet = LeasedFeed(feed=Lagging(store), container=container, settings=SETTINGS)
    with pytest.raises(UserError, match="are at different positions"):
        await merge(fleet, [LOW, HIGH], patience=0)


async def test_a_merge_that_was_cut_off_between_two_ends_is_completed_by_the_next() -> None:
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)

    async def die(_: Lease) -> None:
        raise KeyboardInterrupt

    through = before_high_ends(container, die)
    with pytest.raises(KeyboardInterrupt):
        await cut_off(leased(store, container, through))
    cut = {"-7F": "4 ended", "7F-FF": "4 paused", "-FF": "4"}
    assert await state(container) == cut
    assert await resume(container, None) == []  # it is for the command to go on with
    await merge(leased(store, container), [LOW, HIGH], patience=0)
    assert await state(container) == cut | {"7F-FF": "4 ended"}


async def cut_off(fleet: LeasedFeed) -> None:
    await merge(fleet, [LOW, HIGH], patience=0)


@pytest.mark.parametrize("paused", [None, MERGING])  # resumed, or moved by a later merge
async def test_a_merge_that_was_cut_off_and_whose_rest_went_on_is_undone(
    paused: str | None,
) -> None:
    store, container = written(40), MemoryLeases()
    first = await put(container, LOW, "", "7F", 4)
    await container.replace(first.finished())
    rest = await put(container, HIGH, "7F", "FF", 7)
    await container.replace(rest.paused_because(paused))
    merged = FeedRange(id=RangeId("-FF"), low="", high="FF", parents=(LOW, HIGH))
    await container.create(Lease(range=merged, continuation=position(4)))
    with pytest.raises(UserError, match="are at different positions"):
        await merge(leased(store, container), [LOW, HIGH], patience=2)
    assert await state(container) == {"-7F": "4", "7F-FF": "7", "-FF": "4 ended"}


async def test_the_rest_of_a_merge_that_was_cut_off_is_not_ended_under_an_owner() -> None:
    store, container = written(9), MemoryLeases()
    first = await put(container, LOW, "", "7F", 4)
    await container.replace(first.finished())
    resumed = await put(container, HIGH, "7F", "FF", 4)
    await container.acquire(resumed.taken_by(HostName("a"), Incarnation("1")))
    merged = FeedRange(id=RangeId("-FF"), low="", high="FF", parents=(LOW, HIGH))
    await container.create(Lease(range=merged, continuation=position(4)))
    before = asyncio.get_running_loop().time()
    await merge(leased(store, container), [LOW, HIGH], patience=2)
    assert asyncio.get_running_loop().time() - before >= 40  # its owner was asked to release it
    assert await state(container) == {"-7F": "4 ended", "7F-FF": "4 ended", "-FF": "4"}


async def test_where_others_write_to_a_part_before_its_end_all_go_on_as_before() -> None:
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)

    async def reset(lease: Lease) -> None:
        raise LeaseConflict(lease, "reset meanwhile")

    through = before_high_ends(container, reset)
    with pytest.raises(LeaseConflict):
        await merge(leased(store, container, through), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "4", "7F-FF": "4", "-FF": "4 ended"}


async def test_where_others_end_a_part_for_a_merge_of_theirs_the_rest_goes_on_as_before() -> (
    None
):
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)

    async def others_merge_it(lease: Lease) -> None:
        await container.replace(lease.stamped(write_id=WriteId("theirs"), stamp=0.0))

    through = before_high_ends(container, others_merge_it)
    with pytest.raises(LeaseConflict):
        await merge(leased(store, container, through), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "4", "7F-FF": "4 ended", "-FF": "4 ended"}


async def test_a_merge_that_was_away_undoes_nothing_that_another_completes() -> None:
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)

    async def sleep(_: Lease) -> None:
        await asyncio.sleep(50)

    through = before_high_ends(container, sleep)
    both, asleep = [LOW, HIGH], leased(store, container, through)
    away = asyncio.create_task(outcome(merge(asleep, both, patience=0)))
    await asyncio.sleep(1)
    await merge(leased(store, container), both, patience=0)
    assert "was stopped for too long" in await away
    assert await state(container) == {"-7F": "4 ended", "7F-FF": "4 ended", "-FF": "4"}


async def test_a_part_is_not_opened_again_beside_a_host_that_reads_what_it_became() -> None:
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)

    async def others_complete_it(lease: Lease) -> None:
        """Another operator ends the rest by hand, and a host begins at once."""
        await container.replace(lease.stamped(write_id=WriteId("theirs"), stamp=0.0))
        merged = await container.read(RangeId("-FF"))
        assert merged is not None
        await container.acquire(merged.taken_by(HostName("a"), Incarnation("1")))

    through = before_high_ends(container, others_complete_it)
    with pytest.raises(LeaseConflict):
        await merge(leased(store, container, through), [LOW, HIGH], patience=0)
    assert await state(container) == {"-7F": "4 ended", "7F-FF": "4 ended", "-FF": "4"}


async def test_parts_of_a_merge_that_was_cut_off_are_merged_with_no_others_before() -> None:
    store, container = written(9), MemoryLeases()
    low, middle, high = RangeId("-3F"), RangeId("3F-7F"), HIGH
    first = await put(container, low, "", "3F", 4)
    await container.replace(first.finished())
    await put(container, middle, "3F", "7F", 4)
    await put(container, high, "7F", "FF", 4)
    merged = FeedRange(id=LOW, low="", high="7F", parents=(low, middle))
    await container.create(Lease(range=merged, continuation=position(4)))
    before = await state(container)
    with pytest.raises(UserError, match=r"complete it first \(changefeed merge -3F 3F-7F\)"):
        await merge(leased(store, container), [middle, high], patience=0)
    assert await state(container) == before


async def test_what_another_merge_has_ended_stays_ended_and_its_rest_can_be_merged() -> None:
    store, container = written(9), MemoryLeases()
    low, middle, high, top = map(RangeId, ("-3F", "3F-7F", "7F-BF", "BF-FF"))
    for name in (low, middle, high, top):
        first, last = name.split("-")
        part = await put(container, name, first, last, 4)
        if name in {low, middle}:
            await container.replace(part.finished())
    theirs = FeedRange(id=LOW, low="", high="7F", parents=(low, middle))
    ours = FeedRange(id=RangeId("3F-BF"), low="3F", high="BF", parents=(middle, high))
    for merged in (theirs, ours):
        await container.create(Lease(range=merged, continuation=position(4)))
    with pytest.raises(UserError, match="try again when their lag is 0"):
        await merge(leased(store, container), [middle, high], patience=0)
    assert (await state(container))[middle] == "4 ended"
    await merge(leased(store, container), [high, top], patience=0)
    assert (await state(container))[ours.id] == "4 ended"


async def test_an_end_without_an_answer_is_known_when_it_is_found() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    lost = 0

    class Losing(MemoryLeases):
        async def replace(self, lease: Lease) -> Lease:
            nonlocal lost
            stored = await container.replace(lease)
            if lease.ended and not lost:
                lost += 1
                raise ContainerUnavailable("the answer was lost")
            return stored

    through = over(container, Losing)
    await split(leased(store, container, through), ZERO, 2)
    assert lost == 1


class Slow(MemoryLeases):
    """Its listings take a while, so that others come in the middle of what is done with it."""

    seconds = 3.0

    async def list(self) -> Sequence[Lease]:
        await asyncio.sleep(self.seconds)
        return await super().list()


class VerySlow(Slow):
    seconds = 15.0


class AsleepOnce(Slow):
    """The machine is suspended in the middle of the second listing: after the range stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0

    async def list(self) -> Sequence[Lease]:
        self.listings += 1
        self.seconds = 50.0 if self.listings == 2 else 0.0
        return await super().list()


async def outcome(doing: Awaitable[object]) -> str:
    try:
        await doing
    except UserError as refused:
        return str(refused)
    return "done"


async def test_of_two_splits_of_one_range_at_once_one_is_done_and_the_other_refused() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    slow = over(container, Slow)
    first, second = await asyncio.gather(
        outcome(split(leased(store, container, slow), ZERO, 2)),
        outcome(split(leased(store, container, slow), ZERO, 3)),
    )
    assert first == "done"
    assert second == "range 0 has ended meanwhile: others have its keys now"
    assert await state(container) == {"0": "5 ended", "-7F": "5", "7F-FF": "5"}


async def test_of_two_merges_of_one_part_at_once_one_is_done_and_the_other_refused() -> None:
    store, container = written(9), MemoryLeases()
    names = low, middle, high = RangeId("-3F"), RangeId("3F-7F"), HIGH
    for name in names:
        first, last = name.split("-")
        await put(container, name, first, last, 4)
    slow = over(container, Slow)
    first, second = await asyncio.gather(
        outcome(merge(leased(store, container, slow), [low, middle], patience=0)),
        outcome(merge(leased(store, container, slow), [middle, high], patience=0)),
    )
    assert first == "done"
    assert second == "range 3F-7F has ended meanwhile: others have its keys now"
    assert await state(container) == {
        "-3F": "4 ended",
        "3F-7F": "4 ended",
        "7F-FF": "4",
        "-7F": "4",
    }


async def test_a_range_that_a_run_has_stopped_and_died_is_another_s_after_a_while() -> None:
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    await pause(container, [ZERO], Claim(SPLITTING).reason)
    before = asyncio.get_running_loop().time()
    said = list[str]()
    await split(replace(leased(store, container), say=said.append), ZERO, 2)
    assert 40 <= asyncio.get_running_loop().time() - before < 41
    assert (await state(container))["0"] == "5 ended"
    (waiting,) = said
    assert "another command has range 0 in hand" in waiting
    assert "has done nothing for 40 s" in waiting


async def test_while_a_command_waits_for_an_owner_or_for_positions_it_says_so() -> None:
    store, container = written(9), MemoryLeases()
    said = list[str]()
    telling = replace(leased(store, container), say=said.append)
    await halves(container, 4, 5)
    with pytest.raises(UserError, match="at different positions"):
        await merge(telling, [LOW, HIGH], patience=3)
    stored = await container.read(LOW)
    assert stored is not None
    await container.acquire(stored.taken_by(HostName("a"), Incarnation("1")))
    await split(telling, LOW, 2)
    assert said == [
        "waiting for up to 3 s until -7F, 7F-FF are read to their end at one moment",
        "waiting until a has finished what it has of -7F",
    ]


async def test_a_run_that_has_waited_for_an_owner_is_given_time_for_its_writes() -> None:
    store, container = written(9), MemoryLeases()
    stored = await put(container, ZERO, "", "FF", 5)
    await container.acquire(stored.taken_by(HostName("dead"), Incarnation("1")))
    slow = over(container, VerySlow)
    first = asyncio.create_task(outcome(split(leased(store, container, slow), ZERO, 2)))
    await asyncio.sleep(16)
    second = await outcome(split(leased(store, container), ZERO, 3))
    assert second == "range 0 has ended meanwhile: others have its keys now"
    assert await first == "done"


async def test_a_run_that_was_away_for_so_long_that_another_took_its_range_writes_no_more() -> (
    None
):
    store, container = written(9), MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    asleep = over(container, AsleepOnce)
    away = asyncio.create_task(outcome(split(leased(store, container, asleep), ZERO, 3)))
    await asyncio.sleep(1)
    await split(leased(store, container), ZERO, 2)
    assert "was stopped for too long" in await away
    assert await state(container) == {"0": "5 ended", "-7F": "5", "7F-FF": "5"}


async def test_a_merge_that_was_away_for_so_long_creates_nothing() -> None:
    store, container = written(9), MemoryLeases()
    await halves(container, 4, 4)
    through = over(container, AsleepOnce)
    away = await outcome(merge(leased(store, container, through), [LOW, HIGH], patience=0))
    assert "was stopped for too long" in away
    assert await state(container) == {"-7F": "4", "7F-FF": "4"}


async def refusal(container: MemoryLeases, *names: RangeId) -> str:
    """Split one range, or merge several; return why it was refused."""
    fleet = leased(written(9), container)
    doing = split(fleet, *names, 2) if len(names) == 1 else merge(fleet, names, patience=0)
    with pytest.raises(UserError) as refused:
        await doing
    return str(refused.value)


async def test_what_cannot_be_split_is_refused_with_its_reason() -> None:
    container = MemoryLeases()
    assert "there is no lease" in await refusal(container, ZERO)
    stored = await put(container, ZERO, "", "FF", 5)
    stored = await container.replace(stored.paused_because("maintenance"))
    assert "is paused (maintenance)" in await refusal(container, ZERO)
    stored = await container.replace(stored.paused_because(None))
    await put(container, LOW, "", "7F", 2)
    assert "from an earlier split or merge" in await refusal(container, ZERO)
    await container.replace(stored.finished())
    assert "has ended" in await refusal(container, ZERO)
    waiting = FeedRange(id=HIGH, low="7F", high="FF")
    await container.create(Lease(range=waiting, continuation=position(5)))
    assert "has not been read yet" in await refusal(container, HIGH)


async def test_what_cannot_be_merged_is_refused_with_its_reason() -> None:
    container = MemoryLeases()
    assert "there is no lease" in await refusal(container, LOW, HIGH)
    await put(container, LOW, "", "7F", 5)
    await put(container, RangeId("9F-FF"), "9F", "FF", 5)
    assert "whose keys touch" in await refusal(container, LOW, RangeId("9F-FF"))
    store = written(9)
    store.split(ZERO)
    await put(container, HIGH, "7F", "FF", 5)
    with pytest.raises(FeedRefused, match="several physical ranges"):
        await merge(leased(store, container), [LOW, HIGH], patience=0)


async def test_beside_a_host_of_another_kind_nothing_is_split() -> None:
    container = MemoryLeases()
    stored = await put(container, ZERO, "", "FF", 5)
    stored = await container.replace(replace(stored, owner=HostName("net")))
    assert "net is a host of another kind" in await refusal(container, ZERO)
    await container.put_member(Member(name=HostName("net"), incarnation=Incarnation("1")))
    await split(leased(written(9), container), ZERO, 2)  # of ours: handed over, not taken yet


async def test_a_feed_that_reads_no_parts_is_refused() -> None:
    container = MemoryLeases()
    await put(container, ZERO, "", "FF", 5)
    fleet = LeasedFeed(feed=PartlessFeed(1), container=container, settings=SETTINGS)
    with pytest.raises(UserError, match="cannot be read in parts"):
        await split(fleet, ZERO, 2)


@pytest.mark.parametrize("merges", [False, True], ids=["split", "merge"])
async def test_a_checkpoint_that_was_left_behind_under_a_name_is_not_gone_on_from(
    merges: bool,  # noqa: FBT001 - what is done
) -> None:
    checkpoints = MemoryCheckpoints()
    name = RangeId("-FF") if merges else LOW
    await checkpoints.create(Checkpoint(range_id=name, continuation=position(2), epoch=4))
    container = SeparateStores(MemoryOwnership(), checkpoints)
    fleet = LeasedFeed(feed=ShiftingReader(written(9)), container=container, settings=SETTINGS)
    for lease in (LOW, HIGH) if merges else (ZERO,):
        low, _, high = (lease if merges else "-FF").partition("-")
        found = FeedRange(id=lease, low=low, high=high)
        await container.create(Lease(range=found, continuation=position(5), epoch=3))

    async def do() -> None:
        await (merge(fleet, [LOW, HIGH], patience=0) if merges else split(fleet, ZERO, 2))

    with pytest.raises(UserError, match="others have written"):
        await do()
    assert name not in {x.range_id for x in await container.list()}
    await do()
    made = await container.read(name)
    assert made is not None
    assert (made.epoch, made.continuation) == (0, position(5))


async def test_resuming_by_name_resumes_what_a_command_that_died_has_paused() -> None:
    container = MemoryLeases()
    stored = await put(container, ZERO, "", "FF", 5)
    await container.replace(stored.paused_because(MERGING))
    assert await resume(container, None) == []
    assert await resume(container, [ZERO]) == [ZERO]


async def test_a_part_that_comes_back_under_its_name_begins_above_the_epochs_it_had() -> None:
    ended = {LOW: 7, HIGH: 4}
    merged = FeedRange(id=RangeId("-FF"), low="", high="FF", parents=(LOW, HIGH))
    assert above_parents(Lease(range=merged), ended).epoch == 7
    assert above_parents(Lease(range=merged, epoch=2), ended).epoch == 2
    assert above_parents(Lease(range=FeedRange(id=ZERO)), ended).epoch == 0
