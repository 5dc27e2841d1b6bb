"""Brokers that tell each other that they live, and what they ask the store beside that."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.run_core import leave, no_answer, open_core
from changefeed.log.core_settings import CoreSettings
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import NameTaken, StoreUnavailable
from tests.support.brokers import QUICK, batch, in_era, put
from tests.support.looking import now
from tests.support.watched_store import WatchedStore
from tests.support.wires import Wires

DEFAULT = CoreSettings()


class Counted(WatchedStore):
    """Counts calls from when ``calls`` is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.before = self._count

    async def _count(self, call: str, key: str) -> None:
        self.calls[call, key] += 1

    def of(self, *calls: str) -> int:
        return sum(n for (call, _), n in self.calls.items() if call in calls)


async def three(
    stack: AsyncExitStack, wires: Wires, store: MemoryStore, settings: CoreSettings = DEFAULT
) -> list[BrokerCore]:
    """Run three brokers, and wait until all of them write in one era."""
    cores = [await stack.enter_async_context(wires.broker(store, x, settings)) for x in "abc"]
    await asyncio.sleep(5)
    for core in cores:
        era = core.catalog.era
        assert era is not None
        assert {x.broker for x in era.rows} == {*"abc"}
    return cores


async def test_three_brokers_at_rest_ask_for_the_catalog_once_a_second_and_write_nothing() -> (
    None
):
    store = Counted()
    async with AsyncExitStack() as stack:
        first, *_ = await three(stack, Wires(), store)
        await first.catalogs.create("orders", parts=12)
        await put(first, "orders", batch("e1.p01.v00-ff", "k"))
        await asyncio.sleep(60)
        store.calls.clear()
        await asyncio.sleep(600)
        assert store.of("get", "head") <= 1.2 * 600
        assert store.of("put", "create", "replace", "list", "delete") == 0


async def test_who_changes_the_catalog_tells_the_others_at_once() -> None:
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        _, second, _ = cores = await three(stack, Wires(), store)
        await second.catalogs.create("orders", parts=12)
        await asyncio.sleep(1.1)
        await second.catalogs.split("orders")
        changed = second.catalog.number
        await asyncio.sleep(0.001)
        assert all(x.catalog.number >= changed for x in cores)


async def test_brokers_that_do_not_hear_each_other_live_on_by_signs_in_the_store() -> None:
    store, wires = Counted(), Wires()
    async with AsyncExitStack() as stack:
        cores = await three(stack, wires, store)
        wires.cut |= {("b", "c"), ("c", "b")}
        await asyncio.sleep(3 * DEFAULT.expiration)
        assert [x.status().era for x in cores] == [1, 1, 1]
        assert {("put", "brokers/b"), ("put", "brokers/c")} <= {*store.calls}
        assert ("put", "brokers/a") not in store.calls
        wires.cut.clear()
        await asyncio.sleep(5)
        store.calls.clear()
        await asyncio.sleep(5)
        assert store.of("put") == 0


async def test_a_broker_that_cannot_write_loses_its_place_though_it_can_read() -> None:
    store, apart, wires = MemoryStore(), WatchedStore(), Wires()
    apart.objects = store.objects
    async with wires.broker(store, "a") as first, wires.broker(apart, "b") as second:
        await first.catalogs.create("orders", parts=12)
        await asyncio.sleep(5)
        assert second.status().writing

        async def read_only(call: str, key: str) -> None:
            if call not in ("get", "list", "head"):
                raise StoreUnavailable(f"{key} is not written")

        apart.before = read_only
        opened = next(x for x in first.ranges.of("orders").open if x.broker == "b")
        writing = asyncio.create_task(put(second, "orders", batch(opened.id, "k")))
        await asyncio.sleep(DEFAULT.expiration + 5)
        assert first.status().living == ("a",)
        writing.cancel()


async def test_the_dead_are_forgotten_and_asked_for_no_more() -> None:
    store, wires = Counted(), Wires()
    async with wires.broker(store, "a", QUICK) as first, wires.broker(store, "b", QUICK):
        async with wires.broker(store, "c", QUICK):
            await in_era(first, 1)
            await asyncio.sleep(10)
            assert {*first.catalog.members} == {"a", "b", "c"}
        await asyncio.sleep(QUICK.expiration)  # leaving the block was a crash
        assert first.status().living == ("a", "b")
        await asyncio.sleep(10)
        assert {*first.catalog.members} == {"a", "b"}
        store.calls.clear()
        await asyncio.sleep(20)
        assert store.of("list", "create", "replace", "put") == 0
        assert not [x for x in store.calls if x[1].startswith("brokers/")]
        async with wires.broker(store, "c", QUICK) as again:
            await again.wait_until_writing()
            await leave(again)
        await asyncio.sleep(1)
        assert {*first.catalog.members} == {"a", "b"}


async def test_a_broker_that_was_killed_and_is_started_again_does_not_wait_to_expire() -> None:
    store, patient = MemoryStore(), CoreSettings(expiration=600)
    async with open_core(store, "a", settings=patient) as first:
        await first.wait_until_writing()
    killed = now()
    async with open_core(store, "a", settings=patient) as again:
        await again.wait_until_writing()
        assert now() - killed <= 3 * patient.heartbeat + 1


@pytest.mark.parametrize("answers", [True, False])
async def test_a_broker_does_not_start_under_the_name_of_one_that_shows_that_it_lives(
    *, answers: bool
) -> None:
    store, wires = MemoryStore(), Wires()
    ping = wires.ping("another") if answers else no_answer  # else by its heartbeat in the store
    async with wires.broker(store, "a", QUICK) as first, open_core(store, "b", settings=QUICK):
        await first.wait_until_writing()
        with pytest.raises(NameTaken, match="give each its own --name"):
            async with open_core(store, "a", settings=QUICK, ping=ping):
                pass


async def test_the_broker_that_started_later_keeps_the_name() -> None:
    store = MemoryStore()

    async def run() -> None:
        async with open_core(store, "a", settings=QUICK) as core:
            await core.wait_until_writing()
            await asyncio.sleep(QUICK.expiration)

    first = asyncio.create_task(run())
    await asyncio.sleep(0.2)
    second = asyncio.create_task(run())  # which does not reach the first
    with pytest.raises(ExceptionGroup) as found:
        await first
    assert found.group_contains(NameTaken)
    await second
