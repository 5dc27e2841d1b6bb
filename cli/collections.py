"""Collections of a cluster, looked at and changed through its brokers: ``changefeed log …``."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.io.tables import a_table, print_whole
from changefeed.feeds.brokers.access import BrokerAccess
from changefeed.feeds.brokers.address import FORM, PLAIN, TLS, parse_address
from changefeed.feeds.brokers.client import BrokerClient
from changefeed.feeds.brokers.protocol import PartitionInfo, Topology
from changefeed.feeds.brokers.routes import Routes
from changefeed.feeds.brokers.wire import Compaction
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.eventlog.create import DEFAULT_PARTS
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import UserError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_ALL_AT_ONCE = 32

_Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help=f"The collection: {PLAIN}:{FORM}.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_Range = Annotated[
    str | None, typer.Argument(metavar="[RANGE]", help="One range; all if not said.")
]
T = TypeVar("T")


class RangeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One partition; ``first`` is the sequence of the first record that is left."""

    id: str
    era: int
    open: bool
    broker: str
    home: str
    first: int
    last: int
    moving_to: str = ""


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A collection, and the brokers that have it."""

    collection: str
    cluster: str
    identity: str
    catalog: int
    era: int
    ending: bool
    parts: int
    brokers: dict[str, str]
    records: int
    ranges: list[RangeStatus]


def create(
    address: _Address,
    *,
    parts: Annotated[
        int, typer.Option("--parts", help="How many parts, for good; each can be split.")
    ] = DEFAULT_PARTS,
) -> None:
    """Create a collection. Its number of parts is for good."""
    with exit_on_error():
        found = _run(address, lambda x: x.create(parts))
        typer.echo(f"collection {found.collection} has {found.parts} parts")


def status(
    address: _Address,
    *,
    json: _Json = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Also the ranges of eras that have ended.")
    ] = False,
) -> None:
    """Show the brokers, the era and the ranges of a collection."""
    with exit_on_error():
        found = _run(address, _look)
        if json:
            typer.echo(msgspec.json.encode(found).decode())
            return
        _show(found, all_=all_)


def split(address: _Address, range_: _Range = None) -> None:
    """Cut a range in halves, or all of them. A new era begins with twice as many."""
    with exit_on_error():
        _began(_run(address, lambda x: x.split(_range(range_))))


def merge(address: _Address, range_: _Range = None) -> None:
    """Make one of a range and the next one of its part, or of all pairs. A new era begins."""
    with exit_on_error():
        _began(_run(address, lambda x: x.merge(_range(range_))))


def retain(
    address: _Address,
    *,
    for_: Annotated[
        str | None, typer.Option("--for", help="How long: 7d, 12h, 30m, 90s.")
    ] = None,
    bytes_: Annotated[
        str | None, typer.Option("--bytes", help="How much of it: 500m, 20g.")
    ] = None,
    forever: Annotated[bool, typer.Option("--forever", help="Delete nothing.")] = False,
) -> None:
    """Say how long records are kept, or how many bytes of them: what goes beyond is deleted."""
    with exit_on_error():
        if forever == bool(for_ or bytes_):
            raise UserError("say --for, --bytes or both, or else --forever")
        seconds = None if for_ is None else float(_quantity(for_, _SECONDS, "--for"))
        most = None if bytes_ is None else _quantity(bytes_, _BYTES, "--bytes")
        found = _run(address, lambda x: x.retain(seconds=seconds, most_bytes=most))
        typer.echo(f"collection {found.collection} is kept as said from now on")


def compact(address: _Address, *, json: _Json = False) -> None:
    """Make segments now of all that can be: what eras left behind, and most of the newest one.

    Brokers do it by themselves, too; a segment is a file of Parquet. A collection lies in the
    same objects as the others of its cluster: those are compacted with it.
    """
    with exit_on_error():
        made = _run(address, _compact)
        if json:
            typer.echo(msgspec.json.encode(made).decode())
        else:
            columns = ("broker", "objects", "segments", "records", "bytes", "failed")
            print_whole(a_table(*columns, rows=map(_compacted_row, made)))
        if any(x.failed for x in made):
            raise UserError("some objects were not compacted: the logs of brokers say why")


async def _compact(client: BrokerClient) -> list[Compaction]:
    routes = await client.routes()
    return list(await asyncio.gather(*(_compact_at(client, x) for x in routes.urls)))


async def _compact_at(client: BrokerClient, url: str) -> Compaction:
    """Ask a broker until it has nothing more to do."""
    made = await client.compact(url)
    while not made.ended:
        more = await client.compact(url)
        made = Compaction(
            broker=more.broker,
            ended=more.ended,
            objects=made.objects + more.objects,
            segments=made.segments + more.segments,
            records=made.records + more.records,
            bytes=made.bytes + more.bytes,
            failed=made.failed + more.failed,
        )
    return made


def _compacted_row(x: Compaction) -> Sequence[str]:
    numbers = x.objects, x.segments, x.records, x.bytes, x.failed
    return x.broker, *(f"{y:,}" for y in numbers)


def _run(address: str, act: Callable[[BrokerClient], Awaitable[T]]) -> T:
    async def run() -> T:
        scheme, _, place = address.partition(":")
        if scheme not in (PLAIN, TLS):
            raise UserError(f"{address!r} is no collection of a cluster: give {PLAIN}:{FORM}")
        where = parse_address(scheme, place)
        async with BrokerClient.open(where, BrokerAccess.of_environment()) as client:
            return await act(client)

    return asyncio.run(run())


async def _look(client: BrokerClient) -> LogStatus:
    routes = await client.routes()
    topology, turns = routes.topology, asyncio.Semaphore(_ALL_AT_ONCE)

    async def end(partition: PartitionInfo) -> RangeStatus:
        async with turns:
            return await _range_status(client, routes, partition)

    ranges = await asyncio.gather(*map(end, topology.partitions))
    return LogStatus(
        collection=topology.collection,
        cluster=topology.cluster,
        identity=topology.identity,
        catalog=topology.catalog,
        era=topology.era,
        ending=topology.ending,
        parts=topology.parts,
        brokers={x.name: x.address for x in topology.brokers},
        records=sum(x.last - x.first + 1 for x in ranges),
        ranges=ranges,
    )


async def _range_status(
    client: BrokerClient, routes: Routes, partition: PartitionInfo
) -> RangeStatus:
    start, last = partition.start, partition.last
    if last is None:
        last = start
        with suppress(FeedUnavailable):  # shown as far as it is known
            urls = routes.to_read(partition)
            end = await client.end(urls, routes.identity, partition.range.id)
            start, last = end.start, end.last
    return RangeStatus(
        id=partition.range.id,
        era=partition.era,
        open=partition.last is None,
        broker=partition.broker,
        home=partition.home,
        first=start + 1,
        last=last,
        moving_to=partition.moving_to,
    )


def _show(found: LogStatus, *, all_: bool) -> None:
    state = " (ending)" if found.ending else ""
    title = (
        f"collection {found.collection}: era {found.era}{state}, {found.parts} parts, "
        f"{found.records:,} records"
    )
    ranges = [x for x in found.ranges if all_ or x.open]
    open_at = [x.broker for x in found.ranges if x.open]
    brokers = a_table(
        "broker",
        "address",
        "open ranges",
        rows=[(k, v, str(open_at.count(k))) for k, v in sorted(found.brokers.items())],
    )
    table = a_table("range", "state", "broker", "home", "first", "last", rows=map(_row, ranges))
    print_whole(Group(Text(title), brokers, table))


def _row(x: RangeStatus) -> Sequence[str]:
    home = f"{x.home} (moving to {x.moving_to})" if x.moving_to else x.home
    return x.id, "open" if x.open else "closed", x.broker, home, f"{x.first:,}", f"{x.last:,}"


def _range(given: str | None) -> RangeId | None:
    return None if given is None else RangeId(given)


def _began(found: Topology) -> None:
    typer.echo(
        f"collection {found.collection}: a new era follows era {found.era} within seconds; "
        f"changefeed log status shows it"
    )


def _quantity(text: str, units: dict[str, int], flag: str) -> int:
    found = re.fullmatch(r"([0-9]{1,15})([a-z]?)", text.strip().lower())
    if found is None or found[2] not in units or not int(found[1]):
        shown: Any = ", ".join(f"7{x}" for x in units)
        raise UserError(f"{flag} {text}: write it as one of {shown}")
    return int(found[1]) * units[found[2]]
