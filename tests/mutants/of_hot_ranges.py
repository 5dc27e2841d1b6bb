"""Breaks of what splits ranges that are too much for one host."""

from .mutant import Mutant

_RANGES = "tests/unit/leases/test_hot_ranges.py"
_SPLIT = "tests/unit/host/test_hot_split.py"
_SHARED = f"{_SPLIT}::test_a_range_that_is_too_much_for_one_host_is_split_and_shared"

HOT_RANGES = (
    Mutant(
        name="a range that is hardly busy is split",
        file="leases/hot_ranges.py",
        before=" and load >= LEAST_BUSY and",
        after=" and",
        rule=0,
        tests=(f"{_RANGES}::test_a_range_that_is_hardly_busy_is_not_split",),
    ),
    Mutant(
        name="a range that is a fair share is split",
        file="leases/hot_ranges.py",
        before=" and load > TOLERANCE * fair:",
        after=" and load > fair:",
        rule=0,
        tests=(
            f"{_RANGES}::test_beside_all_that_the_rules_allow_the_heaviest_of_each_range_are_split",
        ),
    ),
    Mutant(
        name="hot ranges are split without an end",
        file="leases/hot_ranges.py",
        before="    room = PARTS_EACH * len(hosts) - len(parts)\n",
        after="    room = PARTS_EACH * len(hosts) + len(parts)\n",
        rule=0,
        tests=(
            f"{_RANGES}::test_loads_that_say_anything_at_any_time_end_with_two_parts_for_each_host",
        ),
    ),
    Mutant(
        name="parts that were just made are split again",
        file="leases/hot_ranges.py",
        before=" and lease.next_owner is None and not lease.moved\n",
        after=" and lease.next_owner is None\n",
        rule=0,
        tests=(f"{_RANGES}::test_no_part_is_split_while_another_of_its_range_is_not_settled",),
    ),
    Mutant(
        name="a range is split beside one that an operator merges",
        file="leases/hot_ranges.py",
        before="    kept = lease.paused is None and",
        after="    kept =",
        rule=12,
        tests=(f"{_RANGES}::test_no_part_is_split_while_another_of_its_range_is_not_settled",),
    ),
    Mutant(
        name="two parts of one range are split at a time",
        file="leases/hot_ranges.py",
        before="        unsettled.append(lease.range)\n",
        after="",
        rule=0,
        tests=(
            f"{_RANGES}::test_beside_all_that_the_rules_allow_the_heaviest_of_each_range_are_split",
        ),
    ),
    Mutant(
        name="an attempt to split that was cut off forbids the next",
        file="leases/hot_ranges.py",
        before="if x.epoch or names.isdisjoint(x.range.parents)]",
        after="if names or x.epoch]",
        rule=0,
        tests=(f"{_RANGES}::test_what_a_split_that_was_cut_off_has_left_stands_in_no_way",),
    ),
    Mutant(
        name="ranges are split beside hosts that do not say so",
        file="host/fleet_settings.py",
        before="lambda x: x.split_hot)",
        after="lambda _: True)",
        rule=12,
        tests=(f"{_SPLIT}::test_nothing_is_split_while_one_host_does_not_say_that_it_splits",),
    ),
    Mutant(
        name="ranges are split beside processors of another kind",
        file="host/balancing/balancer.py",
        before=" or self._sharing.with_others or not self._quiet:",
        after=" or not self._quiet:",
        rule=12,
        tests=(f"{_SPLIT}::test_a_processor_of_another_kind_that_was_seen_keeps_ranges_whole",),
    ),
    Mutant(
        name="a range is split with something unacknowledged",
        file="host/workers/delivery.py",
        before=" or self._acknowledgements.unacknowledged\n        return not in_hand",
        after="\n        return not in_hand",
        rule=12,
        tests=(f"{_SPLIT}::test_a_range_with_something_unacknowledged_is_read_on_whole",),
    ),
    Mutant(
        name="a range is split before its checkpoint is stored",
        file="host/workers/hot_split.py",
        before="        await self._checkpoints.written()\n",
        after="",
        rule=12,
        tests=(_SHARED,),
    ),
    Mutant(
        name="a range that has just been taken is split",
        file="host/workers/hot_split.py",
        before="        self._not_before = self._clock() + self._cooldown\n        self.into",
        after="        self._not_before = self._clock()\n        self.into",
        rule=0,
        tests=(_SHARED,),
    ),
    Mutant(
        name="a split takes over a lease that was read under the same name",
        file="host/workers/hot_split.py",
        before="        refuse_taken([x for x in there if x is not None], cut)\n",
        after="        assert len(there) == len(cut)\n",
        rule=12,
        tests=(
            f"{_SPLIT}::test_parts_with_leases_that_were_read_are_not_made_until_those_are_gone",
        ),
    ),
    Mutant(
        name="parts that were just made carry no mark",
        file="host/workers/successors.py",
        before="            moved=load is not None,\n",
        after="            moved=False,\n",
        rule=0,
        tests=(f"{_SPLIT}::test_parts_share_the_load_of_the_range_and_stay_for_a_cooldown",),
    ),
)
