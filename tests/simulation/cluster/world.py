"""One seed's story: brokers, producers and readers, and what goes wrong around them."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from changefeed.brokers.core_settings import CoreSettings
from changefeed.brokers.operations import create_collection, merge, split
from changefeed.feeds.brokers.catalog_store import CatalogStore, open_cluster
from changefeed.feeds.brokers.stores.store import StoreUnavailable
from changefeed.feeds.errors import FeedError
from tests.simulation.loop import FreezingLoop

from .checker import Checker, Violation, check_store
from .process import BrokerProcess
from .producer import SimProducer
from .reader import SimReader
from .store import Link, Objects, Weather

_TROUBLES = 60.0
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed. ``seconds`` are virtual."""

    story: tuple[str, ...]
    records: int
    eras: int
    catalogs: int
    objects: int
    seconds: float


class World:
    """Everything that a seed decides comes from ``random``."""

    passing = (StoreUnavailable,)
    """What a broker that starts may fail with, and is started again after."""

    def __init__(self, seed: int, loop: FreezingLoop) -> None:
        self.random = Random(seed)
        self.loop = loop
        self.objects = Objects()
        self.weather = Weather()
        self.checker = Checker()
        self.lost_answers = 0.0
        self.story: list[str] = []
        self.processes: list[BrokerProcess] = []
        self.settings = CoreSettings(
            linger=self.random.choice([0.005, 0.1]),
            flush_bytes=self.random.choice([200, 4096]),
            in_flight=self.random.choice([1, 2, 4, 8]),
            buffer_bytes=self.random.choice([2_000, 1_000_000]),
            cache_bytes=self.random.choice([1, 10_000, 10_000_000]),
            heartbeat=1.0,
            expiration=self.random.choice([4.0, 10.0]),
            settle=self.random.choice([0.0, 0.5, 2.0]),
            catalog_interval=self.random.choice([0.1, 0.5]),
            seal_patience=self.random.choice([0.0, 1.0, 5.0]),
        )
        self._started = 0
        self._producers: list[SimProducer] = []
        self._readers: list[SimReader] = []
        self._tasks: list[asyncio.Task[None]] = []

    def tell(self, text: str) -> None:
        self.story.append(f"{self.loop.time():8.2f} {text}")

    def wall_us(self) -> int:
        """Return a wall clock that jumps about: nothing may depend on it."""
        return int((self.loop.time() + self.random.uniform(-100, 100)) * 1e6)

    # who is there

    def start(self, name: str) -> None:
        self._started += 1
        process = BrokerProcess(self, name, self._started)
        self.processes.append(process)
        self.tell(f"start {process.id}")

    def living(self) -> list[BrokerProcess]:
        return [x for x in self.processes if x.alive]

    def any_process(self) -> BrokerProcess | None:
        ready = [x for x in self.living() if x.core is not None]
        return self.random.choice(ready) if ready else None

    def process_named(self, name: str) -> BrokerProcess | None:
        found = [x for x in self.living() if x.name == name and x.core is not None]
        return self.random.choice(found) if found else None

    # what goes wrong

    async def crash(self) -> None:
        if not self.living():
            return
        process = self.random.choice(self.living())
        self.tell(f"kill {process.id}")
        process.kill()
        await asyncio.sleep(self.random.choice([0.0, 2.0, 20.0]))
        if self.random.random() < 0.7:
            self.start(process.name)

    async def freeze(self) -> None:
        if not self.living():
            return
        process = self.random.choice(self.living())
        seconds = self.random.choice([0.5, 3.0, 15.0, 40.0])
        self.tell(f"freeze {process.id} for {seconds} s")
        self.loop.freeze(process.id)
        await asyncio.sleep(seconds)
        if process.alive:
            self.tell(f"thaw {process.id}")
            self.loop.thaw(process.id)

    async def cut(self) -> None:
        if not self.living():
            return
        process = self.random.choice(self.living())
        self.tell(f"cut {process.id} off from the store")
        process.cut = True
        await asyncio.sleep(self.random.choice([1.0, 8.0, 30.0]))
        process.cut = False
        self.tell(f"{process.id} reaches the store again")

    async def storm(self) -> None:
        random, weather = self.random, self.weather
        weather.fail_before = random.choice([0.0, 0.05, 0.3])
        weather.fail_after = random.choice([0.0, 0.05, 0.3])
        weather.late = random.choice([0.0, 0.02, 0.1])
        weather.slow = random.choice([0.0, 0.05, 0.3])
        weather.list_late = random.choice([0.0, 3.0, 20.0])
        self.lost_answers = random.choice([0.0, 0.1, 0.4])
        self.tell(f"storm: {weather}, answers of brokers lost: {self.lost_answers}")
        await asyncio.sleep(random.uniform(3, 30))
        weather.clear()
        self.lost_answers = 0.0
        self.tell("the storm is over")

    async def join(self) -> None:
        names = {x.name for x in self.living()}
        free = [f"broker-{n}" for n in range(1, 6) if f"broker-{n}" not in names]
        if free:
            self.start(self.random.choice(free))
        await asyncio.sleep(0)

    async def leave(self) -> None:
        staying = [x for x in self.living() if not x.leaving]
        if len(staying) > 1 or (staying and self.random.random() < 0.2):
            process = self.random.choice(staying)
            self.tell(f"{process.id} is asked to leave")
            process.leaving = True
        await asyncio.sleep(0)

    async def impostor(self) -> None:
        """Start another under the name of one that lives."""
        if self.living():
            self.start(self.random.choice(self.living()).name)
        await asyncio.sleep(0)

    async def reshape(self) -> None:
        """Split or merge, one partition or all, by somebody with the store."""
        catalogs = await self._catalogs()
        collection = self.random.choice(catalogs.newest.collections)
        opened = collection.open_partitions()
        chosen = self.random.choice([None, *(x.id for x in opened[:4])])
        change = split if len(opened) < 24 and self.random.random() < 0.6 else merge
        try:
            await change(catalogs, collection.name, chosen)
        except FeedError as error:
            self.tell(f"not {change.__name__}: {error}")
        else:
            self.tell(f"{change.__name__} {collection.name} {chosen or ''}")

    async def create(self) -> None:
        catalogs = await self._catalogs()
        if len(catalogs.newest.collections) < 3:
            name = f"collection-{len(catalogs.newest.collections) + 1}"
            await create_collection(catalogs, name, parts=self.random.choice([1, 3]))
            self.tell(f"create {name}")
            self._use(name)

    async def _catalogs(self) -> CatalogStore:
        link = Link(self.objects, Weather(), self.random)
        catalogs = CatalogStore(link, await open_cluster(link))
        await catalogs.load()
        return catalogs

    # the story

    async def live(self) -> Outcome:
        catalogs = await self._catalogs()
        await create_collection(catalogs, "orders", parts=self.random.choice([1, 4, 12]))
        for n in range(1, self.random.choice([1, 2, 3]) + 1):
            self.start(f"broker-{n}")
        self._use("orders")
        await asyncio.sleep(5)
        async with asyncio.TaskGroup() as troubles:
            until = self.loop.time() + _TROUBLES
            while self.loop.time() < until:
                troubles.create_task(self.random.choice(self._events())())
                await asyncio.sleep(self.random.choice([0.5, 3.0, 10.0]))
        await self._settle()
        return await self._end()

    def _events(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [
            self.crash,
            self.crash,
            self.freeze,
            self.freeze,
            self.cut,
            self.storm,
            self.storm,
            self.join,
            self.join,
            self.leave,
            self.impostor,
            self.reshape,
            self.create,
        ]

    def _use(self, collection: str) -> None:
        for _ in range(self.random.choice([1, 2, 3])):
            producer = SimProducer(self, collection, len(self._producers) + 1)
            self._producers.append(producer)
            self._go(producer.run())
        for n in (1, 2):
            reader = SimReader(self, collection, n)
            self._readers.append(reader)
            self._go(reader.run())

    def _go(self, coroutine: "asyncio._CoroutineLike[None]") -> None:
        self._tasks.append(self.loop.create_task(coroutine))

    async def _settle(self) -> None:
        """Let nothing fail any more: all must come to an end."""
        self.tell("nothing fails any more")
        self._start_one_if_none_is_left()
        await asyncio.sleep(self.settings.expiration + 40)
        for producer in self._producers:
            producer.stopping = True
        await self._until("producers have their answers", self._all_answered)
        await self._until("readers have read all", self._all_read)
        await self._until("the newest era has all brokers", self._is_calm)

    def _start_one_if_none_is_left(self) -> None:
        """As what supervises processes does: the last may have found its name taken."""
        if not [x for x in self.living() if not x.leaving]:
            self.start("broker-9")

    def _all_answered(self) -> bool:
        return all(x.idle for x in self._producers)

    def _all_read(self) -> bool:
        by_collection = {x.collection for x in self.checker.all_sent}
        return all(
            self.checker.has_read(f"reader-{n} of {name}") >= self.checker.count(name)
            for name in by_collection
            for n in (1, 2)
        )

    def _is_calm(self) -> bool:
        cores = [x.core for x in self.living() if x.core is not None]
        if not cores or len(cores) != len(self.living()):
            return False
        era = max((x.catalog for x in cores), key=lambda x: x.number).era
        return (
            era is not None
            and era.state == "open"
            and {x.broker for x in era.rows} == {x.name for x in cores}
            and all(x.status().writing for x in cores)
        )

    async def _until(self, what: str, holds: Callable[[], bool]) -> None:
        until = self.loop.time() + _PATIENCE
        while not holds():
            self._start_one_if_none_is_left()
            for task in [*self._tasks, *(x.task for x in self.processes)]:
                if task.done():
                    task.result()
            if self.loop.time() > until:
                raise Violation(f"it never comes that {what}")
            await asyncio.sleep(0.5)

    async def _end(self) -> Outcome:
        for reader in self._readers:
            reader.stopping = True
        await asyncio.gather(*self._tasks)
        catalogs = await self._catalogs()
        newest = check_store(self.objects, catalogs.newest.identity)
        self.checker.all_is_read()
        return Outcome(
            story=tuple(self.story),
            records=len(self.checker.stored),
            eras=len(newest.eras),
            catalogs=newest.number,
            objects=len(self.objects.keys),
            seconds=self.loop.time(),
        )

    async def close(self) -> None:
        self.loop.thaw_all()
        for task in self._tasks:
            task.cancel()
        for process in self.processes:
            await process.bury()


def simulate(seed: int) -> Outcome:
    """Live through a seed; raise ``Violation``, with the story, for what must never happen."""
    with asyncio.Runner(loop_factory=FreezingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, FreezingLoop)
        world = World(seed, loop)
        try:
            return runner.run(_live(world))
        except Exception as error:
            raise Violation("\n".join([*world.story, f"{error!r}: {error}"])) from error


async def _live(world: World) -> Outcome:
    try:
        return await world.live()
    finally:
        await world.close()
