"""What must hold whatever happens, checked at every write and every call of an observer.

Nothing here knows the scenario. A checker is told what was appended to the feed, what
was stored in the container and by whom, and when observers were called and returned.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from feeds.feed import Change, RangeId
from leases.lease import Checkpoint, Lease


class Violation(AssertionError):
    """An invariant does not hold. The text tells which, where and when."""


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

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._by_key: dict[str, list[tuple[RangeId, int]]] = defaultdict(list)
        self._place: dict[tuple[RangeId, int], int] = {}  # of a change, among those of its key
        self._done_of_key: dict[str, int] = defaultdict(int)
        self._in_range: dict[RangeId, list[Change]] = defaultdict(list)
        self._done: set[tuple[RangeId, int]] = set()
        self._position: dict[RangeId, int] = {}
        self._epoch: dict[RangeId, int] = defaultdict(int)
        self._active: Counter[Call] = Counter()
        self.deliveries = 0
        self.duplicates = 0
        self.events = 0

    # what the world tells

    def appended(self, change: Change) -> None:
        name = (change.range_id, change.sequence)
        self._place[name] = len(self._by_key[change.key])
        self._by_key[change.key].append(name)
        self._in_range[change.range_id].append(change)

    def began(self, call: Call, changes: Sequence[Change]) -> None:
        self.events += 1
        for other in self._active:
            same = (other.range_id, other.epoch) == (call.range_id, call.epoch)
            if same and other.process != call.process:  # lanes of one process may overlap
                raise Violation(f"{call} began while {other} was under way, under one epoch")
        if self._strict and call.epoch != self._epoch[call.range_id]:
            raise Violation(
                f"{call} began although epoch {self._epoch[call.range_id]} has begun"
            )
        upcoming = dict[str, int]()
        for change in changes:
            place = self._place[change.range_id, change.sequence]
            allowed = upcoming.get(change.key, self._done_of_key[change.key])
            if place > allowed:
                raise Violation(
                    f"{call}: change {change.sequence} of key {change.key} came before an "
                    f"earlier one of its key was done"
                )
            upcoming[change.key] = max(allowed, place + 1)
        self._active[call] += 1

    def ended(self, call: Call) -> None:
        """The call is over, in whatever way."""
        self._active[call] -= 1
        self._active += Counter()  # drop what is at zero

    def died(self, process: str) -> None:
        """A process was killed, and its calls with it."""
        for call in [x for x in self._active if x.process == process]:
            del self._active[call]

    def finished(self, changes: Sequence[Change]) -> None:
        """An observer returned from these changes."""
        self.events += 1
        for change in changes:
            name = (change.range_id, change.sequence)
            self.deliveries += 1
            self.duplicates += name in self._done
            self._done.add(name)
            place = self._place[name]
            if place == self._done_of_key[change.key]:
                self._done_of_key[change.key] = place + 1

    def stored(
        self, before: Lease | Checkpoint | None, after: Lease | Checkpoint, writer: str
    ) -> None:
        """``writer`` changed what is stored of one range."""
        self.events += 1
        if isinstance(after, Lease):
            assert before is None or isinstance(before, Lease)
            self._lease_stored(before, after, writer)
        if after.continuation is not None:
            self._checkpoint_stored(after.range_id, int(after.continuation))

    # what must hold

    def _lease_stored(self, before: Lease | None, after: Lease, writer: str) -> None:
        range_id = after.range_id
        if after.epoch < self._epoch[range_id]:
            raise Violation(f"the epoch of {range_id} fell to {after.epoch} by {writer}")
        self._epoch[range_id] = after.epoch
        if before is None or before.owner is None or before.owner == after.owner:
            return
        if before.incarnation is not None and writer.startswith(f"{before.owner}/"):
            for call in self._active:
                own = call.process == writer
                if own and (call.range_id, call.epoch) == (range_id, before.epoch):
                    raise Violation(f"{writer} gave up {range_id} while {call} was under way")
        if before.ended:
            raise Violation(f"the ended range {range_id} was written by {writer}")

    def _checkpoint_stored(self, range_id: RangeId, position: int) -> None:
        if position < self._position.get(range_id, 0):
            raise Violation(
                f"the checkpoint of {range_id} went back from "
                f"{self._position[range_id]} to {position}"
            )
        first = self._position.get(range_id, 0)
        for change in self._in_range[range_id][first:position]:
            if (range_id, change.sequence) not in self._done:
                raise Violation(
                    f"the checkpoint of {range_id} passed over change {change.sequence}, "
                    f"which no observer has finished"
                )
        self._position[range_id] = position

    def undelivered(self) -> list[tuple[RangeId, int]]:
        """Return the changes that no observer has ever finished."""
        return [x for x in self._place if x not in self._done]
