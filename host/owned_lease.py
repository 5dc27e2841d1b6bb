"""A lease that this host owns, and the only place it is written from.

The renewer, the checkpointer and a handoff would otherwise race on its version and each
take the other for a thief. So all of them come through one object with one lock. It also
knows until when it may be acted upon: from the moment its last sign of life was *sent*, plus
the expiration, less a margin, nothing may be delivered or checkpointed under it any more
(``LeaseLost``), because from then on others may own it. The clock that this is counted by
runs on while the machine is suspended.

A renewal is a sign of life, and so is a heartbeat of this host, under two conditions. It must
have been answered before the fence: else others may have taken the lease while it was on its
way, and from then on only a write of the lease itself shows that they have not. And it counts
no longer than from the last listing that showed the lease as ours: a host that does not see
its leases does not see either that another asks for one, or that an operator has taken it.

A write without an answer may have happened. Before the next write the lease is read again:
whatever is there under our own epoch and incarnation, only we wrote, save for the request
of another host, and is taken over with its version. The write that is still on its way then
fails on that version, so nothing can move back.

A store may lose its last writes, as a Redis that is restarted does. It then shows the lease as
it was before ours. This host was the last one to own it, so it claims the lease again, under
an epoch above its own, and reads on. So it does where the lease was deleted by hand. A write
repeats the last checkpoint that was sent, as long as the store does not show it.

When writes of it fail twice in a row, it is ``failing``: what is delivered from then
on may never be checkpointed, and comes again elsewhere. So delivery pauses, though the lease
is held until its fence.

Limits: one epoch, one object. When the lease comes back later, it is another object.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Never

from msgspec.structs import replace

from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.errors import LeaseConflict, LeaseLost, checkpoint_is_lost
from changefeed.leases.lease import HostName, Incarnation, KeyRequest, Lease, Version
from changefeed.leases.timing import FleetRules
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import StoreUnavailable

_FAILURES = 2  # in a row: one alone is a lost answer, as a rule
_TRIES = 5  # each lost to another host's request; more means something else is wrong


class OwnedLease:
    """See the module. Every method may raise ``LeaseLost`` and ``StoreUnavailable``; after
    the latter the lease is still held, until it is not.
    """

    def __init__(
        self,
        container: LeaseContainer,
        lease: Lease,
        *,
        sent: float,
        rules: FleetRules,
        clock: Clock,
        wall: Callable[[], float],
    ) -> None:
        """Hold ``lease``, whole, as ``acquire`` returned it; that was asked for at ``sent``."""
        assert lease.checkpoint is not None, "a lease is held with its checkpoint"
        self._container = container
        self.range_id = lease.range_id
        self.lease = lease.without_position()
        """The lease as last written, without its checkpoint."""
        self.stored: Checkpoint = lease.checkpoint
        """The last checkpoint known to be stored."""
        self._sent = lease.checkpoint  # the last that may be stored
        self.deaths, self.care = lease.deaths, lease.deaths.care
        """How its owners ended: in each of its writes. ``care`` is how much of it is stored."""
        self._rules = rules
        self._fence_at = sent + rules.shown.held_for
        self._beat_at = -inf
        self._seen_at = sent
        self._clock = clock
        assert sent <= clock(), f"lease {lease.range_id!r} is acquired at {sent}, yet to come"
        self._wall = wall
        self._writing = asyncio.Lock()
        self._unclear: Lease | None = None
        self._failures = 0
        self._why_lost = "it could not be renewed in time"
        self._giving_up = False
        self.doubted = False
        """Whether it is to be written: a listing does not show it as ours, so that only a write
        can tell, or it says something else of its range than is so."""
        self.lost = False
        """Whether ``LeaseLost`` has been raised."""
        self.given_up = False
        """Whether it was written for the last time."""
        self.noticed: Callable[[Lease], None] = lambda _: None
        """Called with the lease as a listing has it, and when others have written to it, a
        request or a pause, or it is lost."""

    @property
    def time_left(self) -> float:
        """In how many seconds this host must have stopped acting on the lease."""
        return max(0.0, self._fence_at - self._clock())

    @property
    def may_act(self) -> bool:
        """Whether no other host can own the lease yet."""
        return not self.lost and self._clock() < self._fence_at

    @property
    def failing(self) -> bool:
        """Whether what is delivered now may not be checkpointed."""
        return self._failures >= _FAILURES

    def check(self) -> None:
        """Raise ``LeaseLost`` if the lease may not be acted upon any more."""
        if not self.may_act:
            self.lose(self._why_lost)

    def lose(self, why: str) -> Never:
        """Raise ``LeaseLost``: from now on nothing may be done under this lease."""
        self._end(why)
        raise LeaseLost(self.lease, why)

    def _end(self, why: str) -> None:
        self._why_lost = why
        self.lost = True
        self.noticed(self.lease)

    def beat(self, sent: float) -> None:
        """Count a heartbeat of this host that was sent then and has just been answered."""
        assert sent <= self._clock(), f"a heartbeat of {sent}, which is yet to come"
        if self.may_act:
            self._failures = 0
            self._beat_at = sent
            self._keep_from(min(self._beat_at, self._seen_at))

    def listed(self, found: Lease | None, *, asked: float) -> None:
        """Compare it with what a listing that was asked for then has of it, if anything.

        One that belongs to others by now is lost at once. What is missing, or in an epoch
        before ours, may come from a replica that lags behind: it is ``doubted``.
        """
        assert asked <= self._clock(), f"a listing of {asked}, which is yet to come"
        if self.lost or self._giving_up:
            return
        if found is None or found.epoch < self.lease.epoch:
            self.doubted = True
        elif _holder(found) != _holder(self.lease):
            self._end(f"it is now held by {found.owner!r}")
        elif found.renewals >= self.lease.renewals:  # else older than our own last write
            self._seen_at = max(self._seen_at, asked)
            if self.may_act:
                self._keep_from(min(self._beat_at, self._seen_at))
            self.noticed(found)

    def _keep_from(self, sent: float) -> None:
        self._fence_at = max(self._fence_at, sent + self._rules.shown.held_for)
        assert self._fence_at <= self._clock() + self._rules.judged.expiration, (
            f"lease {self.range_id!r} of epoch {self.lease.epoch} may be acted upon until "
            f"{self._fence_at}: longer than if its last sign of life were sent now"
        )

    async def renew(self, renewed: Callable[[Lease], Lease] = Lease.renewed) -> None:
        """Show a sign of life, and be allowed to act for another while."""
        sent = self._clock()
        self.doubted = False
        await self._write(renewed)
        self._keep_from(sent)
        self._seen_at = max(self._seen_at, sent)

    def _is_stored(self, checkpoint: Checkpoint) -> bool:
        """Whether it surely is: no write without an answer has carried another one."""
        return checkpoint == self.stored == self._sent

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write it, unless it is stored."""
        if self._is_stored(checkpoint):
            return
        self.check()
        if self.deaths != NO_DEATHS:
            self._progress(checkpoint)
        change = partial(Lease.with_checkpoint, checkpoint=checkpoint)
        await self._write(change, position_alone=True)

    async def tell_deaths(self) -> None:
        """Write what is new in ``deaths``, if anything is, or may be."""
        if self.deaths != self.lease.deaths or self._unclear is not None:
            self.check()
            await self._write(lambda lease: lease)

    def _progress(self, checkpoint: Checkpoint) -> None:
        if checkpoint.position != self.stored.position:
            self.deaths = self.deaths.progressed()

    async def answer(self, asked: KeyRequest, answered: KeyRequest) -> None:
        """Let the lease carry a request of a person with its answer; a later request stays."""
        await self._write(
            lambda x: replace(x, key_request=answered) if x.key_request == asked else x
        )

    async def give_up(self, end: Callable[[Lease], Lease], checkpoint: Checkpoint) -> None:
        """Write the lease for the last time, with a last checkpoint unless it is stored.

        ``end`` says how it goes on: released, handed over, finished. Under the lock it is
        given the lease as it is by then, so it sees a request that was withdrawn.
        Without a new checkpoint this is allowed even when it may no longer be acted upon:
        either it is still ours, or the write fails.
        """
        self._giving_up = True
        if self._is_stored(checkpoint):
            await self._write(end)
        else:
            self.check()
            self._progress(checkpoint)
            await self._write(lambda lease: end(lease.with_checkpoint(checkpoint)))
        self.given_up = True  # before a renewal that waits for the lock goes on

    async def _write(
        self, change: Callable[[Lease], Lease], *, position_alone: bool = False
    ) -> None:
        """Write the lease as ``change`` makes it. Its position is written alone where that is
        all there is to write by the time that other writes are over.
        """
        async with self._writing:
            if self.given_up:
                raise LeaseLost(self.lease, "it was given up")
            for _ in range(_TRIES):
                try:
                    if self._unclear is not None:
                        await self._read_again(self._unclear)
                    carried = replace(self.lease, deaths=self.deaths)
                    if self.stored != self._sent and self.may_act:
                        carried = carried.with_checkpoint(self._sent)
                    wanted = change(carried).stamped(stamp=self._wall())
                    self._check_next(wanted)
                    self._sent = wanted.checkpoint or self._sent
                    self._unclear = wanted  # until the answer is here
                    alone = position_alone and wanted.deaths == self.lease.deaths
                    write = self._container.checkpoint if alone else self._container.replace
                    self._take_over(await write(wanted))
                except LeaseConflict:
                    continue
                except StoreUnavailable:
                    self._failures += 1
                    raise
                self._failures = 0
                return
            self._failures += 1
            raise StoreUnavailable(
                f"lease {self.range_id!r} was written by others {_TRIES} times in a row"
            )

    def _check_next(self, wanted: Lease) -> None:
        """What holds of each write of a lease, whatever it is for."""
        last = self.lease
        name = f"lease {last.range_id!r} of epoch {last.epoch}"
        assert wanted.range_id == last.range_id, f"{name} would become {wanted.range_id!r}"
        assert wanted.version == last.version, f"{name} would be written over another copy"
        assert wanted.epoch >= last.epoch, f"{name} would go back to epoch {wanted.epoch}"
        assert wanted.renewals >= last.renewals, (
            f"{name} would look less alive: renewals {last.renewals} to {wanted.renewals}"
        )
        assert wanted.checkpoint is None or wanted.checkpoint_epoch == last.epoch, (
            f"{name} would be checkpointed under epoch {wanted.checkpoint_epoch}"
        )

    async def _read_again(self, unclear: Lease) -> None:
        stored = await self._container.read(self.range_id)
        if stored is None:
            await self._create_again()
            return
        if stored.position is None:
            self.lose(checkpoint_is_lost(self.range_id))
        ours = {_holder(self.lease)}
        if stored.write_id == unclear.write_id:
            # No proof by itself: a host of another kind carries it along when it takes over.
            ours.add(_holder(unclear))
        if self._is_forgotten_in(stored):
            await self._claim_again(stored)
            return
        if _holder(stored) not in ours:
            self.lose(f"it is now held by {stored.owner!r}")
        assert stored.epoch >= self.lease.epoch, (
            f"lease {self.range_id!r} of epoch {self.lease.epoch} goes back to {stored.epoch}"
        )
        self._take_over(stored)

    def _is_forgotten_in(self, stored: Lease) -> bool:
        """Whether the store has lost our writes, and what it has now is from before them.

        Epochs only rise where nothing is lost. One that was taken by a host of another kind
        may have none: it names no incarnation.
        """
        of_our_kind = stored.owner is None or stored.incarnation is not None
        epoch, renewals = self.lease.sign_of_life
        behind = stored.sign_of_life < (epoch, renewals if stored.owner is None else 0)
        return behind and of_our_kind and not stored.ended and self.may_act

    async def _claim_again(self, stored: Lease) -> None:
        """Go on with what the store has forgotten: the last one to own it is this host.

        The new epoch is higher than that of this host, so a write that is based on the old
        copy is refused.
        """
        last = self.lease.renewed()
        ours = replace(last, epoch=last.epoch + 1, version=stored.version)
        ours = ours.stamped(stamp=self._wall())
        claimed = await self._container.acquire(ours)
        if claimed.position is None:
            self.lose(checkpoint_is_lost(self.range_id))
        self._take_over(claimed)

    async def _create_again(self) -> None:
        """Go on with a lease that was deleted by hand: only its owner knows how far the range
        was read, and others leave it to the owner for an expiration. Raise ``LeaseLost`` where
        that may be over, and where its keys are another lease's: it was taken, has ended, and
        was deleted as what is over, while this host slept.
        """
        listed = await self._container.list()
        if not self.may_act or any(self._goes_on_in(x) for x in listed):
            self.lose("it was deleted")
        wanted = replace(
            self.lease.released(),
            renewals=0,
            checkpoint=self._sent,
            version=Version(""),
        ).stamped(stamp=self._wall())
        made = await self._container.create(wanted)
        if not self._is_forgotten_in(made):
            self.lose(f"it was deleted, and others had it since, up to epoch {made.epoch}")
        await self._claim_again(made)

    def _goes_on_in(self, other: Lease) -> bool:
        own = self.lease.range
        before = other.ended and other.range.generation <= own.generation
        return other.range.shares_keys_with(own) and not before

    def _take_over(self, stored: Lease) -> None:
        assert self._writing.locked(), f"lease {self.range_id!r} is written by one at a time"
        self.lease, self.care = stored.without_position(), stored.deaths.care
        self.stored = stored.checkpoint or self.stored
        self._unclear = None
        if any((stored.next_owner, stored.paused is not None, stored.key_request)):
            self.noticed(self.lease)


def _holder(lease: Lease) -> tuple[HostName | None, Incarnation | None, int]:
    return (lease.owner, lease.incarnation, lease.epoch)


async def acquire(
    container: LeaseContainer,
    lease: Lease,
    *,
    taken: Callable[[Lease], Lease],
    rules: FleetRules,
    wall: Callable[[], float],
    clock: Clock = elapsed_time,
) -> OwnedLease | None:
    """Make ``lease`` ours; ``None`` if it is, and nobody can tell where to go on. An error
    means *unknown*, never owned.

    Raise ``LeaseConflict`` if another host was quicker, and what containers raise.
    """
    sent = clock()
    wanted = taken(lease).stamped(stamp=wall())
    assert wanted.epoch > lease.epoch, (
        f"lease {lease.range_id!r}: {wanted.owner!r} takes it in epoch {lease.epoch} of "
        f"{lease.owner!r}"
    )
    assert wanted.renewals > lease.renewals, (
        f"lease {lease.range_id!r}: to take it over is a sign of life"
    )
    stored = await container.acquire(wanted)
    if stored.position is None:
        return None
    return OwnedLease(container, stored, sent=sent, rules=rules, clock=clock, wall=wall)
