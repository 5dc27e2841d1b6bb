"""Who and what appears in the suites of lease containers."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Incarnation, Lease, Version, WriteId

T = TypeVar("T")
Connect = Callable[[], Awaitable[LeaseContainer]]
"""Makes one more client to the same data; it is closed with the container."""

A, B = HostName("a"), HostName("b")
A1, A2, B1 = Incarnation("a-1"), Incarnation("a-2"), Incarnation("b-1")
R0 = RangeId("r0")
C0, C1, C2, C3 = (Position(f"c{n}") for n in range(4))
W1, W2 = WriteId("w1"), WriteId("w2")


def new(range_id: RangeId = R0) -> Lease:
    return Lease(range=FeedRange(id=range_id), checkpoint=Checkpoint(C0))


async def whole(leases: LeaseContainer, range_id: RangeId = R0) -> Lease:
    lease = await leases.read(range_id)
    assert lease is not None
    assert lease.position is not None
    return lease


async def owned_by_a(leases: LeaseContainer) -> Lease:
    lease = await leases.create(new())
    return await leases.acquire(lease.taken_by(A, A1))


def not_refused(answer: T | None) -> T:
    """Return what a write was answered; fail if the write was refused."""
    assert answer is not None, "the write was refused"
    return answer


def as_written(lease: Lease) -> Lease:
    return replace(lease, version=Version(""))
