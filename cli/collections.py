"""Event logs and collections of a cluster, changed: what ``changefeed log …`` does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from changefeed.cli.io.documents import as_json
from changefeed.cli.io.report import say, show
from changefeed.cli.io.tables import a_table
from changefeed.cli.on_brokers import is_on_brokers, on_brokers
from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import Catalog
from changefeed.log.catalog.transitions import with_merge, with_split
from changefeed.log.client.client import BrokerClient
from changefeed.log.directory.directory import COLLECTION, create_log, open_directory
from changefeed.log.directory.writer import EventLogWriter, compact_log
from changefeed.log.errors import answers_of_feeds
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.producing import log_directory
from changefeed.log.protocol.messages import Topology
from changefeed.log.protocol.wire import Compaction
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.errors import UserError


def create(address: str, parts: int | None) -> None:
    """Create a collection, or an event log, in so many parts."""
    parts = DEFAULT_PARTS if parts is None else parts
    if not is_on_brokers(address):
        home = log_directory(address)
        asyncio.run(create_log(home, parts))
        say(f"event log {home} has {parts} parts")
        return
    found = on_brokers(address, lambda x: x.create(parts))
    say(f"collection {found.collection} has {found.parts} parts")


def split(address: str, range_: str | None) -> None:
    """Cut a range, or all, in halves."""
    _reshape(address, range_, with_split, lambda x: x.split(_range(range_)))


def merge(address: str, range_: str | None) -> None:
    """Merge a range and the next one of its part, or all such pairs."""
    _reshape(address, range_, with_merge, lambda x: x.merge(_range(range_)))


def retain(
    address: str, *, seconds: float | None, most_bytes: int | None, forever: bool
) -> None:
    """Say what of a collection is kept. Raise ``UserError`` unless it is all or a part."""
    if forever == bool(seconds or most_bytes):
        raise UserError("give --for, --bytes or both, or --forever")
    if not is_on_brokers(address):
        home = log_directory(address)
        asyncio.run(_retain(home, seconds, most_bytes))
        say(f"the process that writes {home} keeps {_kept(seconds, most_bytes)}")
        return
    found = on_brokers(address, lambda x: x.retain(seconds=seconds, most_bytes=most_bytes))
    say(f"collection {found.collection} keeps {_kept(seconds, most_bytes)}")


def _kept(seconds: float | None, most_bytes: int | None) -> str:
    bounds = [f"for {seconds:,g} s"] if seconds else []
    bounds += [f"up to {most_bytes:,} bytes"] if most_bytes else []
    return f"records {' and '.join(bounds) or 'for ever'}"


async def _retain(home: Path, seconds: float | None, most_bytes: int | None) -> None:
    _, catalogs = await open_directory(home)
    with answers_of_feeds():
        await catalogs.retain(COLLECTION, seconds=seconds, bytes_=most_bytes)


def compact(address: str, *, json: bool) -> None:
    """Make runs. Raise ``UserError`` if some objects could not be compacted."""
    if is_on_brokers(address):
        made = on_brokers(address, _compact)
    else:
        made = [asyncio.run(compact_log(log_directory(address)))]
    if json:
        say(as_json(made))
    else:
        columns = ("broker", "objects", "segments", "records", "bytes", "failed")
        show(a_table(*columns, rows=map(_compacted_row, made)))
    if any(x.failed for x in made):
        raise UserError("some objects were not compacted: the logs say why")


async def _compact(client: BrokerClient) -> list[Compaction]:
    routes = await client.routes()
    return list(await gather_or_cancel(*(_compact_at(client, x) for x in routes.urls)))


async def _compact_at(client: BrokerClient, url: str) -> Compaction:
    """Ask a broker until it has nothing more to do."""
    made = await client.compact(url)
    while not made.ended:
        made = (await client.compact(url)).plus(made)
    return made


def _compacted_row(x: Compaction) -> Sequence[str]:
    numbers = x.objects, x.segments, x.records, x.bytes, x.failed
    return x.broker, *(f"{y:,}" for y in numbers)


def _range(given: str | None) -> RangeId | None:
    return None if given is None else RangeId(given)


def _reshape(
    address: str,
    range_: str | None,
    change: Callable[[Catalog, str, RangeId | None], Catalog],
    ask: Callable[[BrokerClient], Awaitable[Topology]],
) -> None:
    try:
        if is_on_brokers(address):
            found = on_brokers(address, ask)
            say(
                f"collection {found.collection}: a new era follows era {found.era} within "
                f"seconds; changefeed log status shows it"
            )
            return
        home = log_directory(address)
        era = asyncio.run(_begin_era(home, lambda x: change(x, COLLECTION, _range(range_))))
        say(f"{home}: era {era} is open")
    except RangeUnknown as error:
        raise UserError(
            f"{address} has no range {error.range_id!r}: name one as it is in the ids of its "
            f"changes, or none for all"
        ) from error


async def _begin_era(home: Path, change: Callable[[Catalog], Catalog]) -> int:
    async with EventLogWriter.open(home) as writer:
        await writer.begin_era(change)
        return writer.era.number
