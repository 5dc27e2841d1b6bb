"""One seed's story: brokers, producers and readers, and what goes wrong around them."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import inf
from random import Random
from unittest.mock import patch

from changefeed.feeds.errors import RangeDamaged
from changefeed.log.brokers.members import Ping
from changefeed.log.brokers.run_core import no_answer
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.core_settings import CoreSettings
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import BlockChanges
from changefeed.log.maintenance import run_maker
from changefeed.log.protocol.messages import Answer, AppendReceipt, AppendRequest, Reason
from changefeed.runtime.errors import StoreError
from tests.simulation.loop import FreezingLoop
from tests.simulation.outcome import Outcome
from tests.simulation.probes import BrokerProbe as Probe
from tests.simulation.probes import Probes
from tests.simulation.progress import Violation

from .checker import Checker
from .damage import Damage
from .guard import Guard
from .one_shot import OneShot
from .process import BrokerProcess, Unreachable
from .producer import SimProducer
from .reader import CoreSource, FeedSource, SimReader
from .store import LATEST, Link, Objects, Weather
from .store_checks import Stored, stored_in
from .times import check_times
from .transport import sim_pings
from .troubles import Troubles

_REASONS: Mapping[Reason, Probe] = {
    "gap": Probe.GAP,
    "moved": Probe.MOVED_NOT_STORED,
    "moving": Probe.MOVING,
    "elsewhere": Probe.ELSEWHERE,
    "busy": Probe.BUSY,
}
_TROUBLES = 60.0
_PATIENCE = 300.0


class Bugs(logging.Handler):
    """Keeps what brokers have outlived, and must not have met: no fault of the world."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        event, error = record.getMessage().split()[0], record.exc_info and record.exc_info[1]
        of_world = isinstance(error, Damaged | RangeDamaged)
        if event == "broker.failed" and record.levelno >= logging.ERROR and not of_world:
            self.found.append(self.format(record))

    def check(self) -> None:
        if self.found:
            raise Violation(self.found[0])

    @contextmanager
    def noted(self) -> Iterator[None]:
        log = logging.getLogger("changefeed.log")
        log.addHandler(self)
        try:
            yield
        finally:
            log.removeHandler(self)


