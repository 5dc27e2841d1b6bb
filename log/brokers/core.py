"""A broker without its HTTP server: what it does with batches and reads.

``open_core`` runs one over a store. It shows signs of life, follows the catalog, writes the
partitions that are its own, serves reads of any partition, and acts as master when it is
the first in name of those alive.
"""

import asyncio
from collections.abc import Callable

import msgspec

from changefeed.feeds.errors import FeedUnavailable, RangeDamaged, RangeUnknown
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.batches import check_request, check_row
from changefeed.log.brokers.catalog_watch import CatalogWatch
from changefeed.log.brokers.era_master import EraMaster
from changefeed.log.brokers.era_writer import EraWriter
from changefeed.log.brokers.homes import HomeWarmer
from changefeed.log.brokers.members import Heartbeat, Members, Ping
from changefeed.log.brokers.presence import Presence
from changefeed.log.brokers.producers import key_of, verdict_on
from changefeed.log.brokers.storage import storage_of
from changefeed.log.catalog.catalog import Catalog, Cluster
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.names import broker_key
from changefeed.log.catalog.ranges import Partition
from changefeed.log.core_settings import CoreSettings
from changefeed.log.errors import Damaged
from changefeed.log.maintenance.compactor import Compactor
from changefeed.log.maintenance.retention import Retention
from changefeed.log.protocol.messages import (
    Answer,
    AppendReceipt,
    AppendRejection,
    AppendRequest,
    ReadResult,
    Reason,
    Topology,
)
from changefeed.log.protocol.topology import topology_of
from changefeed.log.protocol.wire import Compaction, PartitionBounds, Storage
from changefeed.log.rows.partition_reader import PartitionReader
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.clock import wall_clock_us
from changefeed.runtime.errors import StoreError, StoreUnavailable
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


class CoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One broker at one moment. ``buffered`` and ``cached`` are in bytes.

    ``durable`` is the number of its last acknowledged object in this era, and ``writing``
    whether it takes records now. ``producers`` are those that it remembers in this era, and
    ``unheard`` the brokers that do not answer it.
    ``compaction`` and what was deleted count from its start.
    """

    name: str
    incarnation: str
    catalog: int
    era: int
    writing: bool
    master: bool
    leaving: bool
    living: tuple[str, ...]
    unheard: tuple[str, ...]
    durable: int
    producers: int
    buffered: int
    cached: int
    cache_hits: int
    cache_misses: int
    compaction: Compaction
    objects_deleted: int


class BrokerCore:
    """Run it with ``open_core``. Many tasks may call at once.

    Every method may raise ``StoreError`` when the store does not answer, or refuses; ``append``
    does not while it writes: it waits. Those that name a collection raise
    ``FeedRefused`` for one that there is not, and ``RangeUnknown`` for a partition.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: Cluster,
        heartbeat: Heartbeat,
        settings: CoreSettings,
        *,
        ping: Ping,
        clock: Callable[[], float],
        wall_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.wall_us = wall_us
        self.catalogs = CatalogStore(store, cluster, clock)
        self.watch = CatalogWatch(self.catalogs, settings, clock)
        self.failing: dict[str, str] = {}
        """The loops that fail, by what they do, and what was said when they did last."""
        self._clock = clock
        self._store = store
        self.readers = RowReaders(store, cluster.identity, settings.cache_bytes, whole=True)
        self.writer = EraWriter(
            store,
            heartbeat.name,
            heartbeat.incarnation,
            settings,
            readers=self.readers,
            wall_us=wall_us,
        )
        self.members = Members(
            store, heartbeat, settings, clock, ping=ping, hear_of=self.watch.hear_of
        )
        self.presence = Presence(self.members, self.catalogs, self.writer, self.watch)
        self.master = EraMaster(
            self.catalogs,
            self.readers,
            self.members,
            store,
            settings,
            watch=self.watch,
            wall_us=wall_us,
        )
        self._partitions = PartitionReader(store, self.catalogs, self.readers, self._is_ours)
        self.ranges = self._partitions.ranges
        self.homes = HomeWarmer(heartbeat.name, self.catalogs, self._partitions, settings)
        self.retention = Retention(
            self.catalogs,
            self.readers,
            store,
            settings,
            now_key=broker_key(heartbeat.name),
            clock=clock,
            wall_us=wall_us,
        )
        self.compactor = Compactor(
            heartbeat.name,
            heartbeat.incarnation,
            self.catalogs,
            self.readers,
            store,
            settings=settings,
            wall_us=wall_us,
        )

    @property
    def name(self) -> str:
        return self.members.heartbeat.name

    @property
    def incarnation(self) -> str:
        """A new one with each start."""
        return self.members.heartbeat.incarnation

    @property
    def catalog(self) -> Catalog:
        """The newest catalog that this broker knows."""
        return self.catalogs.newest

    async def append(self, collection: str, request: AppendRequest) -> Answer:
        """Store a request for partitions of one row, all of it or nothing.

        Returns once the object that holds it exists. Raise ``FeedRefused``, with nothing
        stored, if a batch is not what it says it is. If the call is cancelled it is open
        whether the request is stored.
        """
        check_request(request)
        names = [x.partition for x in request.batches]
        await self.look_for(collection, *names)
        await self._follow()
        try:
            partition, *others = map(self.ranges.of(collection).partition, names)
        except RangeUnknown:
            return self._not("unknown")
        for x in others:
            check_row(x, partition)
        era = self.catalog.era
        if era is not None and partition.era < era.number:
            return await self._of_closed(collection, partition, request)
        writer = self.writer.writer(partition.era)
        if writer is not None and self._is_ours(partition):
            return await writer.append(collection, request)
        is_open = era is not None and era.state == "open"
        return self._not("elsewhere" if is_open and partition.broker != self.name else "moving")

    def _is_ours(self, partition: Partition) -> bool:
        """Whether this broker writes the row of a partition now."""
        is_written = self.writer.writer(partition.era) is not None
        return is_written and partition.broker == self.name

    def _not(self, reason: Reason) -> AppendRejection:
        delay, catalog = self.settings.catalog_interval, self.catalog.number
        return AppendRejection(reason=reason, retry_after=delay, catalog=catalog)

    async def _of_closed(
        self, collection: str, partition: Partition, request: AppendRequest
    ) -> Answer:
        try:
            row = await self._partitions.row(partition)
            before = (await row.producers()).get(key_of(collection, request))
        except (Damaged, StoreError) as error:
            # It may be restored, or answer by then; requests beside this one go on.
            _log.warning("broker.failed", operation="look up a producer", error=str(error))
            return self._not("moving")
        verdict = verdict_on(request, before)
        if verdict == "stored":
            return AppendReceipt(duplicate=True)
        return self._not("taken" if verdict == "taken" else "moved")

    async def read(
        self,
        collection: str,
        partition: RangeId,
        after: int,
        *,
        max_bytes: int = 8 * 1024 * 1024,
        wait: float = 0.0,
    ) -> ReadResult:
        """Return records of a partition that follow on the sequence ``after``.

        About ``max_bytes`` of them, at least one block if there is any. At the end of an open
        partition it waits up to ``wait`` seconds for more. Any broker serves any partition;
        the one that writes it, or its home, has it in memory. Raise ``RangeRefused`` where
        retention has deleted what follows, or for a position behind the end, and
        ``RangeDamaged`` where the records cannot be read.
        """
        await self.look_for(collection, partition)
        until = asyncio.get_running_loop().time() + wait
        while True:
            found = await self._partitions.read(collection, partition, after, max_bytes)
            if found.blocks or found.ended:
                return found
            now = asyncio.get_running_loop().time()
            if now >= until:
                self.check_sight()  # it may have ended, unseen from here
                return found
            await self.writer.changed.wait(min(until, now + self.settings.catalog_interval))

    async def end(self, collection: str, partition: RangeId) -> PartitionBounds:
        """Return the last sequence that a partition has now, and the last that is gone."""
        await self.look_for(collection, partition)
        return await self._partitions.bounds(collection, partition)

    async def known_end(self, collection: str, partition: RangeId) -> int | None:
        """Return the last sequence of a partition that is closed or ours; ``None`` else."""
        ranges = self.ranges.of(collection)
        found = ranges.partition(partition)
        if found.era < ranges.newest:
            try:
                return (await self._partitions.bounds(collection, partition)).last
            except (RangeDamaged, StoreError):
                return None  # reading the partition raises it
        writer = self.writer.writer(found.era)
        if writer is None or not writer.has(collection, partition):
            return None
        return writer.last(collection, partition)

    async def behind(
        self, collection: str, partition: RangeId, after: int, found: ReadResult
    ) -> int | None:
        """Return how many records a read has left; ``None`` where another broker knows."""
        end = await self.known_end(collection, partition)
        last = found.blocks[-1].last if found.blocks else after
        return None if end is None else max(end - last, 0)

    async def sequence_before(self, collection: str, partition: RangeId, time_us: int) -> int:
        """See ``PartitionReader.sequence_before``."""
        await self.look_for(collection, partition)
        return await self._partitions.sequence_before(collection, partition, time_us)

    def check_sight(self) -> None:
        """Raise ``StoreUnavailable`` if others may be in this broker's place by now.

        After the expiration without its store it does not know: what it says of the cluster
        would keep clients from those who do.
        """
        blind = self._clock() - self.catalogs.confirmed_at
        assert blind >= 0, f"broker {self.name!r} will have seen its store in {-blind} s"
        if blind > self.settings.expiration:
            raise StoreUnavailable(
                f"broker {self.name!r} has not reached its store for {blind:.0f} s, and others "
                f"may be in its place: ask another broker, and see why it cannot"
            )

    async def storage(self, collection: str) -> Storage:
        """Return how much of a collection is stored, and which producers are remembered."""
        try:
            return await storage_of(self.catalog, collection, self.readers, self._store)
        except Damaged as error:
            raise FeedUnavailable(f"the end of a range cannot be read: {error}") from error

    def shown(self, collection: str) -> Topology:
        """Return a collection as the newest catalog here says."""
        return topology_of(self.catalog, collection)

    def status(self) -> CoreStatus:
        row, heartbeat, era = self.writer.row, self.members.heartbeat, self.catalog.era
        cache = self.readers.cache
        return CoreStatus(
            name=self.name,
            incarnation=self.incarnation,
            catalog=self.catalog.number,
            era=0 if era is None else era.number,
            writing=era is not None and self.writer.writer(era.number) is not None,
            master=self.master.acting,
            leaving=heartbeat.leaving,
            living=tuple(sorted(self.master.membership().living)),
            unheard=heartbeat.unheard,
            durable=0 if row is None else row.durable,
            producers=0 if row is None else row.producers,
            buffered=0 if row is None else row.buffered,
            cached=cache.bytes + cache.windows.bytes,
            cache_hits=cache.hits,
            cache_misses=cache.misses,
            compaction=self.compactor.done,
            objects_deleted=self.retention.deleted,
        )

    async def _follow(self) -> None:
        """Wait until the newest catalog is followed: then what it opens here takes records."""
        until = asyncio.get_running_loop().time() + self.settings.catalog_interval
        while self.writer.followed is not self.catalog:
            if not await self.writer.changed.wait(until):
                return

    async def wait_until_writing(self) -> None:
        """Wait until this broker takes records in the newest era."""
        while not self.status().writing:
            await self.writer.changed.wait()

    async def look_for(self, collection: str, *partitions: RangeId) -> None:
        """Look for a newer catalog where this one does not have what is asked for."""
        await self.catalogs.find(collection)
        known = self.ranges.of(collection)
        if not all(known.has(x) for x in partitions):
            await self.catalogs.refresh()
