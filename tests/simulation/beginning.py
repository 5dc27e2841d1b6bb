"""Where a fleet starts: mostly at the beginning of its feed, else at now, or at a time.

Such a world has a history before it has hosts: changes, and ranges that come and go. Ranges do
so, too, while the first leases are created; answers get lost then, and a host may die.

From a time on, each change is *owed*: it must be delivered. At now, each is that is written
once the root or a lease holds its key. What lies before the start must not be delivered (it is
*barred*), unless a person moves a position back. What is written in between may be.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from math import floor
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from changefeed.feeds.feed import FeedRange, RangeId, StartAt

from .clocks import right_time
from .probes import Probe
from .sources import CosmosSource

if TYPE_CHECKING:
    from .world import World

_Kind = Literal["beginning", "now", "before", "within", "after"]
_ELSEWHERE = 0.3
_KINDS: Final[Sequence[_Kind]] = ("now", "now", "now", "within", "within", "before", "after")
_LONG_BEFORE = 3600.0
_FIRST_CALLS = frozenset({"ranges", "start", "fleet", "put_fleet", "create", "read", "replace"})


class Beginning:
    """That of one world, by a draw of its own."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = random = Random(f"beginning {world.seed}")
        elsewhere = random.random() < _ELSEWHERE
        self._kind: _Kind = random.choice(_KINDS) if elsewhere else "beginning"
        self._rough = elsewhere and not world.graceful and random.random() < 0.5
        self._kills = self._rough and random.random() < 0.5
        self._settled: dict[RangeId, FeedRange] = {}
        self._leased: dict[RangeId, FeedRange] = {}

    async def come(self) -> None:
        """Let the history happen, and say then where hosts start."""
        if self._kind == "beginning":
            return
        world, random = self._world, self._random
        # LSNs of ranges that are merged are none of one time: so nothing is before a time.
        self._let_merge(merges=False)
        written: list[tuple[float, str, int]] = []
        for _ in range(random.randrange(2, 8)):
            for _ in range(random.choice([0, 0, 1, 5, 40])):
                key = world.some_key(random)
                written.append((right_time(world.loop.time()), key, world.append(key)))
            await asyncio.sleep(random.uniform(0.1, 3.0))
            for _ in range(random.choice([0, 0, 1, 2])):
                world.source.change_ranges(random, world.tell)
        await asyncio.sleep(1.0)
        start, since = self._start()
        world.tell(f"the fleet starts at {start}")
        world.begin_at(start)
        for at, key, number in written:
            world.checker.appended(key, number, owed=at >= since)
            if at < since:
                world.checker.progress.bar(number)

    def _start(self) -> tuple[StartAt, float]:
        """Return where hosts start, and from which time on changes are owed."""
        now = self._world.loop.time()
        if self._kind == "now":
            return "now", right_time(now)
        ago = {
            "before": now + _LONG_BEFORE,
            "within": now * self._random.random(),
            "after": 0.0,
        }[self._kind]
        since = floor(right_time(now - ago))
        return datetime.fromtimestamp(since, UTC), since

    async def owes(self, key: str) -> bool:
        """Whether a change that is written now must be delivered."""
        root = (await self._world.stores.records.fleet()).root
        self._settled |= {x.range.id: x.range for x in (root.children if root else ())}
        held = (self._leased | self._settled).values()
        return self._kind != "now" or any(self._world.source.holds(x, key) for x in held)

    def created(self, process_id: str, made: FeedRange) -> None:
        """A process has created a lease, or found it there."""
        if self._kind == "beginning" or made.id in self._leased:
            return
        self._let_merge(merges=True)
        self._leased[made.id] = made
        world = self._world
        of_root = not any(x in self._leased for x in made.parents)
        if of_root and made.id not in world.open_ranges:
            now = self._kind == "now"
            world.checker.hit(Probe.SPLIT_MET_START if now else Probe.BEGAN_IN_THE_PAST)
        if self._kills and process_id in {x.id for x in world.processes.values()}:
            self._kills = False
            process = world.processes[process_id.partition("/")[0]]
            world.kill(process)
            world.begin(world.start_later(process.name, self._random))

    async def trouble(self) -> None:
        """Let ranges come and go while the first leases are created, and answers be lost."""
        world, random = self._world, self._random
        if self._kind == "beginning":
            return
        if self._rough:
            world.weather.calls, world.weather.slow = _FIRST_CALLS, random.choice([0.0, 0.3])
            world.weather.fail_after = random.choice([0.0, 0.3, 0.6])
            world.tell(f"at the start: {world.weather}")
        for _ in range(random.choice([0, 1, 2, 4])):
            await asyncio.sleep(random.choice([0.0, 0.01, 0.1, 1.0]))
            world.source.change_ranges(random, world.tell)
        if self._rough:
            await asyncio.sleep(random.uniform(1, 10))
            world.weather.clear()
        if world.may_forget_ownership and not world.graceful:
            await asyncio.sleep(random.uniform(5, 60))
            await world.faults.lose_all(random)

    def _let_merge(self, *, merges: bool) -> None:
        source = self._world.source
        if isinstance(source, CosmosSource) and not self._world.mixed:
            source.merges = merges
