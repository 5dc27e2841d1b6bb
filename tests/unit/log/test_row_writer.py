"""One broker's row: several objects under way, acknowledged in order, or lost."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.row_writer import RowWriter
from changefeed.log.core_settings import CoreSettings
from changefeed.log.protocol.messages import AppendReceipt, AppendRejection
from changefeed.log.rows.open_row import WriterPlace
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreUnavailable
from tests.support.brokers import batch, request

P1 = "e1.p01.v00-ff"
PLACE = WriterPlace(cluster="c" * 32, era=1, broker="broker-1", incarnation="i")
SETTINGS = CoreSettings(in_flight=4, retry_delay=0.1, buffer_bytes=1000)


class SlowStore(MemoryStore):
    """Creates each object after as many seconds as ``delays`` says, one if it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: dict[int, float] = {}
        self.failing: set[int] = set()
        self.lost_answers: set[int] = set()

    async def create(self, key: str, data: bytes) -> bool:
        number = int(key.rpartition("/")[2])
        await asyncio.sleep(self.delays.get(number, 1.0))
        if number in self.failing:
            raise StoreUnavailable("not now")
        created = await super().create(key, data)
        if number in self.lost_answers:
            self.lost_answers.discard(number)
            raise StoreUnavailable("the answer was lost")
        return created


@asynccontextmanager
async def a_row(
    store: SlowStore, settings: CoreSettings = SETTINGS
) -> AsyncIterator[tuple[RowWriter, list[int]]]:
    durable: list[int] = []
    row = RowWriter(store, PLACE, settings, lambda number, _: durable.append(number))
    row.open("orders", [RangeId(P1)])
    running = asyncio.create_task(row.run())
    yield row, durable
    if row.lost:
        await asyncio.wait_for(running, 1)  # it ends by itself
    running.cancel()
    await asyncio.wait([running])


def sent(row: RowWriter, key: str, number: int) -> "asyncio.Future[object]":
    return asyncio.ensure_future(row.append("orders", request(batch(P1, key), number=number)))


async def test_objects_are_under_way_side_by_side_and_acknowledged_in_order() -> None:
    store = SlowStore()
    store.delays = {1: 5.0, 2: 1.0}
    async with a_row(store) as (row, durable):
        first = sent(row, "a", 1)
        await asyncio.sleep(0.5)
        second = sent(row, "b", 2)
        await asyncio.sleep(3)
        assert [x for x in store.objects if x.endswith("2")]
        assert not second.done()  # its object is there, the one before is not
        await asyncio.gather(first, second)
        assert durable == [1, 2]


async def test_a_number_that_is_taken_loses_the_era_for_all_that_is_under_way() -> None:
    store = SlowStore()
    store.objects["wal/00000001/broker-1/000000000001"] = b"a seal"
    store.delays = {1: 3.0}
    async with a_row(store) as (row, durable):
        first = sent(row, "a", 1)
        await asyncio.sleep(0.5)
        second = sent(row, "b", 2)
        answers = await asyncio.gather(first, second, sent(row, "c", 3))
        assert [getattr(x, "reason", "stored") for x in answers] == ["moving"] * 3
        assert (row.lost, durable) == (True, [])
        assert getattr(await sent(row, "d", 4), "reason", "") == "moving"


async def test_an_object_is_tried_until_the_store_takes_it_or_has_it() -> None:
    store = SlowStore()
    store.failing, store.lost_answers = {1}, {1}
    async with a_row(store) as (row, _):
        waiting = sent(row, "a", 1)
        await asyncio.sleep(60)
        assert not waiting.done()
        store.failing.clear()
        assert isinstance(await waiting, AppendReceipt)


async def test_a_row_is_lost_only_to_what_lies_in_its_place() -> None:
    class Passing(SlowStore):
        left = 3

        async def create(self, key: str, data: bytes) -> bool:
            self.left -= 1
            if self.left < 0:
                return await super().create(key, data)
            return False  # "there is one already", as S3's 409 was understood: there is none

    async with a_row(Passing()) as (row, durable):
        assert isinstance(await sent(row, "a", 1), AppendReceipt)
        assert (row.lost, durable) == (False, [1])


async def test_a_duplicate_waits_for_what_is_under_way() -> None:
    store = SlowStore()
    store.delays = {1: 5.0}
    async with a_row(store) as (row, _):
        first = sent(row, "a", 1)
        await asyncio.sleep(1)
        again = sent(row, "a", 1)
        await asyncio.sleep(1)
        assert not again.done()
        await first
        assert await again == AppendReceipt(duplicate=True)


