"""``changefeed log status``: a collection or an event log as it is, once or again and again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from changefeed.cli.io.documents import as_json
from changefeed.cli.io.tables import a_table, plain, print_whole, refreshed
from changefeed.cli.on_brokers import client_of, is_on_brokers
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import CoreStatus
from changefeed.log.brokers.storage import storage_of
from changefeed.log.catalog.ranges import Partition
from changefeed.log.client.client import BrokerClient
from changefeed.log.directory.directory import COLLECTION, open_directory
from changefeed.log.errors import answers_of_feeds
from changefeed.log.producing import log_directory
from changefeed.log.protocol.messages import BrokerInfo
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.topology import topology_of
from changefeed.log.protocol.wire import ActiveProducer, PartitionBounds, RangeStorage, Storage
from changefeed.log.rows.row_readers import RowReaders
from changefeed.runtime.calls import gather_or_cancel

_EVERY = 1.0
_STORAGE_EVERY = 10
"""So many looks: what is stored is listed, and object stores charge for that."""
_ALL_AT_ONCE = 32
_CACHE_BYTES = 16 * 1024 * 1024
_AHEAD = 512


class LogRangeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One range; ``first`` is the sequence of the first record that is left.

    ``bytes`` are those of its records as they were sent.
    """

    id: str
    era: int
    open: bool
    broker: str
    home: str
    first: int
    last: int
    bytes: int = 0


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the newest era. ``says`` is what it says of itself, if it answers."""

    address: str
    open_ranges: int
    homes: int
    says: CoreStatus | None = None


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A collection, and the brokers that have it; an event log has none.

    ``segments`` are Parquet files, in which records take ``segment_bytes``; ``flushes`` and
    ``flush_bytes`` are of the objects that all collections of the cluster share. Where no
    broker could say how much is stored (``storage_known``), sizes and producers are left at
    nothing.
    """

    at: datetime
    collection: str
    cluster: str
    identity: str
    catalog: int
    era: int
    ending: bool
    parts: int
    brokers: dict[str, BrokerStatus]
    records: int
    bytes: int
    storage_known: bool
    segments: int
    segment_bytes: int
    flushes: int
    flush_bytes: int
    producers: list[ActiveProducer]
    ranges: list[LogRangeStatus]


def show(address: str, *, json: bool, watch: bool, all_: bool) -> None:
    """Print a status as tables or as JSON, once or until Ctrl-C."""
    if watch and not json:
        asyncio.run(_watch(address, all_=all_))
    else:
        asyncio.run(_print(address, json=json, watch=watch, all_=all_))


async def _print(address: str, *, json: bool, watch: bool, all_: bool) -> None:
    async with inspector_of(address) as inspector:
        while True:
            found = await inspector.look()
            if json:
                typer.echo(as_json(found))
            else:
                print_whole(rendered(found, all_=all_))
            if not watch:
                return
            await asyncio.sleep(_EVERY)


async def _watch(address: str, *, all_: bool) -> None:
    async with inspector_of(address) as inspector:
        first = rendered(await inspector.look(), all_=all_)
        with refreshed() as show_look:
            show_look(first)
            while True:
                await asyncio.sleep(_EVERY)
                try:
                    show_look(rendered(await inspector.look(), all_=all_))
                except FeedUnavailable as error:
                    show_look(plain(str(error), "red"))


class Inspector(Protocol):
    async def look(self) -> LogStatus:
        """Raise ``FeedUnavailable`` if it may be seen later, ``FeedRefused`` if never."""
        ...


@asynccontextmanager
async def inspector_of(address: str) -> AsyncIterator[Inspector]:
    """Look at a collection of a cluster, or at the event log in a directory."""
    if not is_on_brokers(address):
        yield LogInspector(log_directory(address))
        return
    async with client_of(address) as client:
        yield CollectionInspector(client)


class LogInspector:
    """Looks at the files of an event log; another process may write it."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def look(self) -> LogStatus:
        store, catalogs = await open_directory(self._home)
        catalog = catalogs.newest
        readers = RowReaders(store, catalog.identity, _CACHE_BYTES, ahead=_AHEAD)
        with answers_of_feeds():
            storage = await storage_of(catalog, COLLECTION, readers, store)
        topology = replace(topology_of(catalog, COLLECTION), brokers=())
        ends = {x.range: PartitionBounds(start=x.start, last=x.last) for x in storage.ranges}
        return log_status(Routes(topology, ""), ends, {}, replace(storage, producers=()))


class CollectionInspector:
    """Looks at a collection through its brokers, whichever of them answer."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._looks = 0
        self._storage: Storage | None = None
        self._stored: dict[RangeId, RangeStorage] = {}

    async def look(self) -> LogStatus:
        routes = await self._client.routes()
        if self._looks % _STORAGE_EVERY == 0:
            self._storage = await self._ask_storage(routes)
            self._stored = {x.range: x for x in (self._storage.ranges if self._storage else ())}
        self._looks += 1
        turns = asyncio.Semaphore(_ALL_AT_ONCE)
        partitions = [*routes.partitions.all()]
        ends, says = await gather_or_cancel(
            gather_or_cancel(*(self._end(routes, x, turns) for x in partitions)),
            gather_or_cancel(*(self._says(url) for url in routes.urls)),
        )
        pairs = zip(partitions, ends, strict=True)
        return log_status(
            routes,
            {x.id: end for x, end in pairs},
            {x.name: x for x in says if x is not None},
            self._storage,
        )

    async def _ask_storage(self, routes: Routes) -> Storage | None:
        with suppress(FeedUnavailable):  # shown as far as it is known
            return await self._client.storage(routes.identity)
        return None

    async def _end(
        self, routes: Routes, partition: Partition, turns: asyncio.Semaphore
    ) -> PartitionBounds:
        known = self._stored.get(partition.id)
        if known is not None and not routes.is_open(partition):
            return PartitionBounds(start=known.start, last=known.last)
        async with turns:
            with suppress(FeedUnavailable):
                return await self._client.end(partition.id)
        return PartitionBounds(start=0, last=0)

    async def _says(self, url: str) -> CoreStatus | None:
        with suppress(FeedUnavailable, FeedRefused):
            return await self._client.status(url, CoreStatus)
        return None


