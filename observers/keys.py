"""Which changes of one range its observers are handed next. No I/O, and no clock of its own.

What is read is kept by key, in order: a key is *ready*, *with an observer*, or *waiting*. A
batch that fails is halved at once, by key while it has several, then by change, since the parts
that pass are done with; of a long one the beginning is, and the rest comes again, shorter. The
one change that fails keeps its key waiting, longer and longer (``observers.judge``); all others
go on. It comes alone when its time is there.

Where nothing waits, one observer gets pages as they were read, and no change costs anything.
Batches are smaller for a while after one has failed, so that to look for the next change that
fails costs less than what it holds up.
"""

from collections import deque
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from random import Random
from zlib import crc32

from changefeed.feeds.feed import Change, RangeId
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.judge import Judge, Outage, Successes, Verdict, Waiting
from changefeed.observers.retry import GrowingDelays

_in_order = attrgetter("sequence")
_AT_ONCE = 100
"""Changes that an observer is handed at once where there are several."""
_SMALLER, _LARGER = 4, 1.5
"""What the size of batches is divided by after a failure, and grows by with each success."""


@dataclass(slots=True, eq=False)
class Batch:
    """Changes for one observer. ``again`` if some of them may have been handed over before;
    ``whole`` if it is a page that was not taken apart by key.
    """

    changes: Sequence[Change]
    again: bool = False
    whole: bool = False


@dataclass(slots=True, eq=False)
class _Key:
    """What of one key is read and not done. ``batches`` counts those that have some of it: it
    is with an observer, or in parts of a batch that has failed.
    """

    queue: deque[Change] = field(default_factory=deque)
    batches: int = 0
    in_hand: bool = False
    waiting: Waiting | None = None

    @property
    def is_ready(self) -> bool:
        return bool(self.queue) and not self.batches and self.waiting is None


