"""Reading frames of rows in a directory, up to what their writers may not take back.

What lies there, and who may see what of it, says ``file_rows``. Any number of processes read.
"""

import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
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


class FrameReader:
    """Reads the frames of one row, and remembers what does not change. Every method blocks;
    threads may call at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._looking = threading.Lock()
        self._end: int | None = None
        self._left: tuple[int, int, int] | None = None
        self._dropped = 0
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

    def numbers(self) -> range:
        """Return the numbers of the frames that are there, without those that were dropped."""
        firsts, last = firsts_in(self.folder), self.last()
        return range(max(firsts[0], self._dropped + 1), last + 1) if firsts else range(0)

    def drop(self, numbers: AbstractSet[int]) -> None:
        """Drop frames, from the first on; delete the files that have no others.

        One that is still written stays.
        """
        there = self.numbers()
        kept_from = next((x for x in there if x not in numbers), there.stop)
        self._dropped = max(self._dropped, kept_from - 1)
        firsts = firsts_in(self.folder)
        ends = [*firsts[1:], *([] if self._end is None else [there.stop])]
        for first, end in zip(firsts, ends, strict=False):
            if end <= kept_from:
                delete(log_path(self.folder, first))

    def frames(self, numbers: Iterable[int]) -> list[Frame | None]:
        """Return frames; ``None`` for one that readers may not see, or that was deleted."""
        with self._files() as file_with:
            files = [(n, file_with(n)) for n in numbers]
            return [None if x is None else self._found(x.read, x.first, n) for n, x in files]

    def read(self, extents: Iterable[tuple[int, int, int]]) -> list[bytes | None]:
        """Read bytes of the objects in frames, each given by its number, start and end.

        ``None``: as ``frames``.
        """
        with self._files() as file_with:
            return [self._read(file_with(x[0]), *x) for x in extents]

    def _read(
        self, file: "_OpenFile | None", number: int, start: int, end: int
    ) -> bytes | None:
        if file is None:
            return None
        read = file.read if start else file.read_ahead
        frame = self._found(read, file.first, number)
        return read(max(min(end, frame.size) - start, 0), frame.begin + start)

    @contextmanager
    def _files(self) -> "Iterator[Callable[[int], _OpenFile | None]]":
        """Give what opens the files of frames by their numbers, each file once."""
        last, firsts = self.last(), firsts_in(self.folder)
        opened: dict[int, _OpenFile] = {}  # by their first numbers

        def file_with(number: int) -> "_OpenFile | None":
            place = bisect_right(firsts, number)
            if not place or number > last:
                return None
            first = firsts[place - 1]
            if first not in opened:
                try:
                    file = stack.enter_context(open_file(log_path(self.folder, first)))
                except FileNotFoundError:
                    self._offsets.pop(first, None)
                    return None
                opened[first] = _OpenFile(first, file)
            return opened[first]

        with ExitStack() as stack, self._looking:
            yield file_with

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

    def __init__(self, first: int, descriptor: int) -> None:
        self.first = first
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
