"""Rows of a directory as files that grow: one sync for all that waits, and no name for each.

    wal/ERA/BROKER/.frames/
        000000000001.log    frames from this number on; another file each 64 MiB
        durable             the last number that outlives a loss of power, as its writer knows
        closed              the row takes no frames any more, even if its writer does not know
        end                 the last frame that counts: decided once

A *frame* is an object of a row: 32 bytes (``_HEAD``: its number, size, time, and checksums),
and the object. Numbers follow each other from 1. Objects behind the last frame that counts
are files of their own, as all others of a store are: so is a seal that others put at the end
of a row.

**The writer** is the process that made the first file. No process opens a file again to
write. It writes frames where the last one ended and syncs the file. Only then ``durable``
moves, and callers are answered. Objects that wait meanwhile are written and synced together,
without a clock.

**Closing** decides where the frames of another process end. That process may be dead, or
frozen and come back. ``closed`` is made first. A writer looks for it after each sync, before it
answers: so what it has answered was there when ``closed`` was made. Then the files are synced,
frames are read up to the first that is not whole, and ``end`` is created if there is none. A
writer that finds itself closed answers nothing any more from frames; the caller finds its
object among them, or tries to create it behind them, and learns there who was first.

**Readers** go up to ``end``, or up to ``durable`` before there is one, so none sees what a
loss of power takes back. They need no right to write.

**Disks** that are full get back what was begun. A sync that fails is never repeated on that
file, as the kernel may have dropped what it could not write: the writer closes the row at
what was durable before, and what follows are files of their own.
"""

import errno
import os
import struct
import threading
import time
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from changefeed.runtime.private_file import PRIVATE_FILE

FRAMES: Final = ".frames"
_LOG, _DURABLE, _CLOSED, _END = ".log", "durable", "closed", "end"
_FILE_BYTES: Final = 64 * 1024 * 1024
_HEAD: Final = struct.Struct("<4sIQQII")
_MAGIC: Final = b"CFR\n"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NUMBER: Final = struct.Struct("<QQ")
_KNOWN_ROWS: Final = 1024


class RowClosed(Exception):
    """Nothing is answered from frames of this row any more."""


class Frame(NamedTuple):
    """Where an object lies in its file. ``written_us`` is by the clock of the kernel."""

    path: Path
    offset: int
    size: int
    written_us: int


def _packed(number: int, data: bytes, now_us: int) -> bytes:
    fields = (_MAGIC, len(data), number, now_us, zlib.crc32(data))
    head = _HEAD.pack(*fields, 0)
    return _HEAD.pack(*fields, zlib.crc32(head[:-4]))


