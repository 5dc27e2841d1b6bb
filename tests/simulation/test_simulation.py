"""A seed of each kind of world, and some that show something. Many more: ``make simulate``."""

import pytest

from .mixture import HOSTS
from .outcome import Outcome
from .running import simulate
from .sources import FeedKind
from .world import WorldKind

TRIES = 40


def first_with(event: str, kind: WorldKind, *, start: int) -> Outcome:
    """Live through seeds until one has met an event: which that is, each change of the product
    moves. All that came before it have to hold as well.
    """
    for seed in range(start, start + TRIES):
        outcome = simulate(seed, kind)
        if any(event in x for x in outcome.story):
            return outcome
    raise AssertionError(f"none of {TRIES} seeds has met: {event}")


@pytest.fixture
def at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fleet start at the beginning of its feed, whatever the seed says."""
    monkeypatch.setattr("tests.simulation.beginning._ELSEWHERE", 0.0)


@pytest.mark.parametrize("kind", dict.fromkeys(HOSTS), ids=lambda x: x.flags)
def test_nothing_is_lost_whatever_goes_wrong(kind: WorldKind) -> None:
    simulate(10_000, kind)


def test_a_range_that_waits_for_a_person_is_read_by_nobody() -> None:
    """Notices a range that the feed refuses, or whose observer has failed for good, that is
    tried again, released without a pause, or taken while it is paused.
    """
    simulate(25, WorldKind(wild=True, troubled=True))


def test_nothing_is_read_twice_where_a_host_sees_the_members_of_the_fleet_as_they_were() -> (
    None
):
    """Notices a host that takes an expired lease and does not fence its owner."""
    first_with("members stand still", WorldKind(wild=True, troubled=True), start=110)


def test_nothing_is_repeated_where_acknowledgements_are_late() -> None:
    """Notices a lease that is handed over before what is acknowledged late is there."""
    outcome = simulate(18, WorldKind(troubled=True))
    assert outcome.duplicates == 0


def test_nothing_is_lost_where_ownership_is_forgotten() -> None:
    first_with("ownership is forgotten", WorldKind(wild=True), start=6)
    simulate(45_898_430, WorldKind(wild=True, troubled=True))  # care ends behind a renewal


def test_a_host_of_another_kind_forgets_what_is_done_behind_a_position() -> None:
    simulate(45_711_861, WorldKind(feed="cosmos", leases="cosmos", wild=True, mixed=True))


def test_a_range_of_a_host_of_another_kind_does_not_come_again() -> None:
    simulate(48_003_540, WorldKind(feed="cosmos", leases="cosmos", mixed=True, troubled=True))


def test_what_an_owner_creates_again_after_its_keys_went_on_is_read_by_nobody() -> None:
    simulate(48_200_224, WorldKind(feed="cosmos", wild=True, aimed=True))


@pytest.mark.usefixtures("at_the_beginning")
def test_keys_whose_range_went_on_without_them_are_read_when_all_leases_were_lost() -> None:
    simulate(48_003_983, WorldKind(wild=True, aimed=True))


def test_a_change_that_is_to_be_put_aside_kills_nobody_while_that_fails() -> None:
    simulate(45_714_128, WorldKind(leases="sqlite", troubled=True))


def test_nothing_is_lost_where_clocks_stand_still_while_a_machine_sleeps() -> None:
    first_with("stood still meanwhile", WorldKind(feed="cosmos", wild=True), start=100)


@pytest.mark.parametrize("feed", ["memory", "cosmos"])
def test_a_seed_tells_the_same_story_twice(feed: FeedKind) -> None:
    first, second = (simulate(42, WorldKind(feed=feed)) for _ in range(2))
    assert (first.story, first.events, first.deliveries) == (
        second.story,
        second.events,
        second.deliveries,
    )
