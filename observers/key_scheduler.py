"""Which changes of one range its observers are handed next. No I/O, and no clock of its own.

What is read is kept by key, in order: a key is *ready*, *with an observer*, or *waiting*. The
keys of a batch that fails are ready again at once, and come in batches of half its length until
they pass. The one change that fails keeps its key waiting, longer and longer
(``observers.judge``); all others go on. It comes alone when its time is there.

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

from changefeed.feeds.feed import Change
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.judge import Judge, Waiting

_in_order = attrgetter("sequence")
_AT_ONCE = 100
"""Changes that an observer is handed at once where there are several. Half of what is longer
would waste what is long in it: all batches are then smaller instead."""
_SMALLER, _LARGER = 4, 1.5
"""What the size of batches is divided by after a failure, and grows by with each success."""
_ASKED = -1.0
"""When a change is due that a person has asked for: before all others."""


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
    """What of one key is read, not done, and not with an observer. A batch with some of it has
    ``most`` changes at the most, where that is said: one of twice as many has failed.
    """

    queue: deque[Change] = field(default_factory=deque)
    in_hand: bool = False
    most: int = 0


class KeyScheduler:
    """The scheduler of one range, whose failures ``judge`` judges, for so many ``observers``.

    With ``sticky`` a key has the same observer always. Where not ``by_key``, all changes of the
    range are of one.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        random: Random,
        observers: int,
        sticky: bool,
        by_key: bool,
        largest: int,
    ) -> None:
        self.judge = judge
        self._random = random
        self._observers = observers
        self._sticky = sticky
        self._by_key = by_key
        self._largest = self._size = float(largest)
        self._pages: deque[Sequence[Change]] = deque()
        self._keys: dict[str, _Key] = {}
        self._heads: list[tuple[float, str]] = []  # of ready keys, a heap; some are out of date
        self.waiting = dict[str, Waiting]()
        """The keys that wait, the oldest first; those that an observer has for another try are
        among them.
        """
        self._waited = dict[str, Waiting]()  # before a restart; their changes are yet to come
        self._alarms: list[tuple[float, str]] = []  # of keys that wait, a heap as well
        self._due_was_last = False
        self._stopping = False
        self.one_by_one = False
        """Whether each change comes alone."""
        self.held = 0
        """How many changes are kept here: read, not done, and not with an observer."""

    # what there is

    @property
    def has_ready(self) -> bool:
        """Whether anything may be handed over that does not wait."""
        return bool(self._pages) or _first_holds(self._heads, self._leads)

    def failures(self) -> Mapping[int, int]:
        """Return what counts against changes for which keys wait, by sequence."""
        return {why.change.sequence: why.failures for why in self.waiting.values()}

    @property
    def due(self) -> float | None:
        """When the next is to be tried, of what waits; ``None`` if nothing does."""
        if self._stopping:
            return None
        if self.judge.outage is not None:
            return self.judge.outage.until
        return self._alarms[0][0] if _first_holds(self._alarms, self._rings) else None

    def _rings(self, until: float, name: str) -> bool:
        why = self.waiting.get(name)
        return why is not None and why.until == until and not self._keys[name].in_hand

    def _leads(self, sequence: float, name: str) -> bool:
        return self._is_ready(name) and self._keys[name].queue[0].sequence == sequence

    def _is_ready(self, name: str) -> bool:
        key = self._keys.get(name)
        is_here = key is not None and not key.in_hand and bool(key.queue)
        return is_here and name not in self.waiting

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
            name = self._name(x)
            if name not in self.waiting:
                self._wait(name, self.judge.resumed(x, known[x.sequence]))

    def restart(self, changes: Sequence[Change]) -> None:
        """Begin again with what is not done, in order, and other observers. Keys that wait go
        on waiting, also where their changes are read again, unless a change comes before the
        one that failed: an observer returned from it and has not acknowledged it.
        """
        self._waited |= self.waiting
        self.waiting = {}
        self._keys, self.held = {}, len(changes)
        self._pages.clear()
        self.judge.failures_in_a_row = 0
        if self.judge.outage is not None:
            self.judge.outage.end_try()
        self._queue(changes)

    def ask(self, key: str, *, aside: bool) -> bool:
        """Have the change that a key waits for tried before all else, for the last time if it
        is to be put ``aside``. Return whether the key waits.
        """
        name = key if self._by_key else ""
        why = self.waiting.get(name)
        if why is None or why.change.key != key:
            return False
        why.is_last_try = why.is_last_try or aside
        why.until = _ASKED
        self._wait(name, why)
        return True

    def stop(self) -> None:
        """Let nothing be tried again: what is ready is all that comes."""
        self._stopping = True

    @property
    def _takes_whole(self) -> bool:
        is_calm = self._size >= self._largest and self.judge.outage is None
        return is_calm and self._observers == 1 and not (self._keys or self._waited)

    def _name(self, change: Change) -> str:
        return change.key if self._by_key else ""

    def _names(self, changes: Iterable[Change]) -> KeysView[str]:
        return dict.fromkeys(map(self._name, changes)).keys()

    def _queue(self, changes: Iterable[Change]) -> None:
        for x in changes:
            name = self._name(x)
            key = self._keys.get(name)
            if key is None:
                key = self._keys[name] = _Key()
            key.queue.append(x)
            if len(key.queue) == 1 and self._is_ready(name):
                heappush(self._heads, (x.sequence, name))
        for name in [x for x in self._waited if x in self._keys]:
            why = self._waited.pop(name)
            if self._keys[name].queue[0] == why.change:
                self._wait(name, why)

    def _take_pages_apart(self) -> None:
        while self._pages:
            self._queue(self._pages.popleft())

    # what goes

    def next(self, now: float, observer: int = 0) -> Batch | None:
        """Return what to hand to a free observer now, if anything."""
        if not self.held:  # the usual case once a page was handed over whole
            return None
        if self._pages and self._takes_whole:  # and the usual case before: no key is known
            page = self._pages.popleft()
            self.held -= len(page)
            return Batch(page, whole=True)
        self._take_pages_apart()
        choose = self._probe if self.judge.outage else self._choose
        found = self._next_due(_ASKED, observer) or choose(now, observer)
        if found is not None:
            self.held -= len(found.changes)
            for name in self._names(found.changes):
                self._keys[name].in_hand = True
        return found

    def _choose(self, now: float, observer: int) -> Batch | None:
        found = None
        if not (self._due_was_last and self.has_ready):
            found = self._next_due(now, observer)
        self._due_was_last = found is not None
        return found or self._next_ready(observer)

    def _next_ready(self, observer: int) -> Batch | None:
        """Several observers get a share of the keys, and one gets changes in their order."""
        several = self._observers > 1
        share = -(-len(self._heads) // self._observers) if several else inf
        room = 1 if self.one_by_one else _AT_ONCE if several else inf
        taken: list[Change] = []
        names = dict[str, _Key]()
        while min(room - len(taken), share - len(names)) > 0:
            name = self._pop(self._heads, self._leads, observer)
            if name is None:
                break
            key = self._keys[name]
            room = min(room, key.most or int(self._size))
            last = inf if several or not self._heads else self._heads[0][0]
            while len(taken) < room and key.queue and key.queue[0].sequence <= last:
                names[name] = key
                taken.append(key.queue.popleft())
            if key.queue:
                heappush(self._heads, (key.queue[0].sequence, name))
        again = any(x.most for x in names.values())
        return Batch(sorted(taken, key=_in_order), again) if taken else None

    def _pop(
        self,
        heap: list[tuple[float, str]],
        holds: Callable[[float, str], bool],
        observer: int,
        to: float = inf,
    ) -> str | None:
        """Take the first key from a heap for which its entry still holds."""
        found, others = None, []
        while found is None and _first_holds(heap, holds) and heap[0][0] <= to:
            entry = heappop(heap)
            if self._fits(entry[1], observer):
                found = entry[1]
            else:
                others.append(entry)
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
        assert not key.in_hand, f"a change of {name!r} is with an observer already"
        return Batch([key.queue.popleft()], again=True)

    def _next_due(self, now: float, observer: int) -> Batch | None:
        if self._stopping or not self._alarms:
            return None
        name = self._pop(self._alarms, self._rings, observer, now)
        return None if name is None else self._alone(name)

    def _probe(self, now: float, observer: int) -> Batch | None:
        """In an outage: try one change now and then, of any key."""
        outage = self.judge.outage
        assert outage is not None, "it is asked for in an outage"
        free = [
            x for x, key in self._keys.items() if not key.in_hand and self._fits(x, observer)
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
        if self.judge.outage is not None:
            self.judge.outage.end_try()
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
    ) -> Waiting | None:
        """The observer has failed on what is ``left`` of a batch. Return what becomes of it, if
        that is one change. If it is to be put aside, ``put_aside`` or ``put_back`` follows.
        """
        for name in self._names(batch.changes) if batch.whole else ():
            self._keys.setdefault(name, _Key()).in_hand = True
        self._take_pages_apart()
        for name in self._names(batch.changes) - self._names(left):
            self._forgive(name)
        if not batch.again:
            self._size = max(1.0, min(self._size, len(batch.changes)) / _SMALLER)
        if len(left) == 1:
            return self._failed_alone(left[0], now, error)
        is_long = len(left) > _AT_ONCE and not batch.again
        self._give_back(left, 0 if is_long or self.judge.outage else -(-len(left) // 2))
        return None

    def put_back(self, change: Change) -> None:
        """Let the key of a change wait, which was in hand alone and has failed."""
        name = self._name(change)
        key = self._keys[name]
        key.queue.appendleft(change)
        key.in_hand = False
        self.held += 1
        self._wait(name, self.waiting[name])

    def _failed_alone(self, change: Change, now: float, error: AttemptFailed) -> Waiting:
        name = self._name(change)
        why = self.waiting.setdefault(name, Waiting(change))
        why.verdict = self.judge.failed(name, why, now, error, others=self.has_ready)
        if not why.verdict.puts_aside:
            self.put_back(change)
        return why

    def _give_back(self, changes: Sequence[Change], most: int) -> None:
        """Let the keys of a batch that has failed go on, in batches of so many at the most."""
        self.held += len(changes)
        for x in reversed(changes):
            self._keys[self._name(x)].queue.appendleft(x)
        for name in self._names(changes):
            self._keys[name].most = most
            self._leave_hand(name)

    def _leave_hand(self, name: str) -> None:
        key = self._keys[name]
        assert key.in_hand, f"{name!r} comes back more often than it was handed over"
        key.in_hand = False
        if key.queue:
            heappush(self._heads, (key.queue[0].sequence, name))
        else:
            del self._keys[name]

    def _forgive(self, name: str) -> None:
        """Let a key go on: its first change is done, or put aside."""
        self._keys[name].most = 0
        self.waiting.pop(name, None)
        self._leave_hand(name)

    def _wait(self, name: str, why: Waiting) -> None:
        self.waiting[name] = why
        heappush(self._alarms, (why.until, name))


def _first_holds(heap: list[tuple[float, str]], holds: Callable[[float, str], bool]) -> bool:
    """Drop what is out of date; return whether anything is left."""
    while heap and not holds(*heap[0]):
        heappop(heap)
    return bool(heap)
