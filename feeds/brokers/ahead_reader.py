"""Reading a row in long stretches, for engines and for hosts that read without a broker.

Many objects are looked at in one step: a *window* is so many that follow each other, with all
of their sections by partition. All partitions of the row are read through the same windows.
What is small lies in the window whole; of other objects the columns are read that are wanted,
again of many in one step.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from changefeed.feeds.brokers.errors import RowDamaged, records_damaged
from changefeed.feeds.brokers.flush import (
    FlushDamaged,
    FlushHeader,
    Key,
    Section,
    cut_columns,
    ends_after,
    section_columns,
)
from changefeed.feeds.brokers.object_cache import Cache, ObjectCache
from changefeed.feeds.brokers.protocol import Block
from changefeed.feeds.brokers.row_reader import HEAD_BYTES, RowReader
from changefeed.feeds.brokers.stores.local_store import Extent, get_many
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.feeds.eventlog.block_format import Layout

_AS_OBJECTS: Final = 8
"""A header takes so many times its bytes as values of Python."""
_FOUND: Final = 4
"""Sections of so many times a window are read in one step."""
_PLACES: Final = 8192
_ALL: Final = 2**63
_Found = tuple[int, Section]


@dataclass(slots=True)
class Window:
    """Objects of a row, up to ``last``. ``heads`` are their sizes before columns."""

    last: int
    sealed_at: int | None = None
    size: int = 0
    sections: dict[Key, list[_Found]] = field(default_factory=dict)
    heads: dict[int, int] = field(default_factory=dict)
    whole: dict[int, bytes] = field(default_factory=dict)

    def add(self, header: FlushHeader, head: int, data: bytes) -> None:
        """Take in the next object: its header, the bytes of that, and what was read of it."""
        assert header.number == self.last + 1, f"{header.number} follows on {self.last}"
        self.last = header.number
        self.heads[header.number] = head
        self.size += _AS_OBJECTS * head
        if header.seal:
            self.sealed_at = header.number
        if len(data) < HEAD_BYTES:
            self.whole[header.number] = data
            self.size += len(data)
        for section in header.sections:
            key = (section.collection, section.partition)
            self.sections.setdefault(key, []).append((header.number, section))


Windows = Cache[tuple[int, str, int], Window]


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
        self._lasts: dict[Key, int] = {}
        self._lasts_at = 0
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
                break  # it is damaged: who reads up to there is told
            self.known = window.last
            self.sealed_at = window.sealed_at
        return self.known

    async def lasts(self) -> Mapping[Key, int]:
        """Return the last sequence of each partition that has records, as far as is known."""
        if not self._lasts_at or self._lasts_at + 1 < self.kept_from:
            self._lasts = {key: x.last for key, x in (await self.ends()).items()}
            self._lasts_at = self.known
        while self._lasts_at < self.known:
            window = await self._window(self._lasts_at + 1)
            if window.last <= self._lasts_at:
                break  # it is damaged by now
            for key, found in window.sections.items():
                self._lasts[key] = found[-1][1].last
            self._lasts_at = window.last
        return self._lasts

    async def _is_there(self, number: int) -> bool:
        """Whether there is an object, damaged or not."""
        try:
            return await self.header(number) is not None
        except RowDamaged:
            return True

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
            if window.last < until:
                self._windows.drop(place)
                await self._extend(window, until)
                self._windows.add(place, window)
        return window

    async def _extend(self, window: Window, until: int) -> None:
        """Take in the objects that follow, up to one that is missing or damaged."""
        numbers = range(window.last + 1, until + 1)
        heads = await get_many(
            self._store, [Extent(self.key(x), 0, HEAD_BYTES) for x in numbers]
        )
        for number, data in zip(numbers, heads, strict=True):
            if data is None:
                break
            try:
                found = await self._read_header(number, data)
            except RowDamaged:
                break
            window.add(found.header, found.size, data)
            if found.header.seal:
                break

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
                layouts = await self.columns_at(found)
            except RowDamaged:  # what lies before it comes first
                found = found[:1]
                layouts = await self.columns_at(found)
        except RowDamaged as error:
            raise records_damaged(key, after, error) from error
        return [
            Block(first=x.first, count=x.count, columns=columns)
            for (_, x), columns in zip(found, layouts, strict=True)
        ]

    async def find(self, key: Key, after: int, end: int, max_bytes: int) -> list[_Found]:
        """Return where records with ``after < sequence <= end`` lie: numbers and sections.

        About so many bytes of them, and from few objects. Raise ``RowDamaged`` where the
        first of them should be and is not.
        """
        found: list[_Found] = []
        number, size = await self._place(key, after), 0
        while number <= self.known:
            window = await self._window(number)
            for at, section in window.sections.get(key, ()):
                if at < number or section.last <= after:
                    continue
                if section.first > after + 1:
                    return self._so_far(found, window.last, after, section)
                if after >= end or size >= max_bytes or len(found) >= _FOUND * self._ahead:
                    self._keep_place(key, after, at)
                    return found
                found.append((at, section))
                after, size = section.last, size + section.bytes
            if window.last < min(number, self.known):
                break
            number = window.last + 1
        await self._check_there(found, number)
        self._keep_place(key, after, number)
        return found

    @staticmethod
    def _so_far(found: list[_Found], at: int, after: int, section: Section) -> list[_Found]:
        """Return what lies before a gap; raise ``RowDamaged`` if that is nothing."""
        if not found:
            raise RowDamaged(
                f"records {after + 1} to {section.first - 1} are missing before object {at}"
            )
        return found

    async def _check_there(self, found: Sequence[_Found], number: int) -> None:
        """Raise ``RowDamaged`` if nothing was found, and what follows is damaged or missing."""
        if not found and number <= self.known:
            await self.there(number)
            raise RowDamaged(f"{self.key(number)} is missing")
        if not found and self.sealed_at is None:
            await self.header(number)

    async def _place(self, key: Key, after: int) -> int:
        """Return the number from which to look for what follows on a sequence."""
        known = self._places.get((key, after))
        if known is not None:
            return max(known, self.kept_from)

        def is_before(table: FlushHeader) -> bool:
            end = ends_after([table]).get(key)
            return end is None or end.last <= after

        return await self._from_table(is_before)

    def _keep_place(self, key: Key, after: int, number: int) -> None:
        self._places[key, after] = number
        while len(self._places) > _PLACES:
            self._places.popitem(last=False)

    async def columns_at(self, found: Sequence[_Found]) -> Sequence[Layout]:
        """Read the columns of sections, each in the object of its number, at once.

        Raise ``RowDamaged``.
        """
        windows = {n: await self._window(n) for n in {x for x, _ in found}}
        wholes: Mapping[int, bytes | None] = {n: x.whole.get(n) for n, x in windows.items()}
        extents = []
        for number, section in found:
            if wholes[number] is None:
                begin = windows[number].heads[number] + section.offset
                extents.append(Extent(self.key(number), begin, begin + section.bytes))
        read = iter(await get_many(self._store, extents))
        layouts = []
        for number, section in found:
            whole = wholes[number]
            try:
                if whole is None:
                    layouts.append(cut_columns(next(read) or b"", section))
                else:
                    layouts.append(section_columns(whole, section))
            except FlushDamaged as error:
                self.forget(number)
                key = self.key(number)
                raise RowDamaged(f"{key} is not what was written: {error}") from error
        return layouts

    def forget(self, number: int) -> None:
        """Forget the window of an object that is damaged: it may be restored."""
        first = (number - 1) // self._ahead * self._ahead + 1
        self._windows.drop((self.era, self.broker, first))
