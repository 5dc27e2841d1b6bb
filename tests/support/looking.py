"""What a story looks up, and waits for."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from changefeed.feeds.feed import Change, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.testing.fleet import Fleet


def now() -> float:
    """Return the time of the event loop, in seconds."""
    return asyncio.get_running_loop().time()


def wall() -> float:
    """Return the wall-clock time of a fleet in virtual time."""
    return 1_700_000_000.0 + now()


def start(fleet: Fleet, names: Iterable[str]) -> None:
    """Start a host of each name."""
    for name in names:
        fleet.start(name)


async def lease_in(leases: LeaseContainer, name: str = "r0") -> Lease:
    """Return the lease of a range, which is there."""
    lease = await leases.read(RangeId(name))
    assert lease is not None, name
    return lease


async def until(true: Callable[[], object], *, within: float = 3600) -> None:
    """Wait until something is true; fail after so many seconds."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - what is looked at sets no event
            await asyncio.sleep(0.05)


def in_order(changes: Sequence[Change]) -> bool:
    """Tell whether the changes of each key came in the order of the numbers in them."""
    of_keys = defaultdict[str, list[int]](list)
    for change in changes:
        found = change.value()
        of_keys[change.key].append(found["n"] if isinstance(found, dict) else found)
    return all(x == sorted(x) for x in of_keys.values())
