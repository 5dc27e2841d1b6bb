"""What may be held against a change: each rule is broken once."""

import pytest
from msgspec import structs
from msgspec.structs import replace

from changefeed.feeds.feed import Change
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.observers.dead_letters.letter import DeadLetter, LetterError
from tests.support import make

from .blame import KILLED, Blame
from .progress import Violation

CARE = NO_DEATHS.died(read=7).died(read=7)


def lease(noted: int | None = None) -> Lease:
    deaths = CARE if noted is None else CARE.noting(noted)
    return make.lease("r1").taken_by(HostName("a"), Incarnation("a/1"), deaths=deaths)


def change(number: int) -> Change:
    return make.change(number, body=b"%d" % number)


def killed(number: int) -> DeadLetter:
    failure = LetterError(kind="Killed", text=KILLED, trace="")
    return structs.replace(make.letter(change(number)), failure=failure)


def test_with_care_a_change_comes_alone_noted_and_beside_no_other_of_its_process() -> None:
    blame = Blame()
    with pytest.raises(Violation, match="has 2 changes with care"):
        blame.began(
            "a/1", "call", [change(1), change(2)], replace(lease(), deaths=CARE.noting(1))
        )
    with pytest.raises(Violation, match="None is noted"):
        blame.began("a/1", "call", [change(1)], lease())
    held = replace(lease(), deaths=CARE.noting(1))
    blame.began("a/1", "call", [change(1)], held)
    blame.began("b/1", "call", [change(1)], held)
    with pytest.raises(Violation, match="both with care"):
        blame.began("a/1", "other", [change(1)], held)
    blame.ended("a/1", "call")
    blame.began("a/1", "other", [change(1)], held)


def test_a_change_kills_six_times_in_a_row_and_no_more() -> None:
    blame = Blame()
    for _ in range(2):
        blame.begins_anew(make.feed_range("r1").id)
        for n in range(6):
            blame.killed(f"a/{n}", make.feed_range("r1").id, change(3))
    with pytest.raises(Violation, match="more than 6"):
        blame.killed("a/9", make.feed_range("r1").id, change(3))


def test_who_steals_at_once_from_a_dead_owner_cannot_count_its_death() -> None:
    blame, found = Blame(), make.feed_range("r1").id
    for n in range(7):
        owner = Incarnation(f"a/{n}")
        blame.killed(owner, found, change(3))
        taken = make.lease("r1").taken_by(HostName("a"), owner)
        blame.taken_from_the_dead(taken, too_early_to_know=n == 0)
    with pytest.raises(Violation, match="more than 6"):
        blame.killed("a/9", found, change(3))


@pytest.mark.parametrize("died", [3, 4])
def test_what_kills_nobody_is_blamed_only_for_four_owners_that_died_with_it(died: int) -> None:
    blame = Blame()
    for _ in range(died):
        noted = replace(lease(), deaths=CARE.noting(3))
        blame.taken_from_the_dead(noted, too_early_to_know=False)
    if died == 4:
        blame.put_aside(killed(3), of_whole=True)
        return
    with pytest.raises(Violation, match="kills nobody"):
        blame.put_aside(killed(3), of_whole=True)
    with pytest.raises(Violation, match="kills nobody"):
        blame.paused(lease().paused_because(f"the change at sequence 3 {KILLED} 4 times"))


def test_a_change_is_put_aside_only_if_it_has_failed_as_often_as_is_said() -> None:
    blame = Blame()
    blame.attempts = 2
    blame.failed([change(1)])
    blame.failed([change(2)])
    with pytest.raises(Violation, match="after 1 failures"):
        blame.put_aside(make.letter(change(1)), of_whole=True)
    blame.failed([change(1)])
    blame.put_aside(make.letter(change(1)), of_whole=True)


def test_in_an_outage_a_range_puts_one_change_aside_and_no_other() -> None:
    blame = Blame()
    blame.attempts = 1
    blame.outage_began()
    for n in (1, 2):
        blame.failed([change(n)])
    blame.put_aside(make.letter(change(1)), of_whole=True)
    with pytest.raises(Violation, match="in an outage"):
        blame.put_aside(make.letter(change(2)), of_whole=True)
    assert blame.outage_ended(), "each failure counted would have put both aside"
