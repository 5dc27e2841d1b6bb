"""Changes that the feed could not read, between others."""

from collections.abc import Sequence

import pytest

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change
from changefeed.leases.errors import LeaseLost
from changefeed.observers.dead_letters import MemoryDeadLetters
from changefeed.observers.observer import Context
from tests.support import make
from tests.support.handing import Handing
from tests.support.observers import Bare, Gate


class Handling(Bare):
    """Takes whatever it is given."""

    def __init__(self) -> None:
        self.done: list[int] = []

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        self.done += [x.sequence for x in changes]


def odd(sequence: int) -> Change:
    return make.change(sequence, key="", body=b"what came", unreadable="no id")


async def test_it_goes_to_the_dead_letters_as_it_came_and_the_others_go_on_in_order() -> None:
    observer = Handling()
    handing = Handing(lambda: observer, on_failure="dead-letter")
    await handing.process([make.change(1), odd(2), make.change(3), odd(4)])
    assert (observer.done, handing.left) == ([1, 3], [])
    kept = await make.whole(handing.letters)
    assert [(x.change, x.failure.text) for x in kept] == [(odd(2), "no id"), (odd(4), "no id")]


async def test_without_dead_letters_the_range_is_refused_there_once_those_before_are_done() -> (
    None
):
    observer = Handling()
    handing = Handing(lambda: observer)
    with pytest.raises(RangeRefused, match=r"sequence 2 of range 'r1'.*no id.*dead-letter"):
        await handing.process([make.change(1), odd(2), make.change(3)])
    assert (observer.done, handing.left) == ([1], [2, 3])


async def test_behind_the_fence_nothing_is_put_aside() -> None:
    handing = Handing(Handling, context=Gate(1), on_failure="dead-letter")
    with pytest.raises(LeaseLost):
        await handing.process([odd(1)])
    assert await handing.put_aside() == []


async def test_what_cannot_be_put_aside_is_not_done() -> None:
    class Full(MemoryDeadLetters):
        async def put(self, letter: object) -> None:
            raise OSError(28, "no space", str(letter))

    handing = Handing(Handling, letters=Full(), on_failure="dead-letter")
    await handing.process([odd(1)], seconds=10)
    assert handing.left == [1]
    assert "no space" in handing.told.failures[-1][1]
