"""Which heartbeat keeps which lease alive, and how its owner is fenced before it is taken."""

from dataclasses import replace

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.leases.errors import MemberConflict
from changefeed.leases.expiry import ExpiryWatch, Moment
from changefeed.leases.lease import HostName, Incarnation, Lease, Member
from changefeed.leases.life import Heartbeats, fence_owner, is_placeholder
from changefeed.leases.memory import MemoryLeases
from tests.support import make

R0 = RangeId("r0")
A, A1, A2 = HostName("a"), Incarnation("a-1"), Incarnation("a-2")
OWNED = replace(make.lease().taken_by(A, A1), stamp=100.0)
BY_HEARTBEAT = '{"leases.renewal":"host"}'
BY_RENEWAL = '{"leases.renewal":"lease"}'


def member(
    beats: int = 1, *, incarnation: Incarnation = A1, settings: str = BY_HEARTBEAT
) -> Member:
    return Member(
        name=A, incarnation=incarnation, heartbeats=beats, stamp=500.0, settings=settings
    )


class Watch:
    """Expirations of 30 s, or 20 s where stamps are older than 330 s."""

    def __init__(self) -> None:
        self._heartbeats = Heartbeats()
        self._watch: ExpiryWatch[RangeId] = ExpiryWatch(
            expiration=30.0, max_clock_skew=300.0, renew_interval=10.0
        )

    def expired(
        self, at: float, *members: Member, lease: Lease = OWNED, wall: float = 0
    ) -> bool:
        moment = Moment(asked=at, answered=at, wall=wall)
        return R0 in self._watch.expired(self._heartbeats.lives([lease], members), moment)


def test_a_lease_lives_while_the_heartbeat_of_its_owner_moves() -> None:
    watch = Watch()
    assert not any(watch.expired(x, member(x)) for x in range(0, 200, 10))
    assert not watch.expired(219, member(190))
    assert watch.expired(220, member(190))


def test_a_renewal_keeps_it_as_well() -> None:
    watch = Watch()
    watch.expired(0, member())
    watch.expired(20, member(), lease=OWNED.renewed())
    assert not watch.expired(49, member(), lease=OWNED.renewed())
    assert watch.expired(50, member(), lease=OWNED.renewed())


def test_a_processor_of_another_kind_has_its_whole_time_however_old_its_stamp_looks() -> None:
    """The .NET one renews every 17 s, and two of our renewals are 20 s."""
    watch, theirs = Watch(), replace(OWNED, incarnation=None)
    watch.expired(0, lease=theirs, wall=1_000)
    assert not watch.expired(29, lease=theirs, wall=1_029)
    assert watch.expired(30, lease=theirs, wall=1_030)


def test_another_start_of_the_same_host_keeps_nothing_of_the_one_before_it() -> None:
    watch = Watch()
    watch.expired(0, member(7))
    assert not watch.expired(20, member(1, incarnation=A2))
    assert watch.expired(30, member(2, incarnation=A2))


def test_a_start_that_owns_leases_itself_keeps_none_of_the_one_before_it() -> None:
    heartbeats = Heartbeats()
    of_the_next = replace(make.lease("r1").taken_by(A, A2), stamp=100.0)
    heartbeats.lives([OWNED, of_the_next], [member(7)])
    first = heartbeats.lives([OWNED, of_the_next], [member(1, incarnation=A2)])
    later = heartbeats.lives([OWNED, of_the_next], [member(2, incarnation=A2)])
    assert first[R0] == later[R0]
    assert first[of_the_next.range_id] != later[of_the_next.range_id]


@pytest.mark.parametrize("settings", [BY_RENEWAL, "", "not json"])
def test_a_host_that_renews_each_lease_is_judged_by_its_leases_alone(settings: str) -> None:
    watch = Watch()
    watch.expired(0, member(1, settings=settings))
    assert watch.expired(30, member(9, settings=settings))


def test_a_record_that_a_listing_lacks_has_not_moved_and_is_not_dead() -> None:
    watch = Watch()
    watch.expired(0, member(1))
    assert not watch.expired(10)
    assert not watch.expired(29, member(1))
    assert watch.expired(30)


def test_leases_are_as_old_as_the_newest_stamp_of_lease_and_owner() -> None:
    watch = Watch()
    watch.expired(0, member(), wall=800.0)
    assert not watch.expired(20, member(), wall=829.0)
    assert watch.expired(21, member(), wall=830.0)


def test_a_lease_whose_owner_has_no_record_in_sight_is_not_judged_by_its_stamp() -> None:
    watch = Watch()
    watch.expired(0, wall=9_000.0)
    assert not watch.expired(29, wall=9_029.0)
    assert watch.expired(30, wall=9_030.0)


async def test_to_fence_an_owner_refuses_the_heartbeat_that_is_on_its_way() -> None:
    container = MemoryLeases()
    beating = await container.put_member(member())
    await fence_owner(container, OWNED, [beating])
    with pytest.raises(MemberConflict):
        await container.put_member(replace(beating, heartbeats=2))
    (record,) = await container.members()
    assert record.sign_of_life == beating.sign_of_life


async def test_an_owner_that_has_beaten_since_the_listing_is_not_fenced() -> None:
    container = MemoryLeases()
    listed = await container.put_member(member())
    await container.put_member(replace(listed, heartbeats=2))
    with pytest.raises(MemberConflict):
        await fence_owner(container, OWNED, [listed])


async def test_a_record_in_its_place_keeps_an_owner_out_that_has_none() -> None:
    container = MemoryLeases()
    await fence_owner(container, OWNED, [])
    (record,) = await container.members()
    assert (record.incarnation, record.stopping) == (A1, True)
    assert is_placeholder(record)
    with pytest.raises(MemberConflict):
        await container.put_member(member())


async def test_an_owner_whose_record_is_missing_from_the_listing_only_is_not_fenced() -> None:
    container = MemoryLeases()
    await container.put_member(member())
    with pytest.raises(MemberConflict):
        await fence_owner(container, OWNED, [])


async def test_an_older_record_of_a_start_that_renewed_each_lease_fences_no_other() -> None:
    container = MemoryLeases()
    older = await container.put_member(member(incarnation=A2, settings=BY_RENEWAL))
    await container.put_member(replace(member(), version=older.version))
    with pytest.raises(MemberConflict):
        await fence_owner(container, OWNED, [older])


async def test_an_owner_that_no_heartbeat_keeps_is_left_alone() -> None:
    container = MemoryLeases()
    older = await container.put_member(member(settings=""))
    await fence_owner(container, OWNED, [older])
    await fence_owner(container, replace(OWNED, incarnation=None), [])
    await container.put_member(replace(older, heartbeats=2))
