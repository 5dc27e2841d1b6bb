"""What kills its process is found and put aside, and nothing else is."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.leases.deaths import NO_DEATHS, Deaths
from changefeed.leases.lease import HostName, Incarnation
from tests.support import make
from tests.support.killing import BATCH, Story

SEEDS = 300

A, B = HostName("a"), HostName("b")
FIRST, SECOND = Incarnation("a-1"), Incarnation("a-2")


def play(seeds: int, **story: Any) -> None:
    for seed in range(seeds):
        Story(Random(seed), **story).play()


def test_what_kills_is_put_aside_and_nothing_else_whoever_kills_the_hosts() -> None:
    play(SEEDS)


@pytest.mark.parametrize("story", [{"alone": False}, {"ahead": BATCH - 2}])
def test_one_change_at_a_time_in_the_process_and_care_for_all_that_was_read_are_needed(
    story: dict[str, Any],
) -> None:
    with pytest.raises(AssertionError):
        play(SEEDS, **story)


def test_only_an_owner_of_ours_that_did_not_release_its_lease_has_died() -> None:
    def taken(lease: Any) -> Deaths:
        found: Deaths = lease.deaths_after(SECOND, read=7, ended={FIRST: "SIGSEGV"})
        return found

    owned = make.lease("r0").taken_by(A, FIRST)
    assert taken(owned) == Deaths(count=1, cause="SIGSEGV")
    assert taken(owned.released()) == NO_DEATHS
    assert taken(owned.asked_by(B).handed_over()) == NO_DEATHS
    assert taken(owned.taken_by(A, SECOND)) == NO_DEATHS, "this very process"


def test_whoever_takes_a_lease_from_the_living_begins_without_their_note() -> None:
    deaths = NO_DEATHS.died(read=7).died(read=7)
    lease = make.lease("r0").taken_by(A, FIRST, deaths)
    noted = replace(lease, deaths=deaths.noting(3))
    for taken in (noted.taken_by(A, FIRST), noted.taken_by(B, SECOND, noted.deaths)):
        assert taken.deaths == deaths


def test_a_steal_does_not_clear_a_suspect() -> None:
    suspected = NO_DEATHS.died(read=7).died(read=7).noting(3).died(read=7)
    lease = make.lease("r0").taken_by(A, FIRST, suspected)
    noted = replace(lease, deaths=suspected.noting(3))
    stolen = noted.taken_by(B, SECOND)
    assert stolen.deaths == suspected
    assert stolen.deaths.suspect == 3
