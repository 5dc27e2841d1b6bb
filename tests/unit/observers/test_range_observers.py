"""Which change is to blame, and what goes on meanwhile, shown by calls and virtual seconds."""

import asyncio
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from random import Random
from typing import Any

import msgspec
import pytest

from changefeed.feeds.feed import Change
from changefeed.leases.errors import LeaseLost
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import DeadLetter, MemoryDeadLetters
from changefeed.observers.errors import ObserverFailed, ObserverStuck
from changefeed.observers.observer import CloseReason, Context
from tests.support import make
from tests.support.handing import Handing
from tests.support.looking import now
from tests.support.observers import Bare, Gate

ASIDE: dict[str, Any] = {"on_failure": "dead-letter", "retry": {"attempts": 4}}


class Picky(Bare):
    """Fails as a whole on any batch with a change it cannot take; remembers the others."""

    def __init__(
        self, fails_on: Callable[[Change], bool] = lambda _: False, *, pace: float = 0.0
    ) -> None:
        self.fails_on = fails_on
        self.pace = pace
        self.tried: list[list[int]] = []
        self.done: list[int] = []
        self.closed: list[CloseReason] = []
        self.at_once = 0
        self.most_at_once = 0

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        self.tried.append([x.sequence for x in changes])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.pace * len(changes))
        finally:
            self.at_once -= 1
        for one in changes:
            if self.fails_on(one):
                raise ValueError(f"cannot take {one.sequence}")
        self.done += [x.sequence for x in changes]

    async def close(self, _context: Context, reason: CloseReason) -> None:
        self.closed.append(reason)


def picky(*sequences: int) -> Picky:
    return Picky(lambda x: x.sequence in sequences)


def batch(count: int, *, keys: int = 1000, first: int = 1) -> list[Change]:
    return [make.change(n, key=f"k{n % keys}") for n in range(first, first + count)]


class Page(list[Change]):
    """One that can be told from afar to be gone."""


async def test_a_page_is_let_go_as_soon_as_its_call_has_returned() -> None:
    page, handing = Page(batch(3)), Handing(picky)
    kept = weakref.ref(page)
    handing.read(page)
    del page
    await handing.process([])
    assert handing.left == []
    assert kept() is None


@pytest.mark.parametrize("poison", [1, 2, 37, 38, 64, 99, 100])
async def test_of_a_hundred_changes_all_but_one_are_done_at_once(poison: int) -> None:
    observer = picky(poison)
    handing = Handing(lambda: observer)
    await handing.process(batch(100), seconds=0.1)
    assert handing.left == [poison]
    assert len(observer.tried) <= 16
    assert sorted(observer.done) == [n for n in range(1, 101) if n != poison]


async def test_a_change_is_put_aside_where_another_succeeds_after_its_last_attempt() -> None:
    observer = picky(1)
    observer.pace = 0.01
    handing = Handing(lambda: observer, **ASIDE)
    handing.read(batch(1000))
    await handing.process(batch(4000, first=1001))
    assert await handing.put_aside() == [1]
    *_, before, last = [n for n, tried in enumerate(observer.tried) if tried == [1]]
    assert observer.tried.count([1]) == 5
    assert last - before == 2
    assert sorted(observer.done) == list(range(2, 5001))


async def test_a_letter_holds_the_change_and_why_it_is_there() -> None:
    handing = Handing(lambda: picky(2), **ASIDE)
    changes = batch(3)
    await handing.process(changes)
    (letter,) = handing.told.letters
    assert letter.change == changes[1]
    assert (letter.failure.kind, letter.failure.text) == ("ValueError", "cannot take 2")
    assert 'raise ValueError(f"cannot take {one.sequence}")' in letter.failure.trace
    assert (letter.attempts, letter.host, letter.epoch) == (4, "anna", 1)
    assert await make.whole(handing.letters) == [letter]


class Away(Picky):
    """Fails on everything until a time, and remembers when it first succeeded."""

    def __init__(self, until: float) -> None:
        super().__init__(lambda _: now() < until)
        self.well_at: float | None = None

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await super().process(context, changes)
        self.well_at = self.well_at or now()


async def test_an_outage_puts_nothing_aside_and_its_end_is_found_soon() -> None:
    late = []
    for n in range(20):
        end = now() + 60 + n / 10
        observer = Away(end)
        handing = Handing(partial(_same, observer), **ASIDE)
        await handing.process(batch(100))
        assert await handing.put_aside() == []
        assert sorted(observer.done) == list(range(1, 101))
        assert observer.well_at is not None
        late.append(observer.well_at - end)
    assert sum(late) / len(late) < 2