def log_status(
    routes: Routes,
    ends: Mapping[RangeId, PartitionBounds],
    says: Mapping[str, CoreStatus],
    storage: Storage | None,
) -> LogStatus:
    """Put together what was asked for one by one."""
    topology = routes.topology
    stored = {x.range: x for x in (storage.ranges if storage else ())}
    ranges = [
        _range(
            x,
            routes,
            ends[x.id],
            stored.get(x.id, RangeStorage(range=x.id)),
        )
        for x in routes.partitions.all()
    ]
    return LogStatus(
        at=datetime.now(UTC),
        collection=topology.collection,
        cluster=topology.cluster,
        identity=topology.identity,
        catalog=topology.catalog,
        era=topology.era,
        ending=topology.ending,
        parts=topology.parts,
        brokers=_brokers(topology.brokers, ranges, says),
        records=sum(x.last - x.first + 1 for x in ranges),
        bytes=sum(x.bytes for x in ranges),
        storage_known=storage is not None,
        segments=storage.segments if storage else 0,
        segment_bytes=storage.segment_bytes if storage else 0,
        flushes=storage.flushes if storage else 0,
        flush_bytes=storage.flush_bytes if storage else 0,
        producers=list(storage.producers) if storage else [],
        ranges=ranges,
    )


def _range(
    partition: Partition, routes: Routes, end: PartitionBounds, stored: RangeStorage
) -> LogRangeStatus:
    return LogRangeStatus(
        id=partition.id,
        era=partition.era,
        open=routes.is_open(partition),
        broker=partition.broker,
        home=routes.home(partition),
        first=end.start + 1,
        last=end.last,
        bytes=stored.bytes,
    )


def _brokers(
    brokers: Iterable[BrokerInfo],
    ranges: Sequence[LogRangeStatus],
    says: Mapping[str, CoreStatus],
) -> dict[str, BrokerStatus]:
    writes = Counter(x.broker for x in ranges if x.open)
    homes = Counter(x.home for x in ranges if not x.open)
    return {
        x.name: BrokerStatus(
            address=x.address,
            open_ranges=writes[x.name],
            homes=homes[x.name],
            says=says.get(x.name),
        )
        for x in brokers
    }


def rendered(found: LogStatus, *, all_: bool = False) -> RenderableType:
    """Return a status as tables; with ``all_``, also the ranges that have ended."""
    ending = " (ending)" if found.ending else ""
    name = f"collection {found.collection}" if found.brokers else "event log"
    title = (
        f"{name}: era {found.era}{ending}, {found.parts} parts, "
        f"{found.records:,} records, {found.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    ranges = [x for x in found.ranges if all_ or x.open]
    hidden = len(found.ranges) - len(ranges)
    below = (
        [Text(f"ranges that have ended: {hidden} (--all shows them)", style="dim")]
        if hidden
        else []
    )
    return Group(
        plain(title, "bold"),
        plain(_storage_in_words(found)),
        *([_broker_table(found)] if found.brokers else []),
        _range_table(found, ranges),
        *below,
        *([plain(_producers_in_words(found))] if found.brokers else []),
    )


def _broker_table(found: LogStatus) -> Table:
    columns = ("broker", "address", "state", "open ranges", "homes", "waits", "in memory")
    return a_table(
        *columns, rows=[_broker_row(k, found.brokers[k]) for k in sorted(found.brokers)]
    )


def _broker_row(name: str, broker: BrokerStatus) -> Sequence[str]:
    says = broker.says
    shares = str(broker.open_ranges), str(broker.homes)
    if says is None:
        return name, broker.address, "does not answer", *shares, "", ""
    state = "leaving" if says.leaving else "writing" if says.writing else "waiting"
    master = ", master" if says.master else ""
    sizes = decimal(says.buffered), decimal(says.cached)
    return name, broker.address, f"{state}{master}", *shares, *sizes


def _range_table(found: LogStatus, ranges: Iterable[LogRangeStatus]) -> Table:
    columns = ("range", "state", "broker", "home", "first", "last", "size")
    rows = (_row(x, storage_known=found.storage_known) for x in ranges)
    return a_table(*columns, rows=rows)


def _row(x: LogRangeStatus, *, storage_known: bool) -> Sequence[str]:
    state = "open" if x.open else "ended"
    sequences = f"{x.first:,}", f"{x.last:,}"
    size = decimal(x.bytes) if storage_known else ""
    return x.id, state, x.broker, x.home, *sequences, size


def _storage_in_words(found: LogStatus) -> str:
    if not found.storage_known:
        return "no broker could say how much is stored"
    objects = "objects that collections share" if found.brokers else "frames"
    return (
        f"{decimal(found.bytes)} of records; in segments: {found.segments:,} with "
        f"{decimal(found.segment_bytes)}; in {objects}: "
        f"{found.flushes:,} with {decimal(found.flush_bytes)}"
    )


def _producers_in_words(found: LogStatus) -> str:
    if not found.storage_known:
        return ""
    if not found.producers:
        return "no producer has sent anything in this era"
    newest = found.producers[0]
    ago = max(found.at.timestamp() - newest.seen_us / 1e6, 0)
    return f"producers in this era: {len(found.producers)}, the last request {ago:,.0f} s ago"
