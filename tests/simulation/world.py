"""A story by seed: a fleet, a feed that is written to, and what goes wrong meanwhile."""

import asyncio
import contextvars
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, cast

from changefeed.feeds.feed import Feed, FeedRange, RangeId, StartAt
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import LeaseSettings, Settings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.observers.dead_letters import Origin
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.range_observers import ObserverSetup
from changefeed.runtime.errors import Failure, NameTaken
from tests.support import make

from .aims import Aims
from .beginning import Beginning
from .clocks import Clock, right_time
from .cosmos_endpoint import CosmosStores
from .ending import Ending
from .faults import Faults
from .killers import Killers
from .limits import Limits
from .loads import Loads
from .loop import HOST, FreezingLoop
from .neighbours import Neighbours
from .network import FeedLink, Server, Weather
from .observers import CheckedLetters, Moods, SimulatedObserver
from .operators import Operators
from .outcome import Outcome
from .probes import Probe
from .process import Process
from .progress import Violation
from .scout import Scout, State
from .settings import choose_settings
from .sources import CosmosSource, FeedKind, MemorySource, Source
from .sqlite_file import SqliteStores
from .stores import MemoryStores, StoreKind, Stores, Surroundings
from .troubles import Troubles

_STORES: Mapping[StoreKind, Callable[[Surroundings], Stores]] = {
    "memory": MemoryStores,
    "sqlite": SqliteStores,
    "cosmos": CosmosStores,
}
_KEYS = 40
_HOSTS, _MANY_HOSTS = 6, 24
_SPLIT_HOT = 0.6
_PIECEMEAL = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldKind:
    """What a world is made of, beside its seed: see ``World``."""

    feed: FeedKind = "memory"
    leases: StoreKind = "memory"
    wild: bool = False
    mixed: bool = False
    splits: bool = False
    troubled: bool = False
    aimed: bool = False

    @property
    def flags(self) -> str:
        said = [x for x in ("mixed", "splits", "troubled", "aimed") if getattr(self, x)]
        wild = "--wild" if self.wild else "--calm"
        return " ".join(
            [f"--feed={self.feed} --leases={self.leases} {wild}", *(f"--{x}" for x in said)]
        )


