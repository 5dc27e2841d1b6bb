"""What a failure is taken for: the change's own, or an outage. No I/O.

What counts against a change is a try that failed, if something else of this observer has
succeeded since the last one that counted: an outage counts once, however long it is. After
``attempts`` of these comes the proof: once another key has succeeded, the change is tried now,
fails once more, and is put aside. Successes in other ranges of the host count as well.

Where there is nothing to compare with (all that is there, or may be in memory, is behind
failing keys), one change is put aside on suspicion, and no second one before a success.

Three keys that had not failed before, and no success between: an outage. One change is tried
now and then until one succeeds; nothing counts, and nothing is put aside.
"""

import enum
from dataclasses import dataclass
from math import inf

from changefeed.feeds.feed import Change, RangeId
from changefeed.observers.errors import AttemptFailed, came_of
from changefeed.runtime.delays import GrowingDelays

_AN_OUTAGE = 3
"""So many keys fail for the first time, and nothing succeeds between."""
_NOT_TRIED = AttemptFailed("Failed", "for the owner of its range before this one")


class Verdict(enum.Enum):
    """What becomes of a change that has failed alone."""

    WAITS = "its key waits"
    OUTAGE = "all keys wait"
    PROVEN = "it is put aside: others succeed where it fails"
    SUSPECTED = "it is put aside: there is nothing to compare it with"
    ASKED = "it is put aside: a person has asked for it"

    @property
    def puts_aside(self) -> bool:
        return self in {Verdict.PROVEN, Verdict.SUSPECTED, Verdict.ASKED}


class Successes:
    """What the observers of one host, or of a process of Spark, have succeeded in, in whatever
    range.
    """

    def __init__(self) -> None:
        self.count = 0
        self._suspected: dict[RangeId, tuple[int, int]] = {}

    def suspects(self, range_id: RangeId, change: Change) -> bool:
        """Suspect a change of this range, unless another one was since the last success."""
        count, suspect = self._suspected.get(range_id, (-1, 0))
        if count != self.count:
            self._suspected[range_id] = self.count, change.sequence
        return count != self.count or suspect == change.sequence


@dataclass(slots=True)
class Waiting:
    """Why a key waits: for a ``change``, until the time of the next try, by the caller's clock.
    ``failures`` count against the change; ``tries`` are all that failed for this owner, the
    last one with ``error``.
    """

    change: Change
    until: float = 0.0
    failures: int = 0
    tries: int = 0
    counted_at: int = -1
    is_last_try: bool = False
    """Whether a person wants the change put aside if it fails once more."""
    error: AttemptFailed = _NOT_TRIED
    verdict: Verdict = Verdict.WAITS


@dataclass(slots=True)
class Outage:
    """``until`` is when the next change is tried: at no time while one is. ``out_of_memory``
    counts the failures that were for want of it.
    """

    since: float
    until: float
    began_at: int
    out_of_memory: int = 0

    def end_try(self) -> None:
        """Nothing is known of what was tried: another one may be."""
        if self.until == inf:
            self.until = self.since


class Judge:
    """Judges the failures of one range. Without ``attempts`` nothing is put aside."""

    def __init__(
        self,
        range_id: RangeId,
        attempts: int | None,
        delays: GrowingDelays,
        successes: Successes,
    ) -> None:
        self._range_id = range_id
        self._attempts = attempts
        self._delays = delays
        self._successes = successes
        self._fresh = set[str]()
        self._fresh_at = -1
        self.outage: Outage | None = None
        self.failures_in_a_row = 0
        """Tries of single changes that failed since anything of this range has succeeded."""

    def resumed(self, change: Change, failures: int) -> Waiting:
        """Return why a key waits for a new owner of its range: it is due at once."""
        return Waiting(change, failures=failures, counted_at=self._successes.count)

    def succeeded(self) -> None:
        self._successes.count += 1
        self.outage = None
        self.failures_in_a_row = 0

    def failed(
        self, key: str, why: Waiting, now: float, error: AttemptFailed, *, others: bool
    ) -> Verdict:
        """Judge the first change of a key that has failed alone, and say in ``why`` when it is
        due again. ``others`` says that other keys are ready.
        """
        count = self._successes.count
        if self._fresh_at != count:
            self._fresh.clear()
            self._fresh_at = count
        if why.failures <= 1:
            self._fresh.add(key)
        self.failures_in_a_row += 1
        counted = why.failures
        is_proven = self._counts(why, count)
        why.tries += 1
        # Without its traceback, which would keep what is in the frames of the user's code.
        why.error = AttemptFailed(error.kind, error.text)
        why.until = now + self._delays.after(why.tries)
        if why.is_last_try:
            return Verdict.ASKED
        if self._is_outage(now, count, error):
            return Verdict.OUTAGE
        if self._attempts is None:
            return Verdict.WAITS
        if is_proven:
            return Verdict.PROVEN
        if others:
            if counted < why.failures == self._attempts:
                why.until = now  # for the proof: others come before it is its turn
            return Verdict.WAITS
        is_due = why.tries >= self._attempts
        is_suspect = is_due and self._successes.suspects(self._range_id, why.change)
        return Verdict.SUSPECTED if is_suspect else Verdict.WAITS

    def _counts(self, why: Waiting, count: int) -> bool:
        """Count the failure, if it does; return whether it had been convicted before."""
        if why.counted_at == count:
            return False
        was_convicted = why.failures == self._attempts
        if not was_convicted:
            why.failures += 1
        why.counted_at = count
        return was_convicted

    def _is_outage(self, now: float, count: int, error: AttemptFailed) -> bool:
        if self.outage is not None and self.outage.began_at != count:
            self.outage = None  # there were successes elsewhere
        if self.outage is None and len(self._fresh) < _AN_OUTAGE:
            return False
        outage = self.outage = self.outage or Outage(now, now, count)
        outage.until = now + self._delays.of_outage(now - outage.since)
        outage.out_of_memory += came_of(error, MemoryError)
        return True