class World:
    """Everything that a seed decides comes from ``random``."""

    passing = (StoreError,)
    """What a broker that starts may fail with, and is started again after."""

    def __init__(self, seed: int, loop: FreezingLoop) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = loop
        self.objects = Objects()
        self.weather = Weather()
        self.checker = Checker()
        self.probes = Probes()
        self.damage = Damage(self)
        self.bugs = Bugs()
        self.guard: Guard
        self.skew = self.random.choice([0.0, 3.0, 100.0, 8_000.0])
        self.lost_answers = 0.0
        self.parted: set[tuple[str, str]] = set()
        """Which broker does not reach which, by their names."""
        self.settled = False
        """Nothing fails any more, and nothing is written: readers hurry."""
        self.story: list[str] = []
        self.processes: list[BrokerProcess] = []
        self.settings = CoreSettings(
            puts=self.random.choice([inf, 20.0, 1.0]),
            flush_bytes=self.random.choice([200, 4096]),
            in_flight=self.random.choice([1, 2, 4, 8]),
            buffer_bytes=self.random.choice([150, 1_000_000]),
            cache_bytes=self.random.choice([1, 10_000, 10_000_000]),
            heartbeat=1.0,
            expiration=self.random.choice([4.0, 10.0]),
            settle=self.random.choice([0.0, 0.5, 2.0]),
            catalog_interval=self.random.choice([0.2, 0.5]),
            seal_patience=self.random.choice([0.0, 1.0, 5.0]),
            warm_bytes=self.random.choice([1, 100_000]),
            compaction=self.random.random() < 0.8,
            compaction_interval=self.random.choice([1.0, 5.0]),
            compaction_objects=self.random.choice([4, 64]),
            compaction_age=self.random.choice([0.0, 1e9]),
            compaction_memory=self.random.choice([500, 1_000_000]),
            retention_interval=2.0,
            delete_grace=self.random.choice([1.0, 10.0]),
        )
        self.pinging = self.random.random() < 0.9
        self._started = 0
        self._producers: list[SimProducer | OneShot] = []
        self._readers: list[SimReader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stored = Stored(places={}, times={})

    def tell(self, text: str) -> None:
        self.story.append(f"{self.loop.time():8.2f} {text}")

    def wall_us(self) -> int:
        """Return a wall clock that jumps about: nothing is deleted too early for that."""
        return int((self.loop.time() + self.random.uniform(-self.skew, self.skew)) * 1e6)

    def pings(self, name: str) -> Ping:
        """Return how a broker reaches others. In some worlds a firewall lets it reach none."""
        return sim_pings(self, name) if self.pinging else no_answer

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # who is there

    def start(self, name: str) -> None:
        self._started += 1
        process = BrokerProcess(self, name, self._started)
        self.processes.append(process)
        self.tell(f"start {process.id}")

    def living(self) -> list[BrokerProcess]:
        return [x for x in self.processes if x.alive]

    def _names(self) -> set[str]:
        return {x.name for x in self.living() if not self.loop.is_frozen(x.id)}

    def left(self, process: BrokerProcess) -> None:
        self.probes.hit(Probe.LEFT)
        self.probes.hit(Probe.LAST_LEFT, where=self.living() == [process])

    def woke(self, process: BrokerProcess) -> None:
        """A process that was frozen goes on."""
        cores = [x.core for x in self.living() if x.core is not None]
        masters = sum(x.status().master for x in cores)
        self.probes.hit(Probe.TWO_MASTERS, where=masters > 1)
        era = self.guard.newest.era
        if process.core is not None and era is not None:
            behind = 0 < process.core.status().era < era.number
            self.probes.hit(Probe.WOKE_IN_OLD_ERA, where=behind)

    def answered(
        self, collection: str, asked: AppendRequest, answer: Answer, *, is_over: bool = False
    ) -> None:
        """A request of a producer was answered; its era ``is_over``, as the producer knows."""
        if not isinstance(answer, AppendReceipt):
            if answer.reason in _REASONS:
                self.probes.hit(_REASONS[answer.reason])
            return
        self.probes.hit(Probe.SENT_AGAIN, where=answer.duplicate)
        self.probes.hit(Probe.MOVED_STORED, where=is_over)
        if not answer.duplicate:  # of one that was stored before, only that is said
            for batch, first in zip(asked.batches, answer.firsts, strict=True):
                found = BlockChanges(batch.partition, first, batch.count, batch.columns)
                self.checker.placed(collection, found.take(batch.count))

    def has_place(self, process: BrokerProcess) -> bool:
        """Whether a process that runs has a row in the newest era."""
        core, era = process.core, self.guard.newest.era
        row = None if era is None else era.row(process.name)
        return core is not None and row is not None and row.incarnation == core.incarnation

    def any_process(self) -> BrokerProcess | None:
        ready = [x for x in self.living() if x.core is not None]
        return self.random.choice(ready) if ready else None

    def any_broker(self) -> BrokerProcess:
        process = self.any_process()
        if process is None:
            raise Unreachable("no broker is there")
        return process

    def process_with_id(self, process_id: str) -> BrokerProcess | None:
        return next((x for x in self.living() if x.id == process_id), None)

    def process_named(self, name: str) -> BrokerProcess | None:
        found = [x for x in self.living() if x.name == name and x.core is not None]
        return self.random.choice(found) if found else None

    # what it is made of

    async def catalogs(self) -> CatalogStore:
        link = Link(self.objects, Weather(), self.random)
        catalogs = CatalogStore(link, await open_cluster(link))
        if self.objects.watching is None:
            self.guard = Guard(self.objects, await open_cluster(link), self.probes, self._names)
            self.objects.watching = self.guard
        await catalogs.refresh()
        return catalogs

    # the story

    async def live(self) -> Outcome:
        catalogs = await self.catalogs()
        await catalogs.create("orders", parts=self.random.choice([1, 2, 4, 12]))
        for n in range(1, self.random.choice([1, 2, 3]) + 1):
            self.start(f"broker-{n}")
        self.use("orders")
        await asyncio.sleep(5)
        troubles = Troubles(self)
        async with asyncio.TaskGroup() as group:
            until = self.loop.time() + _TROUBLES
            while self.loop.time() < until:
                group.create_task(troubles.any()())
                await asyncio.sleep(self.random.choice([0.5, 3.0, 10.0]))
        await self._settle()
        return await self._end()

    def use(self, collection: str) -> None:
        """Let producers write to a collection, and readers read it."""
        for _ in range(self.random.choice([1, 2, 3])):
            self._produce(SimProducer(self, collection, self._next_producer()))
        self._produce(OneShot(self, collection, self._next_producer()))
        self._read(collection, "reader", CoreSource)
        self._read(collection, "feed", FeedSource)

    def _read(
        self, collection: str, name: str, source: type[CoreSource] | type[FeedSource]
    ) -> None:
        reader = SimReader(self, collection, name, source(self, collection))
        self._readers.append(reader)
        self._go(reader.run())

    def _next_producer(self) -> int:
        return len(self._producers) + 1

    def _produce(self, producer: SimProducer | OneShot) -> None:
        self._producers.append(producer)
        self._go(producer.run())

    def end_a_producer(self) -> None:
        """Let one end as if it was killed; another, with other keys, takes its place."""
        found = [x for x in self._producers if isinstance(x, SimProducer) and not x.stopping]
        if found:
            one = self.random.choice([x for x in found if x.has_open] or found)
            self.tell("a producer dies")
            self.probes.hit(Probe.PRODUCER_DIED, where=one.has_open)
            one.die()
            self._produce(SimProducer(self, one.collection, self._next_producer()))

    def _go(self, coroutine: "asyncio._CoroutineLike[None]") -> None:
        self._tasks.append(self.loop.create_task(coroutine))

    async def _settle(self) -> None:
        """Let nothing fail any more: all must come to an end."""
        self.tell("nothing fails any more")
        self._start_one_if_none_is_left()
        await asyncio.sleep(self.settings.expiration + 5)
        for collection in sorted({x.collection for x in self._readers}):
            self._read(collection, "late", CoreSource)  # much of what it reads is in segments
        for producer in self._producers:
            producer.stopping = True
        await asyncio.sleep(LATEST)
        await self._until("producers have their answers", self._all_answered)
        self._stored, self.settled = self._looked_through(), True
        await self._until("readers have read all", self._all_read)
        await self._until("the newest era has all brokers", self._is_calm)

    def _looked_through(self) -> Stored:
        stored = stored_in(self.objects, self.guard.newest)
        self.checker.check_places(stored.places)
        return stored

    def _start_one_if_none_is_left(self) -> None:
        """As what supervises processes does: the last may have found its name taken."""
        if not [x for x in self.living() if not x.leaving]:
            self.start("broker-9")

    def _all_answered(self) -> bool:
        return all(x.idle for x in self._producers)

    def _all_read(self) -> bool:
        places, missing = self._stored.places, self.checker.missing
        return not any(missing(x.id, x.collection, places) for x in self._readers)

    def _is_calm(self) -> bool:
        cores = [x.core for x in self.living() if x.core is not None]
        if not cores or len(cores) != len(self.living()):
            return False
        catalog = self.guard.newest
        era = catalog.era
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
            if self.guard.violation is not None:
                raise self.guard.violation
            self.bugs.check()
            if self.loop.time() > until:
                raise Violation(f"it never comes that {what}")
            await asyncio.sleep(0.5)

    async def _end(self) -> Outcome:
        for reader in self._readers:
            reader.stopping = True
        await asyncio.gather(*self._tasks)
        if self.guard.violation is not None:
            raise self.guard.violation
        stored = self._looked_through()
        unknown = self.checker.fates_unknown
        self.probes.hit(Probe.UNKNOWN_STORED, where=bool(unknown & stored.places.keys()))
        self.probes.hit(Probe.UNKNOWN_NOT_STORED, where=bool(unknown - stored.places.keys()))
        await check_times(self.any_broker(), stored, self.random)
        return Outcome(
            seed=self.seed,
            feed="of brokers",
            hours=self.loop.time() / 3600,
            events=len(self.objects.asked),
            deliveries=len(self.checker.stored),
            duplicates=0,
            probes=self.probes,
            story=self.story,
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
            tables = _tables_every(world.random.choice([4, 64]))
            large = patch.object(run_maker, "LARGE", 1 if seed % 2 else 1024 * 1024)
            with world.bugs.noted(), tables, large, _nothing_from_outside(world):
                return runner.run(_live(world))
        except Exception as error:
            raise Violation("\n".join([*world.story, f"{error!r}: {error}"])) from error


@contextmanager
def _nothing_from_outside(world: World) -> Iterator[None]:
    """Let the seed say all ids, and virtual time the time of day."""
    ids = Random(f"ids of {world.seed}")
    with (
        patch("os.urandom", ids.randbytes),  # ``uuid4`` and ``token_hex``
        patch("time.time_ns", lambda: int(world.loop.time() * 1e9)),
    ):
        yield


@contextmanager
def _tables_every(objects: int) -> Iterator[None]:
    """Let rows have tables after so few objects that those of a seed have many."""
    with ExitStack() as stack:
        for name, module in [*sys.modules.items()]:
            if name.startswith("changefeed.") and hasattr(module, "TABLE_EVERY"):
                stack.enter_context(patch.object(module, "TABLE_EVERY", objects))
        yield


async def _live(world: World) -> Outcome:
    try:
        return await world.live()
    finally:
        await world.close()