def _same(observer: Picky) -> Picky:
    return observer


async def test_an_observer_on_which_everything_fails_is_replaced() -> None:
    made: list[Picky] = []

    def observer() -> Picky:
        made.append(Picky(lambda _: len(made) < 3))
        return made[-1]

    handing = Handing(observer, retry={"attempts": 4})
    await handing.process(batch(10))
    assert [x.closed for x in made] == [[CloseReason.FAILED], [CloseReason.FAILED], []]
    assert sorted(made[-1].done) == list(range(1, 11))
    leaving = Handing(lambda: Away(1e9), retry={"attempts": 4})
    leaving.handing_over = True
    with pytest.raises(ObserverFailed, match="cannot take 1"):
        await leaving.process(batch(1))


async def test_an_observer_that_fails_to_open_is_opened_again_and_then_another_one() -> None:
    opened: list[Bare] = []

    class Away(Picky):
        async def open(self, _context: Context) -> None:
            opened.append(self)
            if now() < 60:
                raise OSError("no database")

    leaving, handing = (Handing(Away, retry={"attempts": 4}) for _ in range(2))
    leaving.handing_over = True
    with pytest.raises(ObserverFailed, match="no database"):
        await leaving.process(batch(1))
    opened.clear()
    await handing.process(batch(2))
    assert handing.left == []
    groups = [opened.count(x) for x in dict.fromkeys(opened)]
    assert groups[:-1] == [4] * (len(groups) - 1)
    assert len(groups) > 1


async def test_what_becomes_due_after_it_was_looked_for_is_not_waited_for() -> None:
    handing = Handing(lambda: picky(1))
    await handing.observers.open()
    handing.read(batch(1))
    while await handing.observers.give():
        pass
    await asyncio.sleep(1)  # a busy machine
    async with asyncio.timeout(1):
        await handing.observers.wait()
    assert await handing.observers.give()


async def test_one_change_alone_is_put_aside_on_suspicion_and_no_second_one() -> None:
    handing = Handing(lambda: picky(1, 2), **ASIDE)
    await handing.process(batch(2, keys=1), seconds=3600)
    assert (await handing.put_aside(), handing.left) == ([1], [2])
    handing.successes.count += 1  # in another range of the process
    await handing.process([], seconds=3600)
    assert await handing.put_aside() == [1, 2]


class Broken(MemoryDeadLetters):
    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self._error = error

    async def put(self, letter: DeadLetter) -> None:
        if self._error is None:
            await asyncio.sleep(1e9)
        elif self._error is not OK:
            raise self._error
        await super().put(letter)

    def mend(self) -> None:
        self._error = OK


OK = Exception()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), "'utf-8' codec can't"),
        (OSError(28, "no space"), "no space"),
        (KeyError(), "KeyError"),
        (ValueError("\ud800"), "\\ud800"),
        (asyncio.CancelledError(), "a call was cancelled by what it called"),
        (None, "TimeoutError"),
    ],
)
async def test_a_change_that_cannot_be_put_to_the_dead_letters_is_not_skipped(
    error: BaseException | None, text: str
) -> None:
    letters = Broken(error)
    handing = Handing(lambda: picky(3), letters=letters, **ASIDE)
    left = list[int]()

    def mend() -> None:
        left[:] = handing.left
        letters.mend()

    asyncio.get_running_loop().call_later(600, mend)
    await handing.process(batch(10, keys=1))
    assert left == [3, 4, 5, 6, 7, 8, 9, 10]
    assert any(
        "cannot take 3; and it" in x and text.replace("\\\\", "\\") in x
        for _, x in handing.told.failures
    )
    assert (handing.left, await handing.put_aside()) == ([], [3])


async def test_a_change_whose_letter_would_replace_that_of_another_is_not_skipped() -> None:
    letters = MemoryDeadLetters()
    await Handing(lambda: picky(3), letters=letters, **ASIDE).process(batch(10, keys=1))
    other = [msgspec.structs.replace(x, body=b"{}") for x in batch(10, keys=1)]
    handing = Handing(lambda: picky(3), letters=letters, **ASIDE)
    await handing.process(other, seconds=600)
    assert handing.left[0] == 3
    assert [x.change.body for x in await make.whole(letters)] == [batch(3)[2].body]


async def test_a_failure_does_not_count_against_a_change_that_is_not_acknowledged_yet() -> None:
    handing = Handing(lambda: picky(2), checkpoint="manual", **ASIDE)
    await handing.process(batch(2, keys=1), seconds=0.1)
    assert handing.left == [1, 2]
    assert not handing.keys.waiting, "1 comes first of its key, and has never failed alone"


