"""Delivers a change alone, where the lease says that its last owners died (``leases.deaths``).

The delivery of a range under care asks for each change: it waits until no other change of the
process is delivered so, notes the change in the lease, and checkpoints it. The lease is
still renewed meanwhile. A change that fails has not killed: what is to come of it is for the
delivery to say. Reading to the end of the range with nothing in hand ends all care.

Limits: with manual checkpoints, what the observer has not acknowledged yet is not noted any
more once its call has returned.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.feeds.feed import Change
from changefeed.host.calls import Drain
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.failures import Retrier
from changefeed.host.owned_lease import OwnedLease
from changefeed.leases.deaths import NO_DEATHS
from changefeed.observers.call import Blame
from changefeed.observers.errors import AttemptFailed, ObserverFailed


class CarefulDelivery:
    """Of all ranges of one host. ``turn`` is that of its process: one change at a time is
    delivered with care.
    """

    def __init__(self, retrier: Retrier, turn: asyncio.Lock) -> None:
        self._retrier = retrier
        self._turn = turn

    @asynccontextmanager
    async def alone(
        self, change: Change, owned: OwnedLease, drain: Drain, checkpoints: Checkpointer
    ) -> AsyncIterator[Blame | None]:
        """Have it delivered in the block, or put aside for what is yielded.

        Raise ``ObserverFailed`` where the worker drains before its turn has come, ``LeaseLost``
        and the like as every write of the lease.
        """
        turn = False
        async with drain.until_begun():
            turn = await self._turn.acquire()
        try:
            if drain.reason is not None:
                reason = f"given up: {drain.reason.value}"
                raise ObserverFailed(owned.range_id, None, 0, reason)
            try:
                deaths = owned.deaths
                blamed = deaths.blames(change.sequence)
                if deaths.care and not blamed:  # others may have used up the care
                    owned.deaths = deaths.noting(change.sequence)
                await self._tell(owned)  # also that a call before is over
                yield Blame(deaths.with_suspect, deaths.reason) if blamed else None
                if blamed:
                    owned.deaths = owned.deaths.cleared()
            except (AttemptFailed, asyncio.CancelledError) as error:
                owned.deaths = owned.deaths.returned(0)  # the call is over, and was survived
                if isinstance(error, AttemptFailed):
                    await self._tell(owned)
                raise
            await self._settle(owned, checkpoints)
        finally:
            if turn:
                self._turn.release()

    async def caught_up(self, owned: OwnedLease) -> None:
        """There is nothing to read, and nothing in hand: nobody died of what was there."""
        owned.deaths = NO_DEATHS
        await self._tell(owned)

    async def _settle(self, owned: OwnedLease, checkpoints: Checkpointer) -> None:
        owned.deaths = owned.deaths.returned(1)
        checkpoints.advance()
        await checkpoints.written()
        await self._tell(owned)  # where no position has moved

    async def _tell(self, owned: OwnedLease) -> None:
        await self._retrier.call("note what is delivered", owned.tell_deaths)
