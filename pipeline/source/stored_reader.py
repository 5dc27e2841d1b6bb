"""A collection in the store of its cluster, with what of it lies in segments.

Segments are read as they are, by Arrow here or by Spark itself (``split``). What is gone is
looked for again: flushes become segments while they are read.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Position, RangeId
from changefeed.log.directory.feed import open_stored_log
from changefeed.log.format.block_format import Columns
from changefeed.log.reading.store_address import parse_store_address
from changefeed.log.reading.stored_collection import StoredCollection, damaged
from changefeed.log.stores.addresses import open_store
from changefeed.pipeline.source.collection_reader import CollectionAccess, Part
from changefeed.pipeline.source.feed_reader import RETRY_SECONDS
from changefeed.pipeline.source.reader import FilePart, Slice
from changefeed.pipeline.source.retries import retry_for
from changefeed.pipeline.source.segment_reader import check_footer, read_rows
from changefeed.runtime.backends import Address
from changefeed.runtime.errors import StoreRefused
from changefeed.runtime.paths import expanded

if TYPE_CHECKING:
    from concurrent.futures import Future


@asynccontextmanager
async def open_stored(address: Address) -> AsyncIterator[StoredCollection]:
    """Raise ``FeedRefused``, with advice, for an address that leads to no collection."""
    where = parse_store_address(address.scheme, address.place)
    try:
        store = open_store(where.store)
    except StoreRefused as error:
        raise FeedRefused(str(error)) from error
    yield await StoredCollection.open(store, where.collection)


@asynccontextmanager
async def open_log(place: str) -> AsyncIterator[StoredCollection]:
    """Raise ``FeedRefused``, with advice, for a directory that is no event log."""
    yield await open_stored_log(expanded(place, FeedRefused))


class StoredAccess(CollectionAccess):
    """See ``Access``. Of what is in files, Spark may read some by itself."""

    def __init__(
        self,
        opening: Callable[[], AbstractAsyncContextManager[StoredCollection]],
        *,
        only: Collection[RangeId] = (),
        patience: float = RETRY_SECONDS,
        **more: float,
    ) -> None:
        @asynccontextmanager
        async def kept() -> AsyncIterator[StoredCollection]:
            async with opening() as stored:
                self._stored = stored
                yield stored

        self._seconds = patience
        self._checked = set[str]()
        super().__init__(kept, only=only, patience=patience, **more)

    def _in_order(
        self, name: RangeId, after: int, end: int, asked: "Future[Part]"
    ) -> Iterator[Columns | pa.RecordBatch]:
        gone = -1
        while True:
            begun = after
            for found in self._read(name, after, end, asked):
                after += len(found)
                yield found
            if after >= end:
                return
            if after == begun:  # its segment is gone: another may hold its records by now
                if gone == after:
                    raise damaged(name, after, end)
                gone = after
                self._look_again(name)
            asked = self._asking(name, after, end)

    def _read(
        self, name: RangeId, after: int, end: int, asked: "Future[Part]"
    ) -> Iterator[Columns | pa.RecordBatch]:
        """Yield what flushes hold, up to the next segment, and what that holds."""
        following = yield from self._in_blocks(name, after, end, asked)
        if following is not None:
            rows, after = following
            yield from read_rows(name, rows, after, end, self._fetch)

    @property
    def place(self) -> str:
        """The directory that the files are in, empty where there is none."""
        directory = self._stored.directory
        return "" if directory is None else str(directory.absolute())

    def sealed(self) -> Mapping[RangeId, Position]:
        """Return up to where ranges are in runs, for those whose rows have segments."""
        self._refresh()
        found = self._ask(self._stored.segment_ends)
        return {name: self.positions.position(x) for name, x in found.items()}

    def split(self, slice_: Slice) -> tuple[Sequence[FilePart], Sequence[Slice]]:
        """Return what of a slice is in files of text, and what is left of it."""
        name = slice_.range_id
        begin, end = self.positions.order(slice_.start), self.positions.order(slice_.end)
        parts = self._files(name, begin, end)
        if parts is None:
            self._look_again(name)
            parts = self._files(name, begin, end)
        if parts is None:
            there = self._ends([name])[name]
            raise damaged(name, there.start, there.last)
        return parts, self.positions.around(slice_, parts)

    def _files(self, name: RangeId, begin: int, end: int) -> Sequence[FilePart] | None:
        """Return the files of text that records are in; ``None`` where one is gone."""
        parts = []
        for found in self._ask(lambda: self._stored.in_segments(name, begin, end)):
            segment = found.segment
            if not segment.is_text:
                continue  # escaped on its way
            if segment.key not in self._checked:
                if not check_footer(name, segment, self._fetch):
                    return None
                self._checked.add(segment.key)
            part = FilePart(
                path=Path(self.place, segment.key),
                range_id=name,
                after=max(begin, found.first - 1),
                end=min(end, found.last),
                records=segment.records,
            )
            parts.append(part)
        return parts

    def _look_again(self, name: RangeId) -> None:
        self._ask(lambda: self._stored.look_again(name))
        self._refresh()

    def _fetch(self, key: str, begin: int, end: int) -> "Future[bytes | None]":
        ask = partial(self._stored.read_object, key, begin, end)
        return self._loop.start(retry_for(ask, self._seconds))
