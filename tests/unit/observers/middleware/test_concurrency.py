import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.feed import Change
from changefeed.host.checkpointer import Acknowledgements
from changefeed.observers.call import CalledObserver
from changefeed.observers.errors import ObserverFailed, ObserverStuck
from changefeed.observers.middleware.concurrency import (
    KeyedConcurrency,
    spread_always_alike,
    spread_evenly,
)
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.observers import RecordingContext
from tests.support import make
from tests.support.observers import Bare


class Lanes:
    """Makes observers that take ``pace`` seconds for a change, and remembers what they do."""

    def __init__(self, *, pace: float = 0.005, fails_on: Sequence[int] = ()) -> None:
        self.pace = pace
        self.fails_on = set(fails_on)
        self.made = 0
        self.done: list[tuple[int, Change]] = []
        self.closed: list[int] = []
        self.busy: set[int] = set()
        self.contexts: list[Context] = []

    def __call__(self) -> "_LaneObserver":
        self.made += 1
        return _LaneObserver(self, self.made)

    @property
    def sequences(self) -> list[int]:
        return [x.sequence for _, x in self.done]


class _LaneObserver:
    def __init__(self, lanes: Lanes, number: int) -> None:
        self._lanes = lanes
        self._number = number

    async def open(self, context: Context) -> None:
        self._lanes.contexts.append(context)

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        assert self._number not in self._lanes.busy, "one call at a time"
        self._lanes.busy.add(self._number)
        try:
            for one in changes:
                await asyncio.sleep(self._lanes.pace)
                if one.sequence in self._lanes.fails_on:
                    raise ObserverFailed(one.range_id, None, 1, f"no {one.sequence}")
                self._lanes.done.append((self._number, one))
        finally:
            self._lanes.busy.remove(self._number)

    async def close(self, _context: Context, _reason: CloseReason) -> None:
        self._lanes.closed.append(self._number)


def batch(count: int, *, keys: int, first: int = 1) -> list[Change]:
    return [make.change(n, key=f"k{n % keys}") for n in range(first, first + count)]


async def opened(
    lanes: Lanes, count: int, *, piece: int = 100, manual: bool = False
) -> tuple[KeyedConcurrency, RecordingContext]:
    observer = KeyedConcurrency(lanes, count, piece=piece, manual=manual)
    context = make.context()
    await observer.open(context)
    return observer, context


@pytest.mark.parametrize("lanes", [1, 4, 16])
async def test_so_many_lanes_are_so_many_times_as_fast(lanes: int) -> None:
    made = Lanes()
    observer, context = await opened(made, lanes)
    began = asyncio.get_running_loop().time()
    for first in range(1, 6401, 640):
        await observer.process(context, batch(640, keys=64, first=first))
    took = asyncio.get_running_loop().time() - began
    assert took == pytest.approx(6400 * 0.005 / lanes)
    assert made.made == lanes
    assert sorted(made.sequences) == list(range(1, 6401))


def test_a_frequent_key_gets_a_lane_and_the_others_share_the_rest() -> None:
    keys = "a" * 10 + "bbb" + "ccc" + "dd" + "ee"
    shares = spread_evenly([make.change(n, key=x) for n, x in enumerate(keys)], 3)
    assert [Counter(x.key for x in share) for share in shares] == [
        {"a": 10},
        {"b": 3, "d": 2},
        {"c": 3, "e": 2},
    ]


def test_with_manual_checkpoints_a_key_has_the_same_lane_in_every_batch() -> None:
    first = spread_always_alike(batch(100, keys=20), 4)
    second = spread_always_alike(list(reversed(batch(70, keys=20))), 4)
    lane_of = {x.key: n for n, share in enumerate(first) for x in share}
    assert all(lane_of[x.key] == n for n, share in enumerate(second) for x in share)
    assert len(set(lane_of.values())) == 4


async def test_what_is_done_is_acknowledged_piece_by_piece() -> None:
    observer, context = await opened(Lanes(pace=1), 2, piece=5)
    task = asyncio.create_task(observer.process(context, batch(40, keys=4)))
    await asyncio.sleep(5.5)
    assert sorted(context.acknowledged) == list(range(1, 11))
    await task
    assert sorted(context.acknowledged) == list(range(1, 41))
    assert context.checkpoints == []


async def test_with_manual_checkpoints_nothing_is_acknowledged_for_the_user() -> None:
    observer, context = await opened(Lanes(), 2, manual=True)
    await observer.process(context, batch(40, keys=4))
    assert context.acknowledged == []


