"""Rows of a directory as files that grow: one sync for all that waits, and no name for each.

    wal/ERA/BROKER/.frames/
        000000000001.log    frames from this number on; another file each 64 MiB
        lock                held by the process that writes, and names it
        durable             the last number that outlives a loss of power, as its writer knows
        closed              the row takes no frames any more, even if its writer does not know
        end                 the last frame that counts: decided once

A *frame* is an object of a row: 32 bytes (``HEAD``: its number, size, time, and checksums),
and the object. Numbers follow each other from 1. Objects behind the last frame that counts
are files of their own, as all others of a store are: so is a seal that others put at the end
of a row.

**The writer** (``frame_writer``) is the process that holds the lock, which dies with it. A
broker begins rows and never goes on with one. An embedded log has one row, and each process
that writes takes it over where the process before has left it. The writer writes frames where
the last one ended and syncs the file. Only then ``durable`` moves, and callers are
answered. Objects that wait meanwhile are written and synced together, without a clock.

**Taking over** cuts behind the last frame that counts. One counts if it is whole, as all before
it are, or if a frame of a later write follows it: that write began once this one was synced. So
the writer cuts a torn tail, and leaves damage before it, which readers report. What the process
before had written and not yet called durable is written again, and synced: a sync that had
failed there may have left it in memory only, and called it clean.

**Closing** decides where the frames of another process end. That process may be dead, or
frozen and come back. ``closed`` is made first. A writer looks for it after each sync, before it
answers: so what it has answered was there when ``closed`` was made. Then the files are synced,
and ``end`` is created if there is none, at the last frame that counts. A writer that finds
itself closed answers nothing any more from frames; the caller finds its object among them, or
tries to create it behind them, and learns there who was first.

**Readers** (``frame_reader``) go up to ``end``, or up to ``durable`` before there is one, so
none sees what a loss of power takes back. ``durable`` itself is not synced, and may be behind
after such a loss.
So where nobody holds the lock a reader syncs the last file and goes up to its last frame that
counts, which is what any writer will find, too. Readers need no right to write.

**Disks** that are full get back what was begun. A sync that fails is never repeated on that
file, as the kernel may have dropped what it could not write: the writer closes the row at
what was durable before, and what follows are files of their own.
"""

import errno
import fcntl
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from changefeed.runtime.private_file import PRIVATE_FILE

FRAMES: Final = ".frames"
DURABLE: Final = "durable"
CLOSED: Final = "closed"
_LOG, _LOCK, _END = ".log", "lock", "end"
HEAD: Final = struct.Struct("<4sIQQII")
_MAGIC: Final = b"CFR\n"
_NUMBER: Final = struct.Struct("<QQ")
_LOCK_TRIES: Final = 20
_LOCK_PAUSE: Final = 0.005
_LOOKED_THROUGH: Final = 1024 * 1024


