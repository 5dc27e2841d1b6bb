"""Changes that the feed could not read, between others."""

from collections.abc import Sequence

import pytest

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change
from changefeed.observers.dead_letters import DeadLetters, MemoryDeadLetters, Origin
from changefeed.observers.errors import AttemptFailed, LeaseFenced
from changefeed.observers.middleware.aside import Aside
from changefeed.observers.middleware.readable import ReadableOnly
from changefeed.observers.observer import Context
from tests.support import make
from tests.support.handing import Handing
from tests.support.observers import Bare, Gate


class Handling(Bare):
    """Takes whatever it is given."""

    def __init__(self) -> None:
        self.done: list[int] = []

    async def process(self, _: Context, changes: Sequence[Change]) -> None:
        self.done += [x.sequence for x in changes]


def odd(sequence: int) -> Change:
    return make.change(sequence, key="", body=b"what came", unreadable="no id")


def keeping(observer: Handling, letters: DeadLetters | None, gate: Gate) -> ReadableOnly:
    aside = None if letters is None else Aside(letters, Origin(feed="f"))
    return ReadableOnly(observer, aside, Handing(Handling, context=gate))


async def test_it_goes_to_the_dead_letters_as_it_came_and_the_others_go_on_in_order() -> None:
    observer, letters, context = Handling(), MemoryDeadLetters(), make.context()
    batch = [make.change(1), odd(2), make.change(3), odd(4)]
    await keeping(observer, letters, Gate()).process(context, batch)
    assert observer.done == [1, 3]
    assert sorted(context.acknowledged) == [1, 2, 3, 4]
    kept = await make.whole(letters)
    assert [(x.change, x.failure.text) for x in kept] == [(odd(2), "no id"), (odd(4), "no id")]


async def test_without_dead_letters_the_range_is_refused_there_once_those_before_are_done() -> (
    None
):
    observer, context = Handling(), make.context()
    with pytest.raises(RangeRefused, match=r"sequence 2 of range 'r1'.*no id.*dead-letter"):
        await keeping(observer, None, Gate()).process(
            context, [make.change(1), odd(2), make.change(3)]
        )
    assert (observer.done, context.acknowledged) == ([1], [1])


async def test_behind_the_fence_nothing_is_put_aside() -> None:
    letters = MemoryDeadLetters()
    with pytest.raises(LeaseFenced):
        await keeping(Handling(), letters, Gate(0)).process(make.context(), [odd(1)])
    assert await letters.list() == []


async def test_what_cannot_be_put_aside_is_not_done() -> None:
    class Full(MemoryDeadLetters):
        async def put(self, letter: object) -> None:
            raise OSError(28, "no space", str(letter))

    context = make.context()
    with pytest.raises(AttemptFailed, match="no space"):
        await keeping(Handling(), Full(), Gate()).process(context, [odd(1)])
    assert context.acknowledged == []
