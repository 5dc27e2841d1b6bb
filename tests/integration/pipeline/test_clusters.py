"""Spark over a cluster: brokers as users run them, over a directory that Spark reads itself."""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from changefeed import Record, open_producer, pipeline
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import parse_address
from changefeed.log.client.client import BrokerClient
from changefeed.log.core_settings import CoreSettings
from changefeed.log.maintenance.compactor import Compactor
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.local_store import LocalStore
from changefeed.pipeline.source.spark import stream
from tests.support.commands import running
from tests.support.ports import free_port
from tests.support.processes import PATIENCE
from tests.support.spark_queries import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.usefixtures("all_in_parquet")

EVERYTHING = "range,sequence,key,id,operation,body,previous,committed_at,generation"
KEYS = [f"k{n}" for n in range(20)]
QUICK = (
    "--set=membership.expiration=2",
    "--set=compaction.enabled=false",  # it is done by hand here
)


class Cluster:
    """Brokers over the directory ``cluster``, and how far their one collection has come."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.brokers = f"brokers://127.0.0.1:{port}/orders"
        self.store = f"file://{home}/cluster#orders"
        self.written = 0

    @asynccontextmanager
    async def broker(self, name: str, port: int) -> AsyncIterator[None]:
        flags = (
            f"--cluster=file://{self.home}/cluster",
            f"--name={name}",
            f"--set=web.port={port}",
        )
        async with running("broker", *flags, *QUICK, cwd=self.home) as process:
            await process.says("web.listening")
            yield

    @asynccontextmanager
    async def client(self) -> AsyncIterator[BrokerClient]:
        scheme, _, place = self.brokers.partition(":")
        async with BrokerClient.open(parse_address(scheme, place), BrokerAccess()) as client:
            yield client

    async def compact(self) -> None:
        """Compact what the first broker has left of eras that are over."""
        store = LocalStore(self.home / "cluster")
        cluster = await open_cluster(store, create=False)
        catalogs = CatalogStore(store, cluster)
        await catalogs.refresh()
        compactor = Compactor(
            "broker-1",
            "another",
            catalogs,
            RowReaders(store, cluster.identity, 10**6),
            store,
            settings=CoreSettings(),
            wall_us=lambda: 0,
        )
        assert await compactor.step()

    async def has_era(self, number: int) -> None:
        async with asyncio.timeout(PATIENCE), self.client() as client:
            while True:
                topology = (await client.routes()).topology
                if topology.era >= number and not topology.ending:
                    return
                await asyncio.sleep(0.1)

    async def write(self, rounds: int) -> None:
        """Write a record for each key, so many times; bodies count on."""
        async with open_producer(self.brokers) as producer:
            for _ in range(rounds):
                body = b'{"n":%d}' % self.written
                await producer.send_many([Record(key=x, body=body) for x in KEYS])
                self.written += 1


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path, free_port())
    async with found.broker(
        "broker-1", int(found.brokers.rpartition(":")[2].partition("/")[0])
    ):
        async with found.client() as client:
            async with asyncio.timeout(PATIENCE):
                await client.create(3)
        await found.has_era(1)
        yield found


def rows(found: "DataFrame") -> "list[Row]":
    return sorted(found.collect(), key=lambda x: (x.range, x.sequence))


def by_key(found: "Sequence[Row]") -> dict[str, list[int]]:
    """Return what the bodies of each key say, in the order that the columns promise."""
    ordered = sorted(found, key=lambda x: (x.generation, x.sequence))
    return {k: [msgspec.json.decode(x.body)["n"] for x in ordered if x.key == k] for k in KEYS}


def take(spark: "SparkSession", feed: str, into: Path, **options: str) -> "list[Row]":
    """Go on with a stream up to where the feed is now; return all that it has written."""
    changes = stream(spark, feed, columns=EVERYTHING, **options)
    drain(changes, str(into / "rows"), str(into / "checkpoint"))
    return rows(spark.read.parquet(str(into / "rows")))


async def test_each_record_is_read_once_across_eras_and_splits_from_the_store_and_by_brokers(
    spark: "SparkSession", cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.write(10)
    assert by_key(take(spark, cluster.store, tmp_path, maxChangesPerBatch="70")) == {
        x: [*range(10)] for x in KEYS
    }
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster.broker("broker-2", free_port()))
        await cluster.has_era(2)
        await cluster.write(10)
        async with cluster.client() as client:
            await client.split(None)
        await cluster.has_era(3)
        await cluster.write(10)
        taken = take(spark, cluster.store, tmp_path)
        assert by_key(taken) == {x: [*range(30)] for x in KEYS}
        assert {x.generation for x in taken} == {0, 1, 2}
        for feed in (cluster.store, cluster.brokers):
            assert rows(pipeline.read(spark, feed, columns=EVERYTHING)) == taken
        await cluster.write(5)
        taken = take(spark, cluster.brokers, tmp_path)  # positions are the same
        assert by_key(taken) == {x: [*range(35)] for x in KEYS}
    everything = spark.read.format("changefeed").load(feed=cluster.store, columns=EVERYTHING)
    assert rows(everything) == taken
    assert len(taken) == 35 * len(KEYS)

    await cluster.compact()
    found = pipeline.read(spark, cluster.store, columns=EVERYTHING)
    with redirect_stdout(io.StringIO()) as said:
        found.explain()
    assert "FileScan parquet" in said.getvalue()
    assert "BatchScan changefeed" in said.getvalue()
    assert rows(found) == taken
    everything = spark.read.format("changefeed").load(feed=cluster.store, columns=EVERYTHING)
    assert rows(everything) == taken
