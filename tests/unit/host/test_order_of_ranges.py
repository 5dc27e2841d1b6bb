"""``observer.ordering = range``: nothing of a range goes before a change that failed."""

import asyncio
from collections.abc import Sequence
from typing import Any

from changefeed.feeds.feed import Change, RangeId
from changefeed.observers.observer import Context
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.handing import Handing
from tests.support.looking import lease_in, now
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


async def test_the_order_of_a_range_outlives_a_handover_and_a_dead_letter() -> None:
    failing = Failing(31)
    sections: dict[str, Any] = {
        "observer": {
            "ordering": "range",
            "on_failure": "dead-letter",
            "retry": {"attempts": 8},
        }
    }

    async def process(changes: Sequence[Change]) -> None:
        if changes[0].range_id == "r0":
            await failing.process(None, changes)  # type: ignore[arg-type]

    async with Fleet(make.memory_feed(2, 200), settings=sections, observer=process) as fleet:
        fleet.start("anna")
        await asyncio.sleep(20)
        checkpoint = (await lease_in(fleet.container)).checkpoint
        assert checkpoint is not None
        assert (checkpoint.position, checkpoint.high) == ("30", None)
        await fleet.stop("anna")
        assert failing.done == [*range(1, 31)]
        fleet.start("berta")
        for n in range(600):  # what else succeeds shows that it is the change
            fleet.append(f"late-{n}", {"n": n})
            await asyncio.sleep(1)
        assert [x.change.sequence for x in await fleet.dead_letters()] == [31]
        await fleet.caught_up()
        of_range = [x for x in fleet.log.changes if x.range_id == RangeId("r0")]
        assert [x.sequence for x in of_range] == failing.done
        assert failing.done == [x for x in range(1, len(failing.done) + 2) if x != 31]
