"""Writing the frames of a row in a directory: by one process, until another closes the row.

What lies there, and what a writer has to keep to, says ``file_rows``.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from changefeed.log.stores.file_rows import (
    CLOSED,
    DURABLE,
    HEAD,
    close_at,
    close_frames,
    durable_in,
    firsts_in,
    framed,
    frames_in,
    is_there,
    last_that_counts,
    locked,
    log_path,
    say,
    sync,
    write_all,
)
from changefeed.runtime.clock import wall_clock_us
from changefeed.runtime.private_file import PRIVATE_FILE

_FILE_BYTES: Final = 64 * 1024 * 1024
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


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
        self._said: int | None = None
        self._closed = folder / CLOSED
        self._lock: int | None = None
        self._path = folder
        self._size = 0

    def take_over(self) -> int | None:
        """Go on with the frames that another process has left; return the last number.

        Return ``None`` while a process writes them, this one included.
        """
        self._make_folder(self._folder)
        self._lock = locked(self._folder)
        if self._lock is None:
            return None
        if is_there(self._closed):
            return self.close()
        before = durable_in(self._folder)
        self._durable = last_that_counts(self._folder)
        firsts = firsts_in(self._folder)
        if firsts:
            self._path = log_path(self._folder, firsts[-1])
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            self._size = _cut_behind(self._descriptor, firsts[-1], before, self._durable)
        self._say_durable()
        sync(self._folder)  # the writer before may have been killed before it did
        return self._durable

    def append(self, objects: Sequence[bytes]) -> bool:
        """Write the next objects of the row, and return whether they are durable.

        ``False``: the row is over, and they may be among its frames or not: the caller who
        closes it decides. After ``OSError`` they are not, and may be written again.
        """
        assert objects, "a commit of nothing"
        if self.is_over:
            return False
        assert self._sound is None, f"{self._folder} ends at {self._sound}, and goes on"
        descriptor = self._opened()
        if descriptor is None:
            self.stop()
            return False
        size = self._write(descriptor, objects)
        try:
            os.fdatasync(descriptor)
        except OSError:
            self._end_at(self._durable)
            return False
        if is_there(self._closed) or self._is_elsewhere(descriptor):
            self.stop()
            return False
        self._size += size
        self._durable += len(objects)
        try:
            self._say_durable()
        except OSError:  # they are durable, and no other process would know
            self._end_at(self._durable)
            return False
        return True

    def begin_file(self) -> None:
        """Let the next frame begin a file: one that is written is never deleted."""
        self._size = max(self._size, _FILE_BYTES) if self._size else 0

    def close(self) -> int:
        """Write no more frames; return the number of the last that counts."""
        self.stop()
        if self._sound is not None:
            close_at(self._folder, self._sound)
        return close_frames(self._folder, self._make_folder)

    def stop(self) -> None:
        """Write no more frames."""
        self.is_over = True
        for descriptor in (self._descriptor, self._said):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptor = self._said = None

    def release(self) -> None:
        """Write nothing any more, and let another process go on."""
        self.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, descriptor: int, objects: Sequence[bytes]) -> int:
        """Write frames where the last one ended; return their bytes."""
        now_us = wall_clock_us()
        pieces = []
        for number, data in enumerate(objects, self._durable + 1):
            pieces += [framed(number, data, now_us), data]
        frames = b"".join(pieces)
        assert len(frames) == sum(map(len, objects)) + len(objects) * HEAD.size, (
            f"{len(objects)} objects are {len(frames)} bytes of frames"
        )
        try:
            write_all(descriptor, frames, self._size)
        except OSError:
            os.ftruncate(descriptor, self._size)
            raise
        return len(frames)

    def _opened(self) -> int | None:
        """Return the file to write to: the next one, if that is full; ``None`` where another
        process writes the row.
        """
        if self._descriptor is not None and self._size < _FILE_BYTES:
            return self._descriptor
        if self._lock is None:
            self._make_folder(self._folder)
            self._lock = locked(self._folder)
            was_begun = bool(firsts_in(self._folder) or durable_in(self._folder))
            if self._lock is None or was_begun:  # also where its first files are deleted
                return None
        path = log_path(self._folder, self._durable + 1)
        try:
            descriptor = os.open(path, _NEW, PRIVATE_FILE)
        except FileExistsError:
            return None
        try:
            if self._descriptor is None:
                self._say_durable()
            sync(self._folder)
        except OSError:
            os.close(descriptor)  # the next attempt finds the file, and the row closed
            raise
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._path, self._size = descriptor, path, 0
        return descriptor

    def _say_durable(self) -> None:
        """Let readers go up to what is durable, in the file that has the name by now."""
        if self._said is not None and not os.fstat(self._said).st_nlink:
            os.close(self._said)
            self._said = None
        if self._said is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._said = os.open(self._folder / DURABLE, flags, PRIVATE_FILE)
        say(self._said, self._durable)

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


def _cut_behind(descriptor: int, first: int, synced: int, last: int) -> int:
    """Cut a file behind a frame, and let it be durable; return its bytes.

    What is behind the frame ``synced`` is written again, as a sync may have lost it. Nothing
    is cut of a frame that is durable and has a damaged head: that may be mended. What is
    missing of a frame is zeros.
    """
    begin = end = 0
    reached = first - 1
    for frame in frames_in(partial(os.pread, descriptor), first):
        if frame.number > last:
            behind = frame.begin - HEAD.size
            break
        reached, end = frame.number, frame.end
        begin = end if frame.number <= synced else begin
    else:
        behind = os.fstat(descriptor).st_size
    if reached < last:  # its length is not known, or the file is shorter than the frames in it
        end = max(end, behind)
    assert begin <= end, f"frame {synced} is durable, and {last} is the last"
    write_all(descriptor, os.pread(descriptor, end - begin, begin), begin)
    os.ftruncate(descriptor, end)
    os.fdatasync(descriptor)
    return end