@contextmanager
def _opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, outlive a loss of power."""
    with _opened(path) as descriptor:
        os.fsync(descriptor)


def _exists(path: Path) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _delete(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _log_path(folder: Path, first: int) -> Path:
    return folder / f"{first:012}{_LOG}"


class FrameWriter:
    """The one writer of a row. Every method blocks; calls follow each other.

    ``folder`` is its folder of frames, which is made with ``make_folder``.
    """

    def __init__(self, folder: Path, make_folder: Callable[[Path], None]) -> None:
        self.is_over = False
        self._folder = folder
        self._make_folder = make_folder
        self._durable = 0
        self._sound: int | None = None
        self._descriptor: int | None = None
        self._path = folder
        self._size = 0

    def append(self, objects: Sequence[bytes]) -> None:
        """Write the next objects of the row, and return once they are durable.

        Raise ``RowClosed`` if they may be among the frames or not: whoever closes the row
        decides. After ``OSError`` they are not, and may be written again.
        """
        assert objects, "a commit of nothing"
        if self.is_over:
            raise RowClosed
        assert self._sound is None, f"{self._folder} ends at {self._sound}, and goes on"
        descriptor = self._opened()
        size = self._write(descriptor, objects)
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            self._end_at(self._durable)
            raise RowClosed from error
        if _exists(self._folder / _CLOSED) or self._is_elsewhere(descriptor):
            self.stop()
            raise RowClosed
        self._size += size
        self._durable += len(objects)
        try:
            _write_number(self._folder / _DURABLE, self._durable)
        except OSError as error:  # they are durable, and no other process would know
            self._end_at(self._durable)
            raise RowClosed from error

    def close(self) -> int:
        """Write no more frames; return the number of the last that counts."""
        self.stop()
        if self._sound is not None:
            _make_closed(self._folder)
            _decide(self._folder, self._sound)
        return close_frames(self._folder, self._make_folder)

    def stop(self) -> None:
        """Write no more frames."""
        self.is_over = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, descriptor: int, objects: Sequence[bytes]) -> int:
        """Write frames where the last one ended; return their bytes."""
        now_us = time.time_ns() // 1000
        pieces = []
        for number, data in enumerate(objects, self._durable + 1):
            pieces += [_packed(number, data, now_us), data]
        frames = b"".join(pieces)
        assert len(frames) == sum(map(len, objects)) + len(objects) * _HEAD.size, (
            f"{len(objects)} objects are {len(frames)} bytes of frames"
        )
        try:
            _write_all(descriptor, frames, self._size)
        except OSError:
            os.ftruncate(descriptor, self._size)
            raise
        return len(frames)

    def _opened(self) -> int:
        """Return the file to write to: the next one, if that is full."""
        if self._descriptor is not None and self._size < _FILE_BYTES:
            return self._descriptor
        if self._descriptor is None:
            self._make_folder(self._folder)
        path = _log_path(self._folder, self._durable + 1)
        try:
            descriptor = os.open(path, _NEW, PRIVATE_FILE)
        except FileExistsError:
            self.stop()
            raise RowClosed from None
        try:
            if self._descriptor is None:
                _write_number(self._folder / _DURABLE, 0)
            sync(self._folder)
        except OSError:
            os.close(descriptor)  # the next attempt finds the file, and the row closed
            raise
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._path, self._size = descriptor, path, 0
        return descriptor

    def _end_at(self, number: int) -> None:
        """Let the row have no frames behind this one, whatever is in the file."""
        self._sound = number
        self.stop()
        with suppress(OSError):  # else ``close`` will
            self.close()

    def _is_elsewhere(self, descriptor: int) -> bool:
        """Whether the path leads to another file by now: what is written here, nobody reads."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        ours = os.fstat(descriptor)
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _write_number(path: Path, number: int) -> None:
    """Say a number to other processes. It is there twice, as they may read in between."""
    with _opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
        _write_all(descriptor, _NUMBER.pack(number, number), 0)


def _read_number(path: Path) -> tuple[int, int] | None:
    """Return a number as it was written, twice; ``None`` if there is none."""
    try:
        with _opened(path) as descriptor:
            data = os.pread(descriptor, _NUMBER.size, 0)
    except FileNotFoundError:
        return None
    return _NUMBER.unpack(data) if len(data) == _NUMBER.size else None


def _durable(folder: Path) -> int:
    """Return the last number that is durable for sure.

    It may be read while it is written, or half of it was: one of the two is whole then.
    """
    return min(_read_number(folder / _DURABLE) or (0, 0))


def _end(folder: Path) -> int | None:
    """Return the last frame that counts, once it is decided."""
    found = _read_number(folder / _END)
    if found is not None and found[0] != found[1]:
        path = folder / _END
        raise OSError(errno.EIO, "it is not what was written: restore it from a copy", path)
    return found and found[0]


def _make_closed(folder: Path) -> None:
    with _opened(folder / _CLOSED, os.O_WRONLY | os.O_CREAT):
        pass
    sync(folder)


def _decide(folder: Path, number: int) -> None:
    """Say where the frames end, unless somebody has said so already."""
    aside = folder / f"{_END}.{os.getpid()}.{time.monotonic_ns()}"
    _write_number(aside, number)
    try:
        sync(aside)
        os.link(aside, folder / _END)
    except FileExistsError:
        pass
    finally:
        _delete(aside)
    sync(folder)


def close_frames(folder: Path, make_folder: Callable[[Path], None]) -> int:
    """Close a row for all writers; return the number of the last frame that counts.

    May be repeated, by any number of processes at once: all get the same.
    """
    make_folder(folder)
    end = _end(folder)
    if end is None:
        _make_closed(folder)
        _decide(folder, _last_whole(folder))
        end = _end(folder)
        assert end is not None, f"{folder} has an end"
        assert end >= _durable(folder), f"{folder} ends at {end}, before what is durable"
    return end


def _last_whole(folder: Path) -> int:
    """Sync what may not be, and return the number of the last frame before a broken one.

    What its writer has called durable is, and is not looked at.
    """
    last = _durable(folder)
    firsts = _firsts(folder)
    for first in firsts[max(bisect_right(firsts, last) - 1, 0) :]:
        if first > last + 1:
            break
        with _opened(_log_path(folder, first)) as descriptor:
            os.fsync(descriptor)
            found = _last_in(descriptor, first, last)
        assert found >= last, f"{folder}: {last} is durable, and {found} the last"
        last = found
    return last


