"""What must hold whatever happens, checked at every write and every call of an observer.

``Progress`` has what holds of changes; the rest is who may read which range, and when.
Nothing here knows the scenario. A checker is told what was appended to the feed, what
was stored in the container and by whom, and when observers were called and returned.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from changefeed.feeds.feed import Change, FeedRange, RangeId
from changefeed.leases.lease import Incarnation, KeptCheckpoint, Lease, Member
from changefeed.observers.dead_letters.letter import DeadLetter

from .blame import KILLED, Blame
from .progress import Lines, Progress, Violation

_TWO_RENEWALS = 20.0  # after which a stamp may count
_TWO_EXPIRATIONS = 60.0  # who came in the first may take an owner for alive in the second

OPERATOR = "operator"
"""The writer that is no host: what it does by hand need not keep to the rules of hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an observer: which process made it, under which epoch."""

    process: str
    range_id: RangeId
    epoch: int


class Checker:
    """``strict`` also demands that nobody begins a call under an epoch that is over.

    That holds wherever leases change hands by handoff and expiry alone, but not where
    they are stolen at once.
    """

    def __init__(self, lines: Lines, *, strict: bool) -> None:
        self.progress = Progress(lines)
        self.blame = Blame()
        self.violation: Violation | None = None
        """The first that was seen, whatever became of it."""
        self._strict = strict
        self._range: dict[RangeId, FeedRange] = {}
        self.leases: dict[RangeId, Lease] = {}
        """All there are, as they are stored."""
        self._being_read: dict[RangeId, FeedRange] = {}
        self._epoch: dict[RangeId, int] = defaultdict(int)
        self._taken: dict[RangeId, int] = {}
        self._claimed: dict[RangeId, int] = defaultdict(int)  # epochs of checkpoints apart
        self._ended = set[RangeId]()
        self._read_to_end = set[RangeId]()  # and forgotten
        self._lost = set[RangeId]()  # ranges whose checkpoints were, at some time
        self._forgot_ownership = False  # so keys may come under a name without a checkpoint
        self._over = set[RangeId]()  # ended, and deleted: a part of such keys may come back
        # Their epochs, too: nothing tells old from new. And who had it by then, and how far.
        self._begun_anew = dict[RangeId, tuple[Incarnation | None, int]]()
        self._without_tombstone = set[RangeId]()  # deleted by hosts of another kind
        self._suspended = set[str]()  # processes whose clocks stood still
        self.neighbours = set[str]()
        """The processes of another kind: they steal at once, and know no ended ranges."""
        self._active: Counter[Call] = Counter()
        self.now: Callable[[], float] = lambda: 0.0
        """The time of the world, in seconds."""
        self._moved_at: dict[RangeId, float] = {}  # the signs of life of leases
        self._beat_at: dict[Incarnation, float] = {}  # and of hosts
        self._wrong_clocks = False
        self.calls: Counter[str] = Counter()
        """How often each process has called an observer."""
        self.deliveries = 0
        self.duplicates = 0
        self.events = 0

    # what the world tells

    def appended(self, key: str, number: int, *, owed: bool = True) -> None:
        self.progress.appended(key, number, owed=owed)

    def began(self, call: Call, changes: Sequence[Change]) -> None:
        self.events += 1
        self.calls[call.process] += 1
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
            self.progress.check_not_stored(call, changes)
        self.progress.check_order(call, changes)
        self.progress.check_not_barred(call, changes)
        lease = self.leases.get(call.range_id)
        if lease is not None and lease.incarnation == call.process:
            self.blame.began(call.process, call, changes, lease)
        self._active[call] += 1

    def ended(self, call: Call) -> None:
        """The call is over, in whatever way."""
        self._active[call] -= 1
        if self._active[call] <= 0:
            del self._active[call]
        self.blame.ended(call.process, call)

    def is_under_way(self, call: Call) -> bool:
        return bool(self._active[call])

    def died(self, process: str) -> None:
        """A process was killed, and its calls with it."""
        for call in [x for x in self._active if x.process == process]:
            del self._active[call]
        self.blame.died(process)

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

    def finished(self, range_id: RangeId, changes: Sequence[Change]) -> None:
        """The observer of a range returned from these changes."""
        self.events += 1
        by_hand = range_id in self._begun_anew or range_id in self._taken
        self.progress.count_unstored(range_id, changes, by_hand=by_hand)
        for change in changes:
            self.deliveries += 1
            self.duplicates += self.progress.done(change)

    def done_by_neighbour(self, process: str, changes: Sequence[Change]) -> None:
        """A host of another kind is done with these: it may repeat what others have done."""
        self.events += 1
        self.progress.check_order(process, changes)
        self.progress.check_not_barred(process, changes)
        for change in changes:
            self.progress.done(change)

    def read_to_end(self, range_id: RangeId) -> None:
        """Others may read the keys of a range: it has ended, or other kinds read beside it."""
        self._being_read.pop(range_id, None)
        self._read_to_end.add(range_id)

    def put_aside(self, letter: DeadLetter) -> None:
        """A change was put to the dead letters."""
        self.events += 1
        self.progress.done(letter.change)
        found = self.leases.get(letter.change.range_id)
        of_whole = found is not None and found.epoch == letter.epoch and not found.ended
        self.blame.put_aside(letter, of_whole=of_whole)

    def stored(
        self, before: Lease | KeptCheckpoint | None, after: Lease | KeptCheckpoint, writer: str
    ) -> None:
        """``writer`` changed what is stored of one range."""
        self.events += 1
        if isinstance(after, Lease):
            assert before is None or isinstance(before, Lease)
            if before is None:
                self._may_have_been_deleted(after)
            self._see_deaths(before, after, writer)
            self._lease_stored(before, after, writer)
        else:
            self.blame.begins_anew(after.range_id)
            held = self.leases.get(after.range_id)
            if before is None and held is not None and held.ended:
                self._claimed.pop(after.range_id, None)  # it goes before its lease
            self._claim_stored(after, writer)
            if before is None and after.range_id in self._lost and not after.epoch:
                place = self.progress.place(after.position)
                self.progress.moved(self._range[after.range_id], place)
        if writer == OPERATOR or writer in self.neighbours:
            self._taken_by_hand(before, after)
        if isinstance(after, Lease) and after.ended and writer in self.neighbours:
            return  # it does not know that: what it takes may never have been read
        found = self._range.get(after.range_id)  # not there yet: its first checkpoint is
        if after.position is not None and found is not None and after.epoch:
            position = self.progress.place(after.position)
            if writer == OPERATOR:
                self.progress.moved(found, position)
                self.progress.unbar(found, position)
            elif writer in self.neighbours:  # it stores the position alone
                self.progress.come_again(found, position, position)
            self.progress.checkpoint_stored(found, position, after.checkpoint)
        self._may_be_taken_back(before, after)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the first violation: a host takes it for a fault of its observer or store."""
        try:
            yield
        except Violation as violation:
            self.violation = self.violation or violation
            raise

    def deleted(self, lease: Lease, writer: str) -> None:
        """``writer`` deleted a lease."""
        self.events += 1
        self._being_read.pop(lease.range_id, None)
        self.leases.pop(lease.range_id, None)
        if writer in self.neighbours:
            self._without_tombstone.add(lease.range_id)
            self._epoch[lease.range_id] = 0  # its owner did not know that epoch
        if lease.ended or writer not in self.neighbours:
            self._claimed.pop(lease.range_id, None)  # its checkpoint goes with it
        if lease.ended:
            self._over.add(lease.range_id)
        if writer == OPERATOR and not lease.ended:
            reached = self.progress.reached(lease.range_id)
            self._begun_anew[lease.range_id] = lease.incarnation, reached
            self._epoch[lease.range_id] = 0
            self.progress.moved(lease.range, 0)
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
                self.progress.moved(found, 0)

    def ownership_forgotten(self) -> None:
        """All leases are gone, and their checkpoints are not.

        Who reads goes on until it finds out, under an epoch that no other may read under;
        what was read to its end may be read again, where nothing is left to read.
        """
        self.events += 1
        self._forgot_ownership = True
        self._being_read.clear()
        self.leases.clear()
        self._read_to_end |= self._ended
        for range_id, epoch in self._epoch.items():
            self._taken[range_id] = max(epoch, self._taken.get(range_id, -1))
        self._epoch = defaultdict(int, self._claimed)

    def checkpoint_lost(self, range_id: RangeId) -> None:
        """A first checkpoint that was under way all the time may be stored in its place."""
        self._claimed.pop(range_id, None)
        self._lost.add(range_id)

    def _taken_by_hand(
        self, before: Lease | KeptCheckpoint | None, after: Lease | KeptCheckpoint
    ) -> None:
        """Allow a former owner to go on until it finds out."""
        if not isinstance(before, Lease) or not isinstance(after, Lease):
            return
        if (before.owner, before.epoch) != (after.owner, after.epoch):
            self._taken[after.range_id] = before.epoch

    def _may_be_taken_back(
        self, before: Lease | KeptCheckpoint | None, after: Lease | KeptCheckpoint
    ) -> None:
        """Allow who had a lease that was deleted by hand to go on where it is: a host that came
        later knew of no owner, and has read on behind that.
        """
        if not isinstance(before, Lease) or not isinstance(after, Lease):
            return
        had_it, place = self._begun_anew.get(after.range_id, (None, 0))
        if had_it is not None and had_it == after.incarnation != before.incarnation:
            self.progress.moved(after.range, min(place, self.progress.reached(after.range_id)))

    @property
    def ranges_seen(self) -> int:
        """How many ranges have had leases so far."""
        return len(self._range)

    # what must hold

    def _lease_stored(self, before: Lease | None, after: Lease, writer: str) -> None:
        range_id = after.range_id
        if (
            self._forgot_ownership
            and range_id not in self._range
            and after.range.of is not None
        ):
            # A sub-range that fills a gap: no checkpoint has its name, and who held these keys
            # was forgotten.
            self.progress.come_again(after.range, 0, self.progress.furthest or 0)
        self._range[range_id] = after.range
        self.leases[range_id] = after
        if writer in self.neighbours:
            self._beside_others(before, after)
        self._nobody_else_reads(after)
        # A part, under its name; or who slept while others split the range of its successor; or
        # what its owner created again, too late.
        may_come_back = range_id in self._over or range_id in self._without_tombstone
        if not may_come_back or (after.epoch and before is not None):
            self._epoch_grows(before, after, writer)
        self._see_signs_of_life(before, after)
        if before is None:
            return
        if writer not in {OPERATOR, *self.neighbours}:
            self._stays_paused(before, after, writer)
            self._stays_ended(before, after, writer)
        if before.owner is not None and before.owner != after.owner:
            self._given_up(before, writer)

    def _see_deaths(self, before: Lease | None, after: Lease, writer: str) -> None:
        """Tell an owner that died from one that ended in order. Those of ours have the names of
        their processes.
        """
        if before is None or writer == OPERATOR or writer in self.neighbours or after.ended:
            self.blame.begins_anew(after.range_id)
            return
        if KILLED in (after.paused or "") and before.paused is None:
            self.blame.paused(after)
        owner, other = before.incarnation, before.incarnation != after.incarnation
        moved = before.position != after.position is not None
        if moved or (other and writer == owner):
            self.blame.begins_anew(after.range_id)
        elif other and owner is not None:
            since = self.now() - _TWO_EXPIRATIONS
            seen = self.owner_was_alive(before.range_id, since=since)
            stolen = after.owner != before.owner and not self._strict and seen
            self.blame.taken_from_the_dead(before, too_early_to_know=stolen)

    def _see_signs_of_life(self, before: Lease | None, after: Lease) -> None:
        if before is not None and before.sign_of_life == after.sign_of_life:
            return
        range_id = after.range_id
        still = self.now() - self._moved_at.get(range_id, self.now())
        self._moved_at[range_id] = self.now()
        begins = before is not None and before.epoch < after.epoch
        if begins and self._wrong_clocks and still >= _TWO_RENEWALS:
            self._taken[range_id] = after.epoch - 1  # stamps made it look older

    def beat(self, member: Member) -> None:
        """A host has written its member record."""
        self._beat_at[member.incarnation] = self.now()

    def owner_was_alive(self, range_id: RangeId, *, since: float) -> bool:
        """Whether its owner has shown that it lives since then, though it may be gone again: by
        a write of the lease, or by a heartbeat.
        """
        owner = self.leases[range_id].incarnation
        beat = since if owner is None else self._beat_at.get(owner, since)
        return max(beat, self._moved_at.get(range_id, since)) > since

    def _given_up(self, before: Lease, writer: str) -> None:
        """A lease is its owner's no more, whichever process has written that."""
        range_id = before.range_id
        own = Call(process=writer, range_id=range_id, epoch=before.epoch)
        of_owner = before.incarnation is not None and writer.startswith(f"{before.owner}/")
        if of_owner and self.is_under_way(own):
            raise Violation(f"{writer} gave up {range_id} while {own} was under way")

    def _stays_ended(self, before: Lease, after: Lease, writer: str) -> None:
        """A tombstone stays as it is, unless a range comes back under its name. Who ended it
        may write so once more, as no answer came.
        """
        same = (before.end, before.owner) == (after.end, after.owner)
        later = after.range.generation > before.range.generation
        if before.ended and not (same or later):
            raise Violation(f"the ended range {after.range_id} was written by {writer}")

    def _stays_paused(self, before: Lease, after: Lease, writer: str) -> None:
        """What is paused, by whomever and for whatever, waits for an operator, or ends."""
        if after.ended and after.paused is not None:
            raise Violation(f"{writer} left {after.range_id} paused, which has ended")
        if before.paused is None or after.ended:
            return
        if after.paused is None:
            raise Violation(f"{writer} resumed {after.range_id}: {before.paused}")
        had_it, _ = self._begun_anew.get(after.range_id, (None, 0))
        if after.epoch > before.epoch and after.incarnation not in (None, had_it):
            raise Violation(f"{writer} took {after.range_id}, which is paused: {before.paused}")

    def _epoch_grows(self, before: Lease | None, after: Lease, writer: str) -> None:
        fell = after.epoch < self._epoch[after.range_id]
        unclaimed = after.epoch > self._claimed[after.range_id]
        fell_at_once = before is not None and after.epoch < before.epoch
        if fell and self._forgot_ownership and not (unclaimed or fell_at_once):
            return  # a late creation begins there, and no owner can claim such an epoch
        if fell and writer not in self.neighbours:
            raise Violation(f"the epoch of {after.range_id} fell to {after.epoch} by {writer}")
        self._epoch[after.range_id] = after.epoch

    def _beside_others(self, before: Lease | None, after: Lease) -> None:
        """A host of another kind waits for no parents, does not know which ranges have ended,
        and may go on with one before the place where others are: they come again.
        """
        for other in self.leases.values():
            same_keys = other.range.shares_keys_with(after.range)
            if other.range_id != after.range_id and same_keys and not other.ended:
                self.read_to_end(other.range_id)
                self.read_to_end(after.range_id)
        if before is None and after.position is not None:
            first = self.progress.place(after.position)
            last = self.progress.furthest
            self.progress.come_again(after.range, first, first if last is None else last)

    def _may_have_been_deleted(self, created: Lease) -> None:
        """What a host of another kind has deleted leaves no tombstone: a write that was under
        way creates it again, and it is read again from there.
        """
        if created.range_id in self._without_tombstone and created.position is not None:
            self.progress.moved(created.range, self.progress.place(created.position))

    def _claim_stored(self, after: KeptCheckpoint, writer: str) -> None:
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
        elif lease.owner is not None:
            self._being_read[lease.range_id] = lease.range
            for other in self._being_read.values():
                if other.id != lease.range_id and other.shares_keys_with(lease.range):
                    raise Violation(f"{other.id} and {lease.range_id} are read, with same keys")

    def undelivered(self) -> list[int]:
        """Return the changes that no observer has ever finished."""
        return self.progress.undelivered()
