"""The owner of a range splits it, at a checkpoint, because it is too much for one host.

Each listing asks for it, or takes that back; the delivery looks between two pages. Nothing is
stopped for it: what waits for acknowledgement is waited for as ever. The parts go on from the
checkpoint, and the range ends as one that the feed has ended: in the last write of its owner,
which fails if others have the lease by then, and the parts wait on.

Limits: a range whose observer leaves something unacknowledged at the end of each page is not
split.
"""

import asyncio

from changefeed.feeds.errors import FeedError
from changefeed.host.workers.checkpointer import Checkpointer
from changefeed.host.workers.environment import WorkerEnvironment
from changefeed.host.workers.owned_lease import OwnedLease
from changefeed.host.workers.parts import create_parts, parts_of, refuse_taken
from changefeed.leases.errors import ContainerUnavailable
from changefeed.runtime.errors import UserError


class HotSplit:
    """The split of one range, if there is to be one. Times are in seconds, on the loop's clock.

    A range is not split before its owner has read it for a cooldown (who has just come has much
    to catch up with), nor for as long after a split that could not be done.
    """

    def __init__(
        self, owned: OwnedLease, environment: WorkerEnvironment, checkpoints: Checkpointer
    ) -> None:
        self._owned = owned
        self._environment = environment
        self._checkpoints = checkpoints
        self._clock = asyncio.get_running_loop().time
        self._cooldown = environment.settings.leases.balance_cooldown
        self._not_before = self._clock() + self._cooldown
        self.into: int | None = None
        """How many parts are asked for."""
        self.done = False
        """Whether the range was split: it ends here, though the feed has it still."""

    @property
    def due(self) -> bool:
        return self.into is not None and self._clock() >= self._not_before

    async def carry_out(self) -> bool:
        """Checkpoint what was done, which must be all that was delivered, and create the parts;
        return whether nothing more is to be delivered: the range is to be marked as ended.
        """
        into = self.into
        if into is None:
            return False
        self._checkpoints.advance()
        await self._checkpoints.written()
        assert not self.done, f"range {self._owned.range_id!r} is split already"
        assert self._checkpoints.at_rest, (
            f"parts of range {self._owned.range_id!r} would begin behind what was done"
        )
        try:
            await self._create(into)
        except (UserError, FeedError, ContainerUnavailable) as error:
            self._not_before = self._clock() + self._cooldown
            self._environment.events.not_split(self._owned.range_id, error)
            return False
        self.done = True
        return True

    async def _create(self, into: int) -> None:
        shared, lease = self._environment, self._owned.lease
        cut = parts_of(shared.feed, lease.range, into)
        there = [await shared.container.read(x.id) for x in cut]
        refuse_taken([x for x in there if x is not None], cut)
        await create_parts(
            lease,
            cut,
            self._owned.continuation,
            feed=shared.feed,
            container=shared.container,
            retrier=shared.retrier,
            events=shared.events,
            check=self._owned.check,
            prove=self._owned.renew,
        )
        shared.events.split(lease, cut)
