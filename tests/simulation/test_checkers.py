"""What the checkers find, told without a world: each rule is broken once."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Change, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Hole, hash_of
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.lease import HostName, Incarnation, KeptCheckpoint, Lease
from tests.support import make

from .checkers import OPERATOR, Call, Checker
from .progress import Violation

R1 = FeedRange(id=RangeId("r1"), low="0", high="8")
FREE = Lease(range=R1, checkpoint=Checkpoint.of_text("0"))


class Numbers:
    """A range whose changes are numbered as they come."""

    def place(self, position: Position) -> int:
        return int(position)

    def between(self, _found: FeedRange, first: int, last: int) -> Sequence[int]:
        return range(first + 1, min(last, 100) + 1)  # no test appends more

    def transaction(self, change: Change) -> int:
        return change.sequence


def taken_all_the_same(lease: Lease, host: str) -> Lease:
    """Take a lease that no host of ours takes."""
    incarnation = Incarnation(f"{host}/1")
    return replace(lease, owner=HostName(host), incarnation=incarnation, epoch=lease.epoch + 1)


def watched(changes: int) -> tuple[Checker, Lease, list[Change]]:
    """Return a checker that has seen a lease acquired, and the changes there are."""
    checker = Checker(Numbers(), strict=True)
    found = [make.change(n, body=b"%d" % n) for n in range(1, changes + 1)]
    for one in found:
        checker.appended(one.key, int(one.body))
    taken = FREE.taken_by(HostName("a"), Incarnation("a/1"))
    checker.stored(None, FREE, "a/1")
    checker.stored(FREE, taken, "a/1")
    return checker, taken, found


@pytest.mark.parametrize(("seconds", "wrong"), [(19.0, True), (21.0, False), (21.0, True)])
def test_only_wrong_clocks_let_an_owner_lose_its_lease_after_two_renewals(
    seconds: float,
    wrong: bool,  # noqa: FBT001 - whether clocks are
) -> None:
    checker, taken, found = watched(2)
    checker.now = lambda: seconds
    if wrong:
        checker.clock_jumped_beyond_limits()
    checker.stored(taken, taken.taken_by(HostName("b"), Incarnation("b/1")), "b/1")
    late = Call(process="a/1", range_id=taken.range_id, epoch=taken.epoch)
    if wrong and seconds > 20:
        checker.began(late, found)
        return
    with pytest.raises(Violation, match="although epoch 2 has begun"):
        checker.began(late, found)


@pytest.mark.parametrize("writer", ["n/1", "a/1"])
def test_only_a_host_of_another_kind_may_drop_what_is_done_behind(writer: str) -> None:
    checker, taken, found = watched(2)
    checker.neighbours.add("n/1")
    checker.finished(R1.id, found)
    behind = replace(taken, checkpoint=Checkpoint(Position("0"), high=2))
    checker.stored(taken, behind, "a/1")
    checker.stored(behind, taken.advanced_to(Position("0")), writer)
    if writer == "n/1":
        checker.began(call_of(taken), found)
        return
    with pytest.raises(Violation, match="change 1 was checkpointed before"):
        checker.began(call_of(taken), found)


def test_what_lies_before_the_start_is_for_nobody_until_a_person_moves_back() -> None:
    checker, taken, found = watched(2)
    checker.appended("k", 3, owed=False)
    checker.progress.bar(2)
    checker.began(call_of(taken), found[:1])
    with pytest.raises(Violation, match="change 2 lies before the start"):
        checker.began(call_of(taken), found)
    checker.stored(taken, taken.advanced_to(Position("0")), OPERATOR)
    checker.began(call_of(taken), found)
    checker.finished(R1.id, found)
    checker.stored(taken, taken.advanced_to(Position("3")), "a/1")
    assert checker.undelivered() == []


@pytest.mark.parametrize("deletes", ["n/1", "a/1"])
def test_only_what_a_host_of_another_kind_has_deleted_may_be_created_again_and_repeated(
    deletes: str,
) -> None:
    checker, taken, found = watched(2)
    checker.neighbours.add("n/1")
    checker.finished(R1.id, found)
    checker.stored(taken, taken.advanced_to(Position("2")), "a/1")
    checker.deleted(taken, deletes)
    late = replace(taken, checkpoint=Checkpoint.of_text("1"))
    if deletes == "n/1":
        checker.stored(None, late, "b/1")
        checker.stored(late, late.taken_by(HostName("b"), Incarnation("b/1")), "b/1")
        return
    with pytest.raises(Violation, match="went back from 2 to 1"):
        checker.stored(None, late, "b/1")


def test_more_is_done_and_not_stored_than_a_crash_may_repeat() -> None:
    checker, taken, found = watched(5)
    checker.progress.most_unstored = 3
    checker.finished(R1.id, found[:3])
    checker.stored(taken, taken.advanced_to(Position("3")), "a/1")
    checker.finished(R1.id, found[3:])
    checker.progress.most_unstored = 1
    with pytest.raises(Violation, match="2 changes of r1 are done and not stored"):
        checker.finished(R1.id, found[3:])


def test_a_change_that_was_put_aside_is_done_and_one_that_was_not_is_missed() -> None:
    checker, taken, found = watched(2)
    checker.blame.attempts = 1
    checker.blame.failed(found[:1])
    checker.put_aside(make.letter(found[0]))
    checker.stored(taken, taken.advanced_to(Position("1")), "a/1")
    assert checker.undelivered() == [2]
    with pytest.raises(Violation, match="passed over change 2"):
        checker.stored(taken, taken.advanced_to(Position("2")), "a/1")


def test_only_an_operator_may_move_a_checkpoint_back() -> None:
    checker, taken, found = watched(2)
    checker.finished(R1.id, found)
    ahead, back = (taken.advanced_to(Position(x)) for x in "20")
    checker.stored(taken, ahead, "a/1")
    checker.stored(ahead, back, OPERATOR)
    checker.stored(back, ahead, "a/1")
    with pytest.raises(Violation, match="went back from 2 to 0"):
        checker.stored(ahead, back, "a/1")


def test_a_former_owner_may_go_on_only_if_the_lease_was_taken_by_hand() -> None:
    for writer in (OPERATOR, "b/1"):
        checker, taken, found = watched(1)
        checker.stored(taken, taken.evicted(), writer)
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


def call_of(taken: Lease, process: str = "a/1") -> Call:
    return Call(process=process, range_id=R1.id, epoch=taken.epoch)


def test_two_processes_in_calls_under_one_epoch_are_seen() -> None:
    checker, taken, found = watched(2)
    checker.began(call_of(taken), found[:1])
    checker.began(call_of(taken), found[:1])  # another lane of the same process
    with pytest.raises(Violation, match="under one epoch"):
        checker.began(call_of(taken, "b/1"), found[:1])


def test_what_is_done_behind_a_position_comes_again_only_where_a_person_moves_it() -> None:
    checker, taken, found = watched(1)
    waiting = Hole(hash_of(found[0].key), found[0].sequence)
    others = [make.change(n, key="other", body=b"%d" % n) for n in (2, 3)]
    for n in (2, 3):
        checker.appended("other", n)
    checker.finished(R1.id, others)
    kept = taken.with_checkpoint(Checkpoint(Position("0"), others[-1].sequence, (waiting,)))
    checker.stored(taken, kept, "a/1")
    with pytest.raises(Violation, match="change 2 was checkpointed before"):
        checker.began(call_of(kept), others[:1])
    checker.stored(kept, kept.reset_to(Checkpoint(Position("0"))), OPERATOR)
    checker.began(call_of(kept), others)


def test_what_was_checkpointed_may_not_come_again() -> None:
    checker, taken, found = watched(1)
    checker.finished(R1.id, found)
    checker.stored(taken, taken.advanced_to(Position("1")), "a/1")
    with pytest.raises(Violation, match="change 1 was checkpointed before"):
        checker.began(call_of(taken), found)


def test_a_change_may_not_come_before_an_earlier_one_of_its_key() -> None:
    checker, taken, _ = watched(0)
    found = [make.change(n, key="k", body=b"%d" % n) for n in (1, 2)]
    for n in (1, 2):
        checker.appended("k", n)
    checker.began(call_of(taken), found)  # one after the other
    checker.ended(call_of(taken))
    with pytest.raises(Violation, match="came before an earlier one"):
        checker.began(call_of(taken), found[1:])


def test_a_range_that_has_ended_is_not_paused() -> None:
    checker, taken, _ = watched(1)
    paused = taken.paused_because("a person says so")
    checker.stored(taken, paused, OPERATOR)
    ended = paused.ended_in(make.CLOSED)
    with pytest.raises(Violation, match="a/1 left r1 paused, which has ended"):
        checker.stored(paused, replace(ended, paused=paused.paused), "a/1")
    checker.stored(paused, ended, "a/1")


@pytest.mark.parametrize("writer", [OPERATOR, "b/1"])
def test_only_an_operator_resumes_what_is_paused(writer: str) -> None:
    checker, taken, _ = watched(1)
    paused = taken.released().paused_because("a person says so")
    checker.stored(taken, paused, "a/1")
    resumed = paused.paused_because(None)
    if writer == OPERATOR:
        checker.stored(paused, resumed, writer)
        return
    with pytest.raises(Violation, match="b/1 resumed r1: a person says so"):
        checker.stored(paused, resumed, writer)


def test_no_host_takes_what_is_paused() -> None:
    checker, taken, _ = watched(1)
    paused = taken.released().paused_because("a person says so")
    checker.stored(taken, paused, "a/1")
    with pytest.raises(Violation, match="b/1 took r1, which is paused"):
        checker.stored(paused, taken_all_the_same(paused, "b"), "b/1")


def test_a_lease_may_not_be_given_up_in_a_call_of_its_owner() -> None:
    checker, taken, found = watched(1)
    checker.began(call_of(taken), found)
    with pytest.raises(Violation, match="gave up r1 while"):
        checker.stored(taken, taken.released(), "a/1")


def test_a_range_that_has_ended_takes_no_owner() -> None:
    checker, taken, _ = watched(0)
    ended = taken.ended_in(make.CLOSED)
    checker.stored(taken, ended, "a/1")
    with pytest.raises(Violation, match="the ended range r1 was written"):
        checker.stored(ended, replace(ended, owner=HostName("b"), epoch=2), "b/1")


def test_two_ranges_with_the_same_keys_may_not_be_read_at_once() -> None:
    checker, taken, _ = watched(0)
    half = FeedRange(id=RangeId("r2"), low="4", high="8", parents=(R1.id,))
    child = replace(taken, range=half)
    with pytest.raises(Violation, match="r1 and r2 are read, with same keys"):
        checker.stored(None, child, "a/1")
    checker.stored(taken, taken.ended_in(make.CLOSED), "a/1")
    checker.stored(None, child, "a/1")


def test_after_ownership_was_forgotten_epochs_go_on_from_those_of_the_checkpoints() -> None:
    checker, taken, found = watched(2)
    claimed = KeptCheckpoint(
        range_id=R1.id, checkpoint=Checkpoint.of_text("0"), epoch=taken.epoch
    )
    checker.stored(None, claimed, "a/1")
    checker.ownership_forgotten()
    checker.began(call_of(taken), found)  # until it finds out
    checker.finished(R1.id, found[:1])
    checker.stored(None, FREE, "b/1")  # a creation that comes late
    with pytest.raises(Violation, match="passed over change 2"):
        checker.stored(claimed, replace(claimed, checkpoint=Checkpoint.of_text("2")), "b/1")
    again = replace(FREE, epoch=taken.epoch).taken_by(HostName("b"), Incarnation("b/1"))
    checker.stored(None, again, "b/1")
    with pytest.raises(Violation, match="the epoch of r1 fell to 1"):
        checker.stored(again, taken, "a/1")
    checker.began(call_of(again, "b/1"), found[1:])
    with pytest.raises(Violation, match="under one epoch"):
        checker.began(call_of(again, "c/1"), found[1:])
    checker.ownership_forgotten()
    care = NO_DEATHS.died(read=1).died(read=1).noting(2)
    checker.stored(None, replace(again, epoch=again.epoch + 1, deaths=care), "b/1")
    checker.began(call_of(again, "b/1"), found[1:])  # its owner has made the lease again
    assert checker.blame.calls["b/1"] == 1


def test_a_process_whose_clock_stood_still_may_repeat_and_store_nothing() -> None:
    checker, taken, found = watched(2)
    claimed = KeptCheckpoint(range_id=R1.id, checkpoint=Checkpoint.of_text("0"), epoch=1)
    checker.stored(None, claimed, "a/1")
    checker.finished(R1.id, found)
    stolen = taken.evicted().taken_by(HostName("b"), Incarnation("b/1"))
    checker.stored(taken, stolen, "b/1")
    checker.stored(claimed, replace(claimed, epoch=stolen.epoch), "b/1")
    checker.suspended("a/1")
    checker.began(call_of(taken), found)
    checker.ended(call_of(taken))
    with pytest.raises(Violation, match="under epoch 1, and it is claimed for"):
        checker.stored(claimed, replace(claimed, checkpoint=Checkpoint.of_text("2")), "a/1")
    with pytest.raises(Violation, match="the epoch of r1 fell to 1"):
        checker.stored(stolen, taken.advanced_to(Position("2")), "a/1")
    with pytest.raises(Violation, match="although epoch"):
        checker.began(call_of(taken, "c/1"), found)
    checker.checkpoint_lost(R1.id)
    checker.stored(None, claimed, "a/1")  # a first one that was under way all the time


def test_a_neighbour_may_steal_at_once_and_store_nothing_that_passes_a_change_over() -> None:
    checker, taken, found = watched(2)
    checker.neighbours.add("n/1")
    stolen = taken.evicted()
    checker.stored(taken, stolen, "n/1")
    checker.began(call_of(taken), found[:1])  # until the former owner finds out
    checker.done_by_neighbour("n/1", found[:1])
    with pytest.raises(Violation, match="passed over change 2"):
        checker.stored(stolen, stolen.advanced_to(Position("2")), "n/1")
