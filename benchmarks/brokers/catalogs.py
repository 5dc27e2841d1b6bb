"""What a catalog of 3,072 partitions costs, in the first era and after 100 of them.

It is made here as 100 changes of eras make it. Partitions are computed, by clients too.
"""

import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from benchmarks.result import Result
from changefeed.log.catalog.catalog import (
    Catalog,
    Cluster,
    Row,
    decode_catalog,
    encode_catalog,
    first_catalog,
)
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.catalog.transitions import (
    begin_ending,
    close_and_open,
    new_collection,
    open_first_era,
)
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.topology import topology_of

from .names import COLLECTION, PARTS

_ERAS = 100
_IDENTITY = "0" * 32
_CUTS = (tuple(range(256)),) * PARTS
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
    new = new_collection(catalog, COLLECTION, parts=PARTS, identity="1", now_us=0)
    catalog = replace(catalog, collections=(new,), reshaping={COLLECTION: _CUTS})
    return open_first_era(catalog, _ROWS, 0)


def next_era(catalog: Catalog) -> Catalog:
    """Return what follows: the era closed, and one more."""
    era = catalog.era
    assert era is not None
    ending = begin_ending(catalog, era.number, _ROWS)
    return close_and_open(ending, era.number, {x.broker: 2 for x in _ROWS}, era.number)


def _costs(catalog: Catalog, eras: int) -> Sequence[Result]:
    data = encode_catalog(catalog)
    sent = msgspec.json.encode(topology_of(catalog, COLLECTION))

    def time_of(what: str, act: Callable[[], object]) -> Result:
        return _result(what, eras, 1e3 * _fastest(act), "ms")

    return [
        _result("partitions", eras, len([*ranges_of(catalog, COLLECTION).all()]), ""),
        _result("size", eras, len(data) / 1e6, "MB"),
        time_of("write", lambda: encode_catalog(catalog)),
        time_of("read", lambda: decode_catalog(data, _IDENTITY)),
        time_of("next era", lambda: next_era(catalog)),
        _result("topology size", eras, len(sent) / 1e6, "MB"),
        time_of(
            "all partitions", lambda: Routes(topology_of(catalog, COLLECTION), "http").ranges
        ),
    ]


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
