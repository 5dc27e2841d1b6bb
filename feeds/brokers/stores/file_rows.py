"""Rows of a directory as files that grow: one sync for all that waits, and no name for each.

    wal/ERA/BROKER/.frames/
        000000000001.log    frames from this number on; another file each 64 MiB
        lock                held by the process that writes, and names it
        durable             the last number that outlives a loss of power, as its writer knows
        closed              the row takes no frames any more, even if its writer does not know
        end                 the last frame that counts: decided once

A *frame* is an object of a row: 32 bytes (``_HEAD``: its number, size, time, and checksums),
and the object. Numbers follow each other from 1. Objects behind the last frame that counts
are files of their own, as all others of a store are: so is a seal that others put at the end
of a row.

**The writer** is the process that holds the lock, which dies with it. A broker begins rows and
never goes on with one. An embedded log has one row, and each process that writes takes it over
(``FrameWriter.take_over``) where the process before has left it. The writer writes frames
where the last one ended and syncs the file. Only then ``durable`` moves, and callers are
answered. Objects that wait meanwhile are written and synced together, without a clock.

**Taking over** cuts what lies behind the last whole frame. What the process before had written
and not yet called durable is written again, and synced: a sync that had failed there may have
left it in memory only, and called it clean.

**Closing** decides where the frames of another process end. That process may be dead, or
frozen and come back. ``closed`` is made first. A writer looks for it after each sync, before it
answers: so what it has answered was there when ``closed`` was made. Then the files are synced,
frames are read up to the first that is not whole, and ``end`` is created if there is none. A
writer that finds itself closed answers nothing any more from frames; the caller finds its
object among them, or tries to create it behind them, and learns there who was first.

**Readers** go up to ``end``, or up to ``durable`` before there is one, so none sees what a
loss of power takes back. ``durable`` itself is not synced, and may be behind after such a loss.
So where nobody holds the lock a reader syncs the last file and goes up to its last whole frame,
which is what any writer will find, too. Readers need no right to write.

**Disks** that are full get back what was begun. A sync that fails is never repeated on that
file, as the kernel may have dropped what it could not write: the writer closes the row at
what was durable before, and what follows are files of their own.
"""

import errno
import fcntl
import os
import struct
import threading
import time
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from changefeed.runtime.private_file import PRIVATE_FILE

FRAMES: Final = ".frames"
_LOG, _LOCK, _DURABLE, _CLOSED, _END = ".log", "lock", "durable", "closed", "end"
_FILE_BYTES: Final = 64 * 1024 * 1024
_AHEAD_BYTES: Final = 64 * 1024
_HEAD: Final = struct.Struct("<4sIQQII")
_MAGIC: Final = b"CFR\n"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NUMBER: Final = struct.Struct("<QQ")
_KNOWN_ROWS: Final = 1024
_LOCK_TRIES: Final = 20
_LOCK_PAUSE: Final = 0.005


class RowClosed(Exception):
    """Nothing is answered from frames of this row any more."""


class RowWritten(Exception):
    """Another process writes the row: ``holder`` names it."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


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
        self._lock: int | None = None
        self._path = folder
        self._size = 0

    def take_over(self) -> int:
        """Go on with the frames that another process has left; return the last number.

        Raise ``RowWritten`` while a process writes them, this one included.
        """
        self._make_folder(self._folder)
        self._lock = _locked(self._folder)
        if _exists(self._folder / _CLOSED):
            return self.close()
        before = _durable(self._folder)
        self._durable = _last_whole(self._folder)
        firsts = _firsts(self._folder)
        if firsts:
            self._path = _log_path(self._folder, firsts[-1])
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            self._size = _cut_behind(self._descriptor, firsts[-1], before, self._durable)
        _write_number(self._folder / _DURABLE, self._durable)
        sync(self._folder)  # the writer before may have been killed before it did
        return self._durable

    def append(self, objects: Sequence[bytes]) -> None:
        """Write the next objects of the row, and return once they are durable.

        Raise ``RowClosed`` if they may be among the frames or not: the caller who closes it
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

    def begin_file(self) -> None:
        """Let the next frame begin a file: one that is written is never deleted."""
        self._size = max(self._size, _FILE_BYTES) if self._size else 0

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

    def release(self) -> None:
        """Write nothing any more, and let another process go on."""
        self.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

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
        if self._lock is None:
            self._make_folder(self._folder)
            try:
                self._lock = _locked(self._folder)
            except RowWritten:
                self.stop()
                raise RowClosed from None
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


