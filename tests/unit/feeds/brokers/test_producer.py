"""The producer against brokers that lose requests and answers, and change eras all the time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from changefeed.feeds.brokers.partition_queues import Delivery, PartitionQueues
from changefeed.feeds.brokers.producer import BrokersProducer
from changefeed.feeds.brokers.sender import ProducerOptions
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.eventlog.records import Record
from tests.support.model_cluster import ModelCluster


@asynccontextmanager
async def producing(cluster: ModelCluster, **options: Any) -> AsyncIterator[BrokersProducer]:
    routes = await cluster.routes()
    producer = BrokersProducer(cast("Any", cluster), routes, ProducerOptions(**options))
    try:
        yield producer
        await producer.close()
    finally:
        await producer.abandon()


def stored(cluster: ModelCluster) -> dict[str, list[int]]:
    """Return the numbers of each key, in the order in which a reader gets them."""
    found: dict[str, list[int]] = {}
    for change in cluster.changes():
        found.setdefault(change.key, []).append(int(change.body))
    return found


@pytest.mark.parametrize("seed", range(25))
async def test_nothing_is_lost_doubled_or_overtaken_through_faults_eras_splits_and_merges(
    seed: int,
) -> None:
    random = Random(seed)
    cluster = ModelCluster(4, 2, random, faults=0.0)
    sent = 0

    async def produce(producer: BrokersProducer, keys: range) -> None:
        nonlocal sent
        for n in range(60):
            await producer.submit([Record(key=f"k{k}", body=b"%d" % n) for k in keys])
            sent += len(keys)
            await asyncio.sleep(random.random() * 0.1)

    async def change() -> None:
        for _ in range(12):
            await asyncio.sleep(random.random() * 0.6)
            if random.random() < 0.5:
                cluster.reshape()
            cluster.begin_era(random.randint(1, 4))

    async with asyncio.timeout(600), producing(cluster) as producer:
        cluster.faults = 0.15
        async with asyncio.TaskGroup() as group:
            for begin in range(0, 30, 10):
                group.create_task(produce(producer, range(begin, begin + 10)))
            group.create_task(change())
        await producer.flush()
        cluster.faults = 0.0
    assert stored(cluster) == {f"k{k}": list(range(60)) for k in range(30)}
    assert len(cluster.changes()) == sent


@pytest.mark.parametrize(
    ("silent", "seconds"),
    [
        (False, 9.7),  # its pauses are the longest that there are by now
        (True, 5.3),  # a broker does not answer
    ],
)
async def test_a_producer_that_waits_goes_on_as_soon_as_there_is_a_next_era(
    *, silent: bool, seconds: float
) -> None:
    cluster = ModelCluster(4, 2, Random(3))
    records = [Record(key=f"k{k}", body=b"0") for k in range(20)]
    async with producing(cluster) as producer:
        await producer.send_many(records)
        if silent:
            cluster.frozen = {"b0"}
        else:
            cluster.begin_era(2)
            for x in cluster.partitions:
                x.closed = True
        done = await producer.submit(records)
        await asyncio.sleep(seconds)
        assert not done.done()
        cluster.begin_era(2)
        if silent:
            for x in cluster.partitions:
                x.broker = "b1"
        async with asyncio.timeout(0.2):
            await done


async def test_what_closed_partitions_have_is_asked_for_in_one_request() -> None:
    cluster = ModelCluster(12, 1, Random(3))
    records = [Record(key=f"k{k}", body=b"0") for k in range(100)]
    async with producing(cluster) as producer:
        await producer.send_many(records)
        cluster.lost_answers, before = 1, cluster.requests
        done = await producer.submit(records)
        await asyncio.sleep(0.02)
        cluster.begin_era(1)
        await done
        assert cluster.requests - before <= 4  # lost, asked, sent; one may be under way


async def test_what_no_broker_takes_in_time_is_given_up_and_what_follows_is_stored() -> None:
    cluster = ModelCluster(2, 1, Random(1))
    async with producing(cluster, delivery_timeout=3.0, request_timeout=1.0) as producer:
        await producer.send("k", 1)
        cluster.frozen = {"b0"}
        with pytest.raises(FeedUnavailable, match="within 3 s"):
            await producer.send("k", 2)
        cluster.frozen = set()
        await producer.send("k", 3)
    assert stored(cluster) == {"k": [1, 3]}


async def test_who_hands_over_too_much_waits_until_there_is_room() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    async with producing(cluster, memory=5000) as producer:
        first = await producer.submit([Record(key="k", body=b'"' + b"x" * 4000 + b'"')])
        second = asyncio.create_task(
            producer.submit([Record(key="k", body=b'"' + b"x" * 4000 + b'"')])
        )
        await asyncio.sleep(0)
        assert not second.done()
        await first
        await (await second)
    assert len(cluster.changes()) == 2


async def test_a_record_that_cannot_be_stored_is_refused_and_no_other() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    async with producing(cluster) as producer:
        with pytest.raises(FeedRefused, match="16777216 is the most"):
            await producer.send_many(
                [Record(key="k", body=b"1"), Record(key="k", body=b"x" * 17_000_000)]
            )
        with pytest.raises(FeedRefused, match="no UTF-8"):
            await producer.send("\ud800", 1)
        await producer.send("k", 2)
    assert stored(cluster) == {"k": [2]}


async def test_a_producer_that_is_forgotten_by_brokers_numbers_from_one_again() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    async with producing(cluster) as producer:
        await producer.send("k", 1)
        cluster.partitions[0].reached.clear()
        await producer.send("k", 2)
    assert stored(cluster) == {"k": [1, 2]}


async def test_a_block_that_ends_by_an_error_waits_for_nothing() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    cluster.frozen = {"b0"}
    sent: list[asyncio.Future[None]] = []

    async def fail() -> None:
        async with producing(cluster) as producer:
            sent.append(await producer.submit([Record(key="k", body=b"1")]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert sent[0].cancelled()


async def test_what_a_closed_partition_has_of_a_batch_is_not_sent_on() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    queues = PartitionQueues(await cluster.routes())
    async with producing(cluster) as producer:
        encoded = await producer._encoded([Record(key="k", body=b"%d" % n) for n in range(5)])
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    (queue,) = queues.put(encoded, Delivery(5, done), 0.0)
    queue.batch("p")
    freed = queue.stored_up_to(3)
    assert freed == sum(x[-1] for _, x in encoded[:3])
    cluster.begin_era(1)
    queues.adopt(await cluster.routes())
    (child,) = queues.move_on(queue)
    assert child.batch("p").count == 2
    assert child.batch("p").sequence == 1
    assert child.stored() == sum(x[-1] for _, x in encoded[3:])
    assert done.done()


async def test_no_topology_older_than_the_one_that_closed_a_partition_is_sent_by() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    async with producing(cluster) as producer:
        cluster.lost_answers = 1
        first = await producer.submit([Record(key="k", body=b"1")])
        while not cluster.changes():  # noqa: ASYNC110 - stored, and nobody says so
            await asyncio.sleep(0.001)
        cluster.begin_era(1)
        cluster.behind = 6
        await producer.send("k", 2)
        await first
    assert stored(cluster) == {"k": [1, 2]}
    assert not cluster.behind
    assert max(cluster.asked_for) == cluster.catalog
