"""The seeds that once found something, and some more. Many more: ``make simulate``."""

import pytest

from .running import simulate
from .sources import FeedKind
from .stores import StoreKind

# What each of them found is fixed; the seed stays, so that it stays fixed.
REGRESSIONS = {
    5: "a listing of the feed's ranges that never came back stopped all balancing",
    22: "a host that could not reach the container asked it again at full speed",
    125: "a batch cut short moved the checkpoint back to the page before",
    200: "the same, in a fleet where nothing failed",
    351: "a grandchild of a range still being read got its lease before its parent had one",
    418: "an observer that was tried again was called under a lease that was over",
    5069: "a timer that was cancelled while its process was frozen fired all the same",
    5232: "a torn listing without the owner's record made it look like a host of another kind",
    100_883: "a feed that did not tell its ranges held up a round, and a handoff with it",
    102_365: "a merged range was read before a parent whose own parent was still being read",
    302_138: "a host that was cut off after asking robbed the owner when it came back",
    639: "the same, after a freeze between two attempts",
}


REGRESSIONS_OF_COSMOS = {
    24: "what a dead owner had made was read beside what the range went on in by then",
    216: "a host that was frozen at the end of a range made leases when it was another's",
    20_193: "what a range went on in waited for one with other keys, whose lease was deleted",
    25_816: "a torn listing lacked the halves of a merged range, and it was read as a whole",
    9_001_422: "a lease that was deleted as superseded was created again by a late write",
    298: "a range that came to life again was said to be missing, as others waited for it",
}


