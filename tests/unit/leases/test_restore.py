"""Restoring positions beside hosts that go on; the contract tells what it keeps."""

from dataclasses import replace

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.leases.errors import LeaseGone
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.operations.restore import Change, carry_out, read_all, steps_to
from changefeed.leases.plan import assignable
from tests.support import make


async def test_a_range_that_waits_for_its_parent_is_left_to_it() -> None:
    """Under a new epoch it would be read beside its parent, and order would be lost."""
    container = MemoryLeases()
    await container.create(make.lease("r0", at="9", epoch=1, ended=True))
    await container.create(make.lease("r1", at="4", epoch=1, parents=["r0"]))
    saved = [make.lease("r0", at="3", epoch=1), make.lease("r1", at="0", parents=["r0"])]
    steps = steps_to(saved, await read_all(container) or [])
    assert [x.change for x in steps] == [Change.MOVE, Change.DELETE]
    for step in steps:
        await carry_out(container, step)
    assert [x.range_id for x in assignable(await container.list())] == ["r0"]


async def test_a_lease_that_a_host_has_created_meanwhile_is_not_taken_for_ours() -> None:
    container = MemoryLeases()
    (step,) = steps_to([make.lease("r0", at="3", epoch=1)], [])
    await container.create(make.lease("r0", at="0", epoch=1))
    with pytest.raises(LeaseGone, match="meanwhile"):
        await carry_out(container, step)


class Splitting(MemoryLeases):
    """A range ends, and another begins, while the leases are read."""

    ends = 1

    async def read(self, range_id: RangeId) -> Lease | None:
        found = await super().read(range_id)
        if found is not None and self.ends and not found.ended:
            self.ends -= 1
            await self.create(make.lease(f"child-{self.ends}", at="0", parents=[range_id]))
            await self.replace(replace(found, ended=True))
        return found


async def test_lineage_is_of_one_moment() -> None:
    container = Splitting()
    await container.create(make.lease("r0", at="9", epoch=1))
    found = await read_all(container)
    assert found is not None
    assert {x.range_id: (x.continuation, x.ended) for x in found} == {
        "r0": ("9", True),
        "child-0": ("0", False),
    }


async def test_lineage_that_never_rests_is_not_saved() -> None:
    container = Splitting()
    container.ends = 1_000
    await container.create(make.lease("r0", at="9", epoch=1))
    assert await read_all(container) is None
