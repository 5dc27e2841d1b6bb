"""Leases whose checkpoints are not there, where these are kept apart: one, or all of them.

A checkpoint counts as lost when it has been missing for some time: a replica may lag, and a
store that was emptied by mistake may be filled again. Then it matters what others have. If one
lease has lost its own, its range waits for a person, and the rest of the fleet reads on. If
none has one, the store is another one than before, and the host must not go on with it.
"""

import asyncio
from collections.abc import Callable, Sequence

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import CheckpointMissing
from changefeed.leases.lease import Lease
from changefeed.leases.updating import look_up
from changefeed.runtime.clock import Clock
from changefeed.runtime.for_each import for_each

_AT_ONCE = 16


class LostCheckpoints:
    """``patience`` is how long a checkpoint may be missing, in seconds; ``stopping`` says
    whether it does not matter any more.
    """

    def __init__(
        self,
        container: LeaseContainer,
        *,
        patience: float,
        clock: Clock,
        stopping: Callable[[], bool],
    ) -> None:
        self._container = container
        self._patience = patience
        self._clock = clock
        self._stopping = stopping
        self._since: dict[RangeId, float] = {}
        self._looking = asyncio.Lock()

    def found(self, range_id: RangeId) -> None:
        """Note that a checkpoint is there."""
        self._since.pop(range_id, None)

    async def is_lost(self, missing: CheckpointMissing) -> bool:
        """Whether the range of this lease has to wait for a person.

        Raise ``missing`` where no other lease has a checkpoint either, and what containers
        raise.
        """
        range_id, now = missing.lease.range_id, self._clock()
        since = self._since.setdefault(range_id, now)
        assert since <= now, f"the checkpoint of {range_id!r} is missing since {since}: {now}"
        if now - since < self._patience:
            return False
        async with self._looking:  # what one finds out holds for those that wait
            if not await self._any_has_one(besides=range_id):
                raise missing
            lease = await look_up(self._container, range_id)
        self.found(range_id)
        return lease is not None and lease.continuation is None

    async def _any_has_one(self, *, besides: RangeId) -> bool:
        leases = await self._container.list()
        others = [x for x in leases if not x.ended and x.range_id != besides]
        for first in range(0, len(others), _AT_ONCE):
            if self._stopping() or await self._one_has(others[first : first + _AT_ONCE]):
                return True
        return False

    async def _one_has(self, leases: Sequence[Lease]) -> bool:
        found = await for_each(
            leases, lambda x: look_up(self._container, x.range_id), at_once=_AT_ONCE
        )
        return any(x is not None and x.continuation is not None for x in found)
