"""Restoring positions beside hosts that go on; the contract tells what it keeps."""

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.fleet.restore import LeaseChange, carry_out, read_all, steps_to
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from tests.support import make

WHOLE = make.feed_range("r0", "0", "8")
CHILD = make.feed_range("r1", "0", "8", generation=(1, 0))
END = make.end(CHILD)


async def test_a_range_goes_on_before_its_end_and_its_child_comes_once_more_after_it() -> None:
    """Read beside its parent, it would not be in order."""
    container = MemoryLeases()
    await container.create(make.lease(WHOLE, at="9", epoch=1, end=END))
    await container.create(make.lease(CHILD, at="4", epoch=1))
    steps = steps_to([make.lease(WHOLE, at="3", epoch=1)], await read_all(container) or [])
    assert [x.change for x in steps] == [LeaseChange.MOVE, LeaseChange.DELETE]
    for step in steps:
        await carry_out(container, step)
    back = KeyMap(await container.list())
    assert [x.range_id for x in back.readable()] == ["r0"]
    (again,) = [x.ended_in(END) for x in back.leases.values()]
    assert [x.child for x in KeyMap([again]).new_leases] == [*END.children]


async def test_a_lease_that_a_host_has_created_meanwhile_is_not_taken_for_ours() -> None:
    container = MemoryLeases()
    (step,) = steps_to([make.lease("r0", at="3", epoch=1)], [])
    await container.create(make.lease("r0", at="0", epoch=1))
    with pytest.raises(LeaseConflict, match="meanwhile"):
        await carry_out(container, step)


class Splitting(MemoryLeases):
    """A range ends, and another begins, while the leases are read."""

    ends = 1

    async def read(self, range_id: RangeId) -> Lease | None:
        found = await super().read(range_id)
        if found is not None and self.ends and not found.ended:
            self.ends -= 1
            await self.replace(make.closed(found))
            await self.create(make.lease(f"child-{self.ends}", at="0"))
        return found


async def test_lineage_is_of_one_moment() -> None:
    container = Splitting()
    await container.create(make.lease("r0", at="9", epoch=1))
    found = await read_all(container)
    assert found is not None
    assert {x.range_id: (x.position, x.ended) for x in found} == {
        "r0": ("9", True),
        "child-0": ("0", False),
    }


async def test_lineage_that_never_rests_is_not_saved() -> None:
    container = Splitting()
    container.ends = 1_000
    await container.create(make.lease("r0", at="9", epoch=1))
    assert await read_all(container) is None