@contextmanager
def open_file(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, outlive a loss of power."""
    with open_file(path) as descriptor:
        os.fsync(descriptor)


def delete(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def log_path(folder: Path, first: int) -> Path:
    return folder / f"{first:012}{_LOG}"


def take_lock(path: Path, tries: int, pause: float) -> int | None:
    """Lock a file; return it, open, or ``None`` while another process holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        for _ in range(tries):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            time.sleep(pause)
    except OSError:  # the file system has no locks
        os.close(lock)
        raise
    os.close(lock)
    return None


def locked(folder: Path) -> int | None:
    """Take the lock of a row; return it, or ``None`` while another process writes the row.

    Readers hold it for a moment.
    """
    lock = take_lock(folder / _LOCK, _LOCK_TRIES, _LOCK_PAUSE)
    if lock is not None:
        with suppress(OSError):  # as on a full disk: it says only who writes
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def holder_of(folder: Path) -> str:
    """Name the process that writes a row."""
    with open_file(folder / _LOCK) as lock:
        return os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"


def is_written(folder: Path) -> bool:
    """Whether a process holds the lock of a row."""
    try:
        with open_file(folder / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def say(descriptor: int, number: int) -> None:
    """Say a number to other processes. It is there twice, as they may read in between."""
    write_all(descriptor, _NUMBER.pack(number, number), 0)


def _read_number(path: Path) -> tuple[int, int] | None:
    """Return a number as it was written, twice; ``None`` if there is none."""
    try:
        with open_file(path) as descriptor:
            data = os.pread(descriptor, _NUMBER.size, 0)
    except FileNotFoundError:
        return None
    return _NUMBER.unpack(data) if len(data) == _NUMBER.size else None


def durable_in(folder: Path) -> int:
    """Return the last number that is durable for sure.

    It may be read while it is written, or half of it was: one of the two is whole then.
    """
    return min(_read_number(folder / DURABLE) or (0, 0))


def end_of(folder: Path) -> int | None:
    """Return the last frame that counts, once it is decided."""
    found = _read_number(folder / _END)
    if found is not None and found[0] != found[1]:
        path = folder / _END
        raise OSError(errno.EIO, "it is not what was written: restore it from a copy", path)
    return found and found[0]


def is_there(path: Path) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def close_at(folder: Path, number: int) -> None:
    """Close a row behind a frame, unless somebody has said before where it ends."""
    _make_closed(folder)
    _decide(folder, number)


def _make_closed(folder: Path) -> None:
    with open_file(folder / CLOSED, os.O_WRONLY | os.O_CREAT):
        pass
    sync(folder)


def _decide(folder: Path, number: int) -> None:
    """Say where the frames end, unless somebody has said so already."""
    aside = folder / f"{_END}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        with open_file(aside, os.O_WRONLY | os.O_CREAT) as descriptor:
            say(descriptor, number)
            os.fsync(descriptor)
        os.link(aside, folder / _END)
    except FileExistsError:
        pass
    finally:
        delete(aside)
    sync(folder)


def close_frames(folder: Path, make_folder: Callable[[Path], None]) -> int:
    """Close a row for all writers; return the number of the last frame that counts.

    May be repeated, by any number of processes at once: all get the same.
    """
    make_folder(folder)
    end = end_of(folder)
    if end is None:
        _make_closed(folder)
        _decide(folder, last_that_counts(folder))
        end = end_of(folder)
        assert end is not None, f"{folder} has an end"
        assert end >= durable_in(folder), f"{folder} ends at {end}, before what is durable"
    return end


def last_that_counts(folder: Path) -> int:
    """Sync what may not be, and return the number of the last frame that counts.

    What its writer has called durable does, and is not looked at.
    """
    firsts, durable = firsts_in(folder), durable_in(folder)
    if not firsts:
        return durable
    durable = max(durable, firsts[-1] - 1)  # a file is begun when those before it are durable
    with open_file(log_path(folder, firsts[-1])) as descriptor:
        os.fsync(descriptor)
        return _last_in(descriptor, firsts[-1], durable)


def _last_in(descriptor: int, first: int, durable: int) -> int:
    """Return the last frame of a file that is durable, or whole with all before it.

    The frames of one write have one time. What lies behind them, of a write that failed and
    was begun again, has an earlier one.
    """
    read, last = partial(os.pread, descriptor), durable
    before, written_us = durable, 0
    for frame in frames_in(read, first):
        if frame.written_us > written_us:
            last = max(last, before)
        if frame.number == last + 1 and _is_whole(read, frame):
            last = frame.number
        before, written_us = frame.number, frame.written_us
    return last


def framed(number: int, data: bytes, now_us: int) -> bytes:
    """Return what a frame has before its object."""
    fields = (_MAGIC, len(data), number, now_us, zlib.crc32(data))
    head = HEAD.pack(*fields, 0)
    return HEAD.pack(*fields, zlib.crc32(head[:-4]))


Read = Callable[[int, int], bytes]
"""Reads so many bytes of a file from an offset on."""


class Frame(NamedTuple):
    """An object in a file of frames: where it lies, and when it was written by the clock of
    the kernel. ``check`` is its CRC-32.
    """

    number: int
    begin: int
    size: int
    written_us: int
    check: int

    @property
    def end(self) -> int:
        return self.begin + self.size


def frames_in(read: Read, first: int) -> Iterator[Frame]:
    """Yield the frames of a file that begins with a number, without those that are damaged."""
    number, offset = first, 0
    while (found := frame_at(read, offset, number)) is not None:
        yield found
        number, offset = found.number + 1, found.end


def frame_at(read: Read, offset: int, number: int) -> Frame | None:
    """Return the frame of this number that begins at an offset.

    Where none does, its head is damaged, and so it is not known how far it goes: then return
    the first whole one behind it, whose number is another. ``None`` where there is none.
    """
    found = _frame_at(read, offset)
    if found is not None and found.number == number:
        return found
    while len(data := read(_LOOKED_THROUGH, offset)) >= HEAD.size:
        at = data.find(_MAGIC)
        while at >= 0:
            found = _frame_at(read, offset + at)
            if found is not None and found.number >= number and _is_whole(read, found):
                return found
            at = data.find(_MAGIC, at + 1)
        offset += len(data) - len(_MAGIC) + 1
    return None


def _frame_at(read: Read, offset: int) -> Frame | None:
    head = read(HEAD.size, offset)
    if len(head) < HEAD.size:
        return None
    magic, size, number, written_us, check, of_head = HEAD.unpack(head)
    if magic != _MAGIC or zlib.crc32(head[:-4]) != of_head:
        return None
    return Frame(number, offset + HEAD.size, size, written_us, check)


def _is_whole(read: Read, frame: Frame) -> bool:
    data = read(frame.size, frame.begin)
    return len(data) == frame.size and zlib.crc32(data) == frame.check


def firsts_in(folder: Path) -> Sequence[int]:
    """Return the numbers that the files of a row begin with, in order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ()
    return sorted(int(x.removesuffix(_LOG)) for x in names if x.endswith(_LOG))
