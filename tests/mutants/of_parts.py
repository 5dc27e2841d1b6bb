"""Breaks of what splits ranges without the feed, and merges them again."""

from .mutant import Mutant

_PARTS = "tests/unit/host/test_parts.py"
_SYNC = "tests/unit/host/balancing/test_range_sync.py"
_LOGS = "tests/unit/host/test_parts_of_logs.py"
_LISTED = "tests/unit/leases/test_parts.py"

PARTS = (
    Mutant(
        name="two runs of a command work on one range at once",
        file="host/parts/stopping.py",
        before="            if elapsed_time() < since + longest:\n",
        after="            if elapsed_time() < 0:\n",
        rule=12,
        tests=(
            f"{_PARTS}::test_of_two_splits_of_one_range_at_once_one_is_done_and_the_other_refused",
            f"{_PARTS}::test_of_two_merges_of_one_part_at_once_one_is_done_and_the_other_refused",
        ),
    ),
    Mutant(
        name="two runs of a command stop a range for one reason",
        file="leases/operations/pause.py",
        before="default_factory=lambda: uuid4().hex[:8])",
        after='default="1")',
        rule=12,
        tests=(
            f"{_PARTS}::test_of_two_splits_of_one_range_at_once_one_is_done_and_the_other_refused",
        ),
    ),
    Mutant(
        name="a run that lives is taken for dead although it has come further",
        file="host/parts/stopping.py",
        before="            if found != seen:\n",
        after="            if seen is None:\n",
        rule=12,
        tests=(
            f"{_PARTS}::test_a_run_that_has_waited_for_an_owner_is_given_time_for_its_writes",
        ),
    ),
    Mutant(
        name="a run that was away for long writes on",
        file="host/parts/stopping.py",
        before="        if elapsed_time() >= self.until:\n",
        after="        if elapsed_time() < 0:\n",
        rule=12,
        tests=(
            f"{_PARTS}::test_a_run_that_was_away_for_so_long_that_another_took_its_range_writes_no_more",
            f"{_PARTS}::test_a_merge_that_was_away_for_so_long_creates_nothing",
        ),
    ),
    Mutant(
        name="a merge that an operator has paused leaves its other parts stopped",
        file="host/parts/merging.py",
        before="        open_leases(leases, range_ids, MERGING)\n    except UserError:\n",
        after="        open_leases(leases, range_ids, MERGING)\n    except ValueError:\n",
        rule=9,
        tests=(
            f"{_PARTS}::test_a_merge_that_an_operator_has_paused_meanwhile_keeps_no_other_part_stopped",
        ),
    ),
    Mutant(
        name="a part that others have ended counts as ended by this merge",
        file="host/parts/stopping.py",
        before="stored.write_id != ended.write_id",
        after="not stored.ended",
        rule=9,
        tests=(
            f"{_PARTS}::test_where_others_end_a_part_for_a_merge_of_theirs_the_rest_goes_on_as_before",
        ),
    ),
    Mutant(
        name="parts that can be merged no more stay stopped",
        file="host/parts/merging.py",
        before="= _joined(leased.parts, found, range_ids)\n    except UserError:",
        after="= _joined(leased.parts, found, range_ids)\n    except ValueError:",
        rule=9,
        tests=(
            f"{_PARTS}::test_parts_that_can_be_merged_no_more_go_on_after_an_attempt_that_was_cut_off",
        ),
    ),
    Mutant(
        name="a merge opens again what another one has ended",
        file="host/parts/merging.py",
        before="_undone(container, joined, ours)",
        after="_undone(container, joined, range_ids)",
        rule=9,
        tests=(
            f"{_PARTS}::test_what_another_merge_has_ended_stays_ended_and_its_rest_can_be_merged",
        ),
    ),
    Mutant(
        name="a merge takes away what alone has the keys of a part that has ended",
        file="host/parts/merging.py",
        before="        if not alone.isdisjoint({*lease.range.parents} - {*merged}):\n",
        after="        if not merged:\n",
        rule=9,
        tests=(
            f"{_PARTS}::test_parts_of_a_merge_that_was_cut_off_are_merged_with_no_others_before",
        ),
    ),
    Mutant(
        name="what follows a range does not wait for the parts of it",
        file="leases/parts.py",
        before="dict.fromkeys([*found.parents, *parts])",
        after="found.parents",
        rule=9,
        tests=(
            f"{_LISTED}::test_what_follows_waits_only_for_parts_that_have_not_ended",
            f"{_LOGS}::test_what_follows_a_range_waits_for_all_its_parts",
        ),
    ),
    Mutant(
        name="what waits for a part begins beside the parts that it is split into",
        file="host/workers/successors.py",
        before="        if lease is not None and not new.issubset(lease.range.parents):\n",
        after="        if lease is None:\n",
        rule=9,
        tests=(
            f"{_LOGS}::test_what_waits_for_a_part_waits_for_the_parts_it_is_split_into",
            f"{_LOGS}::test_what_waits_for_parts_waits_for_what_they_are_merged_into",
        ),
    ),
    Mutant(
        name="what follows a range of a log is ended when a part of that is split",
        file="host/workers/successors.py",
        before="    return not isinstance(feed, KeepsParts) or",
        after="    return True or",
        rule=9,
        tests=(f"{_LOGS}::test_what_waits_for_a_part_waits_for_the_parts_it_is_split_into",),
    ),
    Mutant(
        name="a listing that lacks all parts creates their range beside them",
        file="host/balancing/missing_leases.py",
        before="_missing(with_parts(feed, ranges, listed), listed)",
        after="missing",
        rule=12,
        tests=(f"{_LOGS}::test_a_listing_that_lacks_all_parts_does_not_create_their_range",),
    ),
    Mutant(
        name="parts that were merged into what is not listed make their range come back",
        file="leases/parts.py",
        before="any(x.ended and x.moved for x in self.parts)\n",
        after="False\n",
        rule=12,
        tests=(
            f"{_LISTED}::test_parts_that_were_merged_into_what_is_not_listed_yet_keep_their_range_away",
        ),
    ),
    Mutant(
        name="keys of a part whose lease was deleted are never read again",
        file="leases/parts.py",
        before="        if not self.is_in_parts:\n            return []\n",
        after="        if self.parts:\n            return []\n",
        rule=12,
        tests=(
            f"{_LISTED}::test_keys_that_no_lease_has_are_listed_as_a_part",
            f"{_LOGS}::test_the_lease_of_a_part_that_was_deleted_is_created_again",
        ),
    ),
    Mutant(
        name="a part that was merged stays ended where the feed cuts at its bounds",
        file="host/workers/successors.py",
        before="        if range_id not in self.ancestors:\n",
        after="        if range_id:\n",
        rule=9,
        tests=(
            f"{_SYNC}::test_a_part_that_was_merged_comes_back_where_the_feed_cuts_at_its_bounds",
        ),
    ),
    Mutant(
        name="a listing that lacks all leases makes parts beside them",
        file="host/balancing/missing_leases.py",
        before="        leases = [*leases, *await container.list()]\n",
        after="",
        rule=12,
        tests=(f"{_SYNC}::test_a_listing_that_lacks_all_leases_makes_no_parts_beside_them",),
    ),
    Mutant(
        name="two listings that lack a merged lease bring its parts back beside it",
        file="host/balancing/missing_leases.py",
        before="return _without_lease_on_keys(missing, unlisted)",
        after="return list(missing)",
        rule=12,
        tests=(
            f"{_SYNC}::test_a_merged_lease_that_no_listing_shows_comes_apart_only_if_it_was_deleted",
        ),
    ),
    Mutant(
        name="what is left of first leases that another host creates is created whole",
        file="host/balancing/missing_leases.py",
        before="    if known.difference(",
        after="    if known or known.difference(",
        rule=12,
        tests=(
            f"{_SYNC}::test_a_host_creates_the_same_first_leases_as_one_that_is_just_doing_it",
        ),
    ),
    Mutant(
        name="what a range goes on in is made as first leases, before its reader is there",
        file="host/balancing/missing_leases.py",
        before="if not leases or cut.keys().isdisjoint(x.parents)]",
        after="]",
        rule=12,
        tests=(f"{_SYNC}::test_what_comes_of_a_range_is_made_by_its_reader_in_parts_or_not",),
    ),
    Mutant(
        name="first leases are created again once some of them have ended",
        file="host/balancing/missing_leases.py",
        before=" or any(x.ended for x in leases):\n",
        after=":\n",
        rule=12,
        tests=(
            f"{_SYNC}::test_what_is_missing_of_leases_that_were_read_is_created_as_one_part",
        ),
    ),
    Mutant(
        name="the first leases are fewer than were asked for",
        file="host/balancing/missing_leases.py",
        before="ceil(parallelism / len(ranges))",
        after="max(2, parallelism // len(ranges) - 1)",
        rule=0,
        tests=(f"{_SYNC}::test_the_first_leases_are_of_parts_where_more_ranges_are_asked_for",),
    ),
    Mutant(
        name="parts that have changes left are merged where the last of them is",
        file="host/parts/merging.py",
        before="        if page.changes:\n            return None\n",
        after="",
        rule=12,
        tests=(
            f"{_PARTS}::test_parts_with_something_left_to_read_are_not_merged_and_not_stopped",
        ),
    ),
    Mutant(
        name="parts with different ends are merged at one of these",
        file="host/parts/merging.py",
        before="    return ends.pop() if len(ends) == 1 else None\n",
        after="    return ends.pop()\n",
        rule=12,
        tests=(f"{_PARTS}::test_parts_whose_ends_differ_are_not_merged",),
    ),
    Mutant(
        name="a range that was resumed while it was split is ended all the same",
        file="host/parts/stopping.py",
        before="        if stored is not None and stored.write_id != ended.write_id:\n",
        after="        if stored is None:\n",
        rule=12,
        tests=(f"{_PARTS}::test_a_lease_that_was_written_since_is_not_ended",),
    ),
    Mutant(
        name="an owner that has not released a range is not waited for",
        file="host/parts/stopping.py",
        before="        if elapsed_time() >= until:\n",
        after="        if elapsed_time() >= 0:\n",
        rule=4,
        tests=(f"{_PARTS}::test_an_owner_that_does_not_release_loses_the_range_as_to_a_steal",),
    ),
    Mutant(
        name="a split that failed leaves its range paused",
        file="host/parts/stopping.py",
        before="    return lease.paused_because(None) if is_paused_by(reason, lease)",
        after="    return lease if not lease",
        rule=12,
        tests=(f"{_PARTS}::test_a_split_that_fails_leaves_the_range_to_be_read_as_before",),
    ),
    Mutant(
        name="a merge that is refused leaves what an earlier one has stopped",
        file="host/parts/merging.py",
        before="            await go_on(leased.container, range_ids, MERGING)",
        after="            pass",
        rule=12,
        tests=("tests/unit/host/test_parts.py",),
    ),
    Mutant(
        name="a merge that was cut off is completed though its rest was read on",
        file="host/parts/merging.py",
        before="    if None not in stored and all(is_paused_by(MERGING, x) for x in rest):\n",
        after="    if None not in stored:\n",
        rule=12,
        tests=(
            f"{_PARTS}::test_the_rest_of_a_merge_that_was_cut_off_is_not_ended_under_an_owner",
        ),
    ),
    Mutant(
        name="a merge that was cut off is completed where its rest no longer is",
        file="host/parts/merging.py",
        before="all(x.continuation == begun.continuation for x in left)",
        after="left",
        rule=12,
        tests=(f"{_PARTS}::test_a_merge_that_was_cut_off_and_whose_rest_went_on_is_undone",),
    ),
    Mutant(
        name="a merge that was away for long undoes what another one completes",
        file="host/parts/merging.py",
        before="            stopped.check()  # else another run may be about to complete it\n",
        after="",
        rule=12,
        tests=(f"{_PARTS}::test_a_merge_that_was_away_undoes_nothing_that_another_completes",),
    ),
    Mutant(
        name="a merge that fails opens parts beside the reader of what they became",
        file="host/parts/merging.py",
        before="    if merged is not None and not merged.ended:\n",
        after="    if merged is None:\n",
        rule=12,
        tests=(
            f"{_PARTS}::test_a_part_is_not_opened_again_beside_a_host_that_reads_what_it_became",
        ),
    ),
    Mutant(
        name="parts go on while what they were to become can still be taken",
        file="host/parts/merging.py",
        before="    await _end_unread(container, joined.id)\n    merged",
        after="    merged",
        rule=12,
        tests=(
            f"{_PARTS}::test_where_others_write_to_a_part_before_its_end_all_go_on_as_before",
        ),
    ),
    Mutant(
        name="a merge that fails half way leaves a part ended",
        file="host/parts/merging.py",
        before="[x.range_id for x in stopped.leases[:n]]",
        after="[]",
        rule=12,
        tests=(
            f"{_PARTS}::test_where_others_write_to_a_part_before_its_end_all_go_on_as_before",
        ),
    ),
    Mutant(
        name="to resume all resumes what a merge has stopped",
        file="leases/operations/pause.py",
        before="    commands = (SPLITTING, MERGING) if range_ids is None else ()\n",
        after="    commands = ()\n",
        rule=0,
        tests=(
            f"{_PARTS}::test_a_merge_that_was_cut_off_between_two_ends_is_completed_by_the_next",
        ),
    ),
    Mutant(
        name="what an operator has split counts as read by its own lease",
        file="host/balancing/missing_leases.py",
        before=" and not (x.ended and x.range_id in split)\n",
        after="\n",
        rule=12,
        tests=(
            f"{_SYNC}::test_parts_of_a_range_that_was_split_by_hand_are_missed_when_their_leases_are_gone",
        ),
    ),
    Mutant(
        name="a part that comes back begins its epochs again",
        file="host/balancing/rebalance.py",
        before="    return replace(lease, epoch=highest)\n",
        after="    return lease\n",
        rule=6,
        tests=(
            f"{_PARTS}::test_a_part_that_comes_back_under_its_name_begins_above_the_epochs_it_had",
        ),
    ),
    Mutant(
        name="a split takes over what an earlier one has left under the same name",
        file="host/parts/splitting.py",
        before="    refuse_taken(leases, cut)\n",
        after="",
        rule=12,
        tests=(f"{_PARTS}::test_what_cannot_be_split_is_refused_with_its_reason",),
    ),
    Mutant(
        name="bounds of Cosmos DB are cut in the space that no hash lies in",
        file="feeds/cosmos/hashes.py",
        before="_SPACE: Final = 1 << 126",
        after="_SPACE: Final = 1 << 128",
        rule=0,
        tests=(
            "tests/unit/feeds/cosmos/test_hashes.py::test_it_is_cut_where_cosmos_db_would_cut_it",
        ),
    ),
)
