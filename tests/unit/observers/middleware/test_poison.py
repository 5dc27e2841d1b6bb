"""Which change is to blame, shown by calls and virtual seconds."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.feed import Change
from changefeed.observers.dead_letters import DeadLetter, MemoryDeadLetters, Origin
from changefeed.observers.errors import ObserverFailed
from changefeed.observers.middleware import retry
from changefeed.observers.middleware.aside import Aside
from changefeed.observers.middleware.poison import PoisonIsolation, PoisonSuspicion
from changefeed.observers.middleware.retry import Retrying, RetrySettings
from changefeed.observers.observer import Context
from changefeed.testing.observers import RecordingContext
from tests.support import make
from tests.support.observers import Bare

RETRY = RetrySettings(max_delay=60, attempts=4)


@pytest.fixture(autouse=True)
def steady_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY", 1.0)
    monkeypatch.setattr(retry, "JITTER", 0.0)


ORIGIN = Origin(feed="orders", observer="billing:Billing", fleet="sqlite:/data/leases.db")


class Picky(Bare):
    """Fails as a whole on any batch with a change it cannot take; remembers the others."""

    def __init__(self, fails_on: Callable[[Change], bool]) -> None:
        self.fails_on = fails_on
        self.tried: list[list[int]] = []
        self.done: list[Change] = []

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        self.tried.append([x.sequence for x in changes])
        for one in changes:
            if self.fails_on(one):
                raise ValueError(f"cannot take {one.sequence}")
        self.done += changes

    @property
    def sequences(self) -> list[int]:
        return [x.sequence for x in self.done]


@dataclass(kw_only=True)
class Scene:
    """An observer, and everything around it."""

    inner: Picky
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    context: RecordingContext = field(default_factory=make.context)
    suspicion: PoisonSuspicion = field(default_factory=PoisonSuspicion)
    acknowledges: bool = True
    noticed: list[DeadLetter] = field(default_factory=list)

    def isolation(self) -> PoisonIsolation:
        return PoisonIsolation(
            Retrying(self.inner, RETRY, random=Random(1)),
            Retrying(self.inner, replace(RETRY, attempts=2), random=Random(1)),
            self.aside(),
            suspicion=self.suspicion,
            acknowledges=self.acknowledges,
        )

    def aside(self) -> Aside:
        wall = partial(float, 1_700_000_000)
        return Aside(self.letters, ORIGIN, on_dead_letter=self.noticed.append, wall=wall)

    async def process(self, changes: Sequence[Change]) -> None:
        await self.isolation().process(self.context, changes)

    async def put_aside(self) -> list[int]:
        return [x.sequence for x in await self.letters.list()]


def failing_on(*sequences: int) -> Scene:
    return Scene(inner=Picky(lambda x: x.sequence in sequences))


def batch(count: int, *, keys: int = 1000, first: int = 1) -> list[Change]:
    return [make.change(n, key=f"k{n % keys}") for n in range(first, first + count)]


@pytest.mark.parametrize("poison", [1, 2, 37, 64, 99, 100])
async def test_the_poison_alone_is_put_aside_and_the_rest_is_done_once(poison: int) -> None:
    scene = failing_on(poison)
    await scene.process(batch(100))
    assert await scene.put_aside() == [poison]
    assert sorted(scene.inner.sequences) == [n for n in range(1, 101) if n != poison]


async def test_a_poison_in_the_middle_is_found_by_halving_in_order() -> None:
    scene = failing_on(5)
    await scene.process(batch(8))
    whole, first, second = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], [5, 6, 7, 8]
    assert scene.inner.tried == [
        *[whole] * 4,
        first,
        *[second] * 2,
        *[[5, 6]] * 2,
        *[[5]] * 4,
        [6],  # what sets it apart from an outage, and is done with that
        *[[5]] * 2,  # or had that just come to an end?
        [7, 8],
    ]
    assert scene.context.acknowledged == [1, 2, 3, 4, 6, 5, 7, 8]


async def test_a_letter_holds_the_change_and_why_it_is_there() -> None:
    scene = failing_on(2)
    changes = batch(3)
    await scene.process(changes)
    (letter,) = await make.whole(scene.letters)
    assert letter.change == changes[1]
    assert Origin(feed=letter.feed, observer=letter.observer, fleet=letter.fleet) == ORIGIN
    assert (letter.failure.kind, letter.failure.text) == ("ValueError", "cannot take 2")
    assert 'raise ValueError(f"cannot take {one.sequence}")' in letter.failure.trace
    assert (letter.attempts, letter.host, letter.epoch) == (4, "anna", 1)
    assert letter.failed_at.isoformat() == "2023-11-14T22:13:20+00:00"
    assert scene.noticed == [letter]


async def test_with_manual_checkpoints_only_what_was_put_aside_is_acknowledged() -> None:
    scene = failing_on(3)
    scene.acknowledges = False
    await scene.process(batch(5))
    assert scene.context.acknowledged == [3]


async def test_an_outage_puts_nothing_aside_however_long_it_lasts() -> None:
    scene = Scene(inner=Picky(lambda _: True))
    for _ in range(20):
        with pytest.raises(ObserverFailed, match="an outage; nothing is put aside"):
            await scene.process(batch(100))
    assert await scene.put_aside() == []
    scene.inner.fails_on = lambda _: False
    await scene.process(batch(100))
    assert scene.inner.sequences == list(range(1, 101))


async def test_an_outage_that_begins_in_the_middle_puts_nothing_aside_either() -> None:
    scene = failing_on(10)
    scene.inner.fails_on = lambda x: x.sequence == 10 or len(scene.inner.done) >= 30
    with pytest.raises(ObserverFailed, match="outage"):
        await scene.process(batch(100))
    assert await scene.put_aside() == [10]
    assert len(scene.inner.done) == 49


async def test_in_a_batch_of_one_key_an_earlier_success_is_enough_but_only_once() -> None:
    scene = failing_on(3)
    await scene.process(batch(5, keys=1))
    assert await scene.put_aside() == [3]
    assert scene.inner.sequences == [1, 2, 4, 5]
    assert [3] not in scene.inner.tried[scene.inner.tried.index([4, 5]) :]

    scene = failing_on(3, 4, 5)
    scene.suspicion.open = True
    with pytest.raises(ObserverFailed, match="outage"):
        await scene.process(batch(5, keys=1))
    # 1 succeeds, so 3 may go; 4 may on suspicion; 5 may not.
    assert await scene.put_aside() == [3, 4]


async def test_a_batch_of_one_is_put_aside_only_after_all_its_attempts_once_more() -> None:
    scene = failing_on(1)
    await scene.process(batch(1))
    assert await scene.put_aside() == [1]
    assert scene.inner.tried == [[1]] * 8


async def test_a_single_change_that_succeeds_at_last_is_done() -> None:
    scene = failing_on(1)
    scene.inner.fails_on = lambda _: len(scene.inner.tried) < 6
    await scene.process(batch(1))
    assert await scene.put_aside() == []
    assert scene.context.acknowledged == [1]


async def test_a_change_whose_letter_would_replace_that_of_another_is_not_skipped() -> None:
    scene = failing_on(3)
    await scene.process(batch(10, keys=1))
    scene.context.acknowledged.clear()
    other = [msgspec.structs.replace(x, body=b"{}") for x in batch(10, keys=1)]
    with pytest.raises(ObserverFailed, match=r"3; and it could not .* holds another change"):
        await scene.process(other)
    assert scene.context.acknowledged == [1, 2]
    assert [x.change.body for x in await make.whole(scene.letters)] == [batch(3)[2].body]


class Broken(MemoryDeadLetters):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    async def put(self, _letter: DeadLetter) -> None:
        raise self._error


FULL = Broken(OSError(28, "no space"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), "'utf-8' codec can't"),
        (OSError(28, "no space"), "no space"),
        (KeyError(), "KeyError"),
        (ValueError("\ud800"), r"\\ud800"),
        (asyncio.CancelledError(), "a call was cancelled by what it called"),
    ],
)
async def test_a_change_that_cannot_be_put_to_the_dead_letters_is_not_skipped(
    error: BaseException, text: str
) -> None:
    scene = failing_on(3)
    scene.letters = Broken(error)
    with pytest.raises(ObserverFailed, match=f"cannot take 3; .*{text}"):
        await scene.process(batch(10, keys=1))
    assert scene.context.acknowledged == [1, 2]


def isolating_with_manual_checkpoints(scene: Scene) -> PoisonIsolation:
    observer = Retrying(scene.inner, replace(RETRY, attempts=2), random=Random(1))
    return PoisonIsolation(
        observer,
        observer,
        scene.aside(),
        suspicion=scene.suspicion,
        acknowledges=False,
    )


class Checkpointing(Picky):
    """Says of each batch it has done that it is done, with all before it."""

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        await super().process(context, changes)
        context.checkpoint(changes[-1])


@pytest.mark.parametrize("full", [True, False])
async def test_a_checkpoint_of_a_later_change_passes_over_no_change_that_failed(
    *, full: bool
) -> None:
    letters = FULL if full else MemoryDeadLetters()
    scene = Scene(inner=Checkpointing(lambda x: x.sequence == 3), letters=letters)
    isolating = isolating_with_manual_checkpoints(scene)
    await isolating.open(scene.context)
    with suppress(ObserverFailed):
        await isolating.process(scene.context, batch(8))
    assert scene.context.checkpoints == []
    assert sorted(scene.context.acknowledged) == ([1, 2, 4] if full else [*range(1, 9)])


class LateCheckpoints(Picky):
    """Says that what it has done is done, with all before it, only when it is called again."""

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        if self.done:
            context.checkpoint(self.done[-1])
        await super().process(context, changes)


async def test_a_late_checkpoint_passes_over_no_change_that_is_tried_again() -> None:
    scene = Scene(
        inner=LateCheckpoints(lambda x: x.sequence == 3),
        letters=FULL,
    )
    isolating = isolating_with_manual_checkpoints(scene)
    await isolating.open(scene.context)
    with suppress(ObserverFailed):
        await isolating.process(scene.context, batch(8))
    assert scene.inner.sequences == [1, 2, 4]
    assert sorted(scene.context.acknowledged) == [1, 2, 4]


async def test_dead_letters_that_do_not_answer_have_an_end() -> None:
    class Silent(MemoryDeadLetters):
        async def put(self, _letter: DeadLetter) -> None:
            await asyncio.sleep(1e9)

    scene = failing_on(3)
    scene.letters = Silent()
    with pytest.raises(ObserverFailed, match="TimeoutError"):
        await scene.process(batch(10))


@given(
    keys=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40),
    poisons=st.sets(st.integers(1, 40), max_size=6),
)
async def test_nothing_is_lost_and_each_key_stays_in_order(
    keys: list[str], poisons: set[int]
) -> None:
    scene = failing_on(*poisons)
    changes = [make.change(n, key=key) for n, key in enumerate(keys, start=1)]
    for _ in range(50):
        try:
            await scene.process(changes)
            break
        except ObserverFailed:
            done = {x.sequence for x in scene.inner.done} | set(await scene.put_aside())
            assert done >= set(scene.context.acknowledged)
    aside = set(await scene.put_aside())
    assert aside <= poisons
    first_times = list({x.sequence: x for x in scene.inner.done}.values())
    for key in set(keys):
        order = [x.sequence for x in first_times if x.key == key]
        assert order == sorted(order)
    before_the_first_left = min({*range(1, len(keys) + 2)} - aside - {*scene.inner.sequences})
    acknowledged = set(scene.context.acknowledged)
    if before_the_first_left == len(keys) + 1:
        assert {x.sequence for x in changes} == aside | {*scene.inner.sequences}
    else:
        assert before_the_first_left not in acknowledged
