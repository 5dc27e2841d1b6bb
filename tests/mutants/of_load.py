"""Breaks of how hosts share work: what is measured of ranges, and what the plan makes of it."""

from .mutant import Mutant

_PLAN = "tests/unit/leases/test_load_plan.py"
_METER = "tests/unit/host/workers/test_load_meter.py"
_BALANCER = "tests/unit/host/balancing/test_balancer.py"

LOAD = (
    Mutant(
        name="a lease moves twice within the cooldown",
        file="leases/load_plan.py",
        before="movable=not (moving or lease.moved))",
        after="movable=not moving)",
        rule=3,
        tests=(_PLAN,),
    ),
    Mutant(
        name="what is on its way does not count",
        file="leases/load_plan.py",
        before="    draft.balance(max(1, ceil(len(listed) * at_once)) - on_their_way)",
        after="    draft.balance(max(1, ceil(len(listed) * at_once)))",
        rule=3,
        tests=(f"{_PLAN}::test_a_share_of_the_leases_is_on_its_way_at_a_time",),
    ),
    Mutant(
        name="one range that is too heavy excuses all hosts",
        file="leases/load_plan.py",
        before="        rest, alone = rest - weight, alone + 1\n",
        after="        break\n",
        rule=3,
        tests=(
            f"{_PLAN}::test_a_range_that_is_more_than_a_share_does_not_excuse_the_other_hosts",
        ),
    ),
    Mutant(
        name="a range that is too heavy keeps company",
        file="leases/load_plan.py",
        before="        return max(tolerance * self.fair, self.heaviest)",
        after="        return tolerance * max(self.fair, self.heaviest)",
        rule=3,
        tests=(f"{_PLAN}::test_a_range_that_is_more_than_a_share_leaves_its_host_no_other",),
    ),
    Mutant(
        name="a load that is missing counts as none",
        file="leases/load_plan.py",
        before="(mean if x is None else x)",
        after="(x or 0.0)",
        rule=3,
        tests=(f"{_PLAN}::test_what_is_no_load_counts_as_the_mean_of_the_others",),
    ),
    Mutant(
        name="a load may be infinite",
        file="leases/load.py",
        before='    if load is None or not 0.0 <= load < float("inf"):\n',
        after="    if load is None or not 0.0 <= load:\n",
        rule=3,
        tests=(f"{_PLAN}::test_what_is_no_load_counts_as_the_mean_of_the_others",),
    ),
    Mutant(
        name="the largest lease moves where a small one is enough",
        file="leases/load_plan.py",
        before="            return min(enough, fitting - 1)",
        after="            return fitting - 1",
        rule=3,
        tests=(_PLAN,),
    ),
    Mutant(
        name="leases move for nothing where no move helps",
        file="leases/load_plan.py",
        before="        return index if busy <= _GAIN * host.busy else None",
        after="        return index",
        rule=3,
        tests=(f"{_PLAN}::test_what_cannot_be_made_even_stays_unless_much_is_gained",),
    ),
    Mutant(
        name="a host that joins an even fleet gets nothing",
        file="leases/load_plan.py",
        before="(self._take_from_too_many, self._take_from_busy, self._give_to_idle)",
        after="(self._take_from_too_many, self._take_from_busy)",
        rule=3,
        tests=(_PLAN,),
    ),
    Mutant(
        name="a host gets more ranges than it takes",
        file="leases/load_plan.py",
        before="            if -negative == host.room and not host.is_full:\n",
        after="            if -negative == host.room:\n",
        rule=3,
        tests=(f"{_PLAN}::test_a_host_has_no_more_ranges_than_it_may",),
    ),
    Mutant(
        name="idle leases count nothing",
        file="leases/load_plan.py",
        before="    idle = min(_IDLE, _ALL_IDLE * hosts / len(leases))\n",
        after="    idle = 0.0 * hosts\n",
        rule=3,
        tests=(f"{_PLAN}::test_idle_leases_are_spread_by_their_number",),
    ),
    Mutant(
        name="one host by load makes all balance by load",
        file="host/fleet_settings.py",
        before="    if not all(map(agree, found.values())):\n",
        after="    if not any(map(agree, found.values())):\n",
        rule=3,
        tests=(_BALANCER,),
    ),
    Mutant(
        name="a torn listing changes how a fleet balances",
        file="host/balancing/balancer.py",
        before="        self._said |= {x.name: x.settings for x in members}\n",
        after="        self._said = {x.name: x.settings for x in members}\n",
        rule=3,
        tests=(
            f"{_BALANCER}::test_a_torn_listing_without_the_record_of_a_host_does_not_change_the_way",
        ),
    ),
    Mutant(
        name="a release takes off the mark of a move",
        file="leases/lease.py",
        before="            moved=self.moved or self.owner not in (None, host),\n",
        after="            moved=self.owner not in (None, host),\n",
        rule=3,
        tests=(f"{_METER}::test_a_lease_that_a_host_had_or_found_free_was_not_moved",),
    ),
    Mutant(
        name="a stored load follows each measurement",
        file="leases/load.py",
        before="_LEAVES = 0.8 ",
        after="_LEAVES = 0.0 ",
        rule=3,
        tests=(f"{_METER}::test_a_load_is_stored_in_steps_and_stays_on_one_while_it_is_near",),
    ),
    Mutant(
        name="a read that waits for news is work",
        file="host/workers/load_meter.py",
        before="        if changes >= _A_FEW * limit:\n",
        after="        if changes:\n",
        rule=3,
        tests=(_METER,),
    ),
    Mutant(
        name="a call counts when it has ended",
        file="host/workers/load_meter.py",
        before="        self._measure()\n        load = known",
        after="        self._calls, calls = 0, self._calls\n        self._measure()\n"
        "        self._calls = calls\n        load = known",
        rule=3,
        tests=(f"{_METER}::test_a_call_counts_while_it_runs",),
    ),
    Mutant(
        name="a new owner believes any load that it finds",
        file="host/workers/load_meter.py",
        before="        self._load = known(lease.load)\n",
        after="        self._load = lease.load and 1.0 * lease.load\n",
        rule=3,
        tests=(_METER,),
    ),
)
