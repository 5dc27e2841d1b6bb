"""What of a row is compacted: its runs, ``compacted/<era>/<broker>/<n>``, on any broker.

Runs follow each other, so the next is asked for by its number; where one begins that
retention has made room before, a listing says. A listing may be late, and then proves nothing:
a run begins at an object with a table, so it is asked for by each such number that the catalog
says is deleted, back from the newest. A run is found by halving among those that there are.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise

from changefeed.log.catalog.names import compacted_key, compacted_prefix, number_of
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import TABLE_EVERY, Ends, by_key, table_before
from changefeed.log.format.pack import HEAD_BYTES, Key, Place, header_bytes
from changefeed.log.format.runs import Run, RunSection, decode_run
from changefeed.log.format.segment_file import SegmentSlice, slices_in
from changefeed.log.rows.object_cache import Cache
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.calls import gather_or_cancel

RunPart = SegmentSlice | RunSection
"""What holds records of a partition that follow each other, sequence by sequence."""
_RUNS = 256
_AT_ONCE = 16
_BETWEEN_RUNS = 128
"""Tables from the beginning of a run to that of the next: twice those of a run's default."""


class RunIndex:
    """A run, with what is looked up in it. ``head`` are its bytes before columns."""

    def __init__(self, run: Run, head: int) -> None:
        self.run = run
        self.ends: Ends = by_key(run.ends)
        self._held: dict[Key, list[RunPart]] = {}
        key = compacted_key(run.era, run.broker, run.first)
        for segment in run.segments:
            for rows in slices_in(segment):
                self._hold((segment.collection, rows.slice.range_id), rows)
        for x in run.sections:
            self._hold(x.key, RunSection(key, head + x.offset, x))
        for held in self._held.values():
            held.sort(key=lambda x: x.first)
            assert all(x.last + 1 == y.first for x, y in pairwise(held)), f"{key} has a gap"

    def _hold(self, key: Key, held: RunPart) -> None:
        self._held.setdefault(key, []).append(held)

    def last(self, key: Key) -> int:
        """Return the last sequence of a partition when the run ends; 0 if it has none."""
        end = self.ends.get(key)
        return 0 if end is None else end.last

    def latest_us(self, key: Key) -> int | None:
        end = self.ends.get(key)
        return None if end is None or end.last == 0 else end.latest_us

    def held(self, key: Key) -> Sequence[RunPart]:
        return self._held.get(key, ())