async def test_what_does_not_fit_in_memory_is_answered_as_busy() -> None:
    store = SlowStore()
    store.delays = dict.fromkeys(range(1, 9), 100.0)
    async with a_row(store) as (row, _):
        for n in range(1, 30):
            sent(row, "a" * 20, n)
        await asyncio.sleep(1)
        assert row.buffered <= SETTINGS.buffer_bytes
        answer = await sent(row, "a" * 20, 15)
        assert isinstance(answer, AppendRejection)
        assert answer.reason == "busy"


async def test_a_seal_comes_behind_all_that_was_taken_and_nothing_behind_it() -> None:
    store = SlowStore()
    store.delays = {1: 5.0}
    async with a_row(store) as (row, durable):
        first = sent(row, "a", 1)
        await asyncio.sleep(0.1)
        sealing = asyncio.create_task(row.seal())
        await asyncio.sleep(0)
        refused = await sent(row, "b", 2)
        assert isinstance(refused, AppendRejection)
        assert isinstance(await first, AppendReceipt)
        assert await sealing
        assert (row.sealed_at, durable) == (2, [1, 2])


async def test_a_record_alone_goes_at_once_and_many_share_so_many_objects_a_second() -> None:
    store, loop = SlowStore(), asyncio.get_running_loop()
    store.delays = dict.fromkeys(range(1, 1000), 0.01)
    async with a_row(store, CoreSettings(puts=5.0)) as (row, durable):
        began = loop.time()
        await sent(row, "a", 1)
        assert loop.time() - began == pytest.approx(0.01)
        for n in range(2, 2002):
            sent(row, "a", n)
            await asyncio.sleep(0.01)
        assert 15 + 5 * 20 <= len(durable) <= 20 + 5 * 20
        await asyncio.sleep(10)
        began = loop.time()
        await sent(row, "b", 2002)
        assert loop.time() - began == pytest.approx(0.01)


async def test_an_object_that_is_full_goes_whatever_the_number_of_those_before() -> None:
    store, loop = SlowStore(), asyncio.get_running_loop()
    store.delays = dict.fromkeys(range(1, 1000), 0.01)
    async with a_row(store, CoreSettings(puts=5.0, flush_bytes=100)) as (row, durable):
        began = loop.time()
        for n in range(1, 101):
            await sent(row, "a" * 60, n)
        assert durable == [*range(1, 101)]
        assert loop.time() - began == pytest.approx(1.0)
        await asyncio.sleep(0.2)
        began = loop.time()
        await sent(row, "b", 101)
        assert loop.time() - began == pytest.approx(0.01)


async def test_what_waits_behind_full_objects_goes_into_the_newest() -> None:
    settings = dataclasses.replace(SETTINGS, in_flight=1, flush_bytes=1)
    async with a_row(SlowStore(), settings) as (row, durable):
        await asyncio.gather(*(sent(row, "a", n) for n in range(1, 5)))
        assert durable == [1, 2, 3, 4]


async def silent_then_again(settings: CoreSettings, wall_us: Callable[[], int]) -> object:
    """Let one producer send a batch again that was stored 64 objects before."""
    store = SlowStore()
    store.delays = dict.fromkeys(range(1, 100), 0.01)
    row = RowWriter(store, PLACE, settings, lambda *_: None, wall_us)
    row.open("orders", [RangeId(P1)])
    running = asyncio.create_task(row.run())
    first = request(batch(P1, "a"), producer="silent")
    await row.append("orders", first)
    for n in range(1, 66):
        await asyncio.sleep(1)
        await sent(row, "b", n)
    assert row.producers == 2 - (settings is not SETTINGS)  # one is counted no more
    answer = await row.append("orders", first)
    running.cancel()
    await asyncio.wait([running])
    return answer


async def test_a_wall_clock_that_jumps_makes_no_producer_forgotten() -> None:
    times = count(step=10 * 3600 * 1_000_000)
    answer = await silent_then_again(SETTINGS, lambda: next(times))
    assert isinstance(answer, AppendReceipt)
    assert answer.duplicate


async def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    settings = dataclasses.replace(SETTINGS, producer_memory=30.0)
    answer = await silent_then_again(settings, lambda: 0)
    assert isinstance(answer, AppendReceipt)
    assert not answer.duplicate
