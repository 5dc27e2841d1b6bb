"""Which feed the leases of a container are about: positions mean nothing in another.

A container of Cosmos DB, or an event log, that is deleted and created again has the same
address, ranges and positions, and other changes under them. While hosts run their feed
notices. What was recreated while no host ran is noticed here, at the next start: the first
host writes down what its feed is, beside the leases.
"""

from changefeed.leases.container import LeaseContainer
from changefeed.runtime.errors import StoreRefused


async def refuse_another_feed(container: LeaseContainer, identity: str) -> None:
    """Raise ``StoreRefused`` if there are leases, and they are about another feed.

    A container without leases takes any feed, and keeps which it is.
    """
    kept = await compare_feeds(container, identity)
    if kept != identity:
        await container.keep_feed_identity(identity)


async def compare_feeds(container: LeaseContainer, identity: str) -> str | None:
    """Raise as ``refuse_another_feed``, and keep nothing: for who changes some leases only.
    Return what was kept.
    """
    kept = await container.feed_identity()
    if kept is not None and kept != identity and await container.list():
        raise StoreRefused(
            f"the leases are about another feed ({kept}) than the one at its address now "
            f"({identity}): it was deleted and recreated, or the address of the leases is that "
            f"of another fleet. Positions of the one mean nothing in the other: name other "
            f"leases, or start all ranges again with: changefeed reset --all --to=beginning"
        )
    return kept
