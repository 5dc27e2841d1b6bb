"""Breaks of what plans batches of Spark, and of positions that cross."""

from .mutant import Mutant

_PLANNING = "tests/unit/pipeline/source/test_planning.py"
_STORIES = "tests/unit/pipeline/source/test_planning_properties.py"
_COSMOS = "tests/integration/pipeline/test_cosmos.py"
_ERAS = "tests/integration/pipeline/test_eras.py"

PLANNING = (
    Mutant(
        name="a run that ends leaves out what was merged before it",
        file="pipeline/source/planning.py",
        before="        return max(self.shared[first : last + 1], key=access.order)\n",
        after="        return None\n",
        rule=12,
        tests=(
            f"{_COSMOS}::test_a_run_that_ends_reads_all_of_what_was_merged_before_it_and_nothing_of_later",
        ),
    ),
    Mutant(
        name="a range that has ended names its successors for ever",
        file="pipeline/source/planning.py",
        before="        if not (m.ended and access.successors_inherit_positions)\n",
        after="        if m\n",
        rule=12,
        tests=(_STORIES,),
    ),
    Mutant(
        name="a batch may lack what others have to spare",
        file="pipeline/source/planning.py",
        before="_ROUNDS: Final = 4\n",
        after="_ROUNDS: Final = 1\n",
        rule=12,
        tests=(f"{_COSMOS}::test_what_a_range_only_seems_to_have_is_given_to_the_others",),
    ),
    Mutant(
        name="a range is introduced while a parent is being read",
        file="pipeline/source/lineage.py",
        before="        if waited_for.isdisjoint(found[0][1].range.parents)\n",
        after="",
        rule=9,
        tests=(
            f"{_PLANNING}::test_a_merged_range_waits_for_both_its_parents_even_one_that_is_not_yet_read",
        ),
    ),
    Mutant(
        name="what an offset has left behind is not read on the way there",
        file="pipeline/source/planning.py",
        before="{**{x: Mark(continuation=ends[x]) for x in passed}, **end.marks}",
        after="end.marks if ends is not None else {}",
        rule=12,
        tests=(_PLANNING,),
    ),
    Mutant(
        name="a range that is over is begun again",
        file="pipeline/source/lineage.py",
        before="        if mark.ended and name not in children\n",
        after="        if mark.ended\n",
        rule=12,
        tests=(
            f"{_PLANNING}::test_a_range_that_is_over_is_not_begun_again_by_a_parent_that_still_waits",
        ),
    ),
    Mutant(
        name="a repeated batch is in the order of other ranges",
        file="pipeline/source/feed_reader.py",
        before='heapq.merge(*map(chain.from_iterable, lines), key=attrgetter("sequence"))',
        after="chain.from_iterable(map(chain.from_iterable, lines))",
        rule=9,
        tests=(
            f"{_COSMOS}::test_a_batch_whose_range_was_split_twice_and_merged_since_is_read_as_it_was_planned",
        ),
    ),
    Mutant(
        name="positions of a container that is gone are read in the new one",
        file="pipeline/source/feed_reader.py",
        before="        if feed and feed != self.identity():\n",
        after="        if feed != feed:\n",
        rule=12,
        tests=(
            f"{_COSMOS}::test_a_container_that_was_recreated_while_no_query_ran_is_refused_with_advice",
        ),
    ),
    Mutant(
        name="hosts read again what a query is done with",
        file="pipeline/lease_offsets.py",
        before='    return {**access.resolve_start(sorted(left_out), "now"), **over}\n',
        after="    return over\n",
        rule=12,
        tests=(
            f"{_ERAS}::test_hosts_get_leases_also_for_what_is_over_so_that_they_do_not_read_it_again",
        ),
    ),
    Mutant(
        name="a lease that waits for its parents is a place to start from",
        file="pipeline/lease_offsets.py",
        before="    return not {x.range_id for x in leases if x.ended}.issuperset(",
        after="    return None and set().issuperset(",
        rule=9,
        tests=(_STORIES,),
    ),
    Mutant(
        name="of the ranges below only the next one is compared",
        file="leases/plan.py",
        before="accumulate((high for _, high in bounds), max)",
        after="(high for _, high in bounds)",
        rule=9,
        tests=("tests/unit/leases/test_plan.py",),
    ),
)
