"""What kills its process is found and put aside, and nothing else is."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.leases import deaths
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


def _without_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deaths, "noting", lambda self, _: self)


def _blame_sooner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deaths, "BLAMED_AFTER", 3)


def _blame_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deaths, "BLAMED_AFTER", 5)


def _suspect_cleared_by_a_failure(patch: pytest.MonkeyPatch) -> None:
    returned = Deaths.returned

    def cleared(self: Deaths, done: int) -> Deaths:
        return returned(self.cleared() if self.noted == self.suspect else self, done)

    patch.setattr(Deaths, "returned", cleared)


def _care_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deaths, "CARE_FROM", 3)


def _care_over_with_the_next_death(patch: pytest.MonkeyPatch) -> None:
    died = Deaths.died
    patch.setattr(Deaths, "died", lambda self, **told: died(replace(self, care=0), **told))


def _suspect_forgotten_by_the_next_owner(patch: pytest.MonkeyPatch) -> None:
    died = Deaths.died
    patch.setattr(
        Deaths, "died", lambda self, **told: died(replace(self, suspect=None), **told)
    )


def _note_stands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deaths, "returned", lambda self, n: replace(self, care=self.care - n))


Rule = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    "broken",
    [
        _without_notes,
        _blame_sooner,
        _blame_later,
        _care_later,
        _care_over_with_the_next_death,
        _suspect_forgotten_by_the_next_owner,
        _suspect_cleared_by_a_failure,
        _note_stands,
    ],
)
def test_each_rule_is_needed(broken: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
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