class Keys:
    """The scheduler of one range, for so many ``observers``.

    ``attempts`` is ``None`` where nothing is put aside. With ``sticky`` a key has the same
    observer always. Where not ``by_key``, all changes of the range are of one.
    """

    def __init__(
        self,
        range_id: RangeId,
        *,
        attempts: int | None,
        delays: GrowingDelays,
        successes: Successes,
        random: Random,
        observers: int = 1,
        sticky: bool = False,
        by_key: bool = True,
        largest: int = 1000,
    ) -> None:
        self.judge = Judge(range_id, attempts, delays, successes)
        self._random = random
        self._observers = observers
        self._sticky = sticky
        self._by_key = by_key
        self._largest = self._size = float(largest)
        self._pages: deque[Sequence[Change]] = deque()
        self._keys: dict[str, _Key] = {}
        self._heads: list[tuple[float, str]] = []  # of ready keys, a heap; some are out of date
        self._waiting = dict[str, Waiting]()
        self._ready = 0
        self._parts: deque[Sequence[Change]] = deque()
        self._alarms: list[tuple[float, str]] = []  # of keys that wait, a heap as well
        self._due_was_last = False
        self._asked = list[str]()
        self._stopping = False
        self.one_by_one = False
        """Whether each change comes alone."""
        self.without_memory = 0
        """Failures for want of memory in an outage, since the last success: whoever opens the
        observers again goes on counting."""
        self.held = 0
        """How many changes are kept here: read, not done, and not with an observer."""

    # what there is

    @property
    def outage(self) -> Outage | None:
        return self.judge.outage

    @property
    def has_ready(self) -> bool:
        """Whether anything may be handed over that does not wait."""
        return bool(self._parts or self._ready or self._pages)

    @property
    def waiting(self) -> Mapping[str, Waiting]:
        """The keys that wait, the oldest first; those that an observer has for another try are
        among them.
        """
        return self._waiting

    def why_waits(self, change: Change) -> Waiting:
        """Say what is known of a change that has failed alone."""
        why = self._keys[self._name(change)].waiting
        assert why is not None, f"{change.sequence} has not failed"
        return why

    @property
    def failures(self) -> Mapping[int, int]:
        """What counts against changes for which keys wait, by sequence."""
        return {why.change.sequence: why.failures for why in self.waiting.values()}

    @property
    def due(self) -> float | None:
        """When the next is to be tried, of what waits; ``None`` if nothing does."""
        if self._stopping:
            return None
        if self.outage is not None:
            return self.outage.until
        while self._alarms and not self._rings(*self._alarms[0]):
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def _rings(self, until: float, name: str) -> bool:
        why = self._waiting.get(name)
        return why is not None and why.until == until and not self._keys[name].batches

    def _leads(self, sequence: float, name: str) -> bool:
        key = self._keys.get(name)
        return key is not None and key.is_ready and key.queue[0].sequence == sequence

    # what comes

    def add(self, changes: Sequence[Change], failures: Mapping[int, int] | None = None) -> None:
        """Take what was read after all before. ``failures``, by sequence, counted against
        changes for an owner before this one.
        """
        if not changes:
            return
        self.held += len(changes)
        if self._takes_whole and not failures:
            self._pages.append(changes)
            return
        self._take_pages_apart()
        self._queue(changes)
        known = failures or {}
        for x in (x for x in changes if x.sequence in known):
            self._wait(self._name(x), self.judge.resumed(x, known[x.sequence]))

    def restart(self, changes: Sequence[Change]) -> None:
        """Begin again with what is not done, in order, and other observers. Keys that wait go
        on waiting, unless a change comes before the one that failed: an observer returned from
        it and has not acknowledged it.
        """
        waiting, self._waiting = self._waiting, {}
        self._keys, self._ready, self.held = {}, 0, len(changes)
        self._pages.clear()
        self._parts.clear()
        self.judge.failures_in_a_row = 0
        if self.outage is not None:
            self.outage.end_try()
        self._queue(changes)
        for name, why in waiting.items():
            if name in self._keys and self._keys[name].queue[0] == why.change:
                self._wait(name, why)

    def ask(self, key: str, *, aside: bool) -> bool:
        """Have the change that a key waits for tried before all else, for the last time if it
        is to be put ``aside``. Return whether the key waits.
        """
        name = key if self._by_key else ""
        why = self._waiting.get(name)
        if why is None or why.change.key != key:
            return False
        why.is_last_try = why.is_last_try or aside
        self._asked.append(name)
        return True

    def stop(self) -> None:
        """Let nothing be tried again: what is ready is all that comes."""
        self._stopping = True

    @property
    def _takes_whole(self) -> bool:
        is_calm = self._size >= self._largest and self.outage is None
        return is_calm and self._observers == 1 and not self._keys

    def _name(self, change: Change) -> str:
        return change.key if self._by_key else ""

    def _names(self, changes: Iterable[Change]) -> KeysView[str]:
        return dict.fromkeys(map(self._name, changes)).keys()

    def _queue(self, changes: Iterable[Change]) -> None:
        for x in changes:
            name = x.key if self._by_key else ""
            key = self._keys.get(name)
            if key is None:
                key = self._keys[name] = _Key()
            key.queue.append(x)
            if key.is_ready:
                self._ready += 1
                if len(key.queue) == 1:
                    heappush(self._heads, (x.sequence, name))

    def _take_pages_apart(self) -> None:
        while self._pages:
            self._queue(self._pages.popleft())

    # what goes

    def next(self, now: float, observer: int = 0) -> Batch | None:
        """Return what to hand to a free observer now, if anything."""
        found = self._next_asked(observer) if self._asked else None
        if found is None:
            found = self._probe(now, observer) if self.outage else self._choose(now, observer)
        if found is not None:
            self.held -= len(found.changes)
            for name in () if found.whole else self._names(found.changes):
                self._keys[name].in_hand = True
        return found

    def _next_asked(self, observer: int) -> Batch | None:
        self._asked = [x for x in self._asked if x in self._waiting]  # not those done meanwhile
        for name in () if self._stopping else self._asked:
            if not self._keys[name].batches and self._fits(name, observer):
                self._asked.remove(name)
                return self._alone(name)
        return None

    def _choose(self, now: float, observer: int) -> Batch | None:
        found = self._next_part(observer)
        if found is not None:
            return found
        if not (self._due_was_last and self.has_ready):
            found = self._next_due(now, observer)
        self._due_was_last = found is not None
        return found or self._next_page() or self._next_ready(observer)

    def _next_part(self, observer: int) -> Batch | None:
        for n, part in enumerate(self._parts):
            name = self._name(part[0])
            if not self._keys[name].in_hand and self._fits(name, observer):
                del self._parts[n]
                return Batch(part, again=True)
        return None

    def _next_page(self) -> Batch | None:
        if self._pages and self._takes_whole:
            return Batch(self._pages.popleft(), whole=True)
        self._take_pages_apart()
        return None

    def _next_ready(self, observer: int) -> Batch | None:
        """Several observers get keys of their own, and one gets changes in the order of all."""
        several = self._observers > 1
        share = min(_AT_ONCE, -(-self._ready // self._observers)) if several else inf
        room = 1 if self.one_by_one else max(1, int(min(self._size, share)))
        taken: list[Change] = []
        while room and (name := self._pop(self._heads, self._leads, observer)) is not None:
            queue = self._keys[name].queue
            last = inf if several or not self._heads else self._heads[0][0]
            while room and queue and queue[0].sequence <= last:
                taken.append(queue.popleft())
                room -= 1
            if queue:
                heappush(self._heads, (queue[0].sequence, name))
        self._ready -= len(taken)
        for name in self._names(taken):
            self._leave_ready(self._keys[name])
            self._keys[name].batches += 1
        return Batch(sorted(taken, key=_in_order)) if taken else None

    def _pop(
        self,
        heap: list[tuple[float, str]],
        holds: Callable[[float, str], bool],
        observer: int,
        to: float = inf,
    ) -> str | None:
        """Take the first key from a heap for which its entry still holds."""
        found, others = None, []
        while heap and heap[0][0] <= to and found is None:
            order, name = heappop(heap)
            if holds(order, name):
                if self._fits(name, observer):
                    found = name
                else:
                    others.append((order, name))
        for entry in others:
            heappush(heap, entry)
        return found

    def _fits(self, name: str, observer: int) -> bool:
        if not self._sticky:
            return True
        return crc32(name.encode("utf-8", "surrogatepass")) % self._observers == observer

    def _alone(self, name: str) -> Batch:
        """Hand over the first change of a key that is not in any batch."""
        key = self._keys[name]
        assert not key.batches, f"a change of {name!r} is with an observer already"
        self._leave_ready(key)
        key.batches = 1
        return Batch([key.queue.popleft()], again=True)

    def _next_due(self, now: float, observer: int) -> Batch | None:
        if self._stopping:
            return None
        name = self._pop(self._alarms, self._rings, observer, now)
        return None if name is None else self._alone(name)

    def _probe(self, now: float, observer: int) -> Batch | None:
        """In an outage: try one change now and then, of any key."""
        outage = self.outage
        assert outage is not None, "it is asked for in an outage"
        self._take_pages_apart()
        free = [
            x for x, key in self._keys.items() if not key.batches and self._fits(x, observer)
        ]
        if self._stopping or now < outage.until or not free:
            return None
        outage.until = inf
        return self._alone(self._random.choice(free))

    # what became of it

    def done(self, batch: Batch) -> None:
        """The observer has succeeded."""
        self.judge.succeeded()
        if not batch.again:
            self._size = min(self._size * _LARGER, self._largest)
        self.settled(batch)

    def settled(self, batch: Batch) -> None:
        """All that is in it is done: its keys go on."""
        if self.outage is not None:
            self.outage.end_try()
        for name in () if batch.whole else self._names(batch.changes):
            self._forgive(name)

    def put_aside(self, change: Change) -> None:
        """A change that had failed alone is put aside: its key goes on."""
        self._forgive(self._name(change))

    def failed(
        self,
        batch: Batch,
        left: Sequence[Change],
        now: float,
        error: AttemptFailed,
    ) -> Verdict | None:
        """The observer has failed on what is ``left`` of a batch. Return what becomes of it, if
        that is one change. If it is to be put aside, ``put_aside`` or ``put_back`` follows.
        """
        if batch.whole:
            self._index(batch)
        for name in self._names(batch.changes) - self._names(left):
            self._forgive(name)
        if not batch.again:
            self._size = max(1.0, min(self._size, len(batch.changes)) / _SMALLER)
        if len(left) == 1:
            return self._failed_alone(left[0], now, error)
        self.held += len(left)
        for name in self._names(left):
            self._keys[name].in_hand = False
        if self.outage is not None:
            self._give_back(left)
        elif len(left) > _AT_ONCE and not batch.again:
            count = int(self._size)  # halves of a long one would waste what is long in each
            self._give_back(left[count:], left[:count])
            self._parts.appendleft(left[:count])
        elif left:
            self._halve(left)
        return None

    def put_back(self, change: Change) -> None:
        """Let the key of a change wait, which was in hand alone and has failed."""
        name = self._name(change)
        key = self._keys[name]
        assert key.waiting is not None, f"{name!r} has not failed"
        behind = [x for part in self._parts if self._name(part[0]) == name for x in part]
        self._parts = deque(x for x in self._parts if self._name(x[0]) != name)
        key.queue.extendleft(reversed([change, *behind]))
        key.batches, key.in_hand = 0, False
        self.held += 1
        self._wait(name, key.waiting)

    def _index(self, batch: Batch) -> None:
        """Keep a page by key that an observer was handed whole."""
        self._take_pages_apart()
        for name in self._names(batch.changes):
            key = self._keys.setdefault(name, _Key())
            self._leave_ready(key)
            key.batches += 1

    def _halve(self, changes: Sequence[Change]) -> None:
        names = list(self._names(changes))
        if len(names) > 1:
            first = set(names[: len(names) // 2])
            halves = (
                [x for x in changes if self._name(x) in first],
                [x for x in changes if self._name(x) not in first],
            )
        else:
            middle = len(changes) // 2
            halves = (list(changes[:middle]), list(changes[middle:]))
            self._keys[names[0]].batches += 1
        self._parts.extendleft(reversed(halves))

    def _failed_alone(self, change: Change, now: float, error: AttemptFailed) -> Verdict:
        name = self._name(change)
        key = self._keys[name]
        key.waiting = key.waiting or Waiting(change)
        # Without its traceback, which would keep what is in the frames of the user's code.
        key.waiting.error = AttemptFailed(error.kind, error.text)
        verdict = self.judge.failed(name, key.waiting, now, others=self.has_ready)
        if verdict is Verdict.OUTAGE:
            self._take_pages_apart()
            parts, self._parts = list(self._parts), deque()
            for part in reversed(parts):
                self._give_back(part)
        if not verdict.puts_aside:
            self.put_back(change)
        return verdict

    def _give_back(self, changes: Sequence[Change], but: Sequence[Change] = ()) -> None:
        """Let the keys of a batch be as if it had not been handed over, ``but`` for these
        changes of it.
        """
        for x in reversed(changes):
            self._keys[self._name(x)].queue.appendleft(x)
        for name in self._names(changes) - self._names(but):
            self._leave_batch(name)

    def _leave_batch(self, name: str) -> None:
        key = self._keys[name]
        key.batches -= 1
        key.in_hand = False
        assert key.batches >= 0, f"{name!r} comes back more often than it was handed over"
        if key.batches or key.waiting is not None:
            return
        if key.queue:
            self._ready += len(key.queue)
            heappush(self._heads, (key.queue[0].sequence, name))
        else:
            del self._keys[name]

    def _forgive(self, name: str) -> None:
        """Let a key go on: its first change is done, or put aside."""
        self._keys[name].waiting = None
        self._waiting.pop(name, None)
        self._leave_batch(name)

    def _leave_ready(self, key: _Key) -> None:
        if key.is_ready:
            self._ready -= len(key.queue)

    def _wait(self, name: str, why: Waiting) -> None:
        self._leave_ready(self._keys[name])
        self._keys[name].waiting = why
        self._waiting[name] = why
        heappush(self._alarms, (why.until, name))
