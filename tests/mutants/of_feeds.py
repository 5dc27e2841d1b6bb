"""Breaks of the feeds."""

from .mutant import Mutant

_CONTRACT = "tests/contract/test_feed_contract.py"
_RACES = "tests/integration/test_eventlog_races.py"
_EVENTLOG = "tests/integration/test_eventlog.py"

FEEDS = (
    Mutant(
        name="a range ends before its last page",
        file="feeds/memory.py",
        before="if not changes and found.successors is not None:",
        after="if found.successors is not None:",
        rule=9,
        tests=(
            f"{_CONTRACT}::test_a_split_range_is_read_to_its_end_and_goes_on_in_its_children",
        ),
    ),
    Mutant(
        name="a position before the change it follows",
        file="feeds/memory.py",
        before="        return _position(change.sequence)\n",
        after="        return _position(change.sequence - 1)\n",
        rule=12,
        tests=(_CONTRACT,),
    ),
    Mutant(
        name="a position after the change that follows",
        file="feeds/eventlog/log.py",
        before="        return self._position(change.sequence)\n",
        after="        return self._position(change.sequence + 1)\n",
        rule=12,
        tests=(_CONTRACT,),
    ),
    Mutant(
        name="a time may skip a change",
        file="feeds/eventlog/log.py",
        before="first - 1 + behind(times, time_us))\n",
        after="first + behind(times, time_us))\n",
        rule=12,
        tests=(
            f"{_CONTRACT}::test_a_time_is_before_the_first_change_committed_at_or_after_it_though_clocks_go_back",
        ),
    ),
    Mutant(
        name="an end that was asked for too late hides the last changes",
        file="feeds/eventlog/log.py",
        before="        if end.closed and end.last == last:\n",
        after="        if end.closed:\n",
        rule=9,
        tests=(_RACES,),
    ),
    Mutant(
        name="a position beyond the end is taken for the end",
        file="feeds/eventlog/log.py",
        before="    if last > end.last:\n",
        after="    if last > end.last + 10**9:\n",
        rule=12,
        tests=(
            f"{_CONTRACT}::test_what_is_no_position_of_a_range_is_refused_for_this_range_only",
        ),
    ),
    Mutant(
        name="a log made anew is read on in",
        file="feeds/eventlog/log.py",
        before="        if catalog.identity != self._catalog.identity:\n",
        after="        if not catalog.identity:\n",
        rule=12,
        tests=(f"{_EVENTLOG}::test_a_log_made_anew_refuses_positions_of_the_old_one",),
    ),
    Mutant(
        name="changes go into a range that was closed",
        file="feeds/eventlog/writer.py",
        before="        if tail is None or tail.closed:\n",
        after="        if tail is None:\n",
        rule=9,
        tests=(f"{_EVENTLOG}::test_between_the_two_writes_of_a_succession_everyone_waits",),
    ),
    Mutant(
        name="half a batch is kept",
        file="feeds/eventlog/writer.py",
        before='                    await self._run("ROLLBACK")\n',
        after='                    await self._run("COMMIT")\n',
        rule=12,
        tests=(_RACES,),
    ),
    Mutant(
        name="an append that is cancelled is not waited for",
        file="feeds/eventlog/writer.py",
        before="            await asyncio.wait([writing])\n            raise\n",
        after="            writing.cancel()\n            raise\n",
        rule=12,
        tests=(f"{_EVENTLOG}::test_an_append_that_is_cancelled_leaves_a_whole_batch_or_none",),
    ),
    Mutant(
        name="a commit time that falls hides what came before it",
        file="feeds/eventlog/block_writer.py",
        before="        latest_us = max(latest_us, record[0])\n",
        after="        latest_us = record[0]\n",
        rule=12,
        tests=(
            f"{_CONTRACT}::test_a_time_among_many_changes_is_found_exactly",
            "tests/unit/feeds/eventlog/test_block_writer.py",
        ),
    ),
    Mutant(
        name="a child forgets which parents it had",
        file="feeds/eventlog/succession.py",
        before="x.id for x in closed if x.part == part and x.low <= high and low <= x.high",
        after="x.id for x in closed if x.part == part and x.low == low",
        rule=9,
        tests=(
            f"{_CONTRACT}::test_parents_are_listed_before_their_children_and_bounds_are_passed_on",
            f"{_CONTRACT}::test_each_key_keeps_its_order_through_splits_and_merges",
        ),
    ),
)
