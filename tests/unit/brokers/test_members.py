"""Who counts as living, and whose a name is."""

import asyncio
from collections import Counter

import pytest

from changefeed.brokers.members import Members, NameTaken, Sign
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from tests.support.brokers import QUICK, in_era
from tests.support.watched_store import WatchedStore

NAMES = ("a", "b", "c")


def member(store: MemoryStore, name: str, incarnation: str) -> Members:
    sign = Sign(name=name, incarnation=incarnation, beat=0)
    return Members(store, sign, QUICK, asyncio.get_running_loop().time)


async def seen_to_move(me: Members, other: Members) -> None:
    """Let one see another's sign in two states."""
    for _ in range(2):
        await other.beat(0)
        await me.look(NAMES)


async def test_a_broker_is_dead_once_its_sign_stood_still_for_the_expiration() -> None:
    store = MemoryStore()
    me, other = member(store, "a", "1"), member(store, "b", "1")
    await seen_to_move(me, other)
    assert set(me.membership({}).living) == {"a", "b"}
    await asyncio.sleep(QUICK.expiration - 0.1)
    await me.look(NAMES)
    assert set(me.membership({}).living) == {"a", "b"}
    await asyncio.sleep(0.1)
    await me.look(NAMES)
    assert set(me.membership({}).living) == {"a"}


@pytest.mark.parametrize(
    "sign", [b"", b"{}", b'{"name": "\xff", "incarnation": "1", "beat": 1}']
)
async def test_a_sign_that_cannot_be_read_is_no_sign(sign: bytes) -> None:
    store = MemoryStore()
    store.objects["brokers/b"] = sign
    me = member(store, "a", "1")
    await me.look(NAMES)
    assert set(me.membership({"b": "1"}).living) == {"a"}


async def test_the_broker_that_started_later_keeps_the_name() -> None:
    store = MemoryStore()
    old, new = member(store, "a", "1"), member(store, "a", "2")
    await old.beat(0)
    await new.beat(0)
    await new.beat(0)
    with pytest.raises(NameTaken, match="give each its own --name"):
        await old.beat(0)


async def test_a_broker_does_not_start_under_the_name_of_one_that_lives() -> None:
    store = MemoryStore()
    async with open_core(store, "broker-1", settings=QUICK) as first:
        await first.wait_until_writing()
        with pytest.raises(NameTaken):
            async with open_core(store, "broker-1", settings=QUICK):
                pass


async def test_brokers_at_rest_list_nothing_and_look_for_no_sign_of_the_dead() -> None:
    store, calls = WatchedStore(), Counter[tuple[str, str]]()

    async def note(call: str, key: str) -> None:
        calls[call, key] += 1

    async with (
        open_core(store, "a", settings=QUICK) as first,
        open_core(store, "b", settings=QUICK),
    ):
        async with open_core(store, "c", settings=QUICK):
            await in_era(first, 1)
            await asyncio.sleep(10)
            assert {*first.catalog.members} == {"a", "b", "c"}
        await asyncio.sleep(20)  # leaving the block was a crash
        assert {*first.catalog.members} == {"a", "b"}
        store.before = note
        await asyncio.sleep(20)
        assert not [x for x in calls if x[0] in ("list", "create", "replace")]
        assert ("get", "brokers/b") in calls
        assert ("get", "brokers/c") not in calls
        async with open_core(store, "c", settings=QUICK) as again:
            await again.wait_until_writing()
            await leave(again)
        await asyncio.sleep(5)
        assert {*first.catalog.members} == {"a", "b"}
