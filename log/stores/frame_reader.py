"""Reading frames of rows in a directory, up to what their writers may not take back.

What lies there, and who may see what of it, says ``file_rows``. Any number of processes read.
"""

import os
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from changefeed.log.stores.file_rows import (
    HEAD,
    Frame,
    Read,
    delete,
    durable_in,
    end_of,
    firsts_in,
    frame_at,
    is_written,
    last_that_counts,
    log_path,
    open_file,
)

_AHEAD_BYTES: Final = 64 * 1024
_KNOWN_ROWS: Final = 1024


class _KnownRow:
    """What a reader has found out of one row: none of it changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.firsts: Sequence[int] = ()
        self._looking = threading.Lock()
        self._end: int | None = None
        self._left: tuple[int, int, int] | None = None
        self._offsets: dict[int, array[int]] = {}

    def last(self) -> int:
        """Return the number of the last frame that readers may see."""
        if self._end is None:
            self._end = end_of(self.folder)
        if self._end is not None:
            return self._end
        durable = durable_in(self.folder)
        if is_written(self.folder):
            self._left = None
            return durable
        return self._last_left(durable)

    def _last_left(self, durable: int) -> int:
        """Return the last frame that a writer who is gone has left."""
        firsts = firsts_in(self.folder)
        if not firsts:
            return durable
        size = os.stat(log_path(self.folder, firsts[-1])).st_size
        if self._left is None or self._left[:2] != (durable, size):
            self._left = durable, size, last_that_counts(self.folder)
        return self._left[2]

    @property
    def has_end(self) -> bool:
        """Whether ``last`` stays what it was said to be."""
        return self._end is not None

    def frame(self, number: int) -> Frame | None:
        """Return a frame that readers may see; ``None`` if it was deleted."""
        if not self.firsts or number >= self.firsts[-1]:
            self.firsts = firsts_in(self.folder)
        first = self._file_with(number)
        if first is None:
            return None
        try:
            with self._looking, open_file(log_path(self.folder, first)) as descriptor:
                return self._found(partial(os.pread, descriptor), first, number)
        except FileNotFoundError:
            self.firsts = ()
            self._offsets.pop(first, None)
            return None

    def read(self, extents: Iterable[tuple[int, int, int]]) -> list[bytes | None]:
        """Read bytes of the objects in frames, each given by its number, start and end.

        ``None`` for a frame that readers may not see, or that was deleted.
        """
        last = self.last()
        self.firsts = firsts_in(self.folder)
        with ExitStack() as stack, self._looking:
            opened: dict[int, _OpenFile] = {}  # files by their first numbers
            return [
                self._read(x, opened, stack) if 1 <= x[0] <= last else None for x in extents
            ]

    def _read(
        self, extent: tuple[int, int, int], opened: "dict[int, _OpenFile]", stack: ExitStack
    ) -> bytes | None:
        number, start, end = extent
        first = self._file_with(number)
        if first is None:
            return None
        if first not in opened:
            try:
                path = log_path(self.folder, first)
                opened[first] = _OpenFile(stack.enter_context(open_file(path)))
            except FileNotFoundError:
                return None
        file = opened[first]
        read = file.read if start else file.read_ahead
        frame = self._found(read, first, number)
        return read(max(min(end, frame.size) - start, 0), frame.begin + start)

    def _file_with(self, number: int) -> int | None:
        place = bisect_right(self.firsts, number)
        return self.firsts[place - 1] if place else None

    def _found(self, read: Read, first: int, number: int) -> Frame:
        """Return a frame, from where those before it lie.

        It has no bytes where it cannot be found: no object is like that, so it is damaged.
        """
        assert number >= first, f"frame {number} lies before the file that begins at {first}"
        offsets = self._offsets.setdefault(first, array("Q", [0]))
        at = min(number - first, len(offsets) - 1)
        while True:
            found = frame_at(read, offsets[at], first + at)
            if found is None or found.number > number:
                return Frame(number, offsets[at], 0, 0, 0)
            at = found.number - first
            while at >= len(offsets):  # from here on those between are looked for again
                offsets.append(offsets[-1])
            offsets[at] = found.begin - HEAD.size
            if found.number == number:
                return found
            at += 1
            if at == len(offsets):
                offsets.append(found.end)


class _OpenFile:
    """A file of frames that is open. Small frames that follow each other come in one read."""

    def __init__(self, descriptor: int) -> None:
        self.read: Read = partial(os.pread, descriptor)
        self._ahead = b""
        self._begin = 0

    def read_ahead(self, size: int, offset: int) -> bytes:
        """Read bytes, and some behind them: what is there already is not read again."""
        begin = offset - self._begin
        if begin < 0 or begin + size > len(self._ahead):
            if size >= _AHEAD_BYTES:
                return self.read(size, offset)
            self._ahead, self._begin, begin = self.read(_AHEAD_BYTES, offset), offset, 0
        return self._ahead[begin : begin + size]


class FrameReader:
    """Reads frames of any rows. Every method blocks; threads may call at once."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, _KnownRow] = OrderedDict()

    def find(self, folder: Path, number: int) -> Frame | None:
        """Return a frame that readers may see."""
        row = self._row(folder)
        return row.frame(number) if 1 <= number <= row.last() else None

    def read(self, folder: Path, extents: Iterable[tuple[int, int, int]]) -> list[bytes | None]:
        """Read bytes of objects: see ``_KnownRow.read``."""
        return self._row(folder).read(extents)

    def numbers(self, folder: Path) -> range:
        """Return the numbers of the frames that are there."""
        row = self._row(folder)
        row.firsts = firsts_in(folder)
        last = row.last()
        return range(row.firsts[0], last + 1) if row.firsts else range(0)

    def drop(self, folder: Path, numbers: AbstractSet[int]) -> None:
        """Delete the files of which all frames are among these numbers, from the first on.

        One that is still written stays.
        """
        there = self.numbers(folder)
        kept_from = next((x for x in there if x not in numbers), there.stop)
        row = self._row(folder)
        ends = [*row.firsts[1:], *([there.stop] if row.has_end else [])]
        for first, end in zip(row.firsts, ends, strict=False):
            if end <= kept_from:
                delete(log_path(folder, first))

    def _row(self, folder: Path) -> _KnownRow:
        row = self._known.setdefault(folder, _KnownRow(folder))
        while len(self._known) > _KNOWN_ROWS:
            self._known.popitem(last=False)
        return row
