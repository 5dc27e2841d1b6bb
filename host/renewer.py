"""Keeps the leases of one host alive, by what its heartbeats do not do: it renews them.

Where processors of another kind may share the leases (``LeaseContainer.renew_each``), each is
renewed every ``renew_interval``. Elsewhere the heartbeats of this host keep them, and one is
renewed only if they have not moved its fence for so long that a renewal and its repetitions
would just fit in before it: so a host whose member record, or whose listings, fail for a while
is no worse off than with renewals alone. A lease of which a listing raises doubts is renewed at
once, since only a write shows whether it is still ours.

Whatever is written carries how the observer gets on, and what the range costs. Each listing
compares that with the lease as last written: where trouble has begun or ended, or the load has
left its step, the lease is renewed for that alone, at most once in ``renew_interval``. The load
of a range at rest does not change.

It is a task of its own, which no observer and no listing holds up, and one for all leases: at
rest, they have no timers. A lease that turns out to be lost says so itself
(``OwnedLease.lost``).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Never

from changefeed.feeds.feed import RangeId
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.owned_lease import OwnedLease
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import Lease
from changefeed.leases.timing import FleetRules

_LARGEST_PART = 3.0
_SPREAD = 1.25
_AT_ONCE = 64  # more would wait for each other longer than for the store
_MIN_WAIT = 0.1  # ten thousand leases are not looked at for each of them


@dataclass(slots=True, kw_only=True)
class LeaseRenewal:
    """One lease, and what its next renewal goes by. Times are in seconds, on the loop's clock.

    ``due_at`` is when it is renewed
    in any case, ``inf`` where heartbeats keep it: then it is due a reserve before its fence,
    ``spread`` so that not all are due at once.
    From ``may_say_at`` on it is renewed where it says something else of its range than is so.
    """

    owned: OwnedLease
    described: Callable[[Lease], Lease]
    spread: float
    due_at: float
    may_say_at: float
    renewal: "asyncio.Task[None] | None" = None

    def due_in(self, now: float, reserve: float) -> float:
        """Return in how many seconds it is to be renewed, by what is known now."""
        if self.owned.lost or self.owned.given_up or self.renewal is not None:
            return inf
        if self.owned.doubted:
            return 0.0
        kept_by_heartbeats = self.due_at == inf
        reserve *= self.spread
        return self.owned.time_left - reserve if kept_by_heartbeats else self.due_at - now


class LeaseRenewer:
    """See the module. ``failed`` is called with what asking again cannot help."""

    def __init__(
        self,
        rules: FleetRules,
        *,
        renew_each: bool,
        events: HostEvents,
        retrier: Retrier,
        random: Random,
        failed: Callable[[Exception], None],
    ) -> None:
        self._renew_each = renew_each
        self._events = events
        self._retrier = retrier
        self._random = random
        self._failed = failed
        self._rules = rules
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._clock = asyncio.get_running_loop().time
        self._kept: dict[RangeId, LeaseRenewal] = {}
        self._woken = asyncio.Event()

    def keep(self, owned: OwnedLease, described: Callable[[Lease], Lease]) -> None:
        """Renew a lease from now on. ``described`` has it say what is known of its range."""
        now, chance = self._clock(), self._random.random()  # spread them
        interval = self._rules.shown.renew_interval
        self._kept[owned.range_id] = LeaseRenewal(
            owned=owned,
            described=described,
            spread=1.0 + (_SPREAD - 1.0) * chance,
            due_at=now + interval * chance if self._renew_each else inf,
            may_say_at=now,
        )

    def let_go(self, range_id: RangeId) -> None:
        """Renew a lease no more."""
        kept = self._kept.pop(range_id)
        if kept.renewal is not None:
            kept.renewal.cancel()

    def doubt_all(self) -> None:
        """Find out, by a write, whether the leases are still ours."""
        for kept in self._kept.values():
            kept.owned.doubted = True
        self._woken.set()

    def listed(self) -> None:
        """Look at once: the leases were compared with a listing."""
        now = self._clock()
        for kept in self._kept.values():
            if self._is_outdated(kept) and now >= kept.may_say_at:
                kept.owned.doubted = True
                kept.may_say_at = now + self._rules.shown.renew_interval
        self._woken.set()

    async def run(self) -> Never:
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                wait = self._begin_due(group)
                await asyncio.sleep(_MIN_WAIT)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, wait - _MIN_WAIT)):
                        await self._woken.wait()

    def _begin_due(self, group: asyncio.TaskGroup) -> float:
        """Begin the renewals that are due; return in how many seconds to look again."""
        timing, now = self._rules.shown, self._clock()
        wait = timing.renew_interval / 2
        reserve = max(timing.renew_interval, timing.held_for / _LARGEST_PART)
        assert reserve * _SPREAD < timing.held_for, (
            f"a renewal {reserve} s early is due at once"
        )
        for kept in self._kept.values():
            due_in = kept.due_in(now, reserve)
            if due_in > 0:
                wait = min(wait, due_in)
                continue
            kept.renewal = group.create_task(self._renew(kept))
        return wait

    def _is_outdated(self, kept: LeaseRenewal) -> bool:
        """Whether the lease, as last written, says something else of its range than is so.

        What it costs can wait for the next renewal, if there will be one. Where ranges are
        counted, one that was never measured is as good as one at rest, and when it came does
        not matter.
        """
        said = kept.owned.lease
        now = kept.described(said)
        if said.health.problems != now.health.problems:
            return True
        if self._renew_each:
            return False
        if self._rules.balance != "count":
            return (said.load, said.cooling) != (now.load, now.cooling)
        return (said.load or 0.0) != (now.load or 0.0)

    async def _renew(self, kept: LeaseRenewal) -> None:
        try:
            async with asyncio.timeout(kept.owned.time_left):
                await self._retrier.call("renew", partial(self._renew_in_turn, kept))
            self._events.renewed()
        except TimeoutError:
            with suppress(LeaseLost):
                kept.owned.check()  # heartbeats may have kept it meanwhile
        except LeaseLost:
            pass  # its worker is told by the lease itself
        except Exception as error:  # noqa: BLE001 - passed on to the host
            self._failed(error)
        finally:
            kept.renewal = None
            if self._renew_each:
                kept.due_at = self._clock() + self._rules.shown.renew_interval

    async def _renew_in_turn(self, kept: LeaseRenewal) -> None:
        async with self._at_once:
            await kept.owned.renew(lambda x: kept.described(x).renewed())
