"""A story by seed: a fleet, a feed that is written to, and what goes wrong meanwhile."""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal, cast

from changefeed.feeds.feed import Change, Feed, FeedRange, RangeId
from changefeed.host.balancing.membership import NameTaken
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable, LeaseConflict
from changefeed.leases.lease import Checkpoint, HostName, Lease
from changefeed.leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership
from changefeed.leases.operations.pause import pause, resume
from changefeed.leases.separate_stores import SeparateStores
from changefeed.leases.timeouts import BoundedContainer
from changefeed.observers.middleware.stack import wrap
from changefeed.observers.observer import CloseReason, Context
from tests.support.fleet import settings

from .checkers import Call, Checker, Violation
from .loop import HOST, FreezingLoop
from .network import FeedLink, Link, Server, Weather
from .sources import CosmosSource, MemorySource, Source

if TYPE_CHECKING:
    from changefeed.leases.stores import CheckpointStore, OwnershipStore

FeedKind = Literal["memory", "cosmos"]
_EPOCH = 1_700_000_000.0  # when the world begins, on a clock that is right
_KEYS = 40
_WRITES = ("create", "replace", "acquire", "checkpoint", "write")


@dataclass(slots=True, kw_only=True)
class Process:
    """One start of a host: what a SIGKILL ends."""

    name: str
    start: int
    host: Host
    task: "asyncio.Task[None]"
    context: contextvars.Context
    clock_error: float
    alive: bool = True

    @property
    def id(self) -> str:
        return f"{self.name}/{self.start}"


class Witness:
    """A store that tells of every write, as the server does it: ``created`` of new leases."""

    def __init__(
        self, store: Any, checker: Checker, writer: str, created: Callable[[FeedRange], None]
    ) -> None:
        self._store = store
        self._checker = checker
        self._writer = writer
        self._created = created

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _WRITES:
            return method

        async def watched(record: Lease | Checkpoint) -> Any:
            before = await self._store.read(record.range_id)
            answer = await method(record)
            after = await self._store.read(record.range_id)
            if after is not None and after != before:
                self._checker.stored(before, after, self._writer)
            if name == "create" and isinstance(record, Lease):
                self._created(record.range)
            return answer

        return watched


class SimulatedObserver:
    """Takes its time, fails or hangs now and then, and tells the checker all it does."""

    def __init__(self, world: "World", process: str) -> None:
        self._world = world
        self._process = process
        self._closed = False

    async def open(self, context: Context) -> None:
        del context
        await asyncio.sleep(0.01)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        world, chance = self._world, self._world.random.random
        if self._closed:
            raise Violation(f"{self._process}: an observer was called after its close")
        call = Call(process=self._process, range_id=context.range.id, epoch=context.epoch)
        world.check(lambda: world.checker.began(call, changes))
        try:
            await asyncio.sleep(world.pace * len(changes) * chance() * 2)
            if chance() < world.observer_hangs:
                await asyncio.sleep(chance() * 120)
            if chance() < world.observer_raises:
                raise RuntimeError("the observer does not feel like it")
            world.check(lambda: world.checker.finished(changes))
        finally:
            world.checker.ended(call)
        if world.manual:
            self._acknowledge(context, list(changes))

    async def close(self, context: Context, reason: CloseReason) -> None:
        del context, reason
        self._closed = True
        await asyncio.sleep(0.01)

    def _acknowledge(self, context: Context, changes: list[Change]) -> None:
        """One by one in any order, or all at once."""
        if self._world.random.random() < 0.5:
            context.checkpoint(changes[-1])
            return
        self._world.random.shuffle(changes)
        for change in changes:
            context.acknowledge(change)


@dataclass(kw_only=True)
class Outcome:
    """What a seed came to."""

    seed: int
    hours: float
    events: int
    deliveries: int
    duplicates: int
    story: list[str] = field(default_factory=list)