def _locked(folder: Path) -> int:
    """Take the lock of a row; raise ``RowWritten``. Readers hold it for a moment."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
            continue
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock
    holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
    os.close(lock)
    raise RowWritten(holder or "unknown")


def _is_written(folder: Path) -> bool:
    """Whether a process holds the lock of a row."""
    try:
        with _opened(folder / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _cut_behind(descriptor: int, first: int, synced: int, last: int) -> int:
    """Cut a file behind a frame, and let it be durable; return its bytes.

    What is behind the frame ``synced`` is written again, as a sync may have lost it.
    """
    offset = begin = 0
    for number in range(first, last + 1):
        head = _head_at(partial(os.pread, descriptor), offset, number)
        if head is None:  # it is damaged, and was durable: those behind it cannot be found
            raise OSError(errno.EIO, f"frame {number} is not what was written")
        offset += _HEAD.size + head[0]
        begin = offset if number <= synced else begin
    _write_all(descriptor, os.pread(descriptor, offset - begin, begin), begin)
    os.ftruncate(descriptor, offset)
    os.fdatasync(descriptor)
    return offset


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
    firsts = _firsts(folder)
    last = _durable(folder)
    if firsts:  # a file is begun when those before it are durable
        last = max(last, firsts[-1] - 1)
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
        head = _head_at(partial(os.pread, descriptor), offset, number)
        if head is None:
            return last
        size, _, check = head
        if number > durable:
            data = os.pread(descriptor, size, offset + _HEAD.size)
            if len(data) < size or zlib.crc32(data) != check:
                return last
            last = number
        number, offset = number + 1, offset + _HEAD.size + size


_Read = Callable[[int, int], bytes]
"""Reads so many bytes of a file from an offset on."""


def _head_at(read: _Read, offset: int, number: int) -> tuple[int, int, int] | None:
    """Return the size, time and checksum of a frame; ``None`` where none of this number is."""
    head = read(_HEAD.size, offset)
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
        self._left: tuple[int, int, int] | None = None
        self._offsets: dict[int, array[int]] = {}

    def last(self) -> int:
        """Return the number of the last frame that readers may see."""
        if self._end is None:
            self._end = _end(self.folder)
        if self._end is not None:
            return self._end
        durable = _durable(self.folder)
        if _is_written(self.folder):
            self._left = None
            return durable
        return self._last_left(durable)

    def _last_left(self, durable: int) -> int:
        """Return the last frame that a writer who is gone has left."""
        firsts = _firsts(self.folder)
        if not firsts:
            return durable
        size = os.stat(_log_path(self.folder, firsts[-1])).st_size
        if self._left is None or self._left[:2] != (durable, size):
            self._left = durable, size, _last_whole(self.folder)
        return self._left[2]

    @property
    def has_end(self) -> bool:
        """Whether ``last`` stays what it was said to be."""
        return self._end is not None

    def frame(self, number: int) -> Frame | None:
        """Return where a frame is that readers may see; ``None`` if it was deleted."""
        if not self.firsts or number >= self.firsts[-1]:
            self.firsts = _firsts(self.folder)
        first = self._file_with(number)
        if first is None:
            return None
        path = _log_path(self.folder, first)
        try:
            with self._looking, _opened(path) as descriptor:
                return Frame(path, *self._found(partial(os.pread, descriptor), first, number))
        except FileNotFoundError:
            self.firsts = ()
            self._offsets.pop(first, None)
            return None

    def read(self, extents: Iterable[tuple[int, int, int]]) -> list[bytes | None]:
        """Read bytes of frames, given as (number, start, end): as ``read_frame``."""
        last = self.last()
        self.firsts = _firsts(self.folder)
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
                path = _log_path(self.folder, first)
                opened[first] = _OpenFile(stack.enter_context(_opened(path)))
            except FileNotFoundError:
                return None
        file = opened[first]
        read = file.read if start else file.read_ahead
        offset, size, _ = self._found(read, first, number)
        return read(max(min(end, size) - start, 0), offset + start)

    def _file_with(self, number: int) -> int | None:
        place = bisect_right(self.firsts, number)
        return self.firsts[place - 1] if place else None

    def _found(self, read: _Read, first: int, number: int) -> tuple[int, int, int]:
        """Return offset, size and time of a frame, from where those before it lie.

        It has no bytes where it cannot be found: no object is like that, so it is damaged.
        """
        assert number >= first, f"frame {number} lies before the file that begins at {first}"
        offsets = self._offsets.setdefault(first, array("Q", [0]))
        at = min(number - first, len(offsets) - 1)
        while True:
            head = _head_at(read, offsets[at], first + at)
            if head is None:
                return offsets[at], 0, 0
            size, written_us, _ = head
            if first + at == number:
                return offsets[at] + _HEAD.size, size, written_us
            at += 1
            if at == len(offsets):
                offsets.append(offsets[at - 1] + _HEAD.size + size)


class _OpenFile:
    """A file of frames that is open. Small frames that follow each other come in one read."""

    def __init__(self, descriptor: int) -> None:
        self.read: _Read = partial(os.pread, descriptor)
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
        """Read bytes of frames, each given by its number, start and end."""
        return self._row(folder).read(extents)

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
