"""Who counts as living, by signs of life."""

import asyncio

import pytest
from msgspec.structs import replace

from changefeed.log.brokers.members import Heartbeat, Members, Ping
from changefeed.log.brokers.run_core import no_answer
from changefeed.log.catalog.catalog import Member
from changefeed.log.stores.memory_store import MemoryStore
from tests.support.brokers import QUICK

TWO = {x: Member(incarnation="1", address=x) for x in ("a", "b")}
ERA = {"a": "1", "b": "1"}


def member(
    store: MemoryStore, name: str, incarnation: str = "1", ping: Ping = no_answer
) -> Members:
    heartbeat = Heartbeat(name=name, incarnation=incarnation, beat=0)
    clock = asyncio.get_running_loop().time
    return Members(store, heartbeat, QUICK, clock, ping=ping, hear_of=lambda _: None)


def hearing(store: MemoryStore, other: Members) -> Members:
    """Return broker a, which hears b."""

    async def ping(address: str, heartbeat: Heartbeat) -> Heartbeat:
        assert address == "b"
        other.hear(heartbeat)
        return other.heartbeat

    return member(store, "a", ping=ping)


async def seen_to_move(me: Members, other: Members) -> None:
    """Let one see another's heartbeat in two states."""
    for _ in range(2):
        await other.write()
        await me.look(TWO)


async def test_a_broker_is_dead_once_its_sign_stood_still_for_the_expiration() -> None:
    store = MemoryStore()
    me, other = member(store, "a"), member(store, "b")
    await seen_to_move(me, other)
    assert set(me.membership({}).living) == {"a", "b"}
    await asyncio.sleep(QUICK.expiration - 0.1)
    await me.look(TWO)
    assert set(me.membership({}).living) == {"a", "b"}
    assert me.rest() == pytest.approx(0.1)
    await asyncio.sleep(0.1)
    await me.look(TWO)
    assert set(me.membership({}).living) == {"a"}


async def test_a_broker_that_is_heard_and_does_not_reach_the_store_is_dead_as_well() -> None:
    store = MemoryStore()
    other = member(store, "b")
    me = hearing(store, other)
    for now in range(3):
        await asyncio.sleep(QUICK.expiration / 2)
        other.reached_store(now)
        await me.look(TWO)
        assert set(me.membership({}).living) == {"a", "b"}
    for _ in range(2):
        await asyncio.sleep(QUICK.expiration / 2)
        other.reached_store(2)
        await me.look(TWO)
    assert me.dead == {"b"}
    assert me.hears_all()
    assert not store.objects


@pytest.mark.parametrize(
    "heartbeat", [None, b"", b"{}", b'{"name": "\xff", "incarnation": "1", "beat": 1}']
)
async def test_one_without_a_sign_that_can_be_read_lives_no_longer_than_the_expiration(
    heartbeat: bytes | None,
) -> None:
    store = MemoryStore()
    if heartbeat is not None:
        store.objects["brokers/b"] = heartbeat
    me = member(store, "a")
    for living in ({"a", "b"}, {"a"}):
        await me.look(TWO)
        assert set(me.membership(ERA).living) == living
        await asyncio.sleep(QUICK.expiration)


async def test_the_sign_of_another_that_had_the_name_before_is_none() -> None:
    store = MemoryStore()
    me = member(store, "a")
    await me.look(TWO)
    await member(store, "b", "older").write()
    assert not await me.look(TWO)
    assert me.seen["b"].incarnation == "1"


async def test_a_sign_that_comes_late_does_not_take_back_what_was_said_after_it() -> None:
    store = MemoryStore()
    other = member(store, "b")
    me = hearing(store, other)
    await other.write()
    late = other.heartbeat
    await other.write()
    await me.look(TWO)
    assert not me.hear(late)
    assert me.seen["b"].beat == 2


async def test_one_that_is_told_that_another_does_not_hear_it_does_not_hear_all() -> None:
    store = MemoryStore()
    other = member(store, "b")  # which reaches nobody
    me = hearing(store, other)
    assert await other.look(TWO)
    assert other.heartbeat.unheard == ("a",)
    await me.look(TWO)
    assert not me.hears_all()
    other.heartbeat = replace(other.heartbeat, unheard=())
    for hears_all in (False, False, False, True):
        assert me.hears_all() == hears_all
        await asyncio.sleep(QUICK.heartbeat)
        await me.look(TWO)