class World:
    """Everything a seed decides. ``graceful`` worlds know no failures, only moves."""

    def __init__(self, seed: int, feed: FeedKind) -> None:
        self.random = random = Random(seed)
        self.seed = seed
        self.graceful = random.random() < 0.2
        self.manual = random.random() < 0.25
        self.pace = random.choice([0.0, 0.005, 0.05])
        self.observer_raises = 0.0
        self.observer_hangs = 0.0
        self.classic = not self.graceful and random.random() < 0.1
        self.source: Source = (
            MemorySource(random, self._right_time) if feed == "memory" else CosmosSource(random)
        )
        self.checker = Checker(self.source, strict=not self.classic)
        self.weather = Weather()
        self.processes: dict[str, Process] = {}
        self.starts: Counter[str] = Counter()
        self.story: list[str] = []
        self._servers = self._make_servers()
        self._written = 0
        self._violation: Violation | None = None
        self._down: set[str] = set()
        self._stopping: set[str] = set()
        self._deadly = False
        self._parts = self._choose_settings()

    def _make_servers(self) -> list[object]:
        if self.random.random() < 0.5:
            return [MemoryLeases()]
        return [MemoryOwnership(), MemoryCheckpoints()]

    def _choose_settings(self) -> dict[str, dict[str, object]]:
        random = self.random
        modes = ["batch", "batch", "count", "interval"]
        return {
            "leases": {
                "max_handoff_time": 0 if self.classic else random.choice([5.0, 30.0]),
                "rebalance_delay": random.choice([0.0, 5.0, 10.0]),
            },
            "feed": {
                "poll_interval": random.choice([2.0, 5.0]),
                "page_size": random.choice([5, 50, 1000]),
                "read_ahead": random.choice([1, 3]),
                "ranges_interval": 20.0,
                "lag_interval": 60.0,
            },
            "observer": {
                "checkpoint": "manual" if self.manual else random.choice(modes),
                "checkpoint_count": 70,
                "max_unacknowledged": random.choice([7, 1000]),
                "retry": {"first_delay": 0.5, "max_delay": 10.0},
                "reopen_delay": 10.0,
                "concurrency": random.choice([1, 1, 4]),
            },
        }

    # telling

    def tell(self, what: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():8.2f}  {what}")

    def check(self, claim: Callable[[], None]) -> None:
        """Keep the first violation: the host would take it for a failing observer."""
        try:
            claim()
        except Violation as violation:
            self._violation = self._violation or violation
            raise

    def _right_time(self) -> float:
        return _EPOCH + asyncio.get_running_loop().time()

    # processes

    def start(self, name: str) -> None:
        """Start a host, unless its last start has not ended yet."""
        if name in self.processes or name in self._stopping:
            return
        self.starts[name] += 1
        process_id = f"{name}/{self.starts[name]}"
        error = self.random.uniform(-60, 60)  # two expirations to either side
        context = contextvars.copy_context()
        context.run(HOST.set, process_id)
        host = context.run(self._make_host, name, process_id)
        task = asyncio.get_running_loop().create_task(host.run(), context=context)
        self.processes[name] = Process(
            name=name,
            start=self.starts[name],
            host=host,
            task=task,
            context=context,
            clock_error=error,
        )
        self.tell(f"start {process_id} (clock {error:+.0f} s)")

    def _make_host(self, name: str, process_id: str) -> Host:
        def wall() -> float:
            process = self.processes.get(name)
            return self._right_time() + (0.0 if process is None else process.clock_error)

        own = settings(name, self._parts)
        make_observer = wrap(
            lambda: SimulatedObserver(self, process_id),
            own.observer,
            HostEvents(HostName(name)),
            self.random,
        )
        return Host(
            own,
            feed=cast("Feed", self._link(FeedLink, Server(self.source.reader()), process_id)),
            container=self._connect(process_id),
            make_observer=make_observer,
            random=Random(self.random.random()),
            wall=wall,
        )

    def _connect(self, process_id: str) -> LeaseContainer:
        links = [
            self._link(
                Link,
                Server(
                    Witness(store, self.checker, process_id, partial(self._created, process_id))
                ),
                process_id,
            )
            for store in self._servers
        ]
        if len(links) == 1:
            return cast("LeaseContainer", links[0])
        ownership, checkpoints = links
        return SeparateStores(
            cast("OwnershipStore", ownership), cast("CheckpointStore", checkpoints)
        )

    def _link(self, kind: type[Link], server: Server, process_id: str) -> Link:
        return kind(server, self.weather, self.random, down=lambda: process_id in self._down)

    @property
    def _loop(self) -> FreezingLoop:
        return cast("FreezingLoop", asyncio.get_running_loop())

    def kill(self, process: Process) -> None:
        if self.processes.get(process.name) is not process:
            return
        self.tell(f"kill {process.id}")
        process.alive = False
        self._loop.freeze(process.id)
        self.checker.died(process.id)
        del self.processes[process.name]

    async def stop(self, process: Process) -> None:
        if self.processes.get(process.name) is not process:
            return  # something else has ended it meanwhile
        self.tell(f"stop {process.id}")
        del self.processes[process.name]
        self._stopping.add(process.name)
        process.context.run(process.host.stop)
        await self._end_of(process)
        self._stopping.discard(process.name)

    async def _end_of(self, process: Process) -> None:
        with suppress(NameTaken):
            await asyncio.wait([process.task])
            process.task.result()

    # what happens

    async def write(self) -> None:
        """Append in bursts, now more, now less."""
        while True:
            for _ in range(self.random.choice([0, 1, 5, 40])):
                key = f"k{self.random.randrange(_KEYS)}"
                self._written += 1
                self.source.append(key, self._written)
                self.checker.appended(key, self._written)
            await asyncio.sleep(self.random.uniform(0.2, 4.0))

    def _somebody(self) -> Process | None:
        return self.random.choice([*self.processes.values()]) if self.processes else None

    async def event(self) -> None:
        """Let one thing happen."""
        gentle: list[Callable[[], Awaitable[None]]] = [
            self._join_or_leave,
            self._join_or_leave,
            self._restart,
            self._change_ranges,
            self._roll,
            self._pause,
        ]
        rough: list[Callable[[], Awaitable[None]]] = [
            self._crash,
            self._crash,
            self._freeze_somebody,
            self._storm,
            self._partition,
            self._clock_jump,
            self._flap,
            self._moody_observers,
        ]
        if isinstance(self.source, CosmosSource):
            rough += [self._crash_at_an_end, self._crash_at_an_end]
        await self.random.choice(gentle if self.graceful else gentle + rough)()

    async def _join_or_leave(self) -> None:
        name = f"h{self.random.randrange(6)}"
        process = self.processes.get(name)
        if process is None:
            self.start(name)
        elif len(self.processes) > 1:
            await self.stop(process)

    async def _restart(self) -> None:
        process = self._somebody()
        if process is not None:
            await self.stop(process)
            self.start(process.name)

    async def _roll(self) -> None:
        """A rolling restart, as a deployment does it."""
        for process in [*self.processes.values()]:
            if self.processes.get(process.name) is process:
                await self.stop(process)
                self.start(process.name)
                await asyncio.sleep(self.random.uniform(1, 20))

    async def _pause(self) -> None:
        """An operator pauses one range, or the whole fleet, and resumes it later."""
        container = BoundedContainer(
            self._connect("operator"), timeout=10.0, on_call=lambda _: None
        )
        await asyncio.sleep(0)
        open_ranges = [x.id for x in self.source.open_ranges()]
        chosen = None if self.random.random() < 0.5 else [self.random.choice(open_ranges)]
        self.tell(f"pause {chosen or 'everything'}")
        with suppress(ContainerUnavailable, LeaseConflict):
            await pause(container, chosen, "an operator says so")
        await asyncio.sleep(self.random.uniform(1, 60))
        while True:
            self.tell(f"resume {chosen or 'everything'}")
            try:
                await resume(container, chosen)
            except (ContainerUnavailable, LeaseConflict):
                await asyncio.sleep(1)
            else:
                return

    async def _change_ranges(self) -> None:
        await asyncio.sleep(0)
        self.source.change_ranges(self.random, self.tell)

    async def _crash(self) -> None:
        process = self._somebody()
        if process is None:
            return
        self.kill(process)
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, 40))
            if process.name not in self.processes:
                self.start(process.name)

    async def _crash_at_an_end(self) -> None:
        """Kill or freeze whoever has just made the first lease of what goes on with a range."""
        self._deadly = True
        await self._change_ranges()
        await asyncio.sleep(self.random.uniform(2, 20))
        self._deadly = False
        await self._change_ranges()

    def _created(self, process_id: str, made: FeedRange) -> None:
        if self._deadly and made.parents:
            self._deadly = False
            for process in [x for x in self.processes.values() if x.id == process_id]:
                if self.random.random() < 0.5:
                    self.kill(process)
                else:
                    self._loop.create_task(self._freeze(process), context=contextvars.Context())

    async def _freeze_somebody(self) -> None:
        process = self._somebody()
        if process is not None:
            await self._freeze(process)

    async def _freeze(self, process: Process) -> None:
        """SIGSTOP, for less or more than the expiration, and SIGCONT: a zombie."""
        seconds = self.random.choice([3.0, 20.0, 45.0, 90.0])
        self.tell(f"freeze {process.id} for {seconds:.0f} s")
        self._loop.freeze(process.id)
        await asyncio.sleep(seconds)
        if process.alive:
            self.tell(f"thaw {process.id}")
            self._loop.thaw(process.id)

    async def _storm(self) -> None:
        """Bad weather between everybody and everything for a while."""
        random = self.random
        self.weather.slow = random.choice([0.0, 0.05, 0.3])
        self.weather.stall = random.choice([0.0, 0.02, 0.2])
        self.weather.fail_before = random.choice([0.0, 0.1, 0.5])
        self.weather.fail_after = random.choice([0.0, 0.1, 0.5])
        self.weather.throttle = random.choice([0.0, 0.2])
        self.weather.stale = random.choice([0.0, 0.3])
        self.tell(f"storm: {self.weather}")
        await asyncio.sleep(random.uniform(5, 60))
        self.weather.clear()
        self.tell("the storm is over")

    async def _partition(self) -> None:
        """One host gets no answers for a while."""
        process = self._somebody()
        if process is None:
            return
        self.tell(f"cut off {process.id}")
        self._down.add(process.id)
        await asyncio.sleep(self.random.uniform(5, 80))
        self._down.discard(process.id)
        self.tell(f"{process.id} is connected again")

    async def _clock_jump(self) -> None:
        process = self._somebody()
        if process is not None:
            process.clock_error = self.random.uniform(-60, 60)
            self.tell(f"the clock of {process.id} jumps to {process.clock_error:+.0f} s")

    async def _flap(self) -> None:
        for _ in range(4):
            await self._join_or_leave()
            await asyncio.sleep(self.random.uniform(0, 8))

    async def _moody_observers(self) -> None:
        self.observer_raises = self.random.choice([0.0, 0.2, 0.7])
        self.observer_hangs = self.random.choice([0.0, 0.02])
        self.tell(f"observers raise {self.observer_raises}, hang {self.observer_hangs}")
        await asyncio.sleep(self.random.uniform(5, 60))
        self.observer_raises = self.observer_hangs = 0.0

    # the story

    async def live(self) -> Outcome:
        """Tell the story; raise ``Violation`` with the story so far if something is wrong."""
        try:
            await self._live()
        except Violation as violation:
            raise self._told(violation) from None
        finally:
            if self._violation is not None:
                raise self._told(self._violation)
        loop = asyncio.get_running_loop()
        return Outcome(
            seed=self.seed,
            hours=loop.time() / 3600,
            events=self.checker.events,
            deliveries=self.checker.deliveries,
            duplicates=self.checker.duplicates,
            story=self.story,
        )

    def _told(self, violation: Violation) -> Violation:
        story = "\n".join(self.story)
        return Violation(f"{violation}\n{story}")

    async def _live(self) -> None:
        for n in range(self.random.choice([1, 2, 3, 5])):
            self.start(f"h{n}")
        writing = asyncio.create_task(self.write())
        events = set[asyncio.Task[None]]()
        for _ in range(self.random.randrange(3, 12)):
            await asyncio.sleep(self.random.choice([0.5, 3.0, 15.0, 40.0]))
            event = asyncio.create_task(cast("Any", self.event()))
            events.add(event)
            if self.graceful or self.random.random() < 0.5:
                await asyncio.wait([event])
            self._raise_violation()
        for event in events:
            await event
        writing.cancel()
        await self._settle_down()

    async def _settle_down(self) -> None:
        """Everything works again: the fleet must become whole, even, and still."""
        await self._start_what_ended()
        self.tell("everything works again")
        retrier = asyncio.get_running_loop().time() + 400
        await asyncio.sleep(120)  # hung observers end, and who was frozen finds out
        while asyncio.get_running_loop().time() < retrier:
            await asyncio.sleep(10)
            self._raise_violation()
            await self._start_what_ended()
            if not await self._unfinished():
                break
        before = await self._owners()
        await asyncio.sleep(60)
        self._raise_violation()
        problems = await self._unfinished()
        if problems:
            raise Violation("; ".join(problems))
        after = await self._owners()
        if before != after:
            raise Violation(f"leases still move: {before} became {after}")
        if self.graceful and self.checker.duplicates:
            raise Violation(f"{self.checker.duplicates} duplicates although nothing failed")

    async def _start_what_ended(self) -> None:
        """Start anew what was refused or gave up, as whoever supervises it would."""
        if not self.processes:
            self.start("h0")
        for process in [*self.processes.values()]:
            if process.task.done():
                self.processes.pop(process.name)
                await self._end_of(process)
                self.start(process.name)

    async def _unfinished(self) -> list[str]:
        """Say what is left to do until the fleet is whole, even, and done."""
        owners = await self._owners()
        loads = Counter(owner for owner, _ in owners.values())
        running: set[HostName | None] = {
            process.host.name for process in self.processes.values() if not process.task.done()
        }
        await asyncio.sleep(0)
        whole = self.source.is_read_by([x.range for x in await self._open_leases()])
        open_ranges = {x.id for x in self.source.open_ranges()}
        missing = self.checker.undelivered()
        problems = {
            "no host is left running": not running,
            f"owned is {owners}, and open are {open_ranges}": not whole,
            f"not everything is owned: {owners}": None in loads,
            f"leases are owned by hosts that do not run: {loads}": bool(set(loads) - running),
            f"the leases are not spread evenly: {loads}": bool(running)
            and max(loads[x] for x in running) - min(loads[x] for x in running) > 1,
            f"{len(missing)} changes were never delivered: {missing[:5]}": bool(missing),
        }
        return [text for text, holds in problems.items() if holds]

    async def _owners(self) -> dict[RangeId, tuple[HostName | None, int]]:
        return {x.range_id: (x.owner, x.epoch) for x in await self._open_leases()}

    async def _open_leases(self) -> list[Lease]:
        """Return the leases of ranges that are to be read now.

        Some may still wait for a range that has come to life again: it ended, its owner
        died, and those that it would have gone on in were merged.
        """
        store = cast("OwnershipStore", self._servers[0])
        leases = [x for x in await store.list() if not x.ended]
        return [x for x in leases if not any(_waits(x, y) for y in leases)]

    def _raise_violation(self) -> None:
        if self._violation is not None:
            raise self._violation


def _waits(child: Lease, parent: Lease) -> bool:
    return (
        not child.epoch
        and parent.range_id in child.range.parents
        and parent.range.shares_keys_with(child.range)
    )


def simulate(seed: int, feed: FeedKind = "memory") -> Outcome:
    """Live through one seed, from a fresh loop to its end."""
    loop = FreezingLoop()
    try:
        return loop.run_until_complete(_bounded(seed, feed))
    finally:
        loop.thaw_all()
        loop.run_until_complete(_end_all())
        loop.close()


async def _bounded(seed: int, feed: FeedKind) -> Outcome:
    async with asyncio.timeout(48 * 3600):
        return await World(seed, feed).live()


async def _end_all() -> None:
    """Cancel what the story has left behind, the killed and the frozen too."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1.0)
