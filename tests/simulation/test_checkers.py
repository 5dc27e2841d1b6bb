"""What the checkers find, told without a world: each rule is broken once."""

from collections.abc import Sequence

import pytest

from changefeed.feeds.feed import Change, Continuation, FeedRange, RangeId
from changefeed.leases.lease import HostName, Incarnation, Lease
from tests.support.observing import change

from .checkers import OPERATOR, Call, Checker, Violation
from .clocks import Clock, right_time

R1 = FeedRange(id=RangeId("r1"), low="0", high="8")
FREE = Lease(range=R1, continuation=Continuation("0"))


class Numbers:
    """A range whose changes are numbered as they come."""

    def place(self, position: Continuation) -> int:
        return int(position)

    def between(self, _found: FeedRange, first: int, last: int) -> Sequence[int]:
        return range(first + 1, last + 1)

    def transaction(self, change: Change) -> int:
        return change.sequence


def watched(changes: int) -> tuple[Checker, Lease, list[Change]]:
    """Return a checker that has seen a lease acquired, and the changes there are."""
    checker = Checker(Numbers(), strict=True)
    found = [change(n, body=b"%d" % n) for n in range(1, changes + 1)]
    for one in found:
        checker.appended(one.key, int(one.body))
    taken = FREE.taken_by(HostName("a"), Incarnation("a/1"))
    checker.stored(None, FREE, "a/1")
    checker.stored(FREE, taken, "a/1")
    return checker, taken, found


def test_more_is_done_and_not_stored_than_a_crash_may_repeat() -> None:
    checker, taken, found = watched(5)
    checker.most_unstored = 3
    checker.finished(found[:3])
    checker.stored(taken, taken.advanced_to(Continuation("3")), "a/1")
    checker.finished(found[3:])
    checker.most_unstored = 1
    with pytest.raises(Violation, match="2 changes of r1 are done and not stored"):
        checker.finished(found[3:])


def test_what_is_done_of_a_transaction_that_is_cut_counts_beside_what_may_be_repeated() -> None:
    class Pairs(Numbers):
        def transaction(self, change: Change) -> int:
            return change.sequence // 2

    found = [change(n, body=b"%d" % n) for n in range(1, 6)]
    checker = Checker(Pairs(), strict=True)
    for one in found:
        checker.appended(one.key, int(one.body))
    checker.most_unstored = 3
    checker.finished(found[1:5])  # 2 and 3 are one transaction, 4 and 5 another
    checker.most_unstored = 2
    with pytest.raises(Violation, match="4 changes of r1 are done and not stored"):
        checker.finished(found[1:5])


def test_a_change_that_was_put_aside_is_done_and_one_that_was_not_is_missed() -> None:
    checker, taken, found = watched(2)
    checker.put_aside(found[0])
    checker.stored(taken, taken.advanced_to(Continuation("1")), "a/1")
    assert checker.undelivered() == [2]
    with pytest.raises(Violation, match="passed over change 2"):
        checker.stored(taken, taken.advanced_to(Continuation("2")), "a/1")


def test_only_an_operator_may_move_a_checkpoint_back() -> None:
    checker, taken, found = watched(2)
    checker.finished(found)
    ahead, back = (taken.advanced_to(Continuation(x)) for x in "20")
    checker.stored(taken, ahead, "a/1")
    checker.stored(ahead, back, OPERATOR)
    checker.stored(back, ahead, "a/1")
    with pytest.raises(Violation, match="went back from 2 to 0"):
        checker.stored(ahead, back, "a/1")


def test_a_former_owner_may_go_on_only_if_the_lease_was_taken_by_hand() -> None:
    for writer in (OPERATOR, "b/1"):
        checker, taken, found = watched(1)
        checker.stored(taken, taken.vacated(), writer)
        late = Call(process="a/1", range_id=R1.id, epoch=taken.epoch)
        if writer == OPERATOR:
            checker.began(late, found)
        else:
            with pytest.raises(Violation, match="although epoch 2 has begun"):
                checker.began(late, found)


def test_epochs_begin_anew_only_where_a_lease_was_deleted_by_hand() -> None:
    for writer in (OPERATOR, "b/1"):
        checker, taken, _ = watched(1)
        checker.deleted(taken, writer)
        if writer == OPERATOR:
            checker.stored(None, FREE, "b/1")
        else:
            with pytest.raises(Violation, match="the epoch of r1 fell to 0"):
                checker.stored(None, FREE, "b/1")


def test_a_clock_jumps_and_then_runs_at_its_rate() -> None:
    clock = Clock(error=10)
    assert clock.at(5) == right_time(15)
    clock.jump(100, -60, 0.0)
    assert clock.at(100) == clock.at(500) == right_time(40)
