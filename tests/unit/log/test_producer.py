"""The producer, where brokers lose an answer, change an era or do not answer at one moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.log.client.producer import BrokersProducer
from changefeed.log.client.row_queues import Delivery, RowQueues
from changefeed.log.client.sender import ProducerOptions
from changefeed.log.records import Record
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


async def test_what_a_closed_row_has_is_asked_for_once() -> None:
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
        cluster.rows.clear()
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


def large(key: str, n: int) -> Record:
    """Return a record of which two are worth a request while another is under way."""
    return Record(key=key, body=b'"%s%d"' % (b"x" * 40_000, n))


async def test_of_a_closed_row_goes_on_what_it_has_not_before_what_is_newer() -> None:
    cluster = ModelCluster(2, 1, Random(1))
    queues = RowQueues(await cluster.routes())
    async with producing(cluster) as producer:
        encoded = await producer._encoded([large("k", n) for n in range(6)])
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    delivery, sent = Delivery(6, done, 0.0), []
    for n in range(0, 6, 2):
        (row,) = queues.put(encoded[n : n + 2], delivery)
        sent.append(row.begin("p"))
    first, second, third = sent
    assert first is not None is not second
    assert third is not None
    assert row.stored(first) == first.size
    second.reason = third.reason = "moved"
    cluster.begin_era(1)
    queues.adopt(await cluster.routes())
    (child,) = queues.move_on(row)
    rest = child.begin("p")
    assert rest is not None
    assert [x.record for x in rest.entries] == [x for _, x in encoded[2:]]
    assert rest.request.number == 1
    child.stored(rest)
    assert done.done()


async def test_five_requests_are_under_way_where_there_is_much_else_one() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    async with producing(cluster) as producer:
        before = cluster.requests
        little = [await producer.submit([Record(key="k", body=b"%d" % n)]) for n in range(3)]
        await asyncio.sleep(0)
        for n in range(3, 6):
            little.append(await producer.submit([Record(key="k", body=b"%d" % n)]))
            await asyncio.sleep(0)
        await asyncio.gather(*little)
        assert cluster.requests - before == 2
        cluster.frozen, before = {"b0"}, cluster.requests
        for n in range(6, 40):
            await producer.submit([large("k", n)])
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        assert cluster.requests - before == 5
        cluster.frozen = set()
    found = [x.body[-3:].strip(b'x"') for x in cluster.changes()]
    assert [int(x) for x in found] == list(range(40))


async def test_requests_behind_one_that_was_refused_are_stored_under_other_numbers() -> None:
    cluster = ModelCluster(1, 1, Random(1))

    really = cluster.append

    async def refused(*_: object, **__: object) -> Any:
        cluster.append = really  # type: ignore[method-assign]
        await asyncio.sleep(1)
        raise FeedRefused("a token is needed")

    async with producing(cluster) as producer:
        cluster.append = refused  # type: ignore[method-assign]
        first = await producer.submit([large("k", 1)])
        await asyncio.sleep(0.1)
        others = [await producer.submit([large("k", n), large("k", n)]) for n in (2, 3)]
        await asyncio.gather(*others)
        with pytest.raises(FeedRefused, match="a token is needed"):
            await first
    assert len(cluster.changes()) == 4


async def test_who_stops_waiting_for_a_record_stops_nobody_else() -> None:
    cluster = ModelCluster(1, 1, Random(1))
    async with producing(cluster) as producer:
        one, other = (
            await producer.submit([large("k", 1)]),
            await producer.submit([large("k", 2)]),
        )
        one.cancel()
        await other
    assert len(cluster.changes()) == 2


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
