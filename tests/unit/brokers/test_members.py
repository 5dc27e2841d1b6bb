"""Who counts as living, and whose a name is."""

import asyncio
from collections import Counter

import pytest

from changefeed.brokers.members import Members, NameTaken, Sign
from changefeed.brokers.run_core import leave, open_core
from changefeed.feeds.brokers.stores.memory_store import MemoryStore
from changefeed.feeds.brokers.transitions import without_members
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


async def test_a_sign_that_was_never_seen_to_move_counts_only_with_a_place_in_the_era() -> None:
    store = MemoryStore()
    await member(store, "b", "old").beat(0)
    me = member(store, "a", "1")
    await me.look(NAMES)
    assert set(me.membership({}).living) == {"a"}
    assert set(me.membership({"b": "old"}).living) == {"a", "b"}
    assert set(me.membership({"b": "older"}).living) == {"a"}


@pytest.mark.parametrize(
    "sign", [b"", b"{}", b'{"name": "\xff", "incarnation": "1", "beat": 1}']
)
async def test_a_sign_that_cannot_be_read_is_no_sign(sign: bytes) -> None:
    store = MemoryStore()
    store.objects["brokers/b"] = sign
    me = member(store, "a", "1")
    await me.look(NAMES)
    assert set(me.membership({"b": "1"}).living) == {"a"}


async def test_membership_is_quiet_since_the_last_change() -> None:
    store = MemoryStore()
    me, other = member(store, "a", "1"), member(store, "b", "1")
    await me.look(NAMES)
    me.membership({})
    await asyncio.sleep(2)
    assert me.membership({}).quiet_for == 0  # it has not looked since
    await me.look(NAMES)
    assert me.membership({}).quiet_for == 2
    await seen_to_move(me, other)
    assert me.membership({}).quiet_for == 0


async def test_membership_is_not_quiet_while_a_new_sign_may_be_one_that_moves() -> None:
    store = MemoryStore()
    me, other = member(store, "a", "1"), member(store, "b", "1")
    await me.look(NAMES)
    me.membership({})
    await other.beat(0)
    await asyncio.sleep(5)
    await me.look(NAMES)
    assert me.membership({}).quiet_for == 0
    await asyncio.sleep(3 * QUICK.heartbeat)
    await me.look(NAMES)
    assert set(me.membership({}).living) == {"a"}
    assert me.membership({}).quiet_for > 0


async def test_membership_is_steady_while_all_that_live_are_seen_to_move() -> None:
    store = MemoryStore()
    me, other = member(store, "a", "1"), member(store, "b", "1")
    era = {"a": "1", "b": "1"}
    await seen_to_move(me, other)
    assert me.membership(era).steady
    assert not me.membership({"b": "1"}).steady  # no place in the era: it has just started
    await asyncio.sleep(3 * QUICK.heartbeat)
    await me.look(NAMES)
    assert not me.membership(era).steady  # b may be dead, too
    await other.beat(0)
    await member(store, "c", "1").beat(0)
    await me.look(NAMES)
    assert not me.membership(era).steady  # c may be about to come


async def test_the_next_look_is_when_somebody_would_be_dead_or_a_change_be_settled() -> None:
    store = MemoryStore()
    me, other = member(store, "a", "1"), member(store, "b", "1")
    await me.look(NAMES)
    me.membership({})
    await asyncio.sleep(QUICK.settle)
    await other.beat(0)
    await me.look(NAMES)
    assert me.rest() == QUICK.heartbeat
    await asyncio.sleep(QUICK.expiration - 0.1)
    await me.look(NAMES)
    assert me.rest() == pytest.approx(0.1)
    await asyncio.sleep(me.rest())
    await me.look(NAMES)
    assert "b" in me.dead()
    assert me.rest() == QUICK.heartbeat
    await me.beat(0, leaving=True)
    me.membership({})
    await asyncio.sleep(QUICK.settle - 0.2)
    assert me.rest() == pytest.approx(0.2)


async def test_a_look_has_news_when_brokers_come_leave_die_or_lose_their_rows() -> None:
    store = MemoryStore()
    me, other = member(store, "a", "1"), member(store, "b", "1")
    await other.beat(0)
    assert await me.look(NAMES)
    await other.beat(0)
    assert not await me.look(NAMES)  # a heartbeat
    await other.beat(0, lost=1)
    assert await me.look(NAMES)
    await other.beat(0, leaving=True)
    assert await me.look(NAMES)
    await asyncio.sleep(QUICK.expiration)
    assert await me.look(NAMES)
    assert not await me.look(NAMES)


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


async def test_a_broker_that_died_may_be_started_again_under_its_name() -> None:
    store = MemoryStore()
    async with open_core(store, "broker-1", settings=QUICK) as first:
        await first.wait_until_writing()
    async with open_core(store, "broker-1", settings=QUICK) as again:
        await again.wait_until_writing()
        assert again.status().era == 2


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


async def test_a_broker_that_was_taken_for_dead_says_that_it_is_there() -> None:
    store = MemoryStore()
    async with open_core(store, "a", settings=QUICK) as core:
        await in_era(core, 1)
        await core.catalogs.change(lambda x: without_members(x, {"a"}))
        await asyncio.sleep(2)
        assert core.catalog.members == ("a",)
