"""What every lease container promises of the records of hosts, as tests over the fixtures
``connect`` and ``leases``.
"""

import asyncio

from msgspec.structs import replace

from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Incarnation, Member
from changefeed.testing.lease_cast import (
    A1,
    A2,
    B1,
    A,
    B,
    Connect,
    not_refused,
)


async def test_a_member_is_seen_by_all_and_beats(connect: Connect) -> None:
    one, other = await connect(), await connect()
    a = not_refused(await one.put_member(Member(name=A, incarnation=A1)))
    b = not_refused(
        await other.put_member(
            Member(
                name=B,
                incarnation=B1,
                address="http://b:8080",
                software="1.2.3",
                max_ranges=3,
            )
        )
    )
    a = not_refused(await one.put_member(replace(a, heartbeats=1, stamp=5.0)))
    assert sorted(await other.members(), key=lambda x: x.name) == [a, b]


async def test_of_two_incarnations_under_one_name_the_second_is_told(
    connect: Connect,
) -> None:
    one, other = await connect(), await connect()
    first = not_refused(await one.put_member(Member(name=A, incarnation=A1)))
    assert await other.put_member(Member(name=A, incarnation=A2)) is None
    assert list(await one.members()) == [first]


async def test_of_many_hosts_that_start_under_one_name_one_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(2)]
    starts = [Member(name=A, incarnation=Incarnation(f"start {n}")) for n in range(10)]
    answers = await asyncio.gather(
        *(clients[n % 2].put_member(start) for n, start in enumerate(starts))
    )
    (won,) = [x for x in answers if x is not None]
    assert list(await clients[1].members()) == [won]


async def test_a_restarted_host_takes_the_record_of_its_dead_self(
    leases: LeaseContainer,
) -> None:
    stale = not_refused(await leases.put_member(Member(name=A, incarnation=A1)))
    (dead,) = await leases.members()
    await leases.put_member(replace(dead, incarnation=A2, heartbeats=0))
    # So it was not dead after all.
    assert await leases.put_member(replace(stale, heartbeats=1)) is None


async def test_a_member_is_removed_only_if_nobody_has_written_it(
    leases: LeaseContainer,
) -> None:
    stale = not_refused(await leases.put_member(Member(name=A, incarnation=A1)))
    fresh = not_refused(await leases.put_member(replace(stale, heartbeats=1)))
    await leases.remove_member(stale)
    assert list(await leases.members()) == [fresh]
    await leases.remove_member(fresh)
    assert list(await leases.members()) == []
    await leases.remove_member(fresh)  # not there: nothing to do


async def test_a_removed_member_cannot_go_on_as_if_it_were_there(
    leases: LeaseContainer,
) -> None:
    removed = not_refused(await leases.put_member(Member(name=A, incarnation=A1)))
    await leases.remove_member(removed)
    assert await leases.put_member(replace(removed, heartbeats=1)) is None
    again = not_refused(await leases.put_member(Member(name=A, incarnation=A2)))
    assert again.version != removed.version
