"""A checker that also notes where the story has been: it hits the probes of hosts."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from changefeed.feeds.feed import Change, Position, RangeId
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import KeptCheckpoint, Lease
from changefeed.observers.dead_letters.letter import DeadLetter

from .blame import KILLED
from .checkers import OPERATOR, Call, Checker
from .probes import Probe, Probes
from .progress import Lines

_EXPIRATION = 30.0
_SAME_ROUND = 5.0
"""Seconds in which two listings may lead to plans that meet."""

State = Literal["running", "frozen", "gone"]


class Fate(Enum):
    """What became of a request, or of its answer, on the way."""

    REFUSED = auto()
    UNANSWERED = auto()
    LATE = auto()
    LISTED = auto()
    STALE = auto()
    TORN = auto()
    HELD = auto()
    MET_ITSELF = auto()
    GIVEN_UP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nap:
    """What a process had when it was frozen."""

    process: str
    owned: dict[RangeId, int]
    open_ranges: frozenset[RangeId]


class Scout(Checker):
    """``state_of`` says how a process is, by its id; ``living`` are the names of hosts."""

    def __init__(self, lines: Lines, *, strict: bool) -> None:
        super().__init__(lines, strict=strict)
        self.probes = Probes()
        self.hit = self.probes.hit
        self.state_of: Callable[[str], State] = lambda _: "running"
        self.living: Callable[[], Collection[str]] = tuple
        self.on_request: Callable[[Lease], None] = lambda _: None
        self.begins_elsewhere = False
        """Whether the fleet starts elsewhere than at the beginning of its feed."""
        self._began_at: dict[RangeId, Position] = {}
        self._late_at = -1.0
        self._claimed_now: tuple[float, Call] | None = None
        self._claims = set[Call]()  # whose answers were lost
        self._advanced_now: tuple[float, Call] | None = None
        self._advances = set[Call]()  # whose answers were lost
        self._listings: dict[str, tuple[float, Fate]] = {}
        self._with_holes = set[RangeId]()
        """The ranges whose checkpoints have holes, or had under the same owner."""

    # what the checker is told

    def stored(
        self, before: Lease | KeptCheckpoint | None, after: Lease | KeptCheckpoint, writer: str
    ) -> None:
        self.hit(Probe.WRITE_OF_THE_STILL, where=self.state_of(writer) != "running")
        if isinstance(after, KeptCheckpoint):
            self._of_checkpoint(before, after, writer)
        elif before is None:
            self._of_creation(after)
        else:
            assert isinstance(before, Lease)
            self._of_lease(before, after, writer)
        with self.keeping():
            super().stored(before, after, writer)

    def _of_creation(self, lease: Lease) -> None:
        range_id = lease.range_id
        self.hit(Probe.PART_CAME_BACK, where=range_id in self._over)
        anew = range_id in self._begun_anew
        self.hit(Probe.DELETED_BY_HAND, where=anew)
        if lease.position is not None and self.begins_elsewhere:
            same = self._began_at.setdefault(range_id, lease.position) == lease.position
            self.hit(Probe.MADE_AGAIN_AT_START, where=anew and same)
        self.hit(Probe.CREATED_LATE, where=self._late_at == self.now())

    def _of_holes(self, before: Lease, after: Lease) -> None:
        if after.checkpoint is not None and after.checkpoint.holes:
            self._with_holes.add(after.range_id)
        has_holes = after.range_id in self._with_holes
        self.hit(Probe.HOLE_MET_SPLIT, where=has_holes and after.ended)
        if before.owner != after.owner:
            self.hit(Probe.HANDED_OVER_HOLES, where=has_holes)
            self._with_holes.discard(after.range_id)

    def _of_care(self, before: Lease, after: Lease) -> None:
        if before.deaths == NO_DEATHS:
            return
        same, suspect = before.epoch == after.epoch, before.deaths.suspect
        self.hit(Probe.CARE_ENDED, where=same and before.deaths.care > after.deaths.care == 0)
        asked = before.next_owner is None and after.next_owner is not None
        self.hit(Probe.NOTE_MET_STEAL, where=asked and before.deaths.noted is not None)
        cleared = same and suspect is not None and after.deaths.suspect is None
        kills = self.blame.kills(after.range_id, suspect)
        self.hit(Probe.SUSPECT_CLEARED, where=cleared and not kills)

    def _of_lease(self, before: Lease, after: Lease, writer: str) -> None:
        if before.next_owner is None and after.next_owner is not None:
            self.on_request(after)
        for probe in (*requests(before, after, writer), *pauses(before, after, writer)):
            self.hit(probe)
        self._of_holes(before, after)
        self._of_care(before, after)
        claim = self._call(writer, before)
        self.hit(Probe.CLAIM_WITHOUT_ANSWER, where=claim in self._claims)
        self._claims.discard(claim)
        if before.epoch != after.epoch:
            self._of_owner(before, after, writer)
            self._claimed_now = self.now(), self._call(writer, after)
        if after.end is not None and not before.ended:
            self.hit(Probe.HANDOFF_MET_SPLIT, where=before.next_owner is not None)
            by_hand = Probe.SPLIT_BY_HAND if writer == OPERATOR else Probe.SPLIT_BY_HOST
            self.hit(by_hand, where=after.end.by != "feed")
            waits = any(not after.range.covers(x.range) for x in after.end.children)
            self.hit(Probe.CHILD_WAITED, where=waits)
        came_back = before.ended and not after.ended and writer != OPERATOR
        self.hit(Probe.PART_CAME_BACK, where=came_back)
        begins = not before.epoch and after.epoch > 0
        self.hit(Probe.MERGED, where=begins and len(after.range.parents) > 1)
        moved = before.position != after.position is not None
        if moved and after.epoch == before.epoch:
            self.hit(Probe.HANDOFF_MET_CHECKPOINT, where=before.next_owner is not None)
            self._of_position(after, writer)

    def _of_owner(self, before: Lease, after: Lease, writer: str) -> None:
        """The lease has changed hands, or its owner has begun anew."""
        neighbours = {x.partition("/")[0] for x in self.neighbours}
        if writer in self.neighbours:
            stolen = before.owner is not None and before.owner not in neighbours
            self.hit(Probe.NEIGHBOUR_STOLE, where=stolen)
            return
        probe = new_owner(before, after, writer)
        if probe is None:
            return
        self.hit(probe)
        if probe is Probe.EXPIRED:
            self.hit(Probe.STOLEN_AT_ONCE, where=not self._strict)
            self.hit(Probe.ABSENT_OWNER, where=before.owner == "absent")
            self.hit(Probe.STOLEN_FROM_NEIGHBOUR, where=before.owner in neighbours)
            still = self.now() - self._moved_at.get(after.range_id, self.now())
            self.hit(Probe.EXPIRED_BY_STAMP, where=self._strict and 0 < still < _EXPIRATION)

    def _of_checkpoint(
        self, before: Lease | KeptCheckpoint | None, after: KeptCheckpoint, writer: str
    ) -> None:
        if not isinstance(before, KeptCheckpoint):
            return
        self.hit(Probe.CHECKPOINT_CLAIMED, where=0 < before.epoch < after.epoch)
        if before.position != after.position:
            lease = self.leases.get(after.range_id)
            asked = lease is not None and lease.next_owner is not None
            self.hit(Probe.HANDOFF_MET_CHECKPOINT, where=asked)
            self._of_position(after, writer)

    def _of_position(self, after: Lease | KeptCheckpoint, writer: str) -> None:
        assert after.position is not None
        if writer == OPERATOR:
            position = self.progress.place(after.position)
            back = position < self.progress.reached(after.range_id)
            self.hit(Probe.CHECKPOINT_MOVED_BACK, where=back)
        call = self._call(writer, after)
        self.hit(Probe.CHECKPOINT_WITHOUT_ANSWER, where=call in self._advances)
        self._advances.discard(call)
        self._advanced_now = self.now(), call

    def deleted(self, lease: Lease, writer: str) -> None:
        self.hit(Probe.TOMBSTONE_DELETED, where=lease.ended)
        with self.keeping():
            super().deleted(lease, writer)

    def ownership_forgotten(self) -> None:
        self.hit(Probe.OWNERSHIP_FORGOTTEN, where=bool(self._being_read))
        super().ownership_forgotten()

    def began(self, call: Call, changes: Sequence[Change]) -> None:
        self.hit(Probe.LANES, where=self.is_under_way(call))
        super().began(call, changes)

    def ended(self, call: Call) -> None:
        self.hit(Probe.CALL_OUTLIVED_LEASE, where=call.epoch < self._epoch[call.range_id])
        super().ended(call)

    def finished(self, range_id: RangeId, changes: Sequence[Change]) -> None:
        known = self.duplicates
        super().finished(range_id, changes)
        self.hit(Probe.REPEATED, where=self.duplicates > known)

    def put_aside(self, letter: DeadLetter) -> None:
        killed = letter.failure.kind == "Killed"
        self.hit(Probe.KILLER_ASIDE if killed else Probe.PUT_ASIDE)
        with self.keeping():
            super().put_aside(letter)

    def died(self, process: str) -> None:
        name = process.partition("/")[0]
        self.hit(Probe.KILLED_IN_CALL, where=self._calls_of(process))
        for lease in self.leases.values():
            asked = lease.owner == name and lease.next_owner is not None
            self.hit(Probe.HANDOFF_MET_DEATH, where=asked)
            self.hit(Probe.ASKING_HOST_DIED, where=lease.next_owner == name)
        super().died(process)

    def suspended(self, process: str) -> None:
        self.hit(Probe.CLOCK_STOOD_STILL, where=bool(self._owned(process)))
        super().suspended(process)

    # what only a scout is told

    def froze(self, process: str, open_ranges: Collection[RangeId]) -> Nap:
        """A process stands still from now on; tell the same of it when it has woken."""
        return Nap(
            process=process, owned=self._owned(process), open_ranges=frozenset(open_ranges)
        )

    def woke(self, nap: Nap, seconds: float, open_ranges: Collection[RangeId]) -> None:
        self.hit(Probe.WOKE_IN_CALL, where=self._calls_of(nap.process))
        self.hit(Probe.WOKE_BEHIND_FENCE, where=bool(nap.owned) and seconds >= _EXPIRATION)
        now = {x: self.leases[x].epoch for x in nap.owned if x in self.leases}
        self.hit(Probe.WOKE_ROBBED, where=any(y > nap.owned[x] for x, y in now.items()))
        over = nap.owned.keys() & nap.open_ranges - {*open_ranges}
        self.hit(Probe.ENDED_WHILE_FROZEN, where=bool(over))

    def member_deleted(self, name: str) -> None:
        """Another host has deleted the member record of a host."""
        self.hit(Probe.MEMBER_DELETED, where=name in self.living())

    def cut_off(self, process: str, seconds: float) -> None:
        """A process is to get no answers for so long."""
        owns = bool(self._owned(process))
        self.hit(Probe.CUT_OFF_TOO_LONG, where=owns and seconds > _EXPIRATION)

    def met(
        self, process: str, fate: Fate, name: str, record: object, error: Exception | None
    ) -> None:
        """A request of a process met this fate. It was about ``record``, if that is known."""
        if fate in _PLAIN:
            self.hit(_PLAIN[fate])
        if fate is Fate.REFUSED:
            self._refused(name, record, error)
        elif fate is Fate.LATE:
            self._late_at = self.now()
        elif fate in (Fate.LISTED, Fate.STALE, Fate.TORN):
            self._of_listing(process, fate)
        elif fate is Fate.UNANSWERED:
            self._note_lost_answer(process)

    def _note_lost_answer(self, process: str) -> None:
        """What was written just now is what the answer was to be about."""
        for what, lost in (
            (self._claimed_now, self._claims),
            (self._advanced_now, self._advances),
        ):
            if what is not None and what[0] == self.now() and what[1].process == process:
                lost.add(what[1])

    @staticmethod
    def _call(process: str, record: Lease | KeptCheckpoint) -> Call:
        return Call(process=process, range_id=record.range_id, epoch=record.epoch)

    def _refused(self, name: str, record: object, error: Exception | None) -> None:
        if not isinstance(error, LeaseConflict | None):
            return
        if name in ("acquire", "replace") and isinstance(record, Lease):
            stored = self.leases.get(record.range_id)
            wins = stored is not None and stored.owner != record.owner
            same = stored is not None and stored.epoch == record.epoch
            self.hit(Probe.CLAIM_LOST, where=wins and same)
        if name in ("checkpoint", "write") and isinstance(record, Lease | KeptCheckpoint):
            lost = record.epoch < self._epoch[record.range_id]
            self.hit(Probe.CHECKPOINT_REFUSED, where=lost)

    def _of_listing(self, process: str, fate: Fate) -> None:
        now = self.now()
        others = [
            kind
            for other, (at, kind) in self._listings.items()
            if other != process and now - at < _SAME_ROUND
        ]
        fresh = Fate.LISTED
        differ = fresh in others if fate is not fresh else any(x is not fresh for x in others)
        self.hit(Probe.DIFFERENT_LISTS, where=differ)
        self._listings[process] = now, fate

    def _owned(self, process: str) -> dict[RangeId, int]:
        name = process.partition("/")[0]
        return {x.range_id: x.epoch for x in self.leases.values() if x.owner == name}

    def _calls_of(self, process: str) -> bool:
        return any(x.process == process for x in self._active)


_PLAIN = {
    Fate.TORN: Probe.TORN_LISTING,
    Fate.HELD: Probe.MEMBERS_STOOD_STILL,
    Fate.MET_ITSELF: Probe.MET_ITSELF,
    Fate.GIVEN_UP: Probe.GAVE_UP,
}


def requests(before: Lease, after: Lease, writer: str) -> Iterator[Probe]:
    """Say what became of a request for a lease, where its owner stayed."""
    if before.next_owner is None or after.next_owner or after.epoch != before.epoch:
        return
    host = writer.partition("/")[0]
    if host == before.next_owner:
        yield Probe.WITHDRAWN
    elif host == before.owner == after.owner:
        yield Probe.REQUEST_DROPPED


def pauses(before: Lease, after: Lease, writer: str) -> Iterator[Probe]:
    """Say what a pause meets, begins with, or ends in."""
    if after.paused is not None:
        if before.next_owner is not None or after.next_owner is not None:
            yield Probe.HANDOFF_MET_PAUSE
        if before.paused is None and writer != OPERATOR:
            yield Probe.PAUSED_BY_HOST
            if "the observer failed on" in after.paused:
                yield Probe.STOPPED_RANGE
            if KILLED in after.paused:
                yield Probe.KILLER_PAUSED
    elif before.paused is not None:
        yield Probe.RESUMED


def new_owner(before: Lease, after: Lease, writer: str) -> Probe | None:
    """Say how a lease that was owned has come to its next owner."""
    host = writer.partition("/")[0]
    if before.owner is None or after.owner is None:
        return None
    if before.owner == after.owner:
        again = before.incarnation not in (None, after.incarnation)
        return Probe.OWN_AGAIN if again else None
    if before.next_owner == after.owner:
        return Probe.HANDED_OVER if host == before.owner else Probe.ROBBED
    return Probe.EXPIRED if host == after.owner else None
