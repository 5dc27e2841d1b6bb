"""Keeps one lease alive: by renewing it, or by seeing that heartbeats do.

Where each lease must be renewed, that is done every ``renew_interval``. Where the heartbeats of
this host keep its leases, one is renewed only if they have not moved its fence for so long that
a renewal and its repetitions would just fit in before it: so a host whose member record, or
whose listings, fail for a while is no worse off than with renewals alone. No timer runs for it
meanwhile: the pool of workers knows which lease is due first. A lease of which a listing raises
doubts is renewed at once, since only a write shows whether it is still ours.

Whatever is written carries how the observer gets on, and what the range costs. Where trouble
begins or ends, and lasts for a moment, the lease is renewed for that alone. So it is where no
renewal is due, and its load has left the step that it says at the time of a listing. Both are
done at most once in ``renew_interval``. The load of a range at rest does not change.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Never

from changefeed.host.workers.environment import WorkerEnvironment
from changefeed.host.workers.owned_lease import OwnedLease
from changefeed.leases.lease import Lease

_MOMENT = 1.0  # in it, most of what fails once has succeeded
_LARGEST_PART = 3.0
_SPREAD = 1.25
_SHORTEST_WAIT = 0.001  # less may be rounded away: no time passes, and it is never over


class Renewer:
    """The renewals of one lease; ``described`` has it say what is known of its range. Times are
    in seconds, on the loop's clock.
    """

    def __init__(
        self,
        owned: OwnedLease,
        environment: WorkerEnvironment,
        described: Callable[[Lease], Lease],
    ) -> None:
        leases = environment.settings.leases
        self._owned = owned
        self._described = described
        self._events = environment.events
        self._retrier = environment.retrier
        self._random = environment.random
        self._renew_each = environment.renew_each
        self._interval = leases.renew_interval
        self._by_load = leases.balance == "load" or leases.split_hot
        held_for = leases.expiration - leases.fence_margin
        self._reserve = max(self._interval, held_for / _LARGEST_PART)
        self._reserve *= self._random.uniform(1.0, _SPREAD)  # not all at once
        assert self._reserve < held_for, (
            f"a renewal {self._reserve} s before the fence would be due at once: {held_for} s"
        )
        self._clock = asyncio.get_running_loop().time
        self._due_at: float | None = None
        self._may_say_at = self._clock()

    @property
    def due_in(self) -> float:
        """In how many seconds it must be renewed though heartbeats keep it, if none comes."""
        if self._owned.lost or self._renew_each():
            return inf  # nothing to do, or it has a timer of its own
        return self._owned.time_left - self._reserve

    @property
    def outdated(self) -> bool:
        """Whether the lease, as last written, says something else of its range than is so.

        What it costs can wait for the next renewal, if there will be one. Where ranges are
        counted, one that was never measured is as good as one at rest, and when it came does
        not matter.
        """
        said = self._owned.lease
        now = self._described(said)
        if said.health.troubles != now.health.troubles:
            return True
        if self._renew_each():
            return False
        if self._by_load:
            return (said.load, said.moved) != (now.load, now.moved)
        return (said.load or 0.0) != (now.load or 0.0)

    def look_again(self) -> None:
        """Look at once whether the lease is due."""
        self._events.health.news(self._owned.range_id).set()

    async def run(self) -> Never:
        """Raise ``LeaseLost`` or ``LeaseGone`` when the lease is not ours any more."""
        self._due_at = self._clock() + self._interval * self._random.random()  # spread them
        while True:
            await self._until_due()
            await self._renew()

    async def _renew(self) -> None:
        renew = partial(self._owned.renew, lambda x: self._described(x).renewed())
        try:
            async with asyncio.timeout(max(self._owned.time_left, _SHORTEST_WAIT)):
                await self._retrier.call("renew", renew)
        except TimeoutError:
            self._owned.check()  # heartbeats may have kept it meanwhile
            return
        self._events.renewed()
        self._due_at = self._clock() + self._interval

    async def _until_due(self) -> None:
        """Wait until the lease is due, or says something else of its range than is so."""
        news = self._events.health.news(self._owned.range_id)
        while (wait := self._due_in()) > _SHORTEST_WAIT:
            if self.outdated:
                rest = self._may_say_at - self._clock()
                if rest <= 0:
                    await asyncio.sleep(_MOMENT)
                    if self.outdated:
                        self._may_say_at = self._clock() + self._interval
                        return
                    continue
                wait = min(wait, rest)
            news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait if wait < inf else None):
                    await news.wait()

    def _due_in(self) -> float:
        if self._owned.doubted:
            return 0.0
        if not self._renew_each():
            self._due_at = None
            return inf if self.due_in > _SHORTEST_WAIT else 0.0
        if self._due_at is None:  # from now on: soon, but not all at once
            self._due_at = self._clock() + self._interval * self._random.random() / 2
        now = self._clock()
        assert self._due_at <= now + self._interval, (
            f"lease {self._owned.range_id!r} is renewed at {self._due_at} only, and it is {now}"
        )
        return self._due_at - now