@pytest.mark.parametrize("poison", [{1}, {*range(1, 11)}], ids=["a key waits", "an outage"])
async def test_once_a_range_is_to_be_left_only_what_is_ready_comes(poison: set[int]) -> None:
    handing = Handing(lambda: picky(*poison))
    await handing.process(batch(10), seconds=10)
    keys = handing.keys
    is_out = len(poison) == 10
    assert (keys.judge.outage is not None, keys.due is not None) == (is_out, True)
    keys.stop()
    assert keys.due is None
    assert keys.next(1e9) is None
    if not is_out:
        keys.add(batch(1, first=11))
        assert keys.next(1e9) is not None


# Several calls at once


async def test_a_key_has_an_observer_of_its_own_where_that_says_how_far_it_is() -> None:
    given = defaultdict[str, set[Picky]](set)
    random = Random(1)

    class Own(Picky):
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            for x in changes:
                given[x.key].add(self)
            await asyncio.sleep(random.random())
            for x in changes:
                context.acknowledge(x)

    handing = Handing(Own, concurrency=3, checkpoint="manual")
    for n in range(20):
        await handing.process(batch(10, keys=10, first=1 + 10 * n))
    assert {len(x) for x in given.values()} == {1}
    assert len({*chain.from_iterable(given.values())}) == 3


async def test_where_its_order_is_kept_a_range_waits_for_a_change_that_fails() -> None:
    until = now() + 100
    observer = Picky(lambda x: x.sequence == 4 and now() < until)
    handing = Handing(lambda: observer, ordering="range")
    await handing.process(batch(10), seconds=90)
    assert (observer.done, handing.left) == ([1, 2, 3], [*range(4, 11)])
    assert handing.told.waiting == 1
    await handing.process([], seconds=200)
    assert (observer.done, handing.told.waiting) == ([*range(1, 11)], 0)


async def test_what_counts_against_a_change_is_known_to_its_next_owner() -> None:
    keys = Handing(picky).keys
    keys.add(batch(2, keys=1))
    keys.add(batch(2, keys=1, first=3), {3: 2})
    assert keys.failures() == {3: 2}
    assert keys.next(1e9).changes == batch(1, keys=1)  # type: ignore[union-attr]


async def test_a_slow_key_holds_up_no_other_one() -> None:
    class Slow(Picky):
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if any(x.key == "slow" for x in changes):
                await asyncio.sleep(1000)
            await super().process(context, changes)

    observer = Slow()
    handing = Handing(lambda: observer, concurrency=2)
    first = [make.change(1, key="slow"), make.change(2, key="a")]
    await handing.process(
        [*first, *(make.change(n, key=f"k{n}") for n in range(3, 9))], seconds=9
    )
    assert 1 not in observer.done
    assert len(observer.done) >= 4


async def test_a_cancellation_reaches_every_call() -> None:
    observer = Picky(pace=100)
    handing = Handing(lambda: observer, concurrency=3)
    await handing.process(batch(30, keys=3), seconds=1)
    assert (observer.most_at_once, observer.at_once) == (3, 0)


async def test_a_call_that_a_cancellation_finds_stuck_goes_before_the_cancellation() -> None:
    class Deaf(Picky):
        async def process(self, _context: Context, _changes: Sequence[Change]) -> None:
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    await asyncio.sleep(1000)

    handing = Handing(Deaf, concurrency=2, timeout=10)
    with pytest.raises(ObserverStuck):
        await handing.process(batch(2), seconds=1)


RETRY = {"max_delay": 1, "attempts": 2}
STACKS = [{}, {"timeout": 10.0}, {"concurrency": 2}, {"timeout": 10.0, "concurrency": 2}]


@pytest.mark.usefixtures("steady_delays")
@pytest.mark.parametrize("settings", STACKS)
async def test_the_fence_ends_the_attempts(settings: dict[str, Any]) -> None:
    calls: list[str] = []

    async def observe(changes: Sequence[Change]) -> None:
        calls.append(changes[0].key)
        raise ValueError("no")

    partitions = settings.get("concurrency", 1)
    handed = Handing(adapt(observe, {}), context=Gate(2 * partitions), retry=RETRY, **settings)
    with pytest.raises(LeaseLost, match="the lease is not ours"):
        await handed.process([make.change(1, key="a"), make.change(2, key="b")])
    assert calls.count("a") == 1
