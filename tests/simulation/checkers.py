"""What must hold whatever happens, checked at every write and every call of an observer.

Nothing here knows the scenario. A checker is told what was appended to the feed, what
was stored in the container and by whom, and when observers were called and returned.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from changefeed.feeds.feed import Change, Continuation, FeedRange, RangeId
from changefeed.leases.lease import Checkpoint, Lease

_TWO_RENEWALS = 20.0  # after which a stamp may count

OPERATOR = "operator"
"""The writer that is no host: what it does by hand need not keep to the rules of hosts."""


class Violation(AssertionError):
    """An invariant does not hold. The text tells which, where and when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an observer: which process made it, under which epoch."""

    process: str
    range_id: RangeId
    epoch: int


class Lines(Protocol):
    """What a reader of a range passes on its way. Changes are named by their numbers."""

    def place(self, position: Continuation) -> int: ...
    def between(self, found: FeedRange, first: int, last: int) -> Sequence[int]: ...
    def transaction(self, change: Change) -> int: ...


class Checker:
    """``strict`` also demands that nobody begins a call under an epoch that is over.

    That holds wherever leases change hands by handoff and expiry alone, but not where
    they are stolen at once.
    """

    def __init__(self, lines: Lines, *, strict: bool) -> None:
        self._lines = lines
        self._strict = strict
        self._of_key: Counter[str] = Counter()
        self._place: dict[int, int] = {}  # of a change, among those of its key
        self._done_of_key: dict[str, int] = defaultdict(int)
        self._done: set[int] = set()
        self._passed: set[int] = set()  # by a checkpoint that was stored
        self._range: dict[RangeId, FeedRange] = {}
        self.leases: dict[RangeId, Lease] = {}
        """All there are, as they are stored."""
        self._being_read: dict[RangeId, FeedRange] = {}
        self._position: dict[RangeId, int] = {}
        self._epoch: dict[RangeId, int] = defaultdict(int)
        self._taken: dict[RangeId, int] = {}
        self._claimed: dict[RangeId, int] = defaultdict(int)  # epochs of checkpoints apart
        self._ended = set[RangeId]()
        self._read_to_end = set[RangeId]()  # and forgotten
        self._over = set[RangeId]()  # ended, and deleted: a part of such keys may come back
        self._begun_anew = set[RangeId]()  # their epochs, too: nothing tells old from new
        self._without_tombstone = set[RangeId]()  # deleted by hosts of another kind
        self._suspended = set[str]()  # processes whose clocks stood still
        self.neighbours = set[str]()
        """The processes of another kind: they steal at once, and know no ended ranges."""
        self._failed = set[Call]()  # whose observers have failed for good, and stop the range
        self._exhausted = set[Call]()  # those that leave it to a fresh process
        self._active: Counter[Call] = Counter()
        self._unstored: dict[RangeId, dict[int, int]] = defaultdict(dict)
        self.most_unstored: int | None = None
        """How many changes of a range may be done and not stored: what a crash repeats."""
        self.now: Callable[[], float] = lambda: 0.0
        """The time of the world, in seconds."""
        self._moved_at: dict[RangeId, float] = {}  # the signs of life of leases
        self._wrong_clocks = False
        self.calls: Counter[str] = Counter()
        """How often each process has called an observer."""
        self.deliveries = 0
        self.duplicates = 0
        self.events = 0

    # what the world tells

    def appended(self, key: str, number: int) -> None:
        self._place[number] = self._of_key[key]
        self._of_key[key] += 1

    def began(self, call: Call, changes: Sequence[Change]) -> None:
        self.events += 1
        self.calls[call.process] += 1
        if self._is_stopped(call):
            raise Violation(f"{call} began, and its observer has failed for good")
        for other in self._active:
            same = (other.range_id, other.epoch) == (call.range_id, call.epoch)
            if call.range_id in self._begun_anew:
                continue
            if same and other.process != call.process:  # lanes of one process may overlap
                raise Violation(f"{call} began while {other} was under way, under one epoch")
        strict = (
            self._strict
            and call.process not in self._suspended
            and call.epoch > self._taken.get(call.range_id, -1)
            and call.range_id not in self._begun_anew
        )
        if strict and call.epoch != self._epoch[call.range_id]:
            raise Violation(
                f"{call} began although epoch {self._epoch[call.range_id]} has begun"
            )
        if strict:
            self._not_checkpointed(call, changes)
        self._in_order(call, changes)
        self._active[call] += 1

    def _not_checkpointed(self, call: Call, changes: Sequence[Change]) -> None:
        for change in changes:
            if int(change.body) in self._passed:
                raise Violation(f"{call}: change {int(change.body)} was checkpointed before")

    def _in_order(self, call: Call | str, changes: Sequence[Change]) -> None:
        upcoming = dict[str, int]()
        for change in changes:
            place = self._place[int(change.body)]
            allowed = upcoming.get(change.key, self._done_of_key[change.key])
            if place > allowed:
                raise Violation(
                    f"{call}: change {change.sequence} of key {change.key} came before an "
                    f"earlier one of its key was done"
                )
            upcoming[change.key] = max(allowed, place + 1)

    def ended(self, call: Call) -> None:
        """The call is over, in whatever way."""
        self._active[call] -= 1
        if self._active[call] <= 0:
            del self._active[call]

    def failed_for_good(self, call: Call, *, without_memory: bool) -> None:
        """An observer was closed as failed where that is to stop its range. Of several that
        were made for the range, one may be what ran out of memory.
        """
        self.events += 1
        (self._exhausted if without_memory else self._failed).add(call)

    def _is_stopped(self, call: Call) -> bool:
        return call in self._failed and call not in self._exhausted

    def is_under_way(self, call: Call) -> bool:
        return bool(self._active[call])

    def died(self, process: str) -> None:
        """A process was killed, and its calls with it."""
        for call in [x for x in self._active if x.process == process]:
            del self._active[call]

    def clock_jumped_beyond_limits(self) -> None:
        """Stamps say nothing any more: an owner that shows no sign of life for two renewals
        may lose its lease, though it would keep it for the rest of the expiration.
        """
        self._wrong_clocks = True

    def suspended(self, process: str) -> None:
        """A process slept, and its clock with it: it finds out late that its time is over.

        It may repeat what others have done. Nothing that it stores may count.
        """
        self._suspended.add(process)

    def finished(self, changes: Sequence[Change]) -> None:
        """An observer returned from these changes."""
        self.events += 1
        self._count_unstored(changes[0].range_id, changes)
        for change in changes:
            self.deliveries += 1
            self.duplicates += int(change.body) in self._done
            self._is_done(change)

    def _count_unstored(self, range_id: RangeId, changes: Sequence[Change]) -> None:
        """Where an operator has interfered, two owners may be at two places of a range.

        No position is within a transaction, so what is done of one whose rest is yet to come
        counts beside what may be done and not stored.
        """
        unstored = self._unstored[range_id]
        for change in changes:
            if int(change.body) not in self._passed:
                unstored[int(change.body)] = self._lines.transaction(change)
        by_hand = range_id in self._begun_anew or range_id in self._taken
        if self.most_unstored is None or by_hand:
            return
        first = min(unstored.values(), default=None)
        cut = sum(x == first for x in unstored.values()) - 1 if unstored else 0
        if len(unstored) - cut > self.most_unstored:
            raise Violation(
                f"{len(unstored)} changes of {range_id} are done and not stored, "
                f"and {self.most_unstored} may be"
            )

    def done_by_neighbour(self, process: str, changes: Sequence[Change]) -> None:
        """A host of another kind is done with these: it may repeat what others have done."""
        self.events += 1
        self._in_order(process, changes)
        for change in changes:
            self._is_done(change)

    def read_to_end(self, range_id: RangeId) -> None:
        """Others may read the keys of a range: it has ended, or other kinds read beside it."""
        self._being_read.pop(range_id, None)
        self._read_to_end.add(range_id)

    def put_aside(self, change: Change) -> None:
        """A change was put to the dead letters."""
        self.events += 1
        self._is_done(change)

    def _is_done(self, change: Change) -> None:
        number = int(change.body)
        self._done.add(number)
        if self._place[number] == self._done_of_key[change.key]:
            self._done_of_key[change.key] += 1

    def stored(
        self, before: Lease | Checkpoint | None, after: Lease | Checkpoint, writer: str
    ) -> None:
        """``writer`` changed what is stored of one range."""
        self.events += 1
        if isinstance(after, Lease):
            assert before is None or isinstance(before, Lease)
            if before is None:
                self._may_have_been_deleted(after)
            self._lease_stored(before, after, writer)
        else:
            self._claim_stored(after, writer)
        if writer == OPERATOR or writer in self.neighbours:
            self._taken_by_hand(before, after)
        if isinstance(after, Lease) and after.ended and writer in self.neighbours:
            return  # it does not know that: what it takes may never have been read
        found = self._range.get(after.range_id)  # not there yet: its first checkpoint is
        if after.continuation is not None and found is not None and after.epoch:
            position = self._lines.place(after.continuation)
            if writer == OPERATOR:
                self._moved(found, position)
            self._checkpoint_stored(found, position)

    def deleted(self, lease: Lease, writer: str) -> None:
        """``writer`` deleted a lease."""
        self.events += 1
        self._being_read.pop(lease.range_id, None)
        self.leases.pop(lease.range_id, None)
        if writer in self.neighbours:
            self._without_tombstone.add(lease.range_id)
        if lease.ended:
            self._over.add(lease.range_id)
            self._claimed.pop(lease.range_id, None)  # its checkpoint goes with it
        if writer == OPERATOR and not lease.ended:
            self._begun_anew.add(lease.range_id)
            self._epoch[lease.range_id] = 0
            self._claimed.pop(lease.range_id, None)  # its checkpoint goes with it
            self._moved(lease.range, 0)
            self._may_come_again(lease.range)

    def _may_come_again(self, deleted: FeedRange) -> None:
        """Keys of a lease that was deleted by hand may be read again under the name of a part
        that was split or merged before, from where that was known to be. No lease is above the
        epochs of such a part any more, once its tombstone has gone, too.
        """
        for found in self._range.values():
            lease = self.leases.get(found.id)
            if (lease is None or lease.ended) and found.shares_keys_with(deleted):
                self._epoch[found.id] = 0
                self._moved(found, 0)

    def ownership_forgotten(self) -> None:
        """All leases are gone, and their checkpoints are not.

        Who reads goes on until it finds out, under an epoch that no other may read under;
        what was read to its end may be read again, where nothing is left to read.
        """
        self.events += 1
        self._being_read.clear()
        self.leases.clear()
        self._read_to_end |= self._ended
        for range_id, epoch in self._epoch.items():
            self._taken[range_id] = max(epoch, self._taken.get(range_id, -1))
        self._epoch = defaultdict(int, self._claimed)

    def _taken_by_hand(
        self, before: Lease | Checkpoint | None, after: Lease | Checkpoint
    ) -> None:
        """Allow a former owner to go on until it finds out."""
        if not isinstance(before, Lease) or not isinstance(after, Lease):
            return
        if (before.owner, before.epoch) != (after.owner, after.epoch):
            self._taken[after.range_id] = before.epoch

    def _moved(self, found: FeedRange, position: int) -> None:
        """An operator has moved a checkpoint: what lies after it comes again."""
        last = self._position.get(found.id, 0)
        self._passed.difference_update(self._lines.between(found, position, last))
        self._unstored[found.id].clear()
        self._position[found.id] = position

    @property
    def ranges_seen(self) -> int:
        """How many ranges have had leases so far."""
        return len(self._range)

    # what must hold

    def _lease_stored(self, before: Lease | None, after: Lease, writer: str) -> None:
        range_id = after.range_id
        self._range[range_id] = after.range
        self.leases[range_id] = after
        if writer in self.neighbours:
            self._beside_others(before, after)
        self._nobody_else_reads(after)
        # A part, under its name; or who slept while others split the range of its successor.
        may_come_back = range_id in self._over or range_id in self._without_tombstone
        if after.epoch or not may_come_back:
            self._epoch_grows(after, writer)
            self._epoch[range_id] = after.epoch
        self._see_signs_of_life(before, after)
        if before is None:
            return
        if writer not in {OPERATOR, *self.neighbours}:
            self._stays_paused(before, after, writer)
        if before.owner is not None and before.owner != after.owner:
            self._given_up(before, after, writer)

    def _see_signs_of_life(self, before: Lease | None, after: Lease) -> None:
        if before is not None and before.sign_of_life == after.sign_of_life:
            return
        range_id = after.range_id
        still = self.now() - self._moved_at.get(range_id, self.now())
        self._moved_at[range_id] = self.now()
        begins = before is not None and before.epoch < after.epoch
        if begins and self._wrong_clocks and still >= _TWO_RENEWALS:
            self._taken[range_id] = after.epoch - 1  # stamps made it look older

    def was_written(self, range_id: RangeId, *, since: float) -> bool:
        """Whether its lease was written since then, as an owner does that has come and gone."""
        return self._moved_at.get(range_id, since) > since

    def _given_up(self, before: Lease, after: Lease, writer: str) -> None:
        """A lease is its owner's no more, whichever process has written that."""
        range_id = before.range_id
        own = Call(process=writer, range_id=range_id, epoch=before.epoch)
        of_owner = before.incarnation is not None and writer.startswith(f"{before.owner}/")
        asked_for = before.next_owner is not None  # the next one finds it out
        if of_owner and self._is_stopped(own) and after.paused is None and not asked_for:
            raise Violation(f"{own} is over as its observer has failed, and it is not paused")
        if of_owner and self.is_under_way(own):
            raise Violation(f"{writer} gave up {range_id} while {own} was under way")
        if before.ended and writer not in self.neighbours:
            raise Violation(f"the ended range {range_id} was written by {writer}")

    def _stays_paused(self, before: Lease, after: Lease, writer: str) -> None:
        """What is paused, by whomever and for whatever, waits for an operator."""
        if before.paused is None:
            return
        if after.paused is None:
            raise Violation(f"{writer} resumed {after.range_id}: {before.paused}")
        if after.epoch > before.epoch and after.incarnation is not None:
            raise Violation(f"{writer} took {after.range_id}, which is paused: {before.paused}")

    def _epoch_grows(self, after: Lease, writer: str) -> None:
        fell = after.epoch < self._epoch[after.range_id]
        if fell and writer not in self.neighbours:
            raise Violation(f"the epoch of {after.range_id} fell to {after.epoch} by {writer}")

    def _beside_others(self, before: Lease | None, after: Lease) -> None:
        """A host of another kind waits for no parents, does not know which ranges have ended,
        and may go on with one before the place where others are: they come again.
        """
        for other in self.leases.values():
            same_keys = other.range.shares_keys_with(after.range)
            if other.range_id != after.range_id and same_keys and not other.ended:
                self.read_to_end(other.range_id)
                self.read_to_end(after.range_id)
        if before is None and after.continuation is not None:
            first = self._lines.place(after.continuation)
            last = max(self._position.values(), default=first)
            self._passed.difference_update(self._lines.between(after.range, first, last))

    def _may_have_been_deleted(self, created: Lease) -> None:
        """What a host of another kind has deleted leaves no tombstone: a write that was under
        way creates it again, and it is read again from there.
        """
        if created.range_id in self._without_tombstone and created.continuation is not None:
            self._moved(created.range, self._lines.place(created.continuation))

    def _claim_stored(self, after: Checkpoint, writer: str) -> None:
        """Only who has claimed a checkpoint kept apart may write it."""
        claimed = self._claimed[after.range_id]
        if after.epoch < claimed and after.range_id not in self._begun_anew:
            raise Violation(
                f"{writer} wrote the checkpoint of {after.range_id} under epoch "
                f"{after.epoch}, and it is claimed for {claimed}"
            )
        self._claimed[after.range_id] = max(claimed, after.epoch)

    def _nobody_else_reads(self, lease: Lease) -> None:
        """From its first owner to its end, nobody else has the keys of a range."""
        if lease.ended:
            self._ended.add(lease.range_id)
            self._being_read.pop(lease.range_id, None)
        elif lease.range_id in self._read_to_end:
            return
        elif lease.epoch:
            self._being_read[lease.range_id] = lease.range
            for other in self._being_read.values():
                if other.id != lease.range_id and other.shares_keys_with(lease.range):
                    raise Violation(f"{other.id} and {lease.range_id} are read, with same keys")

    def _checkpoint_stored(self, found: FeedRange, position: int) -> None:
        first = self._position.get(found.id, 0)
        if position < first:
            raise Violation(
                f"the checkpoint of {found.id} went back from {first} to {position}"
            )
        for number in self._lines.between(found, first, position):
            if number not in self._done:
                raise Violation(
                    f"the checkpoint of {found.id} passed over change {number}, "
                    f"which no observer has finished"
                )
            self._passed.add(number)
        left = self._unstored[found.id]
        self._unstored[found.id] = {x: y for x, y in left.items() if x not in self._passed}
        self._position[found.id] = position

    def undelivered(self) -> list[int]:
        """Return the changes that no observer has ever finished."""
        return [x for x in self._place if x not in self._done]
