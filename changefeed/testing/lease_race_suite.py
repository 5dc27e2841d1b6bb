"""What every lease container promises of many writers, and of answers that are lost, as tests
over the fixtures ``connect`` and ``leases``.
"""

import asyncio

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Position
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.runtime.errors import StoreUnavailable
from changefeed.testing.lease_cast import (
    A1,
    A2,
    C0,
    C1,
    W1,
    A,
    Connect,
    new,
    owned_by_a,
    whole,
)
from changefeed.testing.proxies import FailingCall, proxied

# One winner


async def test_of_many_contenders_for_a_lease_one_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]
    await clients[0].create(new())
    (listed,) = await clients[0].list()

    async def contend(n: int) -> Lease:
        claim = listed.taken_by(HostName(f"host {n}"), Incarnation(f"start {n}"))
        return await clients[n % 3].acquire(claim)

    answers = await asyncio.gather(*map(contend, range(30)), return_exceptions=True)
    (won,) = [x for x in answers if isinstance(x, Lease)]
    assert [type(x) for x in answers if not isinstance(x, Lease)] == [LeaseConflict] * 29
    for client in clients:
        assert await whole(client) == won
    assert (won.epoch, won.position) == (1, C0)


async def test_of_many_creators_one_wins_and_the_others_get_his(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]

    async def create(n: int) -> Lease:
        lease = replace(new(), checkpoint=Checkpoint.of_text(f"start {n}"))
        return await clients[n % 3].create(lease)

    answers = await asyncio.gather(*map(create, range(12)))
    stored = await whole(clients[0])
    assert len(await clients[1].list()) == 1
    assert {x.position for x in answers} <= {None, stored.position}
    for answer in answers:
        assert answer.without_position() == replace(
            stored, checkpoint=None, version=answer.version
        )


async def test_every_epoch_has_one_owner_when_many_take_turns(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]
    await clients[0].create(new())
    owners: dict[int, list[HostName]] = {}

    async def contend(n: int) -> None:
        host = HostName(f"host {n}")
        for _ in range(4):
            (listed,) = await clients[n % 3].list()
            try:
                won = await clients[n % 3].acquire(listed.taken_by(host, Incarnation("1")))
            except LeaseConflict:
                continue
            owners.setdefault(won.epoch, []).append(host)

    await asyncio.gather(*map(contend, range(10)))
    last = await whole(clients[0])
    assert [len(hosts) for hosts in owners.values()] == [1] * len(owners)
    assert set(owners) <= set(range(1, last.epoch + 1))
    # A winner that loses it before it has fenced the last owner may not learn its epoch.
    assert owners.get(last.epoch, [last.owner]) == [last.owner]


# Lost answers


@pytest.mark.parametrize("method", ["replace", "acquire"])
@pytest.mark.parametrize("carries", [True, False])
async def test_a_writer_whose_answer_was_lost_finds_his_write(
    leases: LeaseContainer, method: str, *, carries: bool
) -> None:
    owned = await owned_by_a(leases)
    wanted = owned.taken_by(A, A2).stamped(write_id=W1, stamp=1.0)
    wanted = wanted if carries else wanted.without_position()

    cut = FailingCall(StoreUnavailable("lost on the way there"), at=1)
    with pytest.raises(StoreUnavailable):
        await getattr(proxied(leases, cut), method)(wanted)
    assert (await whole(leases)).write_id is None

    cut = FailingCall(StoreUnavailable("lost on the way back"), at=1, after=True)
    with pytest.raises(StoreUnavailable):
        await getattr(proxied(leases, cut), method)(wanted)
    found = await whole(leases)
    assert (found.write_id, found.owner, found.incarnation, found.epoch) == (W1, A, A2, 2)
    with pytest.raises(LeaseConflict):
        await getattr(leases, method)(wanted)
    assert (await leases.acquire(found.taken_by(A, A2))).position == C0


@pytest.mark.parametrize(("after", "stored"), [(False, C0), (True, C1)])
async def test_a_checkpoint_whose_answer_was_lost_is_written_again(
    leases: LeaseContainer, stored: Position, *, after: bool
) -> None:
    owned = await owned_by_a(leases)
    wanted = owned.advanced_to(C1).stamped(write_id=W1, stamp=1.0)
    cut = FailingCall(StoreUnavailable("lost"), at=1, after=after)
    with pytest.raises(StoreUnavailable):
        await proxied(leases, cut).checkpoint(wanted)
    found = await whole(leases)
    assert found.position == stored
    assert (found.owner, found.incarnation, found.epoch) == (A, A1, 1)  # still his
    await leases.checkpoint(found.advanced_to(C1))
    assert (await whole(leases)).position == C1


# One owner who writes from two places


async def test_renewals_and_checkpoints_through_one_lock_all_succeed(
    leases: LeaseContainer,
) -> None:
    lease = await owned_by_a(leases)
    lock = asyncio.Lock()

    async def renew() -> None:
        nonlocal lease
        for _ in range(10):
            async with lock:
                lease = await leases.replace(lease.without_position().renewed())
            await asyncio.sleep(0)

    async def checkpoint() -> None:
        nonlocal lease
        for n in range(10):
            async with lock:
                lease = await leases.checkpoint(lease.advanced_to(Position(f"at {n}")))
            await asyncio.sleep(0)

    await asyncio.gather(renew(), checkpoint())
    found = await whole(leases)
    assert (found.renewals, found.position) == (11, "at 9")


async def test_without_the_lock_they_may_conflict_but_lose_nothing(
    connect: Connect,
) -> None:
    one, other = await connect(), await connect()
    owned = await owned_by_a(one)
    renewed, advanced = await asyncio.gather(
        one.replace(owned.without_position().renewed()),
        other.checkpoint(owned.advanced_to(C1)),
        return_exceptions=True,
    )
    assert isinstance(renewed, Lease) or isinstance(advanced, Lease)
    found = await whole(one)
    assert (found.renewals == 2) == isinstance(renewed, Lease)
    assert (found.position == C1) == isinstance(advanced, Lease)
    if not isinstance(renewed, Lease):
        assert isinstance(renewed, LeaseConflict)
        await one.replace(found.without_position().renewed())
    if not isinstance(advanced, Lease):
        assert isinstance(advanced, LeaseConflict)
        await one.checkpoint(found.advanced_to(C1))
    found = await whole(other)
    assert (found.renewals, found.position) == (2, C1)