def _last_in(descriptor: int, number: int, durable: int) -> int:
    """Return the last frame of a file that is durable, or whole with all before it."""
    offset, last = 0, durable
    while True:
        head = _head_at(descriptor, offset, number)
        if head is None:
            return last
        size, _, check = head
        if number > durable:
            data = os.pread(descriptor, size, offset + _HEAD.size)
            if len(data) < size or zlib.crc32(data) != check:
                return last
            last = number
        number, offset = number + 1, offset + _HEAD.size + size


def _head_at(descriptor: int, offset: int, number: int) -> tuple[int, int, int] | None:
    """Return the size, time and checksum of a frame; ``None`` where none of this number is."""
    head = os.pread(descriptor, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        return None
    magic, size, found, written_us, check, of_head = _HEAD.unpack(head)
    sound = zlib.crc32(head[:-4]) == of_head
    if not sound or magic != _MAGIC or found != number:
        return None
    return size, written_us, check


def _firsts(folder: Path) -> Sequence[int]:
    """Return the numbers that the files of a row begin with, in order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ()
    return sorted(int(x.removesuffix(_LOG)) for x in names if x.endswith(_LOG))


class _KnownRow:
    """What a reader has found out of one row: none of it changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.firsts: Sequence[int] = ()
        self._looking = threading.Lock()
        self._end: int | None = None
        self._offsets: dict[int, array[int]] = {}

    def last(self) -> int:
        """Return the number of the last frame that readers may see."""
        if self._end is None:
            self._end = _end(self.folder)
        return _durable(self.folder) if self._end is None else self._end

    @property
    def has_end(self) -> bool:
        """Whether ``last`` stays what it was said to be."""
        return self._end is not None

    def frame(self, number: int) -> Frame | None:
        """Return where a frame is that readers may see; ``None`` if it was deleted."""
        first = self._file_with(number)
        if first is None:
            return None
        path = _log_path(self.folder, first)
        try:
            with self._looking, _opened(path) as descriptor:
                return self._found(descriptor, path, first, number)
        except FileNotFoundError:
            self.firsts = ()
            self._offsets.pop(first, None)
            return None

    def _file_with(self, number: int) -> int | None:
        if not self.firsts or number >= self.firsts[-1]:
            self.firsts = _firsts(self.folder)
        place = bisect_right(self.firsts, number)
        return self.firsts[place - 1] if place else None

    def _found(self, descriptor: int, path: Path, first: int, number: int) -> Frame | None:
        """Return the frame of a number, from where those before it lie."""
        assert number >= first, f"frame {number} lies before {path}"
        offsets = self._offsets.setdefault(first, array("Q", [0]))
        at = min(number - first, len(offsets) - 1)
        while True:
            head = _head_at(descriptor, offsets[at], first + at)
            if head is None:
                return None
            size, written_us, _ = head
            if first + at == number:
                return Frame(path, offsets[at] + _HEAD.size, size, written_us)
            at += 1
            if at == len(offsets):
                offsets.append(offsets[at - 1] + _HEAD.size + size)


class FrameReader:
    """Reads frames of any rows. Every method blocks; threads may call at once."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, _KnownRow] = OrderedDict()

    def find(self, folder: Path, number: int) -> Frame | None:
        """Return a frame that readers may see."""
        row = self._row(folder)
        return row.frame(number) if 1 <= number <= row.last() else None

    def numbers(self, folder: Path) -> range:
        """Return the numbers of the frames that are there."""
        row = self._row(folder)
        row.firsts = _firsts(folder)
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
                _delete(_log_path(folder, first))

    def _row(self, folder: Path) -> _KnownRow:
        row = self._known.setdefault(folder, _KnownRow(folder))
        while len(self._known) > _KNOWN_ROWS:
            self._known.popitem(last=False)
        return row


def read_frame(frame: Frame, start: int, end: int | None) -> bytes | None:
    """Return bytes of an object in a frame; ``None`` if it was deleted meanwhile."""
    assert start >= 0, f"{frame.path}: an object has no byte {start}"
    end = frame.size if end is None else min(end, frame.size)
    try:
        with _opened(frame.path) as descriptor:
            return os.pread(descriptor, max(end - start, 0), frame.offset + start)
    except FileNotFoundError:
        return None
