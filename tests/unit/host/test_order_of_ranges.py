"""``observer.ordering = range``: nothing of a range goes before a change that failed."""

from collections.abc import Sequence

from changefeed.feeds.feed import Change
from changefeed.observers.observer import Context
from tests.support import make
from tests.support.handing import Handing
from tests.support.looking import now
from tests.support.observers import Bare


class Failing(Bare):
    """Fails on one change until a time, and remembers the others, as they were done."""

    def __init__(self, sequence: int, until: float = float("inf")) -> None:
        self.sequence, self.until = sequence, until
        self.done: list[int] = []

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        for x in changes:
            if x.sequence == self.sequence and now() < self.until:
                raise ValueError("no such table")
        self.done += [x.sequence for x in changes]


async def test_the_whole_range_waits_for_a_change_that_fails_and_goes_on_in_order() -> None:
    observer = Failing(4, until=now() + 100)
    handing = Handing(lambda: observer, ordering="range")
    changes = [make.change(n, key=f"k{n}") for n in range(1, 11)]
    await handing.process(changes, seconds=90)
    assert (observer.done, handing.left) == ([1, 2, 3], [*range(4, 11)])
    await handing.process([], seconds=200)
    assert observer.done == [*range(1, 11)]
