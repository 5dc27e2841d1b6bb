"""What every lease container promises of single leases, as tests over the fixtures
``connect`` and ``leases``. Nothing here depends on time.
"""

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Child, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Hole
from changefeed.leases.container import LeaseContainer
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.errors import (
    LeaseConflict,
)
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import (
    HostName,
    Incarnation,
    KeyRequest,
    Lease,
    Member,
    RangeEnd,
    Version,
    WriteId,
)
from changefeed.testing.lease_cast import (
    A1,
    B1,
    C0,
    C1,
    C2,
    C3,
    R0,
    W2,
    A,
    B,
    as_written,
    new,
    owned_by_a,
    whole,
)

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


# Reading


async def test_creating_what_is_there_returns_it_and_changes_nothing(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    again = await leases.create(replace(new(), checkpoint=Checkpoint(C3)))
    assert (again.owner, again.epoch) == (A, 1)
    assert again.position in {None, C0}
    assert await whole(leases) == owned


async def test_a_listing_leaves_positions_out(leases: LeaseContainer) -> None:
    for n in range(3):
        await leases.create(new(RangeId(f"r{n}")))
    listed = await leases.list()
    assert sorted(x.range_id for x in listed) == ["r0", "r1", "r2"]
    assert {x.position for x in listed} == {None}


async def test_a_new_container_is_empty(leases: LeaseContainer) -> None:
    assert list(await leases.list()) == []
    assert list(await leases.members()) == []
    assert await leases.read(R0) is None


async def test_a_new_lease_needs_a_position(leases: LeaseContainer) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        await leases.create(new().without_position())
    assert list(await leases.list()) == []


# Replacing


async def test_a_write_without_a_position_leaves_the_stored_one(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C1))
    written = await leases.replace(owned.without_position().renewed())
    assert written.position is None
    assert written.version != owned.version
    assert await whole(leases) == replace(written, checkpoint=Checkpoint(C1))
    assert written.checkpoint_epoch == 1