async def test_to_checkpoint_in_a_lane_acknowledges_what_that_lane_was_given() -> None:
    made = Lanes()
    observer, context = await opened(made, 2, manual=True)
    changes = batch(40, keys=4)
    await observer.process(context, changes)
    theirs = [x.sequence for number, x in made.done if number == 1]
    middle = theirs[len(theirs) // 2]
    made.contexts[0].acknowledge(changes[theirs[0] - 1])
    made.contexts[0].checkpoint(changes[middle - 1])
    assert sorted(context.acknowledged) == [x for x in theirs if x <= middle]
    assert context.checkpoints == []


async def test_when_a_lane_fails_the_others_finish_their_piece_and_no_more() -> None:
    made = Lanes(pace=1, fails_on=[4])
    observer, context = await opened(made, 2, piece=5)
    with pytest.raises(ObserverFailed, match="no 4"):
        await observer.process(context, batch(40, keys=4))
    other = [x for number, x in made.done if number == 1]
    assert len(other) == 5
    assert sorted(context.acknowledged) == sorted(x.sequence for x in other)


async def test_all_lanes_are_closed_even_if_one_cannot() -> None:
    class Refusing(_LaneObserver):
        async def close(self, context: Context, reason: CloseReason) -> None:
            await super().close(context, reason)
            if self._number == 1:
                raise OSError("no")

    made = Lanes()
    numbers = iter(range(1, 4))
    observer = KeyedConcurrency(lambda: Refusing(made, next(numbers)), 3)
    await observer.open(make.context())
    with pytest.raises(OSError, match="no"):
        await observer.close(make.context(), CloseReason.STOPPING)
    assert made.closed == [1, 2, 3]


async def test_a_lane_that_is_stuck_goes_before_one_that_has_failed() -> None:
    class Stubborn(_LaneObserver):
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if self._number == 1:
                await super().process(context, changes)
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    await asyncio.sleep(1000)

    made = Lanes(fails_on=[1, 2])
    numbers = iter((1, 2))
    observer = KeyedConcurrency(
        lambda: CalledObserver(Stubborn(made, next(numbers)), seconds=10), 2
    )
    await observer.open(make.context())
    with pytest.raises(ObserverStuck):
        await observer.process(make.context(), batch(2, keys=2))


async def test_a_cancellation_reaches_every_lane() -> None:
    made = Lanes(pace=100)
    observer, context = await opened(made, 3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await observer.process(context, batch(30, keys=3))
    assert made.busy == set()


async def test_a_lane_that_a_cancellation_finds_stuck_goes_before_the_cancellation() -> None:
    class Stuck(_LaneObserver):
        async def process(self, _context: Context, changes: Sequence[Change]) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ObserverStuck(changes[0].range_id, "process", 1.0) from None

    numbers = iter((1, 2))
    made = Lanes(pace=100)

    def one_of_two() -> _LaneObserver:
        number = next(numbers)
        return Stuck(made, number) if number == 2 else _LaneObserver(made, number)

    observer = KeyedConcurrency(one_of_two, 2)
    await observer.open(make.context())
    task = asyncio.create_task(observer.process(make.context(), batch(2, keys=2)))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(ObserverStuck):
        await task


async def test_a_second_cancellation_gives_up_on_lanes_that_do_not_end() -> None:
    class Deaf(_LaneObserver):
        async def process(self, _context: Context, _changes: Sequence[Change]) -> None:
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(1e6)  # as a thread that must end first

    made = Lanes()
    observer = KeyedConcurrency(lambda: Deaf(made, 1), 2)
    await observer.open(make.context())
    task = asyncio.create_task(observer.process(make.context(), batch(2, keys=2)))
    for _ in range(2):
        await asyncio.sleep(1)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() < 3


class Flaky(Bare):
    """Fails so often on each of some changes; takes some time, of chance, for each."""

    def __init__(self, fails: dict[int, int]) -> None:
        self._fails = fails
        self._chance = Random(len(fails))
        self.done: list[Change] = []

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        for one in changes:
            await asyncio.sleep(self._chance.random())
            if self._fails.get(one.sequence, 0):
                self._fails[one.sequence] -= 1
                raise ObserverFailed(one.range_id, None, 1, "for now")
            self.done.append(one)


async def progress_of(observer: KeyedConcurrency, batch: Sequence[Change]) -> int:
    """Hand a batch over as a worker would; return how many count as done."""
    progress, context = Acknowledgements(), make.context()
    progress.deliver(batch)
    await observer.open(context)
    try:
        await observer.process(context, batch)
    except ObserverFailed:
        done = set(context.acknowledged)
        for one in batch:
            if one.sequence in done:
                progress.done(one)
        return len(batch) - progress.unacknowledged
    return len(batch)


@given(
    keys=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=120),
    lanes=st.integers(2, 6),
    piece=st.integers(1, 20),
    size=st.integers(1, 50),
    fails=st.dictionaries(st.integers(1, 120), st.integers(1, 2)),
)
async def test_each_key_stays_in_order_and_nothing_is_lost_whatever_fails(
    keys: list[str], lanes: int, piece: int, size: int, fails: dict[int, int]
) -> None:
    flaky = Flaky(dict(fails))  # the same behind all lanes: it sees everything
    changes = [make.change(n, key=x) for n, x in enumerate(keys, start=1)]
    position = 0
    while position < len(changes):
        observer = KeyedConcurrency(lambda: flaky, lanes, piece=piece)
        position += await progress_of(observer, changes[position : position + size])
        assert {x.sequence for x in flaky.done} >= set(range(1, position + 1))
    for key in set(keys):
        order = list(dict.fromkeys(x.sequence for x in flaky.done if x.key == key))
        assert order == sorted(order)
