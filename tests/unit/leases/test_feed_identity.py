"""Leases know which feed they are about, if they can; the contract tells how."""

from changefeed.leases.feed_identity import refuse_another_feed
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timeouts import BoundedContainer
from tests.support import make


async def test_a_container_that_keeps_no_identity_takes_any_feed() -> None:
    leases = MemoryLeases()
    bounded = BoundedContainer(leases, timeout=5, on_call=lambda _: None)
    await leases.create(make.lease(at="c0"))
    for identity in ("feed-1", "feed-2"):
        await refuse_another_feed(leases, identity)
        await refuse_another_feed(bounded, identity)
    assert await bounded.feed_identity() is None