async def test_what_is_done_behind_a_position_is_kept_until_a_checkpoint_says_otherwise(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    behind = Checkpoint(C1, 7, (Hole("00ff00ff00ff00ff", 3, 2),))
    owned = await leases.checkpoint(owned.with_checkpoint(behind))
    assert (await whole(leases)).checkpoint == behind
    owned = await leases.replace(owned.without_position().renewed())
    assert (await whole(leases)).checkpoint == behind
    owned = await leases.replace(owned.with_checkpoint(behind))
    assert (await whole(leases)).checkpoint == behind
    await leases.checkpoint(owned.advanced_to(C1))
    assert (await whole(leases)).checkpoint == Checkpoint(C1)


async def test_a_write_with_a_position_stores_it(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    written = await leases.replace(owned.advanced_to(C1).released())
    assert as_written(written) == as_written(owned.advanced_to(C1).released())
    assert await whole(leases) == written


async def test_a_listed_copy_may_carry_a_position_back(leases: LeaseContainer) -> None:
    await owned_by_a(leases)
    (listed,) = await leases.list()
    written = await leases.replace(listed.advanced_to(C2))
    assert await whole(leases) == written
    assert written.position == C2


async def test_an_unchanged_write_moves_the_version_as_well(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    await leases.replace(owned)
    with pytest.raises(LeaseConflict):
        await leases.replace(owned)


async def test_of_two_writers_with_the_same_copy_the_second_is_told(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    won = await leases.replace(owned.without_position().renewed())
    late = owned.renewed().stamped(write_id=W2, stamp=7.0)
    with pytest.raises(LeaseConflict) as caught:
        await leases.replace(late.without_position())
    assert (caught.value.lease.range_id, caught.value.lease.write_id) == (R0, W2)
    assert (await whole(leases)).write_id == won.write_id


async def test_a_request_for_a_lease_makes_the_owner_read_again(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    (listed,) = await leases.list()
    await leases.replace(replace(listed, next_owner=B))
    with pytest.raises(LeaseConflict):
        await leases.replace(owned.without_position().renewed())
    found = await whole(leases)
    assert (found.owner, found.next_owner, found.sign_of_life) == (A, B, owned.sign_of_life)
    renewed = await leases.replace(found.without_position().renewed())
    assert renewed.next_owner == B


async def test_how_its_observer_gets_on_is_carried_with_a_lease_and_stays_when_released(
    leases: LeaseContainer,
) -> None:
    failing = RangeHealth(last_progress=1.5, failing_since=2.5, last_error="KeyError: 'x' → é")
    owned = await owned_by_a(leases)
    renewed = await leases.replace(owned.without_position().renewed().with_health(failing))
    assert renewed.health == failing
    assert [x.health for x in await leases.list()] == [failing]
    moved = await leases.checkpoint((await whole(leases)).advanced_to(C1))
    assert moved.health == failing
    await leases.replace(moved.without_position().released())
    assert (await whole(leases)).health == failing
    won = await leases.acquire((await whole(leases)).taken_by(B, B1))
    assert won.health == failing
    recovered = RangeHealth(last_progress=3.5)
    await leases.replace(won.without_position().with_health(recovered))
    assert (await whole(leases)).health == recovered


async def test_what_a_person_asks_of_an_owner_and_its_answer_are_carried_with_a_lease(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    asked = KeyRequest(id="x", key="k → é", aside=True)
    await leases.replace(replace(owned.without_position(), key_request=asked))
    assert [x.key_request for x in await leases.list()] == [asked]
    moved = await leases.checkpoint((await whole(leases)).advanced_to(C1))
    assert moved.key_request == asked
    answered = KeyRequest(id="x", key="k → é", aside=True, answer="taken")
    await leases.replace(replace(moved.without_position(), key_request=answered))
    assert (await whole(leases)).key_request == answered


async def test_the_load_of_a_range_is_carried_with_a_lease_and_a_new_owner_finds_it(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    renewed = await leases.replace(
        owned.without_position().renewed().with_load(0.35, cooling=False)
    )
    assert (renewed.load, renewed.cooling) == (0.35, False)
    assert [x.load for x in await leases.list()] == [0.35]
    advanced = await leases.checkpoint((await whole(leases)).advanced_to(C1))
    assert advanced.load == 0.35
    await leases.replace(replace(advanced.without_position(), next_owner=B).handed_over())
    won = await leases.acquire((await whole(leases)).taken_by(B, B1))
    assert (won.load, won.cooling) == (0.35, True)
    await leases.replace(won.without_position().with_load(0.0, cooling=False))
    assert [(x.load, x.cooling) for x in await leases.list()] == [(0.0, False)]


async def test_the_deaths_of_owners_are_carried_with_a_lease_and_count_in_what_acquires_it(
    leases: LeaseContainer,
) -> None:
    await owned_by_a(leases)
    (listed,) = await leases.list()
    deaths = NO_DEATHS.died(read=9).died(read=9)
    second = await leases.acquire(listed.taken_by(B, B1, deaths))
    assert second.deaths == deaths
    noted = replace(second.without_position(), deaths=deaths.noting(17))
    written = await leases.replace(noted)
    assert [x.deaths for x in await leases.list()] == [deaths.noting(17)]
    done = deaths.noting(17).returned(1).progressed()
    moved = replace(written, deaths=done).advanced_to(C1)
    assert (await leases.replace(moved)).deaths == done
    found = await whole(leases)
    assert (found.deaths, found.position) == (done, C1)


# Epochs


async def test_acquiring_returns_the_lease_whole(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C1))
    await leases.replace(owned.without_position().renewed())
    (listed,) = await leases.list()
    won = await leases.acquire(listed.taken_by(B, B1))
    assert (won.owner, won.epoch, won.position) == (B, 2, C1)
    assert await whole(leases) == won


async def test_a_position_that_is_carried_along_is_not_written_by_acquiring(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C2))
    won = await leases.acquire(replace(owned.taken_by(B, B1), checkpoint=Checkpoint(C1)))
    assert won.position == C2
    assert await whole(leases) == won


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
    assert (await leases.checkpoint(won.advanced_to(C2))).position == C2


async def test_an_older_checkpoint_of_the_same_owner_is_refused(
    leases: LeaseContainer,
) -> None:
    owned = await owned_by_a(leases)
    newer = await leases.checkpoint(owned.advanced_to(C2))
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(owned.advanced_to(C1))
    assert (await whole(leases)).position == C2
    written = await leases.checkpoint(newer.advanced_to(C3))
    assert (written.position, written.checkpoint_epoch) == (C3, 1)


async def test_a_checkpoint_is_under_the_epoch_of_its_lease(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    written = await leases.checkpoint(replace(owned, checkpoint=Checkpoint(C1)))
    assert written.checkpoint_epoch == 1
    await leases.replace(written.without_position().renewed())
    (listed,) = await leases.list()
    assert listed.checkpoint_epoch == 1


async def test_a_lease_is_handed_over_in_one_write(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    await leases.replace(owned.advanced_to(C1).taken_by(B, B1))
    found = await whole(leases)
    assert (found.owner, found.epoch, found.position) == (B, 2, C1)
    got = await leases.acquire(found.taken_by(B, B1))  # shuts out the old owner
    assert (got.owner, got.epoch, got.position) == (B, 3, C1)
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(owned.advanced_to(C0))
    assert (await leases.checkpoint(got.advanced_to(C2))).position == C2
    assert (await whole(leases)).position == C2


END = RangeEnd(
    children=(
        Child(
            range=FeedRange(
                id=RangeId("r1~0-8"), low="0", high="8", of=RangeId("r1"), generation=(2, 1)
            ),
            start=C1,
        ),
    ),
    by="split",
    high=9,
    holes=(Hole("00" * 8, 7, 2),),
)


async def test_an_ended_lease_stays_as_a_tombstone(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    paused = await leases.replace(owned.paused_because("a person says so"))
    await leases.replace(paused.advanced_to(C2).ended_in(END))
    (listed,) = await leases.list()
    assert (listed.end, listed.owner, listed.paused) == (END, None, None)
    assert (await whole(leases)).position == C2
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
        await leases.replace(forged.without_position())
    with pytest.raises(LeaseConflict):
        await leases.acquire(forged.taken_by(B, B1))
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(forged.advanced_to(C1))
    with pytest.raises(LeaseConflict):
        await leases.delete(forged)
    assert await whole(leases) == owned


async def refusals(leases: LeaseContainer, lease: Lease) -> list[Lease | None]:
    answers = [
        leases.replace(lease.advanced_to(C1)),
        leases.replace(lease.without_position()),
        leases.acquire(lease.taken_by(B, B1)),
        leases.checkpoint(lease.advanced_to(C1)),
        leases.delete(lease),
    ]
    stored = []
    for answer in answers:
        with pytest.raises(LeaseConflict) as error:
            await answer
        stored.append(error.value.stored)
    return stored


async def test_a_deleted_lease_is_gone_for_every_write(leases: LeaseContainer) -> None:
    owned = await owned_by_a(leases)
    (listed,) = await leases.list()
    await leases.delete(owned)
    assert await refusals(leases, owned) == [None] * 5
    assert await refusals(leases, listed) == [None] * 5
    assert await refusals(leases, replace(owned, version=Version("?"))) == [None] * 5
    assert list(await leases.list()) == []


async def test_a_lease_that_was_recreated_is_another(leases: LeaseContainer) -> None:
    first = await leases.create(new())
    await leases.delete(first)
    again = await leases.create(replace(new(), checkpoint=Checkpoint(C3)))
    (listed,) = await leases.list()
    stored = [x and as_written(x) for x in await refusals(leases, first)]
    assert stored == [as_written(listed)] * 5
    assert (await whole(leases)).position == C3
    assert (await leases.acquire(again.taken_by(A, A1))).position == C3


async def test_a_lease_written_since_is_not_deleted(leases: LeaseContainer) -> None:
    stale = await owned_by_a(leases)
    await leases.replace(stale.without_position().renewed())
    for seen in (stale, stale.ended_in(END)):
        with pytest.raises(LeaseConflict):
            await leases.delete(seen)
    stored = await whole(leases)
    assert (stored.owner, stored.position) == (A, stale.position)


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
    place = FeedRange(
        id=RangeId("r" + text),
        low=text,
        high=text,
        parents=parents,
        of=RangeId(text),
        generation=(3, 1),
    )
    lease = Lease(
        range=place,
        owner=HostName(text),
        incarnation=Incarnation(text),
        next_owner=HostName(text),
        checkpoint=Checkpoint(Position(text)),
        write_id=WriteId(text),
    )
    await leases.create(lease)
    found = await whole(leases, place.id)
    assert as_written(found) == lease
    await leases.put_member(Member(name=HostName("h" + text), incarnation=Incarnation(text)))
    assert [(x.name, x.incarnation) for x in await leases.members()] == [("h" + text, text)]
    await leases.delete(found)
    assert [x.range_id for x in await leases.list()] == ["other"]
