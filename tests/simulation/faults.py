"""What goes wrong with processes, networks and clocks: one method for each event."""

import asyncio
import contextvars
from random import Random
from typing import TYPE_CHECKING

from changefeed.feeds.feed import FeedRange

from .observers import ERRORS, HARD_ERRORS
from .stores import MemoryStores

if TYPE_CHECKING:
    from changefeed.leases.lease import KeptCheckpoint

    from .process import Process
    from .world import World


class Faults:
    """Everything here comes to an end, or is ended when the world settles down."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.random
        self._deadly = False
        self._lost: list[KeptCheckpoint] = []

    async def crash(self) -> None:
        world = self._world
        process = world.somebody()
        if process is None:
            return
        world.kill(process)
        if self._random.random() < 0.5:
            await world.start_later(process.name, self._random)

    async def crash_at_an_end(self) -> None:
        """Kill or freeze whoever has just made the first lease of what goes on with a range."""
        self._deadly = True
        await self._world.change_ranges()
        await asyncio.sleep(self._random.uniform(2, 20))
        self._deadly = False
        await self._world.change_ranges()

    def created(self, process_id: str, made: FeedRange) -> None:
        if self._deadly and made.parents:
            self._deadly = False
            processes = self._world.processes.values()
            for process in [x for x in processes if x.id == process_id]:
                if self._random.random() < 0.5:
                    self._world.kill(process)
                else:
                    self._world.loop.create_task(
                        self.freeze_one(process),
                        context=contextvars.Context(),
                    )

    async def freeze(self) -> None:
        process = self._world.somebody()
        if process is not None:
            await self.freeze_one(process, clock_runs=not self._world.suspends)

    async def freeze_one(
        self, process: "Process", seconds: float | None = None, *, clock_runs: bool = True
    ) -> None:
        """SIGSTOP, for less or more than the expiration, and SIGCONT: a zombie.

        If the machine sleeps instead, its clock may stand still, as ``CLOCK_MONOTONIC`` does.
        """
        world = self._world
        if world.loop.is_frozen(process.id):
            return  # its clock would go back when the longer of two naps ends
        if seconds is None:
            seconds = self._random.choice([3.0, 20.0, 45.0, 90.0])
        world.tell(f"freeze {process.id} for {seconds:.0f} s")
        world.limits.lost(process)
        world.loop.freeze(process.id)
        nap = world.checker.froze(process.id, world.open_ranges)
        await asyncio.sleep(seconds)
        if not clock_runs:
            world.tell(f"the clock of {process.id} stood still meanwhile")
            world.asleep[process.id] += seconds
            world.checker.suspended(process.id)
        if not process.killed.is_set():
            world.tell(f"thaw {process.id}")
            world.checker.woke(nap, seconds, world.open_ranges)
            world.loop.thaw(process.id)

    def block(self, process_id: str, seconds: float) -> None:
        """User code that does not return: nothing else of the process runs meanwhile."""
        for process in [x for x in self._world.processes.values() if x.id == process_id]:
            self._world.loop.create_task(
                self.freeze_one(process, seconds), context=contextvars.Context()
            )

    async def storm(self) -> None:
        """Bad weather between everybody and everything for a while."""
        random, weather = self._random, self._world.weather
        weather.slow = random.choice([0.0, 0.05, 0.3])
        weather.stall = random.choice([0.0, 0.02, 0.2])
        weather.fail_before = random.choice([0.0, 0.1, 0.5])
        weather.fail_after = random.choice([0.0, 0.1, 0.5])
        weather.throttle = random.choice([0.0, 0.2])
        weather.stale = random.choice([0.0, 0.3])
        if self._world.wild:
            weather.stale_reads = random.choice([0.0, 0.0, 0.3])
            weather.repeat = random.choice([0.0, 0.1, 0.5])
            weather.break_off = random.choice([0.0, 0.1, 0.5])
            if not self._world.mixed:  # what others do then is theirs
                weather.give_up = random.choice([0.0, 0.0, 0.1, 0.3])
            weather.calls = random.choice(_KINDS)
        self._world.tell(f"storm: {weather}")
        await asyncio.sleep(random.uniform(5, 60))
        weather.clear()
        self._world.tell("the storm is over")

    async def forget_ownership(self) -> None:
        """What leases are kept in is emptied, as a Redis without a file is by its restart;
        checkpoints are kept apart, and stay: where both are gone, nobody knows a position.
        """
        await asyncio.sleep(0)
        if self._lost:
            return
        self._world.tell("ownership is forgotten")
        stores = self._world.stores
        assert isinstance(stores, MemoryStores)
        stores.forget_ownership()

    async def lose_all(self, random: Random) -> None:
        """Let all hosts die, and nobody know what they had: leases come of the root again."""
        world = self._world
        await self.forget_ownership()
        for process in [*world.processes.values()]:
            world.kill(process)
            world.begin(world.start_later(process.name, random))

    async def lose_checkpoint(self) -> None:
        """A checkpoint that is kept apart is gone; an operator puts it back from a copy, and
        resumes the range.
        """
        world, stores = self._world, self._world.stores
        assert isinstance(stores, MemoryStores)
        owned = [x.range_id for x in await stores.records.list() if x.epoch and not x.ended]
        if len(owned) < _ENOUGH:
            return  # a fleet that finds no checkpoint at all ends
        lost = await stores.lose_checkpoint(self._random.choice(owned))
        if lost is None:
            return
        self._lost.append(lost)
        world.tell(f"the checkpoint of {lost.range_id} is lost")
        await asyncio.sleep(self._random.uniform(0, 60))
        world.tell(f"the checkpoint of {lost.range_id} is restored")
        if await stores.restore_checkpoint(lost):
            self._lost.remove(lost)
        await world.operators.resume_all()

    async def partition(self) -> None:
        """One host gets no answers for a while."""
        world = self._world
        process = world.somebody()
        if process is None:
            return
        world.tell(f"cut off {process.id}")
        world.limits.lost(process)
        world.down.add(process.id)
        seconds = self._random.uniform(5, 80)
        world.checker.cut_off(process.id, seconds)
        await asyncio.sleep(seconds)
        world.down.discard(process.id)
        world.tell(f"{process.id} is connected again")

    async def clock_jump(self) -> None:
        """A clock jumps. In wild worlds it does so beyond any limit, and may then run too
        fast or stand still.
        """
        process, random = self._world.somebody(), self._random
        if process is None:
            return
        now, wild = asyncio.get_running_loop().time(), self._world.wild
        rate = random.choice([0.0, 1.0, 5.0]) if wild else 1.0
        process.clock.jump(now, random.uniform(-60, 60) * (15 if wild else 1), rate)
        self._world.tell(f"the clock of {process.id} jumps: {process.clock}")
        if wild:
            self._world.checker.clock_jumped_beyond_limits()

    async def flap(self) -> None:
        for _ in range(4):
            await self._world.join_or_leave()
            await asyncio.sleep(self._random.uniform(0, 8))

    async def moody_observers(self) -> None:
        random, moods = self._random, self._world.moods
        moods.raises = random.choice([0.0, 0.2, 0.7])
        moods.hangs = random.choice([0.0, 0.02])
        if self._world.wild:
            moods.errors = (*ERRORS, *HARD_ERRORS)
            moods.blocks = random.choice([0.0, 0.02])
            moods.late = random.choice([0.0, 5.0, 40.0])
            moods.poison = self._world.puts_aside and random.random() < 0.5
        self._world.tell(f"observers: {moods}")
        await asyncio.sleep(random.uniform(5, 60))
        moods.calm()


LISTINGS = frozenset({"list", "changes", "list_fleet", "members", "ranges", "query"})
_ENOUGH = 4  # ranges, so that some have their checkpoints
_KINDS: list[frozenset[str] | None] = [
    None,
    None,
    LISTINGS,
    frozenset({"replace", "patch"}),
    frozenset({"checkpoint", "write"}),
    frozenset({"create", "delete"}),
    frozenset({"read"}),
    frozenset({"acquire", "patch_whole"}),
    frozenset({"members", "put_member", "remove_member"}),
    frozenset({"start", "ranges"}),
]
