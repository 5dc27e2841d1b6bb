"""Positions and lineage that a fleet gets back, in containers of several kinds."""

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict, LeaseGone
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.operations.restore import Change, carry_out, read_all, steps_to
from changefeed.leases.plan import assignable
from changefeed.leases.position_file import read, written
from tests.support.lease_containers import memory_separate

A = HostName("a")
KINDS: list[Callable[[], LeaseContainer]] = [MemoryLeases, memory_separate]
Facts = dict[str, tuple[str | None, bool, str | None]]


def lease(
    name: str,
    position: str,
    *,
    epoch: int = 1,
    parents: tuple[str, ...] = (),
    ended: bool = False,
    paused: str | None = None,
) -> Lease:
    return Lease(
        range=FeedRange(id=RangeId(name), parents=tuple(RangeId(x) for x in parents)),
        continuation=Continuation(position),
        epoch=epoch,
        checkpoint_epoch=epoch,
        ended=ended,
        paused=paused,
    )


async def filled(container: LeaseContainer, leases: Collection[Lease]) -> LeaseContainer:
    for one in leases:
        await container.create(one)
    return container


async def whole(container: LeaseContainer) -> list[Lease]:
    found = await read_all(container)
    assert found is not None
    return [*found]


async def restored(container: LeaseContainer, wanted: Collection[Lease]) -> list[Change]:
    steps = steps_to(wanted, await whole(container))
    for step in steps:
        await carry_out(container, step)
    return [x.change for x in steps]


async def facts(container: LeaseContainer) -> Facts:
    return {x.range_id: (x.continuation, x.ended, x.paused) for x in await whole(container)}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_empty_container_of_another_kind_gets_all_of_it(
    kind: Callable[[], LeaseContainer],
) -> None:
    saved = [
        lease("r0", "9", ended=True, epoch=4),
        lease("r1", "3", parents=("r0",), epoch=2),
        lease("r2", "5", paused="bad data"),
    ]
    container = kind()
    assert await restored(container, read(written(saved))) == [Change.CREATE] * 3
    assert await facts(container) == {
        "r0": ("9", True, None),
        "r1": ("3", False, None),
        "r2": ("5", False, "bad data"),
    }
    assert [x.epoch for x in await whole(container)] == [4, 2, 1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fleet_goes_back_to_before_a_range_was_split(
    kind: Callable[[], LeaseContainer],
) -> None:
    before = [lease("r0", "3"), lease("r9", "7", paused="bad data")]
    after = [
        lease("r0", "9", ended=True, epoch=2),
        lease("r1", "20", parents=("r0",), epoch=5),
        lease("r2", "30", parents=("r0",), epoch=5),
        lease("r9", "8", epoch=3),
    ]
    container = await filled(kind(), after)
    changes = await restored(container, before)
    assert changes == [Change.MOVE, Change.MOVE, Change.DELETE, Change.DELETE]
    assert await facts(container) == {"r0": ("3", False, None), "r9": ("7", False, "bad data")}
    assert [x.epoch for x in await whole(container)] == [3, 4], "an epoch never goes down"
    # What the range goes on in starts at its beginning again, not where it was before.
    await container.create(lease("r1", "0", parents=("r0",), epoch=0))
    assert (await facts(container))["r1"] == ("0", False, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_former_owner_writes_nothing_after_it(
    kind: Callable[[], LeaseContainer],
) -> None:
    container = await filled(kind(), [lease("r0", "9")])
    (stored,) = await whole(container)
    owned = await container.acquire(stored.taken_by(A, Incarnation("a-1")))
    await restored(container, [lease("r0", "3")])
    with pytest.raises(LeaseConflict):
        await container.checkpoint(owned.advanced_to(Continuation("11")))
    assert (await facts(container))["r0"] == ("3", False, None)
    assert [x.owner for x in await container.list()] == [None]


async def test_a_second_restore_has_nothing_to_do() -> None:
    saved = [lease("r0", "3"), lease("r1", "5", ended=True)]
    container = await filled(MemoryLeases(), [lease("r0", "9"), lease("r2", "1")])
    await restored(container, saved)
    assert await restored(container, saved) == [Change.KEEP] * 2


async def test_a_range_that_waits_for_its_parent_is_left_to_it() -> None:
    """Under a new epoch it would be read beside its parent, and order would be lost."""
    saved = [lease("r0", "3"), lease("r1", "0", parents=("r0",), epoch=0)]
    container = await filled(
        MemoryLeases(), [lease("r0", "9", ended=True), lease("r1", "4", parents=("r0",))]
    )
    assert await restored(container, saved) == [Change.MOVE, Change.DELETE]
    assert [x.range_id for x in assignable(await container.list())] == ["r0"]


async def test_a_lease_that_a_host_has_created_meanwhile_is_not_taken_for_ours() -> None:
    container = MemoryLeases()
    (step,) = steps_to([lease("r0", "3")], [])
    await container.create(lease("r0", "0"))
    with pytest.raises(LeaseGone, match="meanwhile"):
        await carry_out(container, step)


class Splitting(MemoryLeases):
    """A range ends, and another begins, while the leases are read."""

    ends = 1

    async def read(self, range_id: RangeId) -> Lease | None:
        found = await super().read(range_id)
        if found is not None and self.ends and not found.ended:
            self.ends -= 1
            await self.create(lease(f"child-{self.ends}", "0", parents=(range_id,)))
            await self.replace(replace(found, ended=True))
        return found


async def test_lineage_is_of_one_moment() -> None:
    container = Splitting()
    await container.create(lease("r0", "9"))
    assert await facts(container) == {"r0": ("9", True, None), "child-0": ("0", False, None)}


async def test_lineage_that_never_rests_is_not_saved() -> None:
    container = Splitting()
    container.ends = 1_000
    await container.create(lease("r0", "9"))
    assert await read_all(container) is None
