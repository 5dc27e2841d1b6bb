"""Reading a row in long stretches, for engines and for hosts that read without a broker.

Many objects are looked at in one step, and are remembered as ``windows``: all partitions of the
row are read through the same. Columns that a window does not have are read when they are
wanted, again of many in one step.

A read goes over some windows and no further, so that partitions that are read in turns find
them in memory.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

from changefeed.feeds.brokers.compacted_row import HEAD_BYTES
from changefeed.feeds.brokers.errors import RowDamaged, records_damaged
from changefeed.feeds.brokers.flush import (
    FlushDamaged,
    FlushHeader,
    Gathered,
    Key,
    Place,
    Section,
    cut_columns,
    decode_header,
    header_bytes,
)
from changefeed.feeds.brokers.names import flush_keys
from changefeed.feeds.brokers.object_cache import KeptHeader, ObjectCache
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.row_reader import RowReader
from changefeed.feeds.brokers.stores.local_store import Extent, get_many
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.brokers.windows import Spot, Window, Windows
from changefeed.feeds.eventlog.block_format import Layout, joined

_WINDOWS: Final = 16
"""A read that has found something goes over so many windows."""
_PLACES: Final = 8192
_ALL: Final = 2**63


class AheadReader(RowReader):
    """``ahead``: how many objects a window has at the most."""

    _least_leap = 16

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        era: int,
        broker: str,
        cache: ObjectCache,
        *,
        windows: Windows,
        ahead: int,
    ) -> None:
        super().__init__(store, cluster, era, broker, cache)
        assert ahead > 0, "a window has an object at least"
        self._ahead = ahead
        self._windows = windows
        self._extending = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._lasts: dict[Key, int] = {}
        self._lasts_at = 0
        self._damaged = 0
        self._places: OrderedDict[tuple[Key, int], int] = OrderedDict()

    async def tail(self, hint: int = 0) -> int:
        """Look for more objects, up to one that is damaged; return ``known``."""
        if self.sealed_at is not None:
            return self.known
        self._skip_to(hint)
        await self._leap_once()
        while self.sealed_at is None and await self._is_there(self.known + 1):
            window = await self._window(self.known + 1, newest=True)
            if window.last <= self.known:
                self._damaged = self.known + 1  # who reads up to there is told
                break
            self.known = window.last
            self.sealed_at = window.sealed_at
        return self.known

    async def lasts(self) -> Mapping[Key, int]:
        """Return the last sequence of each partition that has records, as far as is known."""
        async with self._looking:  # of many that ask, one looks
            if not self._lasts_at or self._lasts_at + 1 < self.kept_from:
                self._lasts = {key: x.last for key, x in (await self.ends()).items()}
                self._lasts_at = self.known
            while self._lasts_at < self.known:
                window = await self._window(self._lasts_at + 1)
                if window.last <= self._lasts_at:
                    break  # it is damaged by now
                for key, found in window.spots.items():
                    self._lasts[key] = found[-1].last
                self._lasts_at = window.last
        return self._lasts

    async def _window(self, number: int, *, newest: bool = False) -> Window:
        """Return the window with an object; with ``newest``, with all that is there by now."""
        first = (number - 1) // self._ahead * self._ahead + 1
        place = (self.era, self.broker, first)
        end = first + self._ahead - 1
        until = end if newest else min(end, self.known)
        window = self._windows.use(place)
        if window is not None and window.last >= until:
            return window
        async with self._extending:
            window = self._windows.use(place)
            if window is None:
                window = Window(first - 1)
            window.last = max(window.last, self.kept_from - 1)  # those before are deleted
            has_ended = (
                window.sealed_at or 0
            ) >= self.kept_from  # of several that look at once
            if window.last < until and not has_ended:
                self._windows.drop(place)
                await self._extend(window, until)
                self._windows.add(place, window)
        return window

    async def _extend(self, window: Window, until: int) -> None:
        """Take in the objects that follow, up to one that is missing or damaged."""
        numbers = range(window.last + 1, until + 1)
        keys = flush_keys(self.era, self.broker, numbers)
        heads = await get_many(self._store, [Extent(x, 0, HEAD_BYTES) for x in keys])
        for number, data in zip(numbers, heads, strict=True):
            if data is None:
                break
            try:
                header, size = await self._decoded(number, data)
            except RowDamaged:
                break
            window.add(header, size, data)
            if header.seal:
                break
        window.gather(numbers.start - 1)

    async def _decoded(self, number: int, data: bytes) -> KeptHeader:
        with suppress(FlushDamaged):
            size = header_bytes(data)
            if size <= len(data):
                place = Place(self.era, self.broker, number)
                return KeptHeader(decode_header(data, self._cluster, place), size)
        return await self._read_header(number, data)

    # records

    def is_recent(self, key: Key, after: int) -> bool:
        """Whether what follows on a sequence can lie in objects only."""
        del key, after
        return self.kept_from == 1 and not self.compacted.end

    async def read(self, key: Key, after: int, max_bytes: int) -> list[Block]:
        """Return records of a partition after a sequence, about so many bytes of them.

        Raise ``RangeDamaged`` where what should be there is not.
        """
        try:
            found = await self.find(key, after, _ALL, max_bytes)
            try:
                return await self.blocks_at(found)
            except RowDamaged:  # what lies before it comes first
                return await self.blocks_at(found[:1])
        except RowDamaged as error:
            raise records_damaged(key, after, error) from error

    async def find(self, key: Key, after: int, end: int, max_bytes: int) -> list[Spot]:
        """Return where records with ``after < sequence <= end`` lie.

        About so many bytes of them, and from few objects. Raise ``RowDamaged`` where the
        first of them should be and is not.
        """
        found: list[Spot] = []
        number, size, windows = await self._place(key, after), 0, 0
        while number <= self.known and (windows < _WINDOWS or not found):
            window = await self._window(number)
            windows += 1
            spots = window.spots.get(key, [])
            for spot in spots[bisect_right(spots, after, key=lambda x: x.last) :]:
                if spot.first > after + 1:
                    return self._so_far(found, window.last, after, spot)
                is_twice = bool(found) and spot.first <= after  # of a window that was read anew
                if after >= end or size >= max_bytes or is_twice:
                    self._keep_place(key, after, spot.number)
                    return found
                found.append(spot)
                after, size = spot.last, size + spot.bytes
            if window.last < min(number, self.known):
                break
            number = window.last + 1
        await self._check_there(found, number)
        self._keep_place(key, after, number)
        return found

    @staticmethod
    def _so_far(found: list[Spot], at: int, after: int, spot: Spot) -> list[Spot]:
        """Return what lies before a gap; raise ``RowDamaged`` if that is nothing."""
        if not found:
            raise RowDamaged(
                f"records {after + 1} to {spot.first - 1} are missing before object {at}"
            )
        return found

    async def _check_there(self, found: Sequence[Spot], number: int) -> None:
        """Raise ``RowDamaged`` if nothing was found, and what follows is damaged or missing."""
        if not found and number <= self.known:
            await self.there(number)
            raise RowDamaged(f"{self.key(number)} is missing")
        if not found and number == self._damaged:
            await self.header(number)

    async def _place(self, key: Key, after: int) -> int:
        """Return the number from which to look for what follows on a sequence."""
        known = self._places.get((key, after))
        if known is not None:
            return max(known, self.kept_from)

        def is_before(header: FlushHeader) -> bool:
            table = header.table or ()
            found = (x.last for x in table if (x.collection, x.partition) == key)
            return next(found, 0) <= after

        return await self._from_table(is_before)

    def _keep_place(self, key: Key, after: int, number: int) -> None:
        self._places[key, after] = number
        while len(self._places) > _PLACES:
            self._places.popitem(last=False)

    async def blocks_at(self, found: Sequence[Spot]) -> list[Block]:
        """Read the records of sections that follow each other, as one block.

        Raise ``RowDamaged``.
        """
        if not found:
            return []
        layouts = await self._columns_at(found)
        first, last = found[0].first, found[-1].last
        return [Block(first=first, count=last - first + 1, columns=joined(layouts))]

    async def gathered(
        self, numbers: range, keys: AbstractSet[Key]
    ) -> AsyncIterator[Sequence[Gathered]]:
        """Yield what objects have of some partitions, a window at a time; see ``RowReader``.

        The last of them is the last of a window, or what comes after it has no records.
        """
        number = numbers.start
        while number < numbers.stop:
            window = await self._window(number)
            if window.last < number:
                await self.there(number)
                raise RowDamaged(f"{self.key(number)} is missing")
            spots = [(key, x) for key in keys for x in window.spots.get(key, ())]
            assert all(x.number in numbers for _, x in spots), f"{numbers} cuts a window"
            layouts = await self._columns_at([x for _, x in spots])
            yield [x.gathered(key, y) for (key, x), y in zip(spots, layouts, strict=True)]
            number = window.last + 1

    async def _columns_at(self, found: Sequence[Spot]) -> list[Layout]:
        apart = [(x.number, x.section) for x in found if x.section is not None]
        read = iter(await self._layouts(apart) if apart else ())
        layouts = [next(read) if x.columns is None else x.columns for x in found]
        assert next(read, None) is None, f"{len(apart)} sections were read, and more"
        return layouts

    async def _layouts(self, sections: Sequence[tuple[int, Section]]) -> list[Layout]:
        """Read the columns of sections from their objects, all at once."""
        extents = []
        for number, section in sections:
            window = await self._window(number)
            begin = window.heads[number] + section.offset
            extents.append(Extent(self.key(number), begin, begin + section.bytes))
        layouts = []
        read = await get_many(self._store, extents)
        assert len(read) == len(sections), f"{len(extents)} slices: {len(read)} answers"
        for (number, section), data in zip(sections, read, strict=True):
            try:
                layouts.append(cut_columns(data or b"", section))
            except FlushDamaged as error:
                self.forget(number)
                key = self.key(number)
                raise RowDamaged(f"{key} is not what was written: {error}") from error
        return layouts

    def forget(self, number: int) -> None:
        """Forget the window of an object that is damaged: it may be restored."""
        first = (number - 1) // self._ahead * self._ahead + 1
        self._windows.drop((self.era, self.broker, first))
