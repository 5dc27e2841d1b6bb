"""What a troubled world has beside its events: it lasts, or comes while these go on.

Each is chosen by a draw of its own. Events happen once and are over; what is here makes a
seed look where they hardly ever meet: an observer that raises the same at every call, a
replica that stands still, a store that is far away, a range that the feed refuses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, TypeVar

from changefeed.feeds.feed import RangeId

from .network import LATENCY
from .observers import ERRORS, HARD_ERRORS, Stubborn
from .probes import Probe
from .progress import Violation
from .refusals import KINDS, Refusals

if TYPE_CHECKING:
    from .process import Process
    from .world import World

T = TypeVar("T")
_STALE = 0.3  # of the reads in a world whose replicas lag
_RENEWED = 0.3
_IN_HAND = 40.0
"""Seconds for which a reader that was refused may still deliver what it has, and pause then."""
_SOONER = 60.0  # seconds of a calm in which what the feed refuses must be paused


class Troubles:
    """Those of one world. One that is not ``troubled`` has none."""

    def __init__(self, seed: int, *, troubled: bool, wild: bool, graceful: bool) -> None:
        self._random = random = Random(f"troubles {seed}")
        self._wild = wild
        self.rough = rough = troubled and not graceful
        self.stale_reads = _STALE if rough and wild and random.random() < 0.6 else 0.0
        """How many of the reads of single records are answered from a replica that lags."""
        far = troubled and random.random() < 0.3
        self.latency = random.choice([0.05, 0.3]) if far else LATENCY
        """How long a message to a store takes."""
        self.creates_late = rough and wild and random.random() < 0.4
        self.reopens_at_once = rough and random.random() < 0.3
        """Whether an observer that gave up, as one of several keys, is opened again at once."""
        self.late = random.choice([0.3, 1.5]) if troubled and graceful else 0.0
        """How long acknowledgements may take where nothing may be repeated."""
        self.acknowledges = troubled and graceful and random.random() < 0.5
        """Whether observers say themselves what is done."""
        self.lagging = set[str]()
        """The processes that see the members of the fleet as they were."""
        self.refusals = Refusals()
        self._renewal = Random(f"renewal {seed}")  # of its own: seeds keep their stories
        self._wrong = 0.0  # of the requests have a wrong secret
        self._refused = 0
        self._lasting: RangeId | None = None
        self._mended = set[RangeId]()
        self._chosen = self._choose() if rough else []

    def _choose(self) -> "list[Callable[[World], Awaitable[None]]]":
        happen: list[tuple[Callable[[World], Awaitable[None]], float]] = [
            (self.stubborn_observer, 0.5),
            (self.lagging_members, 0.4),
            (self.refusal, 0.3),
            (self.outage, 0.3),
            (self.kill_all, 0.3),
        ]
        found = [x for x, share in happen if self._random.random() < share]
        return [*found, self.renewed_secret] if self._renewal.random() < _RENEWED else found

    @property
    def refuses(self) -> bool:
        """Whether the feed will refuse a range."""
        return self.refusal in self._chosen

    @property
    def kills_all(self) -> bool:
        """Whether the fleet will be killed as a whole."""
        return self.kill_all in self._chosen

    def comes_late(self, name: str) -> float | None:
        """Return how much later a request arrives that got stuck; ``None`` for never."""
        if not self.creates_late or name != "create":
            return None
        return self._random.uniform(15, 120)

    async def run(self, world: "World") -> None:
        """Let each of them happen at some time."""
        async with asyncio.TaskGroup() as group:
            for trouble in self._chosen:
                delay = self._random.uniform(0, 60)
                group.create_task(self._later(delay, trouble, world))

    async def _later(
        self, delay: float, trouble: "Callable[[World], Awaitable[None]]", world: "World"
    ) -> None:
        await asyncio.sleep(delay)
        await trouble(world)

    async def stubborn_observer(self, world: "World") -> None:
        """Let the observers of one range, or one key, raise one error at every call."""
        random = self._random
        errors = [*ERRORS, *HARD_ERRORS] if self._wild else ERRORS[:1]
        error = random.choice([x for x in errors if x is not MemoryError])  # it ends hosts
        one_range = random.random() < 0.7
        world.moods.stubborn = Stubborn(
            error=error,
            range_id=self._some_range(world) if one_range else None,
            key=None if one_range else world.some_key(random),
        )
        world.tell(f"observers: {world.moods.stubborn}")
        await asyncio.sleep(random.uniform(10, 60))
        world.moods.stubborn = None

    async def outage(self, world: "World") -> None:
        """Let all observers fail on everything for a while."""
        errors = [*ERRORS, *HARD_ERRORS] if self._wild else ERRORS[:1]
        world.moods.outage = self._random.choice([x for x in errors if x is not MemoryError])
        world.tell(f"observers: {world.moods.outage} whatever they get")
        world.checker.blame.outage_began()
        await asyncio.sleep(self._random.choice([10.0, 60.0, 120.0]))
        world.moods.outage = None
        world.checker.hit(Probe.OUTAGE, where=world.checker.blame.outage_ended())

    async def kill_all(self, world: "World") -> None:
        """Kill the whole fleet, several times in a row."""
        await world.killers.kill_all()

    async def lagging_members(self, world: "World") -> None:
        """Let one host see records of members as they are now, for a while."""
        process = self._some_process(world)
        if process is None:
            return
        world.tell(f"members stand still for {process.id}")
        self.lagging.add(process.id)
        await asyncio.sleep(self._random.choice([20.0, 45.0, 75.0]))
        self.lagging.discard(process.id)
        world.tell(f"members move again for {process.id}")

    async def renewed_secret(self, world: "World") -> None:
        """Let stores and the feed refuse all requests, or some, until each process has the
        secret that is the right one now.
        """
        if world.mixed:
            return  # hosts of another kind end
        self._wrong = self._renewal.choice([0.1, 0.5, 1.0])
        world.tell(f"the secret is wrong for {self._wrong:.0%} of the requests")
        await asyncio.sleep(self._renewal.choice([2.0, 10.0, 40.0]))
        self._wrong = 0.0
        world.tell("the secret is right again")
        world.checker.hit(Probe.SECRET_WRONG, where=self._refused > 0)

    def refuses_secret(self) -> bool:
        wrong = self._wrong > 0 and self._renewal.random() < self._wrong
        self._refused += wrong
        return wrong

    async def refusal(self, world: "World") -> None:
        """Let the feed refuse a range until it is mended, and an operator resume that."""
        range_id = self._some_range(world)
        if world.mixed or range_id is None:
            return  # hosts of another kind know no pauses
        kind = self._random.choice([*KINDS])
        world.tell(f"the feed refuses {range_id}: {kind}")
        self.refusals.refuse(range_id, kind)
        if self._random.random() < 0.5:
            self._lasting = range_id
            return
        await asyncio.sleep(self._random.choice([5.0, 20.0, 50.0]))
        await self._mend(world, range_id)

    def calm(self) -> None:
        self.stale_reads = 0.0

    async def end(self, world: "World") -> None:
        """What lasts until everything else works again: see that it is paused, and mend it."""
        if self._lasting is not None:
            await asyncio.sleep(_SOONER)
            with suppress(Violation):  # it is kept
                running = {x.id for x in world.processes.values() if not x.task.done()}
                world.check(lambda: self.refusals.check_paused(world.checker, running))
            await self._mend(world, self._lasting)
        if self._mended:
            await asyncio.sleep(_IN_HAND)
            await world.operators.resume(sorted(self._mended))

    async def _mend(self, world: "World", range_id: RangeId) -> None:
        self.refusals.mend(range_id)
        world.tell(f"the feed reads {range_id} again")
        await world.operators.resume([range_id])
        self._mended.add(range_id)

    def _some_range(self, world: "World") -> RangeId | None:
        leases = world.checker.leases.values()
        return self._some(sorted(x.range_id for x in leases if x.epoch and not x.ended))

    def _some_process(self, world: "World") -> "Process | None":
        return self._some([*world.processes.values()])

    def _some(self, found: Sequence[T]) -> T | None:
        return self._random.choice(found) if found else None
