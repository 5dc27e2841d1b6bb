"""Ranges that operators split without the feed, and merge again."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.feeds.cosmos.positions import position
from changefeed.feeds.cosmos.topology import part_between
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, Page, Position, RangeId
from changefeed.fleet.claims import MERGING, pause, resume
from changefeed.fleet.reshape import merge, split
from changefeed.fleet.stopping import LeasedFeed
from changefeed.host.settings import LeaseSettings
from changefeed.leases.checkpoint import Checkpoint, Hole
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.errors import StoreUnavailable, UserError
from changefeed.testing.proxies import Around, FailingCall, proxied
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership
from tests.support.looking import lease_in
from tests.support.partless_feed import PartlessFeed
from tests.support.shifting_feed import ShiftingReader, ShiftingStore, hash_of

ZERO, LOW, HIGH = RangeId("0"), RangeId("-7F"), RangeId("7F-FF")
QUARTERS = [RangeId(x) for x in ("-3F", "3F-7F", "7F-BF", "BF-FF")]
WHOLE = FeedRange(id=ZERO, low="", high="FF")
A, A1 = HostName("a"), Incarnation("a-1")
SETTINGS = LeaseSettings(expiration=30, max_handoff_time=10)
WRITES = {"replace", "acquire", "checkpoint"}


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

    async def put(self, name: RangeId, at: int = 4) -> Lease:
        """Store a lease that was read before, and has no owner."""
        low, _, high = name.partition("-")
        found = part_between(WHOLE, low, high) if high else WHOLE
        await self.leases.create(make.lease(found, at=position(at), epoch=3))
        return await lease_in(self.leases, name)

    async def halves(self, low_at: int = 4, high_at: int = 4) -> None:
        await self.put(LOW, low_at)
        await self.put(HIGH, high_at)

    def leased(self, through: LeaseContainer | None = None) -> LeasedFeed:
        feed = self._reader(self.store)
        return make.leased(feed, through or self.leases, SETTINGS)

    async def split(
        self, name: RangeId = ZERO, into: int = 2, *, through: LeaseContainer | None = None
    ) -> Sequence[FeedRange]:
        return await split(self.leased(through), name, into)

    async def merge(
        self, *names: RangeId, patience: float = 0, through: LeaseContainer | None = None
    ) -> FeedRange:
        return await merge(self.leased(through), names or (LOW, HIGH), patience=patience)

    async def cut_off(self, *names: RangeId, before: RangeId = HIGH) -> None:
        """Merge ranges, and die before one of them is ended."""

        async def die(_: Lease) -> None:
            raise Killed

        with pytest.raises(Killed):
            await self.merge(*names, through=self.before_end_of(before, die))

    def before_end_of(
        self, name: RangeId, do: Callable[[Lease], Awaitable[object]]
    ) -> LeaseContainer:
        """Return another way to the leases: something happens before a range is ended."""
        leases = self.leases

        class Interrupted(MemoryLeases):
            async def replace(self, lease: Lease) -> Lease:
                if lease.ended and lease.range_id == name:
                    await do(lease)
                return await leases.replace(lease)

        through = Interrupted()
        through.__dict__.update(vars(leases))
        return through

    async def state(self) -> dict[str, str]:
        """Return what is said of each range: its position, and why it is not read."""
        whole = [await lease_in(self.leases, x.range_id) for x in await self.leases.list()]
        return {x.range_id: _said(x) for x in whole}

    async def goes_on_in(self) -> dict[str, str]:
        """Return what hosts read from now on, and from where: all keys, once each."""
        keymap = KeyMap(await self.leases.list())
        assert not keymap.overlaps()
        assert not keymap.orphans()
        open_ranges = [x.range for x in keymap.readable()]
        held = sorted([*open_ranges, *(x.child.range for x in keymap.new_leases)], key=_low)
        assert [held[0].low, held[-1].high] == ["", "FF"]
        assert all(x.high == y.low for x, y in pairwise(held)), held
        starts = {x.child.range.id: x.child.start for x in keymap.new_leases}
        for x in open_ranges:
            stored = await lease_in(self.leases, x.id)
            starts[x.id] = stored.position or Position("")
        return {x.id: starts[x.id].strip('"') for x in held}


class Killed(Exception):
    """The process of an operator has died."""


def dying(at: int, *, after: bool) -> Around:
    """Kill who writes for so many times, before or after that: nothing more is done then."""
    writes = 0

    async def around(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal writes
        writes += name in WRITES
        if writes < at:
            return await call()
        if writes == at and name in WRITES and after:
            await call()
            writes += 1
        raise Killed

    return around


def _low(found: FeedRange) -> str:
    return found.low


def _said(lease: Lease) -> str:
    words = ["ended"] * lease.ended + ["paused"] * (lease.paused is not None)
    return " ".join([str(lease.position).strip('"'), *words])


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_split_that_was_killed_has_happened_or_is_done_by_the_next(
    at: int, *, after: bool
) -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    with pytest.raises(Killed):
        await parts.split(through=proxied(parts.leases, dying(at, after=after)))
    happened = at == 3 and after
    assert (await parts.state())["0"].startswith("5 ended") is happened
    if not happened:
        await parts.split()
    assert await parts.goes_on_in() == {"-7F": "5", "7F-FF": "5"}


async def test_a_split_that_fails_lets_its_range_go_on() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)

    async def fail(_: Lease) -> None:
        raise Killed

    with pytest.raises(Killed):
        await parts.split(through=parts.before_end_of(ZERO, fail))
    assert await parts.state() == {"0": "5"}


async def test_parts_at_one_position_are_merged_there_and_others_at_their_common_end() -> None:
    parts = Parted()
    await parts.halves()
    merged = await parts.merge()
    assert await parts.state() == {"-7F": "4 ended", "7F-FF": "4 ended"}
    assert await parts.goes_on_in() == {"0": "4"}
    assert (merged.id, merged.of, merged.generation) == ("0", None, (0, 2))
    assert await parts.merge() == merged  # asked for again, it is done
    parts = Parted()
    parts.append_to(HIGH)
    await parts.halves(9, 10)
    await parts.merge()
    assert await parts.state() == {"-7F": "10 ended", "7F-FF": "10 ended"}
    assert await parts.goes_on_in() == {"0": "10"}


async def test_parts_with_something_left_to_read_are_not_merged_and_not_stopped() -> None:
    parts = Parted()
    parts.append_to(HIGH)
    await parts.halves(10, 9)
    before = {x.range_id: x.version for x in await parts.leases.list()}
    with pytest.raises(UserError, match="different positions"):
        await parts.merge(patience=3)
    assert {x.range_id: x.version for x in await parts.leases.list()} == before


async def test_a_merge_that_an_operator_has_paused_keeps_no_other_part_stopped() -> None:
    parts = Parted()
    await parts.halves()
    await pause(parts.leases, [LOW], "an operator says so")
    await pause(parts.leases, [HIGH], MERGING)
    with pytest.raises(UserError, match="is paused"):
        await parts.merge()
    assert await parts.state() == {"-7F": "4 paused", "7F-FF": "4"}


async def test_parts_whose_ends_differ_are_not_merged() -> None:
    class Lagging(ShiftingReader):
        """It is asked at two replicas, and one of them is behind."""

        async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
            page = await super().read(found, after, limit)
            seen = position(8) if found.id == LOW else page.position
            return Page(changes=(), position=seen)

    parts = Parted(Lagging)
    await parts.halves(8, 9)
    with pytest.raises(UserError, match="different positions"):
        await parts.merge()


THREE = [*QUARTERS[:2], HIGH]


@pytest.mark.parametrize("again", ["resume", "merge"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 12))
async def test_a_merge_that_was_killed_at_any_write_is_undone_by_resume_or_done_by_the_next(
    at: int, again: str, *, after: bool
) -> None:
    """Three claims, three new epochs, two checkpoints and three ends."""
    parts = Parted()
    parts.append_to(THREE[1])
    for name, place in zip(THREE, (9, 10, 9), strict=True):
        await parts.put(name, place)
    with pytest.raises(Killed):
        await parts.merge(*THREE, through=proxied(parts.leases, dying(at, after=after)))
    if again == "merge" or (at == 11 and after):
        await parts.merge(*THREE)
        assert list(await parts.goes_on_in()) == ["0"]
    else:
        stopped = [x.range_id for x in await parts.leases.list() if x.paused is not None]
        await resume(parts.leases, stopped)
        assert list(await parts.goes_on_in()) == THREE


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
async def test_to_undo_a_merge_may_be_killed_at_any_write_and_is_done_by_the_next(
    at: int, *, after: bool
) -> None:
    """Two are ended and two stopped: to undo that are two claims, two ends and two pauses."""
    parts = Parted()
    for name in QUARTERS:
        await parts.put(name)
    await parts.cut_off(*QUARTERS, before=QUARTERS[2])
    with pytest.raises(Killed):
        await resume(proxied(parts.leases, dying(at, after=after)), QUARTERS[3:])
    await resume(parts.leases, QUARTERS[2:])
    assert await parts.goes_on_in() == dict.fromkeys(QUARTERS, "4")


async def test_to_resume_one_range_undoes_its_merge_and_no_other() -> None:
    parts = Parted()
    for name in QUARTERS:
        await parts.put(name)
    await parts.cut_off(*QUARTERS[:2], before=QUARTERS[1])
    await parts.cut_off(*QUARTERS[2:], before=QUARTERS[3])
    assert await resume(parts.leases, [QUARTERS[1]]) == [QUARTERS[1]]
    state = await parts.state()
    assert [state[x] for x in QUARTERS] == ["4", "4", "4 ended", "4 paused"]


async def test_to_undo_a_merge_resumes_nothing_that_a_person_has_paused() -> None:
    parts = Parted()
    for name in THREE:
        await parts.put(name)
    await parts.cut_off(*THREE, before=THREE[1])
    stored = await lease_in(parts.leases, THREE[1])
    await parts.leases.replace(stored.paused_because("maintenance"))
    assert await resume(parts.leases, [HIGH]) == [HIGH]
    assert await parts.state() == {"-3F": "4", "3F-7F": "4 paused", "7F-FF": "4"}


@pytest.mark.parametrize("before", [LOW, HIGH])
@pytest.mark.parametrize("how", ["was moved", "was resumed by hand", "is read"])
async def test_a_merge_that_was_cut_off_and_whose_rest_went_on_is_undone(
    how: str, before: RangeId
) -> None:
    parts = Parted()
    await parts.halves()
    parts.append_to(HIGH)
    await parts.cut_off(LOW, HIGH, before=before)
    rest = replace(await lease_in(parts.leases, HIGH), checkpoint=Checkpoint(position(7)))
    if how != "was moved":
        rest = rest.paused_because(None)
    rest = await parts.leases.replace(rest)
    if how == "is read":
        await parts.leases.acquire(rest.taken_by(A, A1))
    with pytest.raises(UserError, match="different positions"):
        await parts.merge(patience=2)
    assert await parts.state() == {"-7F": "4", "7F-FF": "7"}
    assert await parts.goes_on_in() == {"-7F": "4", "7F-FF": "7"}


async def test_a_merge_that_was_cut_off_ends_no_range_that_a_host_reads() -> None:
    parts = Parted()
    await parts.halves()
    await parts.cut_off(LOW, HIGH)
    rest = await lease_in(parts.leases, HIGH)
    resumed = await parts.leases.replace(rest.paused_because(None))
    await parts.leases.acquire(resumed.taken_by(A, A1))
    await outcome(parts.merge())
    assert await parts.state() == {"-7F": "4", "7F-FF": "4"}


async def test_a_merge_that_was_cut_off_and_whose_rest_went_on_is_done_anew_at_rest() -> None:
    parts = Parted()
    await parts.halves(9, 9)
    await parts.cut_off(LOW, HIGH)
    parts.append_to(HIGH)
    rest = replace(await lease_in(parts.leases, HIGH), checkpoint=Checkpoint(position(10)))
    await parts.leases.replace(rest)
    await parts.merge(patience=60)
    assert await parts.state() == {"-7F": "10 ended", "7F-FF": "10 ended"}
    assert await parts.goes_on_in() == {"0": "10"}


async def test_a_merge_into_which_a_person_writes_ends_nothing() -> None:
    parts = Parted()
    for name in THREE:
        await parts.put(name)

    async def paused(_: Lease) -> None:
        stored = await lease_in(parts.leases, THREE[1])
        await parts.leases.replace(stored.paused_because("maintenance"))

    with pytest.raises(LeaseConflict):
        await parts.merge(*THREE, through=parts.before_end_of(THREE[1], paused))
    assert await parts.state() == {"-3F": "4", "3F-7F": "4 paused", "7F-FF": "4"}


async def test_what_an_earlier_merge_has_ended_goes_on_beside_another_one() -> None:
    parts = Parted()
    for name in QUARTERS:
        await parts.put(name)
    await parts.cut_off(*QUARTERS[:3], before=QUARTERS[1])
    await parts.merge(*QUARTERS[1:3])
    assert await parts.goes_on_in() == {"-3F": "4", "3F-BF": "4", "BF-FF": "4"}


async def test_an_end_without_an_answer_is_known_when_it_is_found() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    lost = StoreUnavailable("the answer was lost")
    ends = FailingCall(lost, at=2, after=True, only=lambda x: x == "replace")
    await parts.split(through=proxied(parts.leases, ends))
    assert (await parts.state())["0"] == "5 ended"


async def outcome(doing: Awaitable[object]) -> str:
    try:
        await doing
    except (UserError, LeaseConflict) as refused:
        return str(refused)
    return "done"


def coming(do: Callable[[], Awaitable[object]], at: int, *, after: bool) -> Around:
    """Let something happen before or after the write of a number."""
    writes = 0

    async def around(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal writes
        writes += name in WRITES
        comes = writes == at and name in WRITES
        if comes and not after:
            await do()
        answer = await call()
        if comes and after:
            await do()
        return answer

    return around


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 12))
async def test_a_merge_that_another_run_comes_into_at_any_write_leaves_it_all_to_that_one(
    at: int, *, after: bool
) -> None:
    parts = Parted()
    parts.append_to(THREE[1])
    for name, place in zip(THREE, (9, 10, 9), strict=True):
        await parts.put(name, place)
    overtaken = coming(partial(parts.merge, *THREE), at, after=after)
    await outcome(parts.merge(*THREE, through=proxied(parts.leases, overtaken)))
    assert await parts.goes_on_in() == {"0": "10"}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_split_that_a_person_comes_into_before_its_end_leaves_the_range_paused(
    at: int, *, after: bool
) -> None:
    parts = Parted()
    await parts.put(ZERO, 5)

    async def person() -> None:
        await resume(parts.leases, [ZERO])
        await pause(parts.leases, [ZERO], "maintenance")

    through = proxied(parts.leases, coming(person, at, after=after))
    said = await outcome(parts.split(through=through))
    happened = at == 3 and after
    assert (said == "done") is happened
    assert await parts.state() == {"0": "5 ended" if happened else "5 paused"}


async def test_a_range_whose_lease_a_person_deletes_meanwhile_is_not_split() -> None:
    parts = Parted()
    await parts.put(ZERO, 5)

    async def person() -> None:
        await parts.leases.delete(await lease_in(parts.leases, ZERO))

    through = proxied(parts.leases, coming(person, 1, after=True))
    assert "deleted meanwhile" in await outcome(parts.split(through=through))


@pytest.mark.parametrize("second", [1, 2, 3])
@pytest.mark.parametrize("first", [1, 2, 3])
async def test_of_two_splits_that_wait_before_any_of_their_writes_one_is_done(
    first: int, second: int
) -> None:
    parts = Parted()
    await parts.put(ZERO, 5)
    gates = asyncio.Event(), asyncio.Event()
    both = list[asyncio.Task[str]]()
    for gate, at in zip(gates, (first, second), strict=True):
        through = proxied(parts.leases, coming(gate.wait, at, after=False))
        both.append(asyncio.create_task(outcome(parts.split(through=through))))
        await asyncio.sleep(1)
    outcomes = list[str]()
    for gate, task in zip(gates, both, strict=True):
        gate.set()
        outcomes.append(await task)
    assert outcomes.count("done") == 1
    late = outcomes[0] == "done" and second < 3
    assert ("range 0 has ended" in outcomes[1]) is late
    assert await parts.goes_on_in() == {"-7F": "5", "7F-FF": "5"}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 5))
async def test_a_merge_that_goes_on_while_it_is_undone_loses_no_keys(
    at: int, *, after: bool
) -> None:
    """One is ended and two stopped: to undo that are two claims, an end and two pauses."""
    parts = Parted()
    for name in THREE:
        await parts.put(name)
    gate = asyncio.Event()
    through = parts.before_end_of(THREE[1], lambda _: gate.wait())
    lives = asyncio.create_task(outcome(parts.merge(*THREE, through=through)))
    await asyncio.sleep(1)

    async def goes_on() -> None:
        gate.set()
        await lives

    undoing = proxied(parts.leases, coming(goes_on, at, after=after))
    await outcome(resume(undoing, THREE[1:]))
    assert await parts.goes_on_in() in ({"0": "4"}, dict.fromkeys(THREE, "4"))


async def test_what_cannot_be_split_is_refused_with_its_reason() -> None:
    parts = Parted()
    assert "no lease" in await outcome(parts.split())
    stored = await parts.put(ZERO, 5)
    partless = dataclasses.replace(parts.leased(), feed=PartlessFeed(1))
    assert "cannot be read in parts" in await outcome(split(partless, ZERO, 2))
    stored = await parts.leases.replace(stored.paused_because("maintenance"))
    assert "maintenance" in await outcome(parts.split())
    stored = await parts.leases.replace(stored.paused_because(None))
    await parts.leases.replace(make.closed(stored))
    assert "has ended" in await outcome(parts.split())
    unread = dataclasses.replace(part_between(WHOLE, "7F", "FF"), id=HIGH)
    await parts.leases.create(make.lease(unread, at=position(5)))
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


async def test_what_has_lost_its_checkpoint_is_neither_split_nor_merged() -> None:
    parts, checkpoints = Parted(), MemoryCheckpoints()
    parts.leases = TwoStoreLeases(MemoryOwnership(), checkpoints)
    await parts.halves()
    kept = await checkpoints.read(HIGH)
    assert kept is not None
    await checkpoints.delete(kept)
    for doing in (parts.merge(), parts.split(HIGH)):
        assert "reset 7F-FF" in await outcome(doing)
        leases = await parts.leases.list()
        assert [x.paused for x in leases] == [None, None]


async def test_beside_a_host_of_another_kind_nothing_is_split() -> None:
    parts = Parted()
    stored = await parts.put(ZERO, 5)
    foreign = await parts.leases.replace(replace(stored, owner=HostName("net")))
    assert "net is a host of another kind" in await outcome(parts.split())
    await parts.leases.replace(replace(foreign, cooling=True))
    await parts.split()  # of ours: handed over, not taken yet


@pytest.mark.parametrize("at", range(1, 6))
async def test_who_dies_while_a_tombstone_is_deleted_leaves_no_position_under_its_name(
    at: int,
) -> None:
    """A part may come back under that name, and must begin where its range ended."""
    ownership, checkpoints = MemoryOwnership(), MemoryCheckpoints()
    dies = FailingCall(StoreUnavailable("it died"), at=at)
    parts = Parted()
    parts.leases = TwoStoreLeases(ownership, checkpoints)
    await parts.leases.replace(make.closed(await parts.put(LOW, 8)))
    dying = TwoStoreLeases(proxied(ownership, dies), proxied(checkpoints, dies))
    with suppress(StoreUnavailable):
        await dying.delete(await lease_in(parts.leases, LOW))
    left = await checkpoints.read(LOW)
    assert left is None or await ownership.read(LOW) is not None


async def test_the_parts_of_a_split_know_what_is_done_behind_the_keys_that_wait() -> None:
    ranges = Parted()
    held = Checkpoint(position(4), 7, (Hole("00" * 8, 5),))
    await ranges.leases.create(Lease(range=WHOLE, checkpoint=held, epoch=3))
    await ranges.split()
    keymap = KeyMap(await ranges.leases.list())
    assert [x.start for x in keymap.new_leases] == [held, held]
    unread = [make.lease(x.child.range) for x in keymap.new_leases]
    again = KeyMap([*await ranges.leases.list(), *unread])
    assert [again.start_of(x) for x in unread] == [held, held]


async def test_a_merge_waits_while_something_is_done_behind_a_key_that_waits() -> None:
    ranges = Parted()
    held = Checkpoint(position(4), 7, (Hole("00" * 8, 5),))
    for name in (LOW, HIGH):
        found = part_between(WHOLE, *name.split("-"))
        await ranges.leases.create(Lease(range=found, checkpoint=held, epoch=3))
    with pytest.raises(UserError, match="wait"):
        await ranges.merge()
    assert [(await lease_in(ranges.leases, x)).checkpoint for x in (LOW, HIGH)] == [held] * 2
