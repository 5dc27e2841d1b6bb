"""What the ends of its owners say of a lease: when care is due, and what to blame.

That care finds what kills, and nothing else, is simulated (``tests.simulation.blame``).
"""

from typing import Any

from msgspec.structs import replace

from changefeed.leases.deaths import NO_DEATHS, Deaths
from changefeed.leases.lease import HostName, Incarnation
from tests.support import make

A, B = HostName("a"), HostName("b")
FIRST, SECOND = Incarnation("a-1"), Incarnation("a-2")


def test_care_for_all_that_the_dead_may_have_read_begins_with_the_second_in_a_row() -> None:
    once = NO_DEATHS.died(read=7)
    assert (once.care, once.died(read=7).care, once.died(read=7).died(read=3).care) == (0, 7, 7)
    assert once.progressed().died(read=7).care == 0, "it was not in a row"


def test_four_owners_that_die_with_a_change_blame_it_whatever_came_between() -> None:
    deaths = NO_DEATHS.died(read=7).died(read=7)
    for n in range(4):
        assert not deaths.blames(3)
        failed = deaths.noting(3).returned(0)
        deaths = failed.noting(3).died(read=7).died(read=7)
        assert (deaths.suspect, deaths.with_suspect) == (3, n + 1)
    assert deaths.blames(3)
    assert not deaths.blames(4)


def test_a_suspect_is_cleared_by_a_call_that_it_survives_and_succeeded_by_another() -> None:
    deaths = NO_DEATHS.died(read=7).died(read=7).noting(3).died(read=7).noting(3).died(read=7)
    assert deaths.with_suspect == 2
    assert deaths.noting(3).returned(1).suspect is None
    assert deaths.noting(2).returned(1).suspect == 3
    other = deaths.noting(4).died(read=7)
    assert (other.suspect, other.with_suspect) == (4, 1)


def test_what_is_done_uses_up_care_but_for_one_change_while_there_is_a_suspect() -> None:
    deaths = NO_DEATHS.died(read=2).died(read=2)
    assert [deaths.noting(1).returned(n).care for n in (0, 1)] == [2, 1]
    suspected = deaths.noting(3).died(read=2).noting(1).returned(1).noting(2).returned(1)
    assert suspected.care == 1
    assert suspected.noting(3).returned(1).care == 0


def test_only_an_owner_of_ours_that_did_not_release_its_lease_has_died() -> None:
    def taken(lease: Any) -> Deaths:
        found: Deaths = lease.deaths_after(SECOND, read=7, ended={FIRST: "SIGSEGV"})
        return found

    owned = make.lease("r0").taken_by(A, FIRST)
    assert taken(owned) == Deaths(count=1, cause="SIGSEGV")
    assert taken(owned.released()) == NO_DEATHS
    assert taken(owned.requested_by(B).handed_over()) == NO_DEATHS
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
