"""Breaks that fleets notice in the troubled worlds of the simulation, where something lasts.

Each test is one seed. Most breaks have tests of their parts, too; here it is the simulation
that is tested: that it makes what it says, and that its checkers see it.
"""

from .mutant import Mutant

_SIMULATION = "tests/simulation/test_simulation.py"
_LASTS = f"{_SIMULATION}::test_nothing_is_lost_whatever_lasts_meanwhile"
_MEMBERS = (
    f"{_SIMULATION}::"
    "test_nothing_is_read_twice_where_a_host_sees_the_members_of_the_fleet_as_they_were"
)
_GRACEFUL = (
    f"{_SIMULATION}::test_nothing_is_repeated_or_left_over_where_acknowledgements_are_late"
)

TROUBLES = (
    Mutant(
        name="a range that the feed refuses is tried again and again",
        file="host/workers/delivery.py",
        before="                return self._pause(text_of(refused))\n",
        after="                await self._drain.sleep(5.0)\n",
        rule=10,
        tests=(f"{_LASTS}[seed-0]",),
    ),
    Mutant(
        name="a range that waits for a person is taken by the next host",
        file="leases/plan.py",
        before="        and x.range_id not in paused\n",
        after="        and (x.range_id not in paused or x.owner is None)\n",
        rule=10,
        tests=(f"{_LASTS}[seed-0]",),
    ),
    Mutant(
        name="an observer that is to stop its range is opened again after a second",
        file="host/workers/delivery.py",
        before="            return self._pause(str(failed))\n",
        after="            return await self._drain.sleep(1.0)\n",
        rule=10,
        tests=(f"{_LASTS}[seed-10]",),
    ),
    Mutant(
        name="a range that its observer has stopped is released as any other",
        file="host/workers/worker.py",
        before="return lease.released().paused_because(self._delivery.pause_reason)",
        after="return lease.released()",
        rule=10,
        tests=(f"{_LASTS}[seed-10]",),
    ),
    Mutant(
        name="an observer that is opened again at once waits for no checkpoint",
        file="host/workers/delivery.py",
        before="                await self._checkpoints.written()  # reading",
        after="                # reading",
        rule=12,
        tests=(f"{_LASTS}[seed-114]",),
    ),
    Mutant(
        name="who sees members as they were takes from the living",
        file="host/balancing/rebalance.py",
        before="                await self._fence_owner(lease, members)\n",
        after="                del members\n",
        rule=5,
        tests=(_MEMBERS,),
    ),
    Mutant(
        name="a lease is handed over before late acknowledgements are there",
        file="host/workers/delivery.py",
        before="        await self._until_acknowledged()\n        self._checkpoints.advance()\n"
        "        return self._drain.reason\n",
        after="        self._checkpoints.advance()\n        return self._drain.reason\n",
        rule=4,
        tests=(f"{_GRACEFUL}[seed-18]",),
    ),
    Mutant(
        name="a host that has stopped is still asked for as the next owner",
        file="host/balancing/rebalance.py",
        before="                    elif lease.next_owner == self._me:\n",
        after="                    elif lease.next_owner == self._me and not lease.epoch:\n",
        rule=11,
        tests=(f"{_GRACEFUL}[seed-198]",),
    ),
)
