"""Brokers that compact at once, or by hand, and what comes of it in their store."""

import dataclasses
from functools import partial
from io import BytesIO

import pyarrow.compute as pc
import pyarrow.parquet as pq

from changefeed.log.brokers.core import BrokerCore
from changefeed.log.catalog.names import flush_key, segments_of
from changefeed.log.catalog.transitions import with_kept_from
from changefeed.log.maintenance.compactor import Compactor
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import ObjectStore
from tests.support.brokers import QUICK, first_broker, virtual_us

P1 = "e1.p01.v00-ff"
COMPACTING = dataclasses.replace(
    QUICK,
    compaction=True,
    compaction_interval=1.0,
    compaction_objects=64,
    retention_interval=2.0,
    delete_grace=5.0,
)
BY_HAND = dataclasses.replace(COMPACTING, compaction=False)

broker = partial(first_broker, parts=1, settings=COMPACTING)


async def compactor(core: BrokerCore, store: ObjectStore, objects: int = 64) -> Compactor:
    """Make one that takes the row of a broker for its own, and has found it in the store."""
    made = Compactor(
        core.name,
        core.incarnation,
        core.catalogs,
        RowReaders(store, core.cluster.identity, 1),
        store,
        settings=dataclasses.replace(COMPACTING, compaction_objects=objects),
        wall_us=virtual_us,
    )
    await made._readers.row(core.catalog, 1, "broker-1").tail()
    return made


async def delete_flushes(core: BrokerCore, store: MemoryStore, last: int) -> None:
    """Delete the first objects of broker-1, which are in runs, and say so."""
    kept = {(1, "broker-1"): last + 1}
    await core.catalogs.change(lambda x: with_kept_from(x, kept))
    for number in range(1, last + 1):
        del store.objects[flush_key(1, "broker-1", number)]


def segment_keys(store: MemoryStore, name: str = "orders") -> list[str]:
    """Return the segments, the older one first."""
    return sorted(x for x in store.objects if x.startswith(segments_of(name)))


def segments(store: MemoryStore, name: str = "orders") -> list[tuple[int, int]]:
    """Return the sequences that files of Parquet have of the first range."""
    tables = [pq.read_table(BytesIO(store.objects[x])) for x in segment_keys(store, name)]
    assert {y for x in tables for y in x["range"].to_pylist()} <= {P1}
    found = [pc.min_max(x["sequence"]).as_py() for x in tables]
    return sorted((x["min"], x["max"]) for x in found)