class RowRuns:
    """The runs of one row. ``end``: its objects up to there are in runs, as is known.

    ``final``: all of them are, up to the seal. Those below ``kept_from`` are deleted. Every
    method may raise ``Damaged``.
    """

    def __init__(self, store: ObjectStore, cluster: str, era: int, broker: str) -> None:
        self.era = era
        self.broker = broker
        self.end = 0
        self.final = False
        self.kept_from = 1
        self._store = store
        self._cluster = cluster
        self._starts: list[int] = []
        self._kept = Cache[int, RunIndex](_RUNS, lambda _: 1)
        self._listed_for = 0

    async def look(self, *, again: bool = False) -> int:
        """Look for more runs; return ``end``.

        Where ``kept_from`` lies behind what is known some runs, or some objects that never
        were in one, are deleted. ``again``: something was missing.
        """
        listed_for, kept_from = self._listed_for, self.kept_from
        if not listed_for:
            await self._list()  # a row may have thousands, which are not asked for one by one
        await self._follow()
        behind = self.end + 1 < kept_from and listed_for != kept_from
        if not self.final and (behind or again):
            if listed_for:
                await self._list()
                await self._follow()
            if self.end + 1 < kept_from:
                await self._ask(kept_from)
                await self._follow()
        if self.end + 1 < kept_from:  # those before it are deleted
            await self._follow(kept_from)
        self._listed_for = kept_from
        return self.end

    async def _follow(self, first: int = 0) -> None:
        """Take in the runs that follow on the last one that is known, or from one on."""
        while not self.final:
            run = await self.run(max(first, self.end + 1))
            if run is None:
                break
            self._take(run)

    async def look_behind(self) -> None:
        """Look for runs if objects may be deleted that are not known to be in any."""
        if self.end + 1 < self.kept_from and self._listed_for != self.kept_from:
            await self.look()

    async def _list(self) -> None:
        """Learn of runs from a listing."""
        after = compacted_key(self.era, self.broker, self.end)
        listed = await self._store.list(compacted_prefix(self.era, self.broker), after)
        numbers = sorted(x for x in (number_of(y.key) for y in listed) if x is not None)
        for number in reversed(numbers):
            run = await self.run(number)
            if run is not None:
                self._take(run, [x for x in numbers if x < number])
                return

    async def _ask(self, kept_from: int) -> None:
        """Learn of runs by asking for each that may begin before what is kept."""
        found: list[RunIndex] = []
        numbers = range(table_before(kept_from), self.end, -TABLE_EVERY)
        since = 0
        while numbers and since < _BETWEEN_RUNS:
            runs = await gather_or_cancel(*(self.run(x) for x in numbers[:_AT_ONCE]))
            there = [x for x in runs if x is not None]
            found += there
            since = 0 if there else since + _AT_ONCE
            numbers = numbers[_AT_ONCE:]
        if found:
            self._take(found[0], [x.run.first for x in reversed(found[1:])])

    def _take(self, run: RunIndex, before: Sequence[int] = ()) -> None:
        """Take in a run, and those that begin at some numbers before it."""
        if run.run.last > self.end:
            known = self._starts[-1] if self._starts else 0  # others look meanwhile
            self._starts += [x for x in before if known < x < run.run.first]
            self._starts.append(run.run.first)
            self.end = run.run.last
            self.final = run.run.final

    async def run(self, number: int) -> RunIndex | None:
        """Return a run by its first number, if it is there still."""
        known = self._kept.use(number)
        if known is not None:
            return known
        key = compacted_key(self.era, self.broker, number)
        data = await self._store.get(key, 0, HEAD_BYTES)
        if data is None:
            return None
        try:
            if header_bytes(data) > len(data):
                data = await self._store.get(key, 0, header_bytes(data)) or b""
            run = decode_run(data, self._cluster, Place(self.era, self.broker, number))
        except Damaged as error:
            raise Damaged(f"{key} is not what was written: {error}") from error
        found = RunIndex(run, header_bytes(data))
        self._kept.add(number, found)
        return found

    async def holding(self, key: Key, after: int) -> Sequence[RunPart]:
        """Return what one run holds of a partition, from what follows on a sequence on."""
        run = await self._first(lambda x: x.last(key) > after)
        found = [] if run is None else [x for x in run.held(key) if x.last > after]
        return found if found and found[0].first <= after + 1 else []

    async def since(self, key: Key, time_us: int, after: int) -> AsyncIterator[RunPart]:
        """Yield what holds records of a partition, from the first that may reach a commit time.

        Only those that have something after a sequence.
        """

        def reaches(run: RunIndex) -> bool:
            latest_us = run.latest_us(key)
            return latest_us is not None and latest_us >= time_us and run.last(key) > after

        first = await self._first(reaches)
        if first is None:
            return
        for number in [x for x in self._starts if x >= first.run.first]:
            run = await self.run(number)
            for x in () if run is None else run.held(key):
                if x.last > after and x.latest_us >= time_us:
                    yield x

    async def last_of(self, holds: Callable[[RunIndex], bool]) -> RunIndex | None:
        """Return the last run of which something holds that holds of those before it, too."""
        found: list[RunIndex] = []

        def fails(run: RunIndex) -> bool:
            if holds(run):
                found.append(run)
                return False
            return True

        await self._first(fails)
        return max(found, key=lambda x: x.run.last, default=None)

    @property
    def starts(self) -> Sequence[int]:
        """The first numbers of all runs that are known."""
        return tuple(self._starts)

    async def final_run(self, *, again: bool = False) -> RunIndex | None:
        """Return the run before the seal, if there is one. ``again``: as of ``look``."""
        await self.look(again=again)
        return await self.run(self._starts[-1]) if self.final else None

    async def _first(self, holds: Callable[[RunIndex], bool]) -> RunIndex | None:
        """Return the first run of which something holds that holds of all after it."""
        starts = self.starts  # others look, and find some deleted, meanwhile
        low, high = 0, len(starts)
        found = None
        while low < high:
            middle = (low + high) // 2
            run = await self.run(starts[middle])
            if run is None:  # deleted, with all before it
                self._starts = [x for x in self._starts if x > starts[middle]]
                low = middle + 1
            elif holds(run):
                found, high = run, middle
            else:
                low = middle + 1
        return found
