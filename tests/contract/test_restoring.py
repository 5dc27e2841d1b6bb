"""Positions and lineage that are saved from one container and given back to another."""

from collections.abc import Collection

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Position
from changefeed.fleet.restore import LeaseChange, carry_out, read_all, steps_to
from changefeed.leases.checkpoint import Checkpoint, Hole, hash_of
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease, RangeEnd
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.position_file import read, written
from changefeed.testing.lease_cast import A1, A
from tests.support import make

Facts = dict[str, tuple[str | None, RangeEnd | None, str | None, int]]

R0 = make.feed_range("r0", "", "8")
R1 = make.feed_range("r1", "", "8", generation=(1, 0))
END = make.end(R1)
SAVED = [
    make.lease(R0, at="9", end=END, epoch=4),
    make.lease(R1, at="3", epoch=2),
    make.lease("r2", at="5", paused="bad data", epoch=1),
]
WANTED = {
    "r0": ("9", END, None, 4),
    "r1": ("3", None, None, 2),
    "r2": ("5", None, "bad data", 1),
}


async def filled(container: LeaseContainer, leases: Collection[Lease]) -> None:
    for one in leases:
        await container.create(one)


async def restored(container: LeaseContainer, wanted: Collection[Lease]) -> list[LeaseChange]:
    steps = steps_to(wanted, await read_all(container) or [])
    for step in steps:
        await carry_out(container, step)
    return [x.change for x in steps]


async def facts(container: LeaseContainer) -> Facts:
    found = await read_all(container) or []
    return {x.range_id: (x.position, x.end, x.paused, x.epoch) for x in found}


async def test_what_was_saved_in_one_container_is_the_same_in_another(
    leases: LeaseContainer,
) -> None:
    assert await restored(leases, read(written(SAVED))) == [LeaseChange.CREATE] * 3
    assert await facts(leases) == WANTED
    assert await restored(leases, SAVED) == [LeaseChange.KEEP] * 3
    saved = await read_all(leases)
    assert saved is not None
    other = MemoryLeases()
    await restored(other, read(written(saved)))
    assert await facts(other) == WANTED


async def test_a_fleet_goes_back_to_before_a_range_was_split(leases: LeaseContainer) -> None:
    await filled(
        leases,
        [
            make.lease(R0, at="9", end=END, epoch=2),
            make.lease(R1, at="20", epoch=5),
            make.lease("r2", at="30", epoch=5),
            make.lease("r9", at="8", epoch=3),
        ],
    )
    before = [
        make.lease(R0, at="3", epoch=1),
        make.lease("r9", at="7", epoch=1, paused="bad data"),
    ]
    changes = await restored(leases, before)
    assert changes == [
        LeaseChange.MOVE,
        LeaseChange.MOVE,
        LeaseChange.DELETE,
        LeaseChange.DELETE,
    ]
    # An epoch never goes down.
    assert await facts(leases) == {
        "r0": ("3", None, None, 3),
        "r9": ("7", None, "bad data", 4),
    }
    # What the range goes on in starts at its beginning again, not where it was before.
    await leases.create(make.lease(R1, at="0"))
    assert (await facts(leases))["r1"] == ("0", None, None, 0)


async def test_what_is_done_behind_a_position_goes_along_and_what_observers_keep_does_not(
    leases: LeaseContainer,
) -> None:
    checkpoint = Checkpoint(Position("3"), 8, (Hole(hash_of("slow"), 4, 2),))
    saved = replace(make.lease("r0", epoch=1), checkpoint=checkpoint)
    await filled(leases, [make.lease("r0", at="3", epoch=1)])
    assert await restored(leases, read(written([saved]))) == [LeaseChange.MOVE]
    (there,) = await read_all(leases) or []
    assert there.checkpoint == checkpoint
    assert there.reset_epoch == there.epoch
    assert await restored(leases, [saved]) == [LeaseChange.KEEP]


async def test_a_former_owner_writes_nothing_after_it(leases: LeaseContainer) -> None:
    created = await leases.create(make.lease("r0", at="9", epoch=1))
    owned = await leases.acquire(created.taken_by(A, A1))
    await restored(leases, [make.lease("r0", at="3", epoch=1)])
    with pytest.raises(LeaseConflict):
        await leases.checkpoint(owned.advanced_to(Position("11")))
    with pytest.raises(LeaseConflict):
        await leases.replace(owned.renewed())
    assert (await facts(leases))["r0"][0] == "3"
    assert [x.owner for x in await leases.list()] == [None]
