"""What every lease container promises, as tests over the fixtures ``connect`` and ``leases``.

Nothing here depends on time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import (
    ContainerUnavailable,
    LeaseConflict,
    LeaseError,
    LeaseGone,
    MemberConflict,
)
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Incarnation, Lease, Member, Version, WriteId
from changefeed.testing.proxies import Cutting, proxied

Connect = Callable[[], Awaitable[LeaseContainer]]
"""Makes one more client to the same data; it is closed with the container."""

A, B = HostName("a"), HostName("b")
A1, A2, B1 = Incarnation("a-1"), Incarnation("a-2"), Incarnation("b-1")
R0 = RangeId("r0")
C0, C1, C2, C3 = (Continuation(f"c{n}") for n in range(4))
W1, W2 = WriteId("w1"), WriteId("w2")

GARBAGE = [
    "",
    "nonsense",
    "[]",
    "{}",
    "9999999",
    '["x",null,0]',
    '["x","y",7]',
    "ü\0",
    "v" * 4096,
]


def new(range_id: RangeId = R0) -> Lease:
    return Lease(range=FeedRange(id=range_id), continuation=C0)


async def whole(leases: LeaseContainer, range_id: RangeId = R0) -> Lease:
    lease = await leases.read(range_id)
    assert lease is not None
    assert lease.continuation is not None
    return lease


async def owned_by_a(leases: LeaseContainer) -> Lease:
    lease = await leases.create(new())
    return await leases.acquire(lease.taken_by(A, A1))


def as_written(lease: Lease) -> Lease:
    return replace(lease, version=Version(""))


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
    assert (won.epoch, won.continuation) == (1, C0)


async def test_of_many_creators_one_wins_and_the_others_get_his(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]

    async def create(n: int) -> Lease:
        lease = replace(new(), continuation=Continuation(f"start {n}"))
        return await clients[n % 3].create(lease)

    answers = await asyncio.gather(*map(create, range(12)))
    stored = await whole(clients[0])
    assert len(await clients[1].list()) == 1
    assert {x.continuation for x in answers} <= {None, stored.continuation}
    for answer in answers:
        assert answer.without_continuation() == replace(
            stored, continuation=None, version=answer.version
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


# Reading


async def test_creating_what_is_there_returns_it_and_changes_nothing(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    again = await leases.create(replace(new(), continuation=C3))
    assert (again.owner, again.epoch) == (A, 1)
    assert again.continuation in {None, C0}
    assert await whole(leases) == owned


async def test_a_listing_leaves_continuations_out(leases: LeaseContainer) -> None:
    for n in range(3):
        await leases.create(new(RangeId(f"r{n}")))
    listed = await leases.list()
    assert sorted(x.range_id for x in listed) == ["r0", "r1", "r2"]
    assert {x.continuation for x in listed} == {None}


async def test_a_new_container_is_empty(leases: LeaseContainer) -> None:
    assert list(await leases.list()) == []
    assert list(await leases.members()) == []
    assert await leases.read(R0) is None


async def test_a_new_lease_needs_a_continuation(leases: LeaseContainer) -> None:
    with pytest.raises(ValueError, match="continuation"):
        await leases.create(new().without_continuation())
    assert list(await leases.list()) == []


# Replacing


async def test_a_write_without_a_continuation_leaves_the_stored_one(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C1))
    written = await leases.replace(owned.without_continuation().renewed())
    assert written.continuation is None
    assert written.version != owned.version
    assert await whole(leases) == replace(written, continuation=C1)
    assert written.checkpoint_epoch == 1


async def test_a_write_with_a_continuation_stores_it(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    written = await leases.replace(owned.advanced_to(C1).released())
    assert as_written(written) == as_written(owned.advanced_to(C1).released())
    assert await whole(leases) == written


async def test_a_listed_copy_may_carry_a_continuation_back(leases: LeaseContainer) -> None:
    await owned_by_a(leases)
    (listed,) = await leases.list()
    written = await leases.replace(listed.advanced_to(C2))
    assert await whole(leases) == written
    assert written.continuation == C2


async def test_an_unchanged_write_moves_the_version_as_well(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    await leases.replace(owned)
    with pytest.raises(LeaseConflict):
        await leases.replace(owned)


async def test_of_two_writers_with_the_same_copy_the_second_is_told(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    won = await leases.replace(owned.without_continuation().renewed())
    late = owned.renewed().stamped(write_id=W2, stamp=7.0)
    with pytest.raises(LeaseConflict) as caught:
        await leases.replace(late.without_continuation())
    assert (caught.value.lease.range_id, caught.value.lease.write_id) == (R0, W2)
    assert (await whole(leases)).write_id == won.write_id


async def test_a_request_for_a_lease_makes_the_owner_read_again(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    (listed,) = await leases.list()
    await leases.replace(replace(listed, next_owner=B))
    with pytest.raises(LeaseConflict):
        await leases.replace(owned.without_continuation().renewed())
    found = await whole(leases)
    assert (found.owner, found.next_owner, found.sign_of_life) == (A, B, owned.sign_of_life)
    renewed = await leases.replace(found.without_continuation().renewed())
    assert renewed.next_owner == B


async def test_how_its_observer_gets_on_is_carried_with_a_lease_and_stays_when_released(
    leases: LeaseContainer,
) -> None:
    failing = RangeHealth(last_progress=1.5, failing_since=2.5, last_error="KeyError: 'x' → é")
    owned = await owned_by_a(leases)
    renewed = await leases.replace(owned.without_continuation().renewed().with_health(failing))
    assert renewed.health == failing
    assert [x.health for x in await leases.list()] == [failing]
    moved = await leases.checkpoint((await whole(leases)).advanced_to(C1))
    assert moved.health == failing
    await leases.replace(moved.without_continuation().released())
    assert (await whole(leases)).health == failing
    won = await leases.acquire((await whole(leases)).taken_by(B, B1))
    assert won.health == failing
    recovered = RangeHealth(last_progress=3.5)
    await leases.replace(won.without_continuation().with_health(recovered))
    assert (await whole(leases)).health == recovered


# Epochs


async def test_acquiring_returns_the_lease_whole(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C1))
    await leases.replace(owned.without_continuation().renewed())
    (listed,) = await leases.list()
    won = await leases.acquire(listed.taken_by(B, B1))
    assert (won.owner, won.epoch, won.continuation) == (B, 2, C1)
    assert await whole(leases) == won


async def test_a_continuation_that_is_carried_along_is_not_written_by_acquiring(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C2))
    won = await leases.acquire(replace(owned.taken_by(B, B1), continuation=C1))
    assert won.continuation == C2
    assert await whole(leases) == won


async def test_a_checkpoint_is_all_that_a_checkpoint_writes(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    await leases.checkpoint(owned.renewed().stamped(write_id=W1, stamp=9.0).advanced_to(C1))
    found = await whole(leases)
    assert found.continuation == C1
    assert (found.owner, found.renewals, found.stamp) == (A, owned.renewals, None)


async def test_after_an_acquisition_the_old_owner_cannot_checkpoint(
    leases: LeaseContainer,
) -> None:
    zombie = await owned_by_a(leases)
    (listed,) = await leases.list()
    won = await leases.acquire(listed.taken_by(B, B1))
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(zombie.advanced_to(C1))
    with pytest.raises(LeaseConflict):
        await leases.replace(zombie.advanced_to(C1).released())
    assert await whole(leases) == won


async def test_nor_can_one_that_has_read_the_new_version(leases: LeaseContainer) -> None:
    zombie = await owned_by_a(leases)
    (listed,) = await leases.list()
    won = await leases.acquire(listed.taken_by(B, B1))
    for copy in (await whole(leases), (await leases.list())[0]):
        with pytest.raises(LeaseConflict):
            await leases.checkpoint(replace(zombie.advanced_to(C1), version=copy.version))
    assert await whole(leases) == won
    assert (await leases.checkpoint(won.advanced_to(C2))).continuation == C2


async def test_an_older_checkpoint_of_the_same_owner_is_refused(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    newer = await leases.checkpoint(owned.advanced_to(C2))
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(owned.advanced_to(C1))
    assert (await whole(leases)).continuation == C2
    written = await leases.checkpoint(newer.advanced_to(C3))
    assert (written.continuation, written.checkpoint_epoch) == (C3, 1)


async def test_a_checkpoint_is_under_the_epoch_of_its_lease(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    written = await leases.checkpoint(replace(owned, continuation=C1))
    assert written.checkpoint_epoch == 1
    await leases.replace(written.without_continuation().renewed())
    (listed,) = await leases.list()
    assert listed.checkpoint_epoch == 1


async def test_a_lease_is_handed_over_in_one_write(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    await leases.replace(owned.advanced_to(C1).taken_by(B, B1))
    found = await whole(leases)
    assert (found.owner, found.epoch, found.continuation) == (B, 2, C1)
    got = await leases.acquire(found.renewed())  # the same epoch: shuts out the old owner
    assert (got.owner, got.epoch, got.continuation) == (B, 2, C1)
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(owned.advanced_to(C0))
    assert (await leases.checkpoint(got.advanced_to(C2))).continuation == C2
    assert (await whole(leases)).continuation == C2


async def test_an_ended_lease_stays_as_a_tombstone(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    await leases.replace(owned.advanced_to(C2).finished())
    (listed,) = await leases.list()
    assert (listed.ended, listed.owner) == (True, None)
    assert (await whole(leases)).continuation == C2
    await leases.delete(listed)
    assert await leases.read(R0) is None


# Versions and leases that are not there


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_version_nobody_gave_out_conflicts(
    leases: LeaseContainer, garbage: str
) -> None:
    owned = await owned_by_a(leases)
    forged = replace(owned, version=Version(garbage))
    with pytest.raises(LeaseConflict):
        await leases.replace(forged.advanced_to(C1))
    with pytest.raises(LeaseConflict):
        await leases.replace(forged.without_continuation())
    with pytest.raises(LeaseConflict):
        await leases.acquire(forged.taken_by(B, B1))
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(forged.advanced_to(C1))
    with pytest.raises(LeaseConflict):
        await leases.delete(forged)
    assert await whole(leases) == owned


async def refusals(leases: LeaseContainer, lease: Lease) -> list[type[BaseException]]:
    answers = [
        leases.replace(lease.advanced_to(C1)),
        leases.replace(lease.without_continuation()),
        leases.acquire(lease.taken_by(B, B1)),
        leases.checkpoint(lease.advanced_to(C1)),
        leases.delete(lease),
    ]
    caught: list[type[BaseException]] = []
    for answer in answers:
        with pytest.raises(LeaseError) as error:
            await answer
        caught.append(error.type)
    return caught


async def test_a_deleted_lease_is_gone_for_every_write(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    (listed,) = await leases.list()
    await leases.delete(owned)
    assert await refusals(leases, owned) == [LeaseGone] * 5
    assert await refusals(leases, listed) == [LeaseGone] * 5
    assert await refusals(leases, replace(owned, version=Version("?"))) == [LeaseGone] * 5
    assert list(await leases.list()) == []


async def test_a_lease_that_was_recreated_is_another(leases: LeaseContainer) -> None:
    first = await leases.create(new())
    await leases.delete(first)
    again = await leases.create(replace(new(), continuation=C3))
    assert await refusals(leases, first) == [LeaseConflict] * 5
    assert (await whole(leases)).continuation == C3
    assert (await leases.acquire(again.taken_by(A, A1))).continuation == C3


async def test_a_lease_written_since_is_not_deleted(leases: LeaseContainer) -> None:
    stale = await owned_by_a(leases)
    await leases.replace(stale.without_continuation().renewed())
    with pytest.raises(LeaseConflict):
        await leases.delete(stale)
    assert (await whole(leases)).owner == A


# Lost answers


@pytest.mark.parametrize("method", ["replace", "acquire"])
@pytest.mark.parametrize("carries", [True, False])
async def test_a_writer_whose_answer_was_lost_finds_his_write(
    leases: LeaseContainer, method: str, *, carries: bool
) -> None:
    owned = await owned_by_a(leases)
    wanted = owned.taken_by(A, A2).stamped(write_id=W1, stamp=1.0)
    wanted = wanted if carries else wanted.without_continuation()

    cut = Cutting(ContainerUnavailable("lost on the way there"), at=1)
    with pytest.raises(ContainerUnavailable):
        await getattr(proxied(leases, cut), method)(wanted)
    assert (await whole(leases)).write_id is None

    cut = Cutting(ContainerUnavailable("lost on the way back"), at=1, after=True)
    with pytest.raises(ContainerUnavailable):
        await getattr(proxied(leases, cut), method)(wanted)
    found = await whole(leases)
    assert (found.write_id, found.owner, found.incarnation, found.epoch) == (W1, A, A2, 2)
    with pytest.raises(LeaseConflict):
        await getattr(leases, method)(wanted)
    assert (await leases.acquire(found.renewed())).continuation == C0


@pytest.mark.parametrize(("after", "stored"), [(False, C0), (True, C1)])
async def test_a_checkpoint_whose_answer_was_lost_is_written_again(
    leases: LeaseContainer, stored: Continuation, *, after: bool
) -> None:
    owned = await owned_by_a(leases)
    wanted = owned.advanced_to(C1).stamped(write_id=W1, stamp=1.0)
    cut = Cutting(ContainerUnavailable("lost"), at=1, after=after)
    with pytest.raises(ContainerUnavailable):
        await proxied(leases, cut).checkpoint(wanted)
    found = await whole(leases)
    assert found.continuation == stored
    assert (found.owner, found.incarnation, found.epoch) == (A, A1, 1)  # still his
    await leases.checkpoint(found.advanced_to(C1))
    assert (await whole(leases)).continuation == C1


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
                lease = await leases.replace(lease.without_continuation().renewed())
            await asyncio.sleep(0)

    async def checkpoint() -> None:
        nonlocal lease
        for n in range(10):
            async with lock:
                lease = await leases.checkpoint(lease.advanced_to(Continuation(f"at {n}")))
            await asyncio.sleep(0)

    await asyncio.gather(renew(), checkpoint())
    found = await whole(leases)
    assert (found.renewals, found.continuation) == (11, "at 9")


async def test_without_the_lock_they_may_conflict_but_lose_nothing(
    connect: Connect,
) -> None:
    one, other = await connect(), await connect()
    owned = await owned_by_a(one)
    renewed, advanced = await asyncio.gather(
        one.replace(owned.without_continuation().renewed()),
        other.checkpoint(owned.advanced_to(C1)),
        return_exceptions=True,
    )
    assert isinstance(renewed, Lease) or isinstance(advanced, Lease)
    found = await whole(one)
    assert (found.renewals == 2) == isinstance(renewed, Lease)
    assert (found.continuation == C1) == isinstance(advanced, Lease)
    if not isinstance(renewed, Lease):
        assert isinstance(renewed, LeaseConflict)
        await one.replace(found.without_continuation().renewed())
    if not isinstance(advanced, Lease):
        assert isinstance(advanced, LeaseConflict)
        await one.checkpoint(found.advanced_to(C1))
    found = await whole(other)
    assert (found.renewals, found.continuation) == (2, C1)


# Any text, any value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "with space / slash # ? % \\",
        '"7052"',
        "null",
        "Zürich 地 🛫 e\u0301",
        "a\0b",
        "x" * 4096,
    ],
)
async def test_names_and_positions_may_be_any_text(leases: LeaseContainer, text: str) -> None:
    await leases.create(new(RangeId("other")))
    parents = (RangeId(text), RangeId("p"))
    place = FeedRange(id=RangeId("r" + text), low=text, high=text, parents=parents)
    lease = Lease(
        range=place,
        owner=HostName(text),
        incarnation=Incarnation(text),
        next_owner=HostName(text),
        continuation=Continuation(text),
        write_id=WriteId(text),
    )
    await leases.create(lease)
    found = await whole(leases, place.id)
    assert as_written(found) == lease
    await leases.put_member(Member(name=HostName("h" + text), incarnation=Incarnation(text)))
    assert [(x.name, x.incarnation) for x in await leases.members()] == [("h" + text, text)]
    await leases.delete(found)
    assert [x.range_id for x in await leases.list()] == ["other"]


# Members


async def test_a_member_is_seen_by_all_and_beats(connect: Connect) -> None:
    one, other = await connect(), await connect()
    a = await one.put_member(Member(name=A, incarnation=A1))
    b = await other.put_member(Member(name=B, incarnation=B1, address="http://b:8080"))
    a = await one.put_member(replace(a, heartbeats=1, stamp=5.0))
    assert sorted(await other.members(), key=lambda x: x.name) == [a, b]


async def test_of_two_incarnations_under_one_name_the_second_is_told(
    connect: Connect,
) -> None:
    one, other = await connect(), await connect()
    first = await one.put_member(Member(name=A, incarnation=A1))
    with pytest.raises(MemberConflict, match="a-1") as caught:
        await other.put_member(Member(name=A, incarnation=A2))
    assert caught.value.member.incarnation == A2
    assert list(await one.members()) == [first]


async def test_of_many_hosts_that_start_under_one_name_one_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(2)]
    starts = [Member(name=A, incarnation=Incarnation(f"start {n}")) for n in range(10)]
    answers = await asyncio.gather(
        *(clients[n % 2].put_member(start) for n, start in enumerate(starts)),
        return_exceptions=True,
    )
    (won,) = [x for x in answers if isinstance(x, Member)]
    assert sum(isinstance(x, MemberConflict) for x in answers) == 9
    assert list(await clients[1].members()) == [won]


async def test_a_restarted_host_takes_the_record_of_its_dead_self(
    leases: LeaseContainer,
) -> None:
    stale = await leases.put_member(Member(name=A, incarnation=A1))
    (dead,) = await leases.members()
    await leases.put_member(replace(dead, incarnation=A2, heartbeats=0))
    with pytest.raises(MemberConflict, match="a-2"):  # so it was not dead after all
        await leases.put_member(replace(stale, heartbeats=1))


async def test_a_member_is_removed_only_if_nobody_has_written_it(
    leases: LeaseContainer,
) -> None:
    stale = await leases.put_member(Member(name=A, incarnation=A1))
    fresh = await leases.put_member(replace(stale, heartbeats=1))
    await leases.remove_member(stale)
    assert list(await leases.members()) == [fresh]
    await leases.remove_member(fresh)
    assert list(await leases.members()) == []
    await leases.remove_member(fresh)  # not there: nothing to do


async def test_a_removed_member_cannot_go_on_as_if_it_were_there(
    leases: LeaseContainer,
) -> None:
    removed = await leases.put_member(Member(name=A, incarnation=A1))
    await leases.remove_member(removed)
    with pytest.raises(MemberConflict):
        await leases.put_member(replace(removed, heartbeats=1))
    again = await leases.put_member(Member(name=A, incarnation=A2))
    assert again.version != removed.version
