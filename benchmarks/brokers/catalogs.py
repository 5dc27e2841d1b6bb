"""What a catalog of 3,072 partitions costs, in the first era and after 100 of them.

The catalog keeps all partitions of all eras, so it has 307,200 then. It is made here as 100
changes of eras make it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.result import Result
from changefeed.brokers.topologies import Topologies
from changefeed.feeds.brokers.catalog import (
    Catalog,
    Cluster,
    Row,
    decode_catalog,
    encode_catalog,
    first_catalog,
)
from changefeed.feeds.brokers.catalog_index import CatalogIndex
from changefeed.feeds.brokers.flush import PartitionEnd
from changefeed.feeds.brokers.topology import topology_of
from changefeed.feeds.brokers.transitions import (
    begin_ending,
    close_and_open,
    open_first_era,
    with_collection,
    with_split,
)

from .names import COLLECTION, PARTS

_HALVINGS = 8
_ERAS = 100
_IDENTITY = "0" * 32
_ROWS = [
    Row(broker=f"broker-{n}", incarnation="1", address=f"host-{n}:7070") for n in (1, 2, 3)
]


def measured() -> Sequence[Result]:
    catalog = split_catalog()
    found = [*_costs(catalog, 1)]
    while len(catalog.eras) < _ERAS:
        catalog = next_era(catalog)
    return [*found, *_costs(catalog, _ERAS)]


def split_catalog() -> Catalog:
    """Return a catalog with one era that is open, of 3,072 partitions."""
    catalog = first_catalog(Cluster(identity=_IDENTITY))
    catalog = with_collection(catalog, COLLECTION, parts=PARTS, identity="1", now_us=0)
    for _ in range(_HALVINGS):
        catalog = with_split(catalog, COLLECTION)
    return open_first_era(catalog, _ROWS, 0)


def next_era(catalog: Catalog) -> Catalog:
    """Return what follows: all partitions closed with a record each, and an era more."""
    era = catalog.era
    assert era is not None
    ends = {
        (COLLECTION, x.id): PartitionEnd(
            collection=COLLECTION, partition=x.id, last=1, stored=200
        )
        for x in catalog.collection(COLLECTION).open_partitions()
    }
    ending = begin_ending(catalog, era.number, _ROWS)
    return close_and_open(ending, era.number, {x.broker: (2, ends) for x in _ROWS}, era.number)


def _costs(catalog: Catalog, eras: int) -> Sequence[Result]:
    data = encode_catalog(catalog)
    shown = asyncio.run(_shown(catalog, decode_catalog(data, _IDENTITY)))

    def time_of(what: str, act: Callable[[], object]) -> Result:
        return _result(what, eras, 1e3 * _fastest(act), "ms")

    return [
        _result("partitions", eras, len(catalog.collection(COLLECTION).partitions), ""),
        _result("size", eras, len(data) / 1e6, "MB"),
        time_of("write", lambda: encode_catalog(catalog)),
        time_of("read", lambda: decode_catalog(data, _IDENTITY)),
        time_of("next era", lambda: next_era(catalog)),
        _result("topology", eras, 1e3 * shown.seconds, "ms"),
        _result("topology, most of it known", eras, 1e3 * shown.again, "ms"),
        _result("topology, longest turn", eras, 1e3 * shown.longest_turn, "ms"),
        _result("topology size", eras, shown.bytes / 1e6, "MB"),
        time_of("topology, newest era", lambda: _newest(catalog)),
        _result("topology size, newest era", eras, len(_newest(catalog)) / 1e6, "MB"),
    ]


class _Shown(NamedTuple):
    """``again`` are the seconds for a catalog that says the same, read from the store."""

    bytes: int
    seconds: float
    again: float
    longest_turn: float


async def _shown(catalog: Catalog, read_again: Catalog) -> _Shown:
    topologies, longest_turn = Topologies(), 0.0

    async def watch() -> None:
        nonlocal longest_turn
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest_turn = max(longest_turn, time.perf_counter() - began)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    seconds = []
    for one in (catalog, read_again):
        began = time.perf_counter()
        pieces = await topologies.show(CatalogIndex(one), COLLECTION)
        seconds.append(time.perf_counter() - began)
    await asyncio.sleep(0)
    watching.cancel()
    first, again = seconds
    return _Shown(sum(map(len, pieces)), first, again, longest_turn)


def _newest(catalog: Catalog) -> bytes:
    """Return what a producer is sent, and hosts when an era has ended."""
    found = topology_of(CatalogIndex(catalog), COLLECTION, since_era=len(catalog.eras))
    return msgspec.json.encode(found)


def _result(what: str, eras: int, value: float, unit: str) -> Result:
    plural = "era" if eras == 1 else "eras"
    return Result(name=f"brokers.catalog of {eras} {plural}.{what}", value=value, unit=unit)


def _fastest(act: Callable[[], object]) -> float:
    """Return the seconds of the fastest of three calls: others use the machine, too."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
