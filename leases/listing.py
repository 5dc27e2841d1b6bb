"""All leases, asked for by what has changed since the last time.

Every host lists every lease every few seconds, and at rest hardly one of them has changed. A
container that can say what was written since (a version that grows, a transaction's number)
answers with that alone, and with how many leases and members there are: one that was deleted is
noticed by the count, and then all are listed again. So they are where a copy is older than what
is known (a replica lags behind, or the store has lost its last writes), at the start, and every
minute: a server that was restored from a backup may have gone back behind what was said; a
heartbeat that is refused says so at once. A container that cannot count without reading all
leaves deleted ones in for that long, or until a write finds one gone.

Leases and members come by one call, and a heartbeat may go along with it: at rest a host makes
one call where the container can do that in one request.

What is missed or late costs a write that is refused, and a new plan: every write names the
version that it is meant for.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import ListedFleet
from changefeed.leases.lease import HostName, Lease, Member, newest
from changefeed.runtime.clock import Clock
from changefeed.stores.store import WHOLE

_WHOLE_EVERY = 60.0

ListFleet: TypeAlias = Callable[[str], Awaitable[ListedFleet]]
"""Lists what was written since a token was given, as a container does."""


class LeaseListing:
    """What one host knows of all leases and members, brought up to date by each listing."""

    def __init__(self, ask: ListFleet, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._leases = dict[RangeId, Lease]()
        self._members = dict[HostName, Member]()
        self._token = WHOLE
        self._whole_due = clock()

    def doubt(self) -> None:
        """List all the next time: a lease or a member that is known turned out to be gone."""
        self._token = WHOLE

    async def list_fleet(self) -> tuple[Sequence[Lease], Sequence[Member]]:
        """Return every lease, without positions, and every member. Raise as the container."""
        token = self._next_token()
        if not self._takes_in(await self._ask(token), whole=not token):
            self.doubt()  # something was deleted, or has moved back; and the next call may fail
            self._takes_in(await self._ask(WHOLE), whole=True)
        if any(x.stopping for x in self._members.values()):
            self.doubt()  # it removes its record soon, which no change shows
        return list(self._leases.values()), list(self._members.values())

    def _next_token(self) -> str:
        assert self._whole_due <= self._clock() + _WHOLE_EVERY, (
            f"the next whole listing is due at {self._whole_due}, more than a minute from now"
        )
        return WHOLE if self._clock() >= self._whole_due else self._token

    def _takes_in(self, found: ListedFleet, *, whole: bool) -> bool:
        """Bring up to date what is known; return whether that is all there is."""
        if whole:
            self._leases, self._members = {}, {}
            self._whole_due = self._clock() + _WHOLE_EVERY
        listed = newest(found.leases)
        earlier = [x for x in listed.values() if self._knows_later_than(x)]
        self._leases.update(listed)
        self._members.update((x.name, x) for x in found.members)
        self._token = found.token
        known = len(self._leases) + len(self._members)
        return whole or (not earlier and found.total in (None, known))

    def _knows_later_than(self, lease: Lease) -> bool:
        known = self._leases.get(lease.range_id)
        return known is not None and known.sign_of_life > lease.sign_of_life
