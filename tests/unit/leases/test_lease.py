"""What the changes of a lease keep, and what they move."""

from collections.abc import Callable

import pytest

from changefeed.feeds.feed import Position
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Incarnation, Lease, WriteId, newest
from tests.support import make

A, B = HostName("a"), HostName("b")
OWNED = make.lease(at="0").taken_by(A, Incarnation("a-1"))
ASKED = OWNED.requested_by(B)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.advanced_to(Position("5")),
        lambda x: x.requested_by(B),
        lambda x: x.paused_because("maintenance"),
        lambda x: x.stamped(write_id=WriteId("w"), stamp=1.0),
        lambda x: x.with_health(RangeHealth(last_progress=1.0)),
        Lease.without_position,
    ],
    ids=["checkpoint", "request", "pause", "stamp", "health", "without position"],
)
def test_nothing_but_a_renewal_or_another_owner_is_a_sign_of_life(
    write: Callable[[Lease], Lease],
) -> None:
    assert write(OWNED).sign_of_life == OWNED.sign_of_life


def test_a_checkpoint_says_under_which_epoch_it_was_written() -> None:
    last = OWNED.advanced_to(Position("5"))
    assert (last.position, last.checkpoint_epoch) == ("5", 1)
    assert last.taken_by(B, Incarnation("b-1")).checkpoint_epoch == 1


def test_a_release_keeps_how_the_observer_got_on_and_the_next_owner_begins_with_it() -> None:
    failing = RangeHealth(failing_since=5.0, last_error="KeyError: 'x'")
    last = OWNED.with_health(failing.stuck(9.0)).released()
    assert last.health == failing.stuck(9.0)
    assert last.taken_by(B, Incarnation("b-1")).health == failing  # that call was another's


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        (lambda x: x.taken_by(B, Incarnation("b-1")), 1),
        (lambda x: x.taken_by(A, Incarnation("a-1")), 1),
        (Lease.handed_over, 1),
        (Lease.evicted, 1),
        (Lease.released, 0),
    ],
    ids=["taken", "taken by its owner", "handed over", "evicted", "released"],
)
def test_a_change_of_owner_answers_the_request_and_begins_an_epoch_but_for_a_release(
    change: Callable[[Lease], Lease], begins: int
) -> None:
    changed = change(ASKED)
    assert changed.next_owner is None
    assert changed.sign_of_life != ASKED.sign_of_life
    assert changed.epoch == ASKED.epoch + begins


@pytest.mark.parametrize(
    "change",
    [Lease.reopened, lambda x: x.revived_as(x.range, Checkpoint(Position("5")))],
    ids=["undone", "merged and split again"],
)
def test_a_range_that_goes_on_after_its_end_is_later_than_that_in_any_listing(
    change: Callable[[Lease], Lease],
) -> None:
    ended = make.lease("r0").taken_by(A, Incarnation("a-1")).ended_in(make.CLOSED)
    again = change(ended)
    assert newest([ended, again]) == newest([again, ended]) == {again.range_id: again}