@pytest.mark.parametrize("seed", [*REGRESSIONS, *range(10_000, 10_025)], ids="seed-{}".format)
def test_nothing_is_lost_whatever_goes_wrong(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize(
    "seed", [*REGRESSIONS_OF_COSMOS, *range(10_000, 10_012)], ids="seed-{}".format
)
def test_nothing_is_lost_either_where_ranges_come_and_go_as_in_cosmos_db(seed: int) -> None:
    simulate(seed, "cosmos")


SUSPENDS = 5  # the machine of a host sleeps

# Found in wild worlds, with people who interfere and observers that are odd.
WILD = {
    22: "a manual checkpoint passed over a change that had failed, and would be put aside",
    1079: "a deleted lease was not created again beside the tombstone of its parent",
}


@pytest.mark.parametrize("seed", [*WILD, *range(20_000, 20_012)], ids="seed-{}".format)
def test_nothing_is_lost_whatever_people_do_meanwhile(seed: int) -> None:
    simulate(seed, wild=True)


WILD_OF_COSMOS = {
    50_041: "of the two changes of a transaction, one was the last of a batch",
    50_761: "the same",
    72_000_183: "a torn listing showed a lease before and after its end: it was taken again",
}


@pytest.mark.parametrize(
    "seed", [*WILD_OF_COSMOS, *range(20_000, 20_006)], ids="seed-{}".format
)
def test_nothing_is_lost_either_in_a_wild_world_over_cosmos_db(seed: int) -> None:
    simulate(seed, "cosmos", wild=True)


def test_a_lease_may_wait_for_a_range_that_lives_on_as_its_halves_were_merged() -> None:
    simulate(50_400_007, "cosmos", "sqlite", wild=True)


def test_a_renewal_in_the_last_moment_of_a_lease_comes_to_an_end() -> None:
    simulate(5072, "cosmos", wild=True, splits=True)


def test_a_late_checkpoint_passes_over_no_change_that_is_tried_again() -> None:
    simulate(20_122, "cosmos", "sqlite", wild=True)


def test_a_lease_does_not_wait_for_one_that_was_deleted_by_hand() -> None:
    simulate(61_000_042, "cosmos", wild=True)


def test_the_last_part_of_a_range_gets_its_deleted_lease_back() -> None:
    simulate(61_100_027, "cosmos", wild=True)


@pytest.mark.parametrize("leases", ["sqlite", "cosmos"])
@pytest.mark.parametrize("seed", range(4), ids="seed-{}".format)
def test_nothing_is_lost_whatever_the_leases_are_kept_in(seed: int, leases: StoreKind) -> None:
    simulate(seed, leases=leases, wild=True)


# Where hosts of another kind share the leases.
WILD_AND_MIXED = {
    1032: "leases that a neighbour had made were deleted as echoes, with their positions",
}


# 1456: a neighbour takes a lease that ended before it was read, and was further on.
@pytest.mark.parametrize("seed", [*range(4), 1456], ids="seed-{}".format)
def test_nothing_is_lost_and_all_is_even_beside_hosts_of_another_kind(seed: int) -> None:
    simulate(seed, "cosmos", "cosmos", mixed=True)


@pytest.mark.parametrize("seed", [*WILD_AND_MIXED, 2000, 2001], ids="seed-{}".format)
def test_nothing_is_lost_either_beside_them_in_a_wild_world(seed: int) -> None:
    simulate(seed, "cosmos", "cosmos", mixed=True, wild=True)


# What lasts while other things come and go. Each notices a break of hosts that has hardly a
# chance to show in other worlds.
TROUBLED = {
    0: "a range that the feed refuses is paused, and no host takes it",
    10: "an observer that has failed for good, and is to stop its range, is called no more",
    114: "an observer that is opened again at once begins where the last one was stored",
}


@pytest.mark.parametrize("seed", TROUBLED, ids="seed-{}".format)
def test_nothing_is_lost_whatever_lasts_meanwhile(seed: int) -> None:
    simulate(seed, wild=True, troubled=True)


def test_nothing_is_read_twice_where_a_host_sees_the_members_of_the_fleet_as_they_were() -> (
    None
):
    outcome = simulate(13, wild=True, troubled=True, renewal="host")
    assert any("members stand still" in x for x in outcome.story)


# Where nothing fails, and acknowledgements take their time.
TROUBLED_AND_GRACEFUL = {
    18: "what is acknowledged late is waited for before a lease is handed over",
    198: "a host that stops leaves no request",
}


@pytest.mark.parametrize("seed", TROUBLED_AND_GRACEFUL, ids="seed-{}".format)
def test_nothing_is_repeated_or_left_over_where_acknowledgements_are_late(seed: int) -> None:
    outcome = simulate(seed, troubled=True)
    assert outcome.duplicates == 0


def test_nothing_is_lost_where_ownership_is_forgotten() -> None:
    outcome = simulate(6, wild=True)
    assert any("ownership is forgotten" in x for x in outcome.story)


def test_nothing_is_lost_where_clocks_stand_still_while_a_machine_sleeps() -> None:
    outcome = simulate(SUSPENDS, "cosmos", wild=True)
    assert any("stood still meanwhile" in x for x in outcome.story)


def test_a_part_comes_back_under_its_name_with_epochs_above_those_it_had() -> None:
    outcome = simulate(1023, "cosmos", splits=True)
    assert any("done by hand" in x for x in outcome.story)


def test_parts_that_were_merged_come_back_where_the_feed_splits_at_their_bounds() -> None:
    simulate(3066, "cosmos", wild=True, splits=True)


def test_what_a_split_that_was_cut_off_has_left_refuses_no_range_in_a_cosmos_container() -> (
    None
):
    simulate(7011, "cosmos", "cosmos", wild=True, splits=True)


@pytest.mark.parametrize("feed", ["memory", "cosmos"])
@pytest.mark.parametrize("wild", [False, True], ids=["calm", "wild"])
def test_nothing_is_lost_or_repeated_where_people_split_ranges_and_merge_them(
    wild: bool,  # noqa: FBT001 - whether people do more than that
    feed: FeedKind,
) -> None:
    outcome = simulate(48, feed, wild=wild, splits=True)
    assert any("done by hand" in x for x in outcome.story)


@pytest.mark.parametrize("feed", ["memory", "cosmos"])
def test_a_seed_tells_the_same_story_twice(feed: FeedKind) -> None:
    first, second = simulate(42, feed), simulate(42, feed)
    assert (first.story, first.events, first.deliveries) == (
        second.story,
        second.events,
        second.deliveries,
    )
