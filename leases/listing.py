"""All leases, asked for by what has changed since the last time.

Every host lists every lease every few seconds, and at rest hardly one of them has changed. A
container that can say what was written since (a version that grows, a transaction's number)
answers with that alone, and with how many leases there are: a lease that was deleted is noticed
by the count, and then all are listed again. So they are at the start, and every minute: a
server that was restored from a backup may have gone back behind what was said. A heartbeat that
is refused says so at once. A container that
cannot count without reading all leaves deleted leases in for that long, or until a write finds
one gone.

Some containers list the members in the same call, and write a heartbeat in it: at rest a host
then makes one call in the place of three. Others show with what has changed also the members
that were written, which makes it two.

What is missed or late costs a write that is refused, and a new plan: every write names the
version that it is meant for.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName, Lease, Member
from changefeed.runtime.clock import Clock
from changefeed.runtime.together import together

WHOLE = ""
"""The token before the first: everything has changed since."""

_WHOLE_EVERY = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChanges:
    """Leases without their continuations; ``total`` is how many there are, if that is known.

    ``token`` is where the next question begins; ``WHOLE`` where all are to be listed again.
    ``members`` are those that were written in the same time, which may show none that was
    removed; ``None`` if they are to be asked for.
    """

    leases: Sequence[Lease]
    total: int | None
    token: str
    members: Sequence[Member] | None = None


@runtime_checkable
class ListsChanges(Protocol):
    """A lease container that can say what has changed."""

    async def changes_since(self, token: str) -> ListedChanges | None:
        """Return every lease that was written since ``token`` was given, and perhaps more.

        ``None`` if this container cannot say; as an answer to ``WHOLE``, that it never can.
        Raises as containers do.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFleet:
    """``heartbeat`` is the member record as it was written; ``None`` if none was given, or
    if another write of the record came before.
    """

    changes: ListedChanges
    members: Sequence[Member]
    heartbeat: Member | None


@runtime_checkable
class ListsFleet(Protocol):
    """Lists leases and members, and writes a heartbeat, in one request."""

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        """Write ``heartbeat`` as ``put_member`` does; return every member, and of the leases
        what ``changes_since`` does.

        A heartbeat whose version has moved on is not written, and the rest is answered.
        ``None``, with nothing written, if this container cannot do it in one request. Raises as
        containers do: the heartbeat may have been written then.
        """
        ...


AskFleet: TypeAlias = Callable[[Member | None], Awaitable[ListedFleet | None]]
SendAlong: TypeAlias = Callable[[AskFleet], Awaitable[ListedFleet | None]]
"""Makes the call that it is given, with a heartbeat or without; returns its answer."""


class LeaseListing:
    """What one host knows of all leases, brought up to date by each listing."""

    def __init__(self, container: LeaseContainer, clock: Clock) -> None:
        self._container = container
        self._changes = container if isinstance(container, ListsChanges) else None
        self._fleet = container if isinstance(container, ListsFleet) else None
        self._clock = clock
        self._known = dict[RangeId, Lease]()
        self._members = dict[HostName, Member]()
        self._shows_members = False
        self._token = WHOLE
        self._whole_due = clock()

    def doubt(self) -> None:
        """List all the next time: a lease or a member that is known turned out to be gone."""
        self._whole_due = self._clock()

    async def list(self) -> Sequence[Lease]:
        """Return every lease, without continuations. Raise as the container does."""
        leases, _ = await self._listed()
        return leases

    async def list_fleet(
        self, send_along: SendAlong
    ) -> tuple[Sequence[Lease], Sequence[Member]]:
        """Return every lease, and every member. Raise as the container does.

        Where it is one request, ``send_along`` may have it write a heartbeat.
        """
        if self._fleet is not None:
            token = self._next_token()
            found = await send_along(partial(self._ask, self._fleet, token))
            if found is not None:
                leases, _ = await self._brought_up_to_date(token, found.changes)
                return leases, found.members
            self._fleet = None
        if self._shows_members:
            leases, shown = await self._listed()
            return leases, await self._container.members() if shown is None else shown
        return await together(self.list(), self._container.members())

    async def _ask(
        self, fleet: ListsFleet, token: str, heartbeat: Member | None
    ) -> ListedFleet | None:
        found = await fleet.list_fleet(token, heartbeat)
        if found is not None and heartbeat is not None and found.heartbeat is None:
            self.doubt()  # the store has lost our last one, and leases with it
        return found

    async def _listed(self) -> tuple[Sequence[Lease], Sequence[Member] | None]:
        """Return every lease, and every member where the same answer shows them."""
        token = self._next_token()
        changes = None if self._changes is None else await self._changes.changes_since(token)
        if changes is None:
            if not token:
                self._changes = None
            return await self._container.list(), None
        return await self._brought_up_to_date(token, changes)

    def _next_token(self) -> str:
        assert self._whole_due <= self._clock() + _WHOLE_EVERY, (
            f"the next whole listing is due at {self._whole_due}, more than a minute from now"
        )
        return WHOLE if self._clock() >= self._whole_due else self._token

    async def _brought_up_to_date(
        self, token: str, changes: ListedChanges
    ) -> tuple[Sequence[Lease], Sequence[Member] | None]:
        now = self._clock()
        if not token:
            self._known, self._members = {}, {}
        self._known.update((x.range_id, x) for x in changes.leases)
        if token and changes.total not in (None, len(self._known)):
            self._token, self._whole_due = WHOLE, now  # should the next call fail
            return await self._listed()
        if not token:
            self._whole_due = now + _WHOLE_EVERY
        self._token, self._shows_members = changes.token, changes.members is not None
        if changes.members is None:
            return list(self._known.values()), None
        self._members.update((x.name, x) for x in changes.members)
        members = list(self._members.values())
        if any(x.stopping for x in members):
            self._whole_due = now  # it is about to remove its record, which no change shows
        return list(self._known.values()), members
