"""A host's own member record: joining the fleet under a name, staying in it, leaving.

A name belongs to one living process. A host that finds a record of its name watches
whether that still moves: if it does, another process lives under the name, and this one
refuses to start. If it stands still for longer than one of the living would let it, one of
whose heartbeats fails, it is what a crash left behind, and is taken over; at once if the
supervisor says that the old process has ended (``dead`` incarnations). Should the old process
wake up later, or be connected again, its next heartbeat or listing shows the record rewritten,
and it stops before it takes back what carries the name; its leases are fenced by their epochs
all the while.

A heartbeat that was answered is a sign of life for all leases of this incarnation
(``changefeed.leases.fleet``), from the moment it was sent.

A store that lost its last writes may show an older record of our name. That does not mean that
another process has the name: the record is watched for heartbeats, as at the start.

A heartbeat goes along with a listing, in one request where the container can do that. A
call without an answer fails both; so after one each goes alone, the heartbeat at once, until
both have been answered: neither is lost for what ails the other.

A host that lists leases and cannot write them sends no heartbeats (``may_beat``): the others
then give its share of the ranges to hosts that can. One write of a lease that gets through, and
it beats again.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from math import inf

from msgspec.structs import replace

from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.leases.container import LeaseContainer, ListedFleet
from changefeed.leases.fleet import is_placeholder
from changefeed.leases.lease import HostName, Incarnation, Member, Version
from changefeed.leases.timing import FleetRules
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import NameTaken, StoreError, StoreUnavailable
from changefeed.stores.store import WHOLE

_SOONEST_ALONG = 0.75
"""Heartbeat intervals until the next goes along: with every second listing, as it is paid."""
_LATEST_ALONG = 1.25
"""Heartbeat intervals until one goes alone: listings are not quite regular."""
_PAUSE = 0.25
"""Heartbeat intervals until one that failed is followed by the next."""

_LEAVE_TIMEOUT = 2.0
_TRIES = 2  # a conflict with an own write that was not answered, or with one for the dead


def name_taken(name: HostName, incarnation: Incarnation) -> NameTaken:
    """Return the error for another living process under our name."""
    return NameTaken(
        f"another living process runs as host {name!r} (incarnation {incarnation}); give this "
        f"one a name of its own (--name)"
    )


class Membership:
    """One incarnation's member record. Between heartbeats lies a renewal interval.

    ``dead`` are incarnations whose processes have ended for certain. ``on_beat`` is called
    with the time, on ``clock``, at which a heartbeat was sent, once it has been answered.
    ``may_beat`` says whether this host is of use to the others.
    """

    def __init__(
        self,
        container: LeaseContainer,
        member: Member,
        rules: FleetRules,
        *,
        dead: Collection[str] = (),
        events: HostEvents,
        retrier: Retrier,
        wall: Callable[[], float],
        clock: Clock = elapsed_time,
        on_beat: Callable[[float], None] = lambda _: None,
        may_beat: Callable[[], bool] = lambda: True,
    ) -> None:
        self._container = container
        self._member = member
        self._rules = rules
        self._dead = {*dead}
        self._events = events
        self._retrier = retrier
        self._wall = wall
        self._clock = clock
        self._on_beat = on_beat
        self._may_beat = may_beat
        self._writing = asyncio.Lock()
        self._sent = clock()
        self._went_along = asyncio.Event()
        self._listing_answered, self._heartbeat_answered = False, True

    @property
    def _interval(self) -> float:
        return self._rules.shown.renew_interval

    @property
    def _longest_silent(self) -> float:
        judged = self._rules.judged
        at_worst = (_LATEST_ALONG + _PAUSE) * judged.renew_interval
        longest = judged.call_timeout + at_worst
        assert longest > self._interval, f"one that lives may be silent for {longest} s"
        return longest

    async def join(self) -> None:
        """Write our record. Raise ``NameTaken`` if a living process has the name."""
        stood_still: object = None
        for attempt in count(1):
            if attempt > _TRIES:  # listings that lag behind show the same for a while
                await asyncio.sleep(_PAUSE * self._interval)
            stored = await self._retrier.call("join", self._stored)
            if stored is not None and not self._may_take_over(stored):
                if stored.sign_of_life != stood_still:  # else others wrote it, for the dead
                    await self._refuse_if_alive(stored)
                stood_still = stored.sign_of_life
            version = Version("") if stored is None else stored.version
            self._member = replace(self._member, version=version)
            if not await self._retrier.call("join", self._has_written):
                continue  # somebody joined meanwhile, or our own write got through unanswered
            if stored is not None:
                self._dead.add(stored.incarnation)  # only a store that forgets shows it again
            return

    def _may_take_over(self, stored: Member) -> bool:
        """Whether it is ours, or of a process that is known to have ended, or of none."""
        ours = stored.incarnation == self._member.incarnation
        return ours or stored.incarnation in self._dead or is_placeholder(stored)

    async def keep_alive(self) -> None:
        """Keep the record alive. Raise ``NameTaken`` if another process took the name."""
        wait = self._interval
        while True:
            assert wait > 0, f"heartbeats without a wait between them: {wait} s"
            with suppress(TimeoutError):
                async with asyncio.timeout(_LATEST_ALONG * wait if self._goes_along else wait):
                    await self._went_along.wait()
                self._went_along.clear()
                if self._goes_along:
                    continue
            if not self._may_beat():
                wait = _PAUSE * self._interval
                continue
            try:
                await self._beat()
            except StoreUnavailable as error:
                wait = _PAUSE * self._interval
                self._events.retrying("heartbeat", error, wait)
            else:
                passed = self._clock() - self._sent  # its answer may have come late
                wait = max(_PAUSE * self._interval, self._interval - passed)

    async def list_fleet(self, token: str) -> ListedFleet:
        """List as the container does, with a heartbeat if one is due; raise what that raises.

        Raise ``NameTaken`` if another process took the name: its leases look like ours.
        """
        found = await self._list_or_send_along(token)
        if any(
            x.name == self._member.name and not self._may_take_over(x) for x in found.members
        ):
            await self._beat()  # which finds out whether the listing only lags behind
        return found

    async def _list_or_send_along(self, token: str) -> ListedFleet:
        due = self._clock() - self._sent >= _SOONEST_ALONG * self._interval
        if not (due and self._goes_along) or self._writing.locked():
            return await self._list(token, None)
        async with self._writing:
            self._heartbeat_answered = False
            try:
                sent, heartbeat = self._clock(), self._next_heartbeat()
                found = await self._list(token, heartbeat)
            finally:
                self._went_along.set()
            if found.heartbeat is not None:
                self._written(found.heartbeat, sent)
                return found
        # The store has lost our last one, and leases with it: all are to be listed again.
        return replace(found, token=WHOLE)

    @property
    def _goes_along(self) -> bool:
        return self._listing_answered and self._heartbeat_answered and self._may_beat()

    async def _list(self, token: str, heartbeat: Member | None) -> ListedFleet:
        self._listing_answered = False
        found = await self._container.list_fleet(token, heartbeat)
        self._listing_answered = True
        return found

    async def announce_stopping(self) -> None:
        """Ask the others to give us nothing more. One attempt; it only speeds things up."""
        self._member = replace(self._member, stopping=True)
        await self._beat()

    async def leave(self) -> None:
        """Remove the record. One attempt, which has not long: if it fails, the record expires.

        It is looked up first: a last heartbeat may have been written without an answer.
        """
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT), self._writing:
                stored = await self._stored()
                if stored is not None and stored.incarnation == self._member.incarnation:
                    await self._container.remove_member(stored)
        except (StoreError, TimeoutError) as error:
            self._events.retrying("leave", error, 0.0)

    async def _beat(self) -> None:
        async with self._writing:
            for _ in range(_TRIES):
                if await self._has_written():
                    return
                stored = await self._stored()
                if stored is not None and not self._may_take_over(stored):
                    await self._refuse_unless_forgotten(stored)
                self._member = _going_on_from(stored, self._member)
        raise StoreUnavailable(
            f"the record of host {self._member.name!r} was written by others {_TRIES} times in"
            " a row, and no heartbeat of this host"
        )

    async def _has_written(self) -> bool:
        sent = self._clock()
        self._heartbeat_answered = False
        stored = await self._container.put_member(self._next_heartbeat())
        if stored is not None:
            self._written(stored, sent)
        return stored is not None

    def _next_heartbeat(self) -> Member:
        return replace(self._member, heartbeats=self._member.heartbeats + 1, stamp=self._wall())

    def _written(self, stored: Member, sent: float) -> None:
        assert self._sent <= sent <= self._clock(), (
            f"a heartbeat of {sent}, after one of {self._sent}, at {self._clock()}"
        )
        # What we say may have changed meanwhile: that we stop.
        self._member = _going_on_from(stored, self._member)
        self._sent, self._heartbeat_answered = sent, True
        self._on_beat(sent)

    async def _stored(self) -> Member | None:
        members = await self._container.members()
        return next((x for x in members if x.name == self._member.name), None)

    async def _refuse_unless_forgotten(self, found: Member) -> None:
        """Raise ``NameTaken``, unless the record is older than ours: a store that lost its last
        writes shows such a one, and no process writes heartbeats to it.
        """
        if (found.stamp or inf) >= (self._member.stamp or 0.0):
            raise name_taken(self._member.name, found.incarnation)
        await self._refuse_if_alive(found)

    async def _refuse_if_alive(self, found: Member) -> None:
        assert not self._may_take_over(found), f"{found} is ours, or dead: nothing to wait for"
        self._events.waiting_for_name(found.incarnation, self._longest_silent)
        clock = asyncio.get_running_loop().time
        until = clock() + self._longest_silent
        while clock() < until:
            await asyncio.sleep(self._interval / 4)
            stored = await self._retrier.call("join", self._stored)
            if stored is None:
                return
            if stored.sign_of_life != found.sign_of_life:
                raise name_taken(self._member.name, stored.incarnation)


def _going_on_from(stored: Member | None, member: Member) -> Member:
    """Write over our own record next time. A heartbeat that got through has been seen: the
    next one must differ from it, or it is no sign of life.
    """
    if stored is None:
        return replace(member, version=Version(""))
    return replace(
        member, version=stored.version, heartbeats=stored.heartbeats, stamp=stored.stamp
    )