class World:
    """Everything a seed decides. ``graceful`` worlds know no failures, only moves; ``wild``
    ones know people who interfere, odd observers, and worse networks; ``mixed`` ones know
    hosts of another kind, which share the leases in Cosmos DB as long as clocks are right;
    in those that have ``splits``, people split and merge ranges that the feed has not. Hosts
    do that by themselves in some of those whose feed reads parts, as the loads have it. What
    ``troubled`` and ``aimed`` ones have beside that is said of ``Troubles`` and ``Aims``.
    """

    def __init__(self, seed: int, kind: WorldKind) -> None:
        self.random = random = Random(seed)
        self.seed = seed
        self.splits = kind.splits
        self.feed = kind.feed
        self.wild = wild = kind.wild
        self.mixed = mixed = kind.mixed
        self.graceful = random.random() < 0.2 and not mixed
        self.troubles = Troubles(
            seed, troubled=kind.troubled, wild=wild, graceful=self.graceful
        )
        manual = random.random() < 0.25 or self.troubles.acknowledges
        pace = random.choice([0.0, 0.005, 0.05])
        self.killers = Killers(self, rough=self.troubles.rough and not mixed)
        self.moods = Moods(
            pace=pace,
            manual=manual,
            piecemeal=manual and Random(f"piecemeal {seed}").random() < _PIECEMEAL,
            late=self.troubles.late,
            kill=self.killers.numbers,
        )
        self.classic = not self.graceful and random.random() < 0.1
        large = wild and random.random() < 0.025
        self._most_hosts = _MANY_HOSTS if large else _HOSTS
        self.source: Source = (
            MemorySource(random, self._right_time, many=large)
            if kind.feed == "memory"
            else CosmosSource(random, self._right_time)
        )
        if mixed and isinstance(self.source, CosmosSource):
            self.source.merges = False  # a neighbour does not wait for a parent that lives on
        self.checker = Scout(self.source, strict=not self.classic)
        self.checker.now = lambda: self.loop.time()  # noqa: PLW0108 - no loop runs yet
        self.checker.state_of = self._state_of
        self.checker.living = lambda: self.processes
        self.weather = Weather()
        self.suspends = wild and Random(f"suspends {seed}").random() < 0.3
        self.asleep: dict[str, float] = defaultdict(float)
        """For how many seconds the clock of each process stood still."""
        self.processes: dict[str, Process] = {}
        self.starts: Counter[str] = Counter()
        self.story: list[str] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each process has called what."""
        self._written = 0
        self.down: set[str] = set()
        self.stopping: dict[str, Process] = {}
        self._begun = set[asyncio.Task[None]]()
        self.faults = Faults(self)
        self.operators = Operators(self)
        self._aims = Aims(self, aimed=kind.aimed and not self.graceful)
        self.checker.on_request = self._aims.asked
        self._beginning = Beginning(self)
        self._around = self._surroundings()
        self.stores: Stores = _STORES[kind.leases](self._around)
        self.neighbours = Neighbours(self)
        self.limits = Limits(self)
        self.loads = Loads(seed)
        self._ending = Ending(self)
        self._letters = CheckedLetters(self.checker, self._letters_fail)
        self._parts = choose_settings(random, manual=manual, classic=self.classic, wild=wild)
        self._choose_more_settings()
        self.checker.progress.most_unstored = self._settings("any").observer.max_unacknowledged

    def _surroundings(self) -> Surroundings:
        troubles = self.troubles
        return Surroundings(
            weather=self.weather,
            random=self.random,
            checker=self.checker,
            created=self._created,
            is_down=self.down.__contains__,
            called=self._count,
            latency=troubles.latency,
            stale_reads=lambda: troubles.stale_reads,
            lags=troubles.lagging.__contains__,
            comes_late=troubles.comes_late,
            on_stale=partial(self.checker.hit, Probe.STALE_READ),
            refuses=troubles.refuses_secret,
        )

    def _choose_more_settings(self) -> None:
        """Choose without a draw of the world's own: seeds keep their stories."""
        if self.troubles.reopens_at_once:
            retry = {"max_delay": 0.1, "attempts": 3 if self.wild else 10}
            again = {"retry": retry, "on_failure": "retry", "concurrency": 4}
            self._parts["observer"] |= again
        elif self.killers.are_to_come:
            self._parts["observer"]["on_failure"] = self.killers.on_failure
        if self.killers.are_to_come or self.troubles.kills_all:
            self._parts["observer"]["max_unacknowledged"] = self.killers.most_unacknowledged
        if self.puts_aside:
            self.checker.blame.attempts = self._settings("any").observer.retry.attempts
        if self.moods.piecemeal and not self.graceful:
            self.moods.raises = 0.05
            self.moods.poison = self._parts["observer"].get("on_failure") != "stop-range"
        if self.splits:
            aside = Random(f"parallelism {self.seed}")
            self._parts["feed"]["parallelism"] = aside.choice([1, 1, 4, 9])
        in_log = self.feed == "memory" and self.wild and not self.splits
        if not self.mixed and not in_log:
            aside = Random(f"split hot {self.seed}")
            self.loads.splits = aside.random() < _SPLIT_HOT

    def begin_at(self, start: StartAt) -> None:
        """Let hosts start there."""
        self._parts["feed"]["start"] = start
        self.checker.begins_elsewhere = start != "beginning"

    def _created(self, process_id: str, made: FeedRange) -> None:
        self.faults.created(process_id, made)
        self._beginning.created(process_id, made)

    def _settings(self, name: str) -> Settings:
        return make.settings(name, self._parts)

    @property
    def lease_settings(self) -> LeaseSettings:
        return self._settings("operator").leases

    @property
    def puts_aside(self) -> bool:
        return self._parts["observer"].get("on_failure") == "dead-letter"

    @property
    def _checkpoints_are_apart(self) -> bool:
        return isinstance(self.stores, MemoryStores) and self.stores.checkpoints_are_apart

    @property
    def may_lose_checkpoints(self) -> bool:
        return self.wild and self._checkpoints_are_apart

    @property
    def may_forget_ownership(self) -> bool:
        """Parts of ranges are known from leases alone: nothing would go on with them."""
        parts = self.splits or self.loads.splits
        no_parts = isinstance(self.source, MemorySource) and not parts
        return self._checkpoints_are_apart and no_parts

    def _letters_fail(self) -> bool:
        # Few worlds put anything aside in bad weather: where one does, letters fail, too.
        at_least = 0.1 if self.moods.poison or self.moods.stubborn else 0.0
        likely = max(self.weather.fail_before, self._aims.letters_fail, at_least)
        return self.random.random() < likely

    # telling

    def tell(self, what: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():8.2f}  {what}")

    def check(self, claim: Callable[[], None]) -> None:
        with self.checker.keeping():
            claim()

    def _right_time(self) -> float:
        return right_time(asyncio.get_running_loop().time())

    # processes

    def start(self, name: str) -> None:
        """Start a host, unless its last start has not ended yet."""
        if name in self.processes or name in self.stopping:
            return
        self.starts[name] += 1
        process_id = f"{name}/{self.starts[name]}"
        error = self.random.uniform(-60, 60)  # two expirations to either side
        if self.mixed:
            error /= 30
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
            clock=Clock(error=error),
        )
        self.tell(f"start {process_id} (clock {error:+.0f} s)")

    async def start_later(self, name: str, random: Random) -> None:
        await asyncio.sleep(random.uniform(0, 40))
        self.start(name)

    def _make_host(self, name: str, process_id: str) -> Host:
        def wall() -> float:
            process = self.processes.get(name)
            return self._right_time() if process is None else process.clock.at(self.loop.time())

        def elapsed() -> float:
            return self.loop.time() - self.asleep[process_id]

        leases = {
            **self._parts["leases"],
            **self.loads.settings_of(name),
        }
        timing = {**self._parts["timing"], "cooldown": self.loads.cooldown}
        own = make.settings(name, {**self._parts, "leases": leases, "timing": timing})
        letters = LetterWriter(self._letters, Origin(feed="simulated"))
        observers = ObserverSetup(
            lambda: SimulatedObserver(
                process_id,
                self.moods,
                self.checker,
                self.random,
                check=self.check,
                block=partial(self.faults.block, process_id),
                die=partial(self.killers.strike, process_id),
            ),
            own.observer,
            HostEvents(HostName(name)),
            self.random,
            letters=letters if self.puts_aside else None,
        )
        container = self.loads.through(self.connect(process_id))
        return Host(
            own,
            feed=self.feed_of(process_id),
            container=container,
            observers=observers,
            start=self.killers.start_of(name, process_id),
            random=Random(self.random.random()),
            clock=elapsed,
            wall=wall,
        )

    def feed_of(self, process_id: str) -> Feed:
        reader = self.source.reader()
        if self.troubles.refuses:
            reader = self.troubles.refusals.through(reader, process_id, self.checker)
        server = Server(reader)
        return cast("Feed", self._around.link(server, process_id, FeedLink))

    def connect(self, process_id: str) -> LeaseContainer:
        return self.stores.connect(process_id)

    def _count(self, process_id: str, name: str) -> None:
        self.calls[process_id, name] += 1
        self.limits.called(process_id)

    def _state_of(self, process_id: str) -> State:
        process = self.processes.get(process_id.partition("/")[0])
        if process is not None and process.id != process_id:
            return "gone"
        if not self.loop.is_frozen(process_id):
            return "running"
        return "gone" if process is None else "frozen"

    @property
    def open_ranges(self) -> set[RangeId]:
        return {x.id for x in self.source.open_ranges()}

    @property
    def loop(self) -> FreezingLoop:
        return cast("FreezingLoop", asyncio.get_running_loop())

    async def start_beside(self, process: Process, seconds: float) -> None:
        """Start another host under the same name, and kill it if it has not ended in time."""
        self.starts[process.name] += 1
        process_id = f"{process.name}/{self.starts[process.name]}"
        self.tell(f"start {process_id} beside {process.id}")
        context = contextvars.copy_context()
        context.run(HOST.set, process_id)
        host = context.run(self._make_host, process.name, process_id)
        task = self.loop.create_task(host.run(), context=context)
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            self._note_end(task)
            return
        self.tell(f"kill {process_id}")
        self._bury(process_id)

    def kill(self, process: Process) -> None:
        if self.processes.get(process.name) is process:
            self.tell(f"kill {process.id}")
            self._end(process, "SIGKILL")

    def strike(self, process_id: str, by: str) -> Process | None:
        """End a process that a change kills, also one that is about to stop; return it if it is
        to be started again.
        """
        self.tell(f"{by} kills {process_id}")
        running = [*self.processes.values(), *self.stopping.values()]
        found = next((x for x in running if x.id == process_id), None)
        if found is not None:
            self._end(found, "SIGSEGV")
            return None if found.name in self.stopping else found
        self._bury(process_id)  # it was started beside another
        return None

    def _end(self, process: Process, how: str) -> None:
        process.killed.set()
        self.limits.lost(process)
        self.killers.ended(process, how)
        self._bury(process.id)
        if self.processes.get(process.name) is process:
            del self.processes[process.name]

    def _bury(self, process_id: str) -> None:
        self.loop.freeze(process_id)
        self.checker.died(process_id)

    def begin(self, event: Coroutine[Any, Any, None]) -> None:
        """Let something happen by itself, in nobody's context."""
        task = self.loop.create_task(event, context=contextvars.Context())
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    async def stop(self, process: Process) -> None:
        if self.processes.get(process.name) is not process:
            return  # something else has ended it meanwhile
        self.tell(f"stop {process.id}")
        del self.processes[process.name]
        self.stopping[process.name] = process
        process.context.run(process.host.stop)
        await self._end_of(process)
        del self.stopping[process.name]
        if self.graceful:
            await self._check_left(process)

    async def _check_left(self, process: Process) -> None:
        """Where nothing fails, a host that stops gives up its leases and its requests."""
        leases = await self.stores.records.list()
        left = [x.range_id for x in leases if process.name in (x.owner, x.next_owner)]
        if left and process.name not in self.processes:
            raise Violation(f"{process.id} has stopped, and its name is on {left}")

    async def _end_of(self, process: Process) -> None:
        killed = self.loop.create_task(process.killed.wait(), context=contextvars.Context())
        await asyncio.wait([process.task, killed], return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if process.task.done():
            self._note_end(process.task)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        try:
            task.result()
        except NameTaken:
            self.checker.hit(Probe.NAME_TAKEN)
        except Failure as ended:
            if type(ended) is not Failure:
                raise
            short = "not in order" in str(ended)
            self.checker.hit(Probe.STOP_CUT_SHORT if short else Probe.WITHOUT_MEMORY)

    # what happens

    async def write(self) -> None:
        """Append in bursts, now more, now less."""
        while True:
            for _ in range(self.random.choice([0, 1, 5, 40])):
                key = self.some_key(self.random)
                owed, number = await self._beginning.owes(key), self.append(key)
                self.checker.appended(key, number, owed=owed)
                if owed:
                    self.killers.appended(number)
            await asyncio.sleep(self.random.uniform(0.2, 4.0))

    def append(self, key: str) -> int:
        """Append a change to the feed; return its number."""
        self._written += 1
        self.source.append(key, self._written)
        return self._written

    def some_key(self, random: Random) -> str:
        return f"k{random.randrange(_KEYS)}"

    def some_host(self, random: Random) -> str:
        """Return the name of a host, which may run or not."""
        return f"h{random.randrange(self._most_hosts)}"

    def somebody(self) -> Process | None:
        return self.somebody_of(self.random)

    def somebody_of(self, random: Random) -> Process | None:
        return random.choice([*self.processes.values()]) if self.processes else None

    async def event(self) -> None:
        """Let one thing happen."""
        faults, operators = self.faults, self.operators
        gentle: list[Callable[[], Awaitable[None]]] = [
            self.join_or_leave,
            self.join_or_leave,
            self.restart,
            self.change_ranges,
            self.roll,
            operators.pause,
        ]
        if self.splits:
            gentle += [operators.split, operators.split, operators.merge, operators.merge]
        rough: list[Callable[[], Awaitable[None]]] = [
            faults.crash,
            faults.crash,
            faults.freeze,
            faults.storm,
            faults.partition,
            faults.clock_jump,
            faults.flap,
            faults.moody_observers,
        ]
        if isinstance(self.source, CosmosSource):
            rough += [faults.crash_at_an_end, faults.crash_at_an_end]
        if self.mixed:
            rough.remove(faults.clock_jump)
            rough += self.neighbours.events
        if self.wild:
            if self.may_forget_ownership:
                rough += [faults.forget_ownership, faults.forget_ownership]
            if self.may_lose_checkpoints:
                rough += [faults.lose_checkpoint]
            rough += [operators.release, operators.reset, operators.delete, operators.edit]
        await self.random.choice(gentle if self.graceful else gentle + rough)()

    async def join_or_leave(self) -> None:
        name = self.some_host(self.random)
        process = self.processes.get(name)
        if process is None:
            self.start(name)
        elif len(self.processes) > 1:
            await self.stop(process)

    async def restart(self) -> None:
        process = self.somebody()
        if process is not None:
            await self.stop(process)
            self.start(process.name)

    async def roll(self) -> None:
        """A rolling restart, as a deployment does it."""
        for process in [*self.processes.values()]:
            if self.processes.get(process.name) is process:
                await self.stop(process)
                self.start(process.name)
                await asyncio.sleep(self.random.uniform(1, 20))

    async def change_ranges(self) -> None:
        await asyncio.sleep(0)
        self.source.change_ranges(self.random, self.tell)

    # the story

    async def live(self) -> Outcome:
        """Tell the story; raise ``Violation`` with the story so far if something is wrong."""
        try:
            await self._live()
        except Violation as violation:
            raise self._told(violation) from None
        finally:
            if self.checker.violation is not None:
                raise self._told(self.checker.violation)
        loop = asyncio.get_running_loop()
        return Outcome(
            seed=self.seed,
            feed=f"over {self.feed}",
            hours=loop.time() / 3600,
            events=self.checker.events,
            deliveries=self.checker.deliveries,
            duplicates=self.checker.duplicates,
            probes=self.checker.probes,
            story=self.story,
        )

    def _told(self, violation: Violation) -> Violation:
        story = "\n".join(self.story)
        return Violation(f"{violation}\n{story}")

    async def _live(self) -> None:
        await self._beginning.come()
        for n in range(
            self._most_hosts if self._most_hosts > 6 else self.random.choice([1, 2, 3, 5])
        ):
            self.start(f"h{n}")
        if self.mixed:
            self.neighbours.start("n0")
        self.begin(self._beginning.trouble())
        writing = asyncio.create_task(self.write())
        watching = asyncio.create_task(self.limits.watch())
        events = {asyncio.create_task(self.troubles.run(self))}
        aiming = asyncio.create_task(self._aims.run())
        for _ in range(self.random.randrange(3, 12)):
            await asyncio.sleep(self.random.choice([0.5, 3.0, 15.0, 40.0]))
            event = asyncio.create_task(cast("Any", self.event()))
            events.add(event)
            if self.graceful or self.random.random() < 0.5:
                await asyncio.wait([event])
            self.raise_violation()
            self.neighbours.raise_failures()
        for event in events:
            await event
        await self._aims.end(aiming)
        writing.cancel()
        watching.cancel()
        self.raise_violation()
        self.limits.check_calls()
        await self.start_what_ended()
        self.tell("everything works again")
        self.weather.clear()
        self.moods.calm()
        self.loads.calm()
        self.troubles.calm()
        await self.killers.end()
        ending = asyncio.create_task(self.troubles.end(self))
        await self._ending.settle_down()
        await ending

    async def start_what_ended(self) -> None:
        """Start anew what was refused or gave up, as whoever supervises it would, and resume
        what stopped for a person to look at.
        """
        await self.start_again()
        if self.wild or self.killers.numbers:
            await self.operators.resume_all()

    async def start_again(self) -> None:
        if not self.processes:
            self.start("h0")
        for process in [*self.processes.values()]:
            if process.task.done():
                self.processes.pop(process.name)
                await self._end_of(process)
                self.start(process.name)

    def raise_violation(self) -> None:
        if self.checker.violation is not None:
            raise self.checker.violation
