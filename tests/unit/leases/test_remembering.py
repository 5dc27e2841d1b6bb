"""What a host remembers of leases that were deleted."""

from dataclasses import replace

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.leases.lease import HostName, Incarnation
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.remembering import LeaseMemory, RememberingContainer
from tests.support import make

R0 = RangeId("r0")
NEW = make.lease(at="0")
A, A1 = HostName("a"), Incarnation("a-1")


async def test_no_host_acquires_under_an_epoch_that_it_has_seen() -> None:
    stored = MemoryLeases()
    leases = RememberingContainer(stored, LeaseMemory())
    await stored.create(replace(NEW, epoch=7))
    (listed,) = await leases.list()
    await stored.delete(listed)
    created = await stored.create(NEW)  # by a host that has never seen it
    acquired = await leases.acquire(created.taken_by(A, A1))
    assert acquired.epoch == 8
    assert (await leases.acquire(acquired.taken_by(A, A1))).epoch == 9


async def test_no_host_acquires_under_the_very_epoch_that_it_has_seen() -> None:
    stored, memory = MemoryLeases(), LeaseMemory()
    memory.note([replace(NEW, epoch=7)])
    created = await stored.create(replace(NEW, epoch=6))
    leases = RememberingContainer(stored, memory)
    assert (await leases.acquire(created.taken_by(A, A1))).epoch == 8


def test_a_checkpoint_of_an_older_epoch_or_of_a_range_that_ended_is_not_gone_on_from() -> None:
    memory = LeaseMemory()
    memory.note([replace(NEW, epoch=2, continuation=Continuation("7"))])
    assert memory.recreated(NEW).continuation == "7"
    memory.note([replace(NEW, epoch=3, continuation=None)])
    assert memory.recreated(NEW) == replace(NEW, epoch=3)
    memory.note([replace(NEW, epoch=3, continuation=Continuation("9"))])
    assert memory.recreated(NEW).continuation == "9"
    memory.note([replace(NEW, epoch=3, continuation=None).ended_in(make.CLOSED)])
    assert memory.recreated(NEW) == replace(NEW, epoch=3)


def test_an_answer_that_comes_late_does_not_replace_what_is_known() -> None:
    memory = LeaseMemory()
    memory.note([replace(NEW, epoch=3, continuation=Continuation("9"))])
    memory.note([replace(NEW, epoch=2, continuation=Continuation("7"))])
    assert memory.recreated(NEW).continuation == "9"


def test_what_was_never_seen_begins_as_it_is() -> None:
    assert LeaseMemory().recreated(NEW) == NEW
    assert LeaseMemory().above(NEW.taken_by(A, A1)) == NEW.taken_by(A, A1)
