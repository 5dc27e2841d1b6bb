"""What may be held against a change: that it kills its process, or fails whenever it is tried.

Nothing here asks the product how it counts. The world tells which processes have died, and of
what; observers tell what they failed on; what is noted before a call is seen in the lease.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from changefeed.feeds.feed import Change, RangeId
from changefeed.leases.lease import Lease
from changefeed.observers.dead_letters.letter import DeadLetter

from .progress import Violation

KILLED = "killed its process"
"""What the reason says of a range that is paused at a change that kills."""
_BLAMED = re.compile(rf"sequence (\d+) {KILLED}")
_MOST_DEATHS = 6
"""Of one change, in a row: then no owner is given it any more."""
_FROM_OUTSIDE = 4
"""Owners that died with a change that kills nobody: with fewer, it is not blamed."""


class Blame:
    """``attempts`` are the failures of a change that put it aside, ``None`` where nothing
    is. Processes are named by their ids, changes by their numbers, ranges as leases are.
    """

    def __init__(self) -> None:
        self.attempts: int | None = None
        self.aside = set[int]()
        """What was put aside because it kills."""
        self._killers = set[int]()
        self._places = set[tuple[RangeId, int]]()  # of them, by sequence
        self._in_a_row: dict[RangeId, Counter[int]] = defaultdict(Counter)
        self._ended_by = dict[str, tuple[RangeId, int]]()
        self._innocent: dict[RangeId, Counter[int]] = defaultdict(Counter)
        self._careful = dict[str, object]()
        self.calls: Counter[str] = Counter()
        """How often each process has made a call with care."""
        self._failures: Counter[int] = Counter()
        self._before_outage: Counter[int] | None = None
        self._aside_in_outage = dict[tuple[RangeId, str, int], int]()

    # calls

    def began(
        self, process: str, call: object, changes: Sequence[Change], lease: Lease
    ) -> None:
        """A call began under this lease. With care it is about one change, which is noted, and
        no other call of the process is made with care.
        """
        deaths = lease.deaths
        if not deaths.care:
            return
        if [x.sequence for x in changes] != [deaths.noted]:
            raise Violation(
                f"{call} has {len(changes)} changes with care, and {deaths.noted} is noted"
            )
        if process in self._careful:
            raise Violation(f"{call} began beside {self._careful[process]}, both with care")
        self._careful[process] = call
        self.calls[process] += 1

    def ended(self, process: str, call: object) -> None:
        if self._careful.get(process) == call:
            del self._careful[process]

    def failed(self, changes: Sequence[Change]) -> None:
        """An observer has failed in a call about these; some may be acknowledged already."""
        self._failures.update(int(x.body) for x in changes)

    # deaths

    def died(self, process: str) -> None:
        self._careful.pop(process, None)

    def killed(
        self, process: str, range_id: RangeId, change: Change, *, stolen: bool = False
    ) -> None:
        """A process is about to die of this change. No owner counts its death if its lease was
        stolen before.
        """
        number = int(change.body)
        self._ended_by[process] = range_id, number
        self._killers.add(number)
        self._places.add((range_id, change.sequence))
        self._in_a_row[range_id][number] += int(not stolen)
        if self._in_a_row[range_id][number] > _MOST_DEATHS:
            raise Violation(f"change {number} has killed more than {_MOST_DEATHS} processes")

    def begins_anew(self, range_id: RangeId) -> None:
        """Its position has moved, an owner has ended in order, or a person has interfered."""
        self._in_a_row.pop(range_id, None)
        self._innocent.pop(range_id, None)

    def taken_from_the_dead(self, lease: Lease, *, too_early_to_know: bool) -> None:
        """The owner that this lease has did not give it up, and loses it. Where that is too
        early to know that it is dead, its death does not count.
        """
        died_in, number = self._ended_by.get(str(lease.incarnation), (None, 0))
        if died_in == lease.range_id:
            self._in_a_row[died_in] -= Counter({number: int(too_early_to_know)})
            return
        self._in_a_row.pop(lease.range_id, None)  # the change may not have been read
        if lease.deaths.noted is not None:
            self._innocent[lease.range_id][lease.deaths.noted] += 1

    def kills(self, range_id: RangeId, sequence: int | None) -> bool:
        """Whether some process has died of that change."""
        return (range_id, sequence) in self._places

    # what is put aside

    def put_aside(self, letter: DeadLetter, *, of_whole: bool) -> None:
        """``of_whole`` says that its range is read whole, and not in parts."""
        change, number = letter.change, int(letter.change.body)
        if letter.failure.kind == "Killed":
            died = max((x[change.sequence] for x in self._innocent.values()), default=0)
            self._check_blamed(f"change {number}", died, kills=number in self._killers)
            self.aside.add(number)
            return
        times = self._failures[number]
        if self.attempts is None or times < self.attempts:
            raise Violation(
                f"change {number} was put aside after {times} failures, and {self.attempts} "
                f"may put one aside"
            )
        who = change.range_id, letter.host, letter.epoch
        before = self._before_outage
        if before is not None and of_whole and before[number] < self.attempts:
            first = self._aside_in_outage.setdefault(who, number)
            if first != number:
                raise Violation(f"{number} was put aside in an outage, as {first} was: {who}")

    def paused(self, lease: Lease) -> None:
        """A host has paused a range, since a change has killed its owners."""
        found = _BLAMED.search(lease.paused or "")
        assert found, f"{lease.paused}: which change is it?"
        suspect = int(found[1])
        died, kills = (
            self._innocent[lease.range_id][suspect],
            self.kills(lease.range_id, suspect),
        )
        self._check_blamed(f"change {suspect} of {lease.range_id}", died, kills=kills)

    def _check_blamed(self, which: str, died: int, *, kills: bool) -> None:
        if not kills and died < _FROM_OUTSIDE:
            raise Violation(
                f"{which} kills nobody, and is blamed: {died} owners have died with it"
            )

    # outages

    def outage_began(self) -> None:
        """From now on all calls fail."""
        self._before_outage = self._failures.copy()
        self._aside_in_outage.clear()

    def outage_ended(self) -> bool:
        """Return whether more would have been put aside if each failure counted."""
        assert self._before_outage is not None, "an outage ends that did not begin"
        failed, self._before_outage = self._failures - self._before_outage, None
        if self.attempts is None:
            return False
        often = [x for x, times in failed.items() if times >= self.attempts]
        return len(often) > len(self._aside_in_outage)
