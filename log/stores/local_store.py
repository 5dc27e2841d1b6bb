"""An object store in a directory of this machine.

An object is written under a name of its own, synced, and then linked to its real name, which
fails where there is one; the folder is synced before the answer. So what was acknowledged
outlives a loss of power, and no reader sees half an object. For brokers of one machine: a
directory shared over a network keeps these promises only where its file system does.

An object is replaced under a lock, which the kernel takes from a process that ends. One that is
frozen in these milliseconds keeps others from replacing anything until it goes on or is killed.

Objects of rows are many, small, and written one after the other: those lie in files that grow
(``file_rows``), one sync for all that waits. Callers see no difference. A file with the
name of such an object counts in its place: so one that is damaged can be restored.

A directory that goes away under a broker, as that of a volume that is not mounted any more, is
waited for. Nothing is written to, or said to be missing in, another one that lies at its path.
"""

import asyncio
import errno
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from changefeed.log.stores.commits import Commits
from changefeed.log.stores.file_rows import FRAMES, close_frames, holder_of, sync, take_lock
from changefeed.log.stores.frame_reader import FrameReader
from changefeed.log.stores.frame_writer import FrameWriter
from changefeed.log.stores.store import (
    MISSING,
    Listed,
    ObjectStore,
    Versioned,
    version_of,
)
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered
from changefeed.runtime.private_file import PRIVATE_FILE

T = TypeVar("T")
_ROW_KEY: Final = re.compile(r"(wal/[0-9]{8}/[^/]+)/([0-9]{12})", re.ASCII)
_DIGITS: Final = 12
_ROWS_WRITTEN: Final = 16
_ROWS_READ: Final = 1024
_ASIDE = ".aside"
_LOCK = ".lock"
_LOCK_TRIES, _LOCK_PAUSE = 250, 0.02
_ROOM = "Make room there: what was acknowledged is safe, and producers wait meanwhile"
_ADVICE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EROFS: "Mount it so that it can be written",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
}
_LOOK = "Look at the disk, and at the log of the system"
_PUT_BACK = (
    "mount the volume again, or put the directory back. If it was replaced on purpose, start "
    "all brokers again"
)


class ByteRange(NamedTuple):
    """Bytes of an object, without ``end``."""

    key: str
    start: int
    end: int


_Numbered = list[tuple[ByteRange, int]]


class LocalStore:
    """See ``ObjectStore``. Files are read and written in threads."""

    def __init__(self, root: Path) -> None:
        self.directory = root
        self._place: tuple[int, int] | None = None
        self._writing: dict[Path, Commits] = {}
        self._frames = lru_cache(_ROWS_READ)(FrameReader)
        self._frames_of = lru_cache(lambda row: root / row / FRAMES)

    async def create(self, key: str, data: bytes) -> bool:
        place = self._in_row(key)
        if place is None:
            return await self._call(lambda: self._write(key, data, replace=False), key)
        commits = self._commits(place)
        if commits is not None:
            written = await commits.append(place.number, data)
            if written is not None:
                return written
        return await self._call(lambda: self._create_behind(key, data, place, commits), key)

    async def put(self, key: str, data: bytes) -> None:
        await self._call(lambda: self._write(key, data, replace=True), key)

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        def act() -> str | None:
            self._make_root()
            with self._locked():
                if self._versioned(key).version != version:
                    return None
                self._write(key, data, replace=True)
            return version_of(data)

        return await self._call(act, key)

    async def newer(self, key: str, version: str) -> Versioned | None:
        found = await self._call(lambda: self._versioned(key), key)
        return None if found.version == version else found

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        return await self._call(lambda: self._read(key, start, end), key)

    async def get_many(self, extents: Sequence[ByteRange]) -> Sequence[bytes | None]:
        """Read parts of objects of rows at once: each as ``get``."""
        return await self._call(lambda: self._read_many(extents), extents[0].key)

    async def written_at(self, key: str) -> float | None:
        """By the clock of the kernel: that of this machine."""

        def act() -> float | None:
            try:
                return self._path(key).stat().st_mtime
            except FileNotFoundError:
                place = self._in_row(key)
                if place is not None:
                    (frame,) = self._frames(place.folder).frames([place.number])
                    if frame is not None:
                        return frame.written_us / 1e6
                self._check_place()
                return None

        return await self._call(act, key)

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        return await self._call(lambda: sorted(self._found(prefix, after)), prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        def act() -> None:
            self._check_place()
            in_rows: dict[Path, set[int]] = {}
            for key in keys:
                place = self._in_row(key)
                if place is not None:
                    in_rows.setdefault(place.folder, set()).add(place.number)
                self._path(key).unlink(missing_ok=True)
            for folder, numbers in in_rows.items():
                self._frames(folder).drop(numbers)

        await self._call(act, keys[0] if keys else "")

    async def take_over(self, row: str) -> bool:
        """Go on with a row, named by its prefix, that another process has left.

        Return whether that can be done by growing files: not where these were closed. Raise
        ``StoreUnavailable`` while one writes it. ``release`` lets another go on. May be
        repeated.
        """
        folder = self._path(row) / FRAMES

        def act() -> bool:
            before = self._writing.pop(folder, None)
            if before is not None:
                before.writer.release()
            writer = FrameWriter(folder, self._make_row)
            try:
                last = writer.take_over()
            except OSError:
                writer.release()
                raise
            if last is None:
                raise StoreUnavailable(
                    f"the event log is being written by process {holder_of(folder)} "
                    f"({self.directory}): one process writes at a time. Stop it, or append "
                    f"through it"
                )
            self._writing[folder] = Commits(writer, self._call, last)
            return not writer.is_over

        return await self._call(act, row)

    def begin_files(self) -> None:
        """Let the next object of each row that is written here begin a file."""
        for commits in self._writing.values():
            commits.writer.begin_file()

    def release(self) -> None:
        """Write nothing any more of the rows that are written here."""
        for commits in self._writing.values():
            commits.writer.release()

    def _path(self, key: str) -> Path:
        return self.directory / key

    def _in_row(self, key: str) -> "_InRow | None":
        found = _ROW_KEY.fullmatch(key)
        return found and _InRow(self._frames_of(found[1]), int(found[2]))

    def _commits(self, place: "_InRow") -> "Commits | None":
        """Return what writes a row here: who creates its first object writes all of it."""
        commits = self._writing.get(place.folder)
        if commits is None and place.number == 1:
            writer = FrameWriter(place.folder, self._make_row)
            commits = self._writing[place.folder] = Commits(writer, self._call)
            over = [x for x, y in self._writing.items() if y.is_idle][:-_ROWS_WRITTEN]
            for folder in over:
                self._writing.pop(folder).writer.release()
        return commits

    def _create_behind(
        self, key: str, data: bytes, place: "_InRow", commits: "Commits | None"
    ) -> bool:
        """Create an object behind the frames of its row, which have an end from now on."""
        if commits is None:
            end = close_frames(place.folder, self._make_row)
        else:
            end = commits.writer.close()
        if place.number > end:
            return self._write(key, data, replace=False)
        return commits is not None and self._read(key, 0, None) == data  # it was on its way

    def _make_row(self, folder: Path) -> None:
        self._make_root()
        self._make_folder(folder)

    def _make_root(self) -> None:
        if self._place is None:
            self.directory.mkdir(parents=True, exist_ok=True)
        self._check_place()

    def _versioned(self, key: str) -> Versioned:
        data = self._read(key, 0, None)
        return Versioned(b"", MISSING) if data is None else Versioned(data, version_of(data))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of what replaces objects here, in any process."""
        path = self.directory / _LOCK
        lock = take_lock(path, _LOCK_TRIES, _LOCK_PAUSE)
        if lock is None:
            raise StoreUnavailable(
                f"another process holds {path} for {_LOCK_TRIES * _LOCK_PAUSE:.0f} s: look for "
                f"a broker or a writer that is frozen, and let it go on or end it"
            )
        try:
            yield
        finally:
            os.close(lock)

    def _write(self, key: str, data: bytes, *, replace: bool) -> bool:
        assert not key.startswith("/"), f"{key} is outside the store"
        self._make_root()
        path = self._path(key)
        if not replace and path.exists():
            return False
        aside = self.directory / _ASIDE / uuid.uuid4().hex
        aside.parent.mkdir(exist_ok=True)
        try:
            _write_synced(aside, data)
            self._make_folder(path.parent)
            if replace:
                aside.replace(path)
            else:
                os.link(aside, path)
        except FileExistsError:
            return False
        finally:
            aside.unlink(missing_ok=True)
        sync(path.parent)
        self._check_place()
        return True

    def _check_place(self) -> None:
        """Raise ``StoreUnavailable`` unless the directory is the one of the first call."""
        try:
            found = self.directory.stat()
        except FileNotFoundError:
            if self._place is None:
                return  # nothing was written yet
            raise StoreUnavailable(f"{self.directory} is gone: {_PUT_BACK}") from None
        place = found.st_dev, found.st_ino
        if self._place is None:
            self._place = place
        elif self._place != place:
            raise StoreUnavailable(f"{self.directory} is another directory by now: {_PUT_BACK}")

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, each synced into the one that holds it."""
        if folder == self.directory or folder.exists():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)

    def _read(self, key: str, start: int, end: int | None) -> bytes | None:
        assert end is None or 0 <= start <= end, f"{key}: bytes {start} to {end}"
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read() if end is None else file.read(end - start)
        except FileNotFoundError:
            place = self._in_row(key)
            if place is not None:
                extent = place.number, start, sys.maxsize if end is None else end
                (found,) = self._frames(place.folder).read([extent])
                if found is not None:
                    return found
            self._check_place()
            return None

    def _read_many(self, extents: Sequence[ByteRange]) -> Sequence[bytes | None]:
        found: dict[ByteRange, bytes | None] = {}
        for folder, places in self._in_rows(extents).items():
            names = {*_names_in(folder.parent)}
            frames = [(x, n) for x, n in places if x.key[-_DIGITS:] not in names]
            read = self._frames(folder).read([(n, x.start, x.end) for x, n in frames])
            found |= zip((x for x, _ in frames), read, strict=True)
        return [found[x] if x in found else self._read(*x) for x in extents]

    def _in_rows(self, extents: Sequence[ByteRange]) -> Mapping[Path, _Numbered]:
        """Return which of extents are of objects of rows, with the numbers of these."""
        places: dict[Path, _Numbered] = {}
        rows: dict[str, _Numbered] = {}
        for x in extents:
            row = x.key[: -_DIGITS - 1]
            if row not in rows:
                place = self._in_row(x.key)
                if place is None:
                    continue
                rows[row] = places.setdefault(place.folder, [])
            rows[row].append((x, int(x.key[-_DIGITS:])))
        return places

    def _found(self, prefix: str, after: str) -> Iterator[Listed]:
        self._check_place()
        for folder, folders, names in os.walk(self._path(prefix)):
            if _ASIDE in folders:
                folders.remove(_ASIDE)
            if FRAMES in folders:
                folders.remove(FRAMES)
                yield from self._found_in_row(Path(folder), {*names}, after)
            for name in names:
                if name == _LOCK:
                    continue
                path = Path(folder, name)
                key = path.relative_to(self.directory).as_posix()
                if key > after:
                    try:
                        yield Listed(key, path.stat().st_size)
                    except FileNotFoundError:  # deleted meanwhile
                        continue
        self._check_place()

    def _found_in_row(self, folder: Path, names: set[str], after: str) -> Iterator[Listed]:
        """Yield the frames of a row in whose place there is no file."""
        row, frames = (
            folder.relative_to(self.directory).as_posix(),
            self._frames(folder / FRAMES),
        )
        keys = {x: f"{row}/{x:012}" for x in frames.numbers()}
        numbers = [n for n, key in keys.items() if key > after and key[-_DIGITS:] not in names]
        for number, frame in zip(numbers, frames.frames(numbers), strict=True):
            if frame is not None:
                yield Listed(keys[number], frame.size)

    async def _call(self, act: Callable[[], T], what: str) -> T:
        try:
            return await asyncio.to_thread(act)
        except (PermissionError, NotADirectoryError) as error:
            refused = StoreRefused(
                f"{self.directory / what} cannot be read or written: {error}. Give this user "
                f"the right to, or name another directory"
            )
            raise answered(refused) from error  # rights change, and a fleet outlives that
        except OSError as error:
            raise StoreUnavailable(
                f"the store {self.directory} cannot be used: {what or 'a listing'}: {error}. "
                f"{_ADVICE.get(error.errno or 0, _LOOK)}"
            ) from error


class _InRow(NamedTuple):
    """The place of an object in a row, and the folder of its frames."""

    folder: Path
    number: int


async def get_many(store: ObjectStore, extents: Sequence[ByteRange]) -> Sequence[bytes | None]:
    """Read parts of objects at once: in a directory in one step, else side by side."""
    if isinstance(store, LocalStore):
        return await store.get_many(extents) if extents else ()
    return await gather_or_cancel(*(store.get(*x) for x in extents))


def _names_in(folder: Path) -> Sequence[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone, and quick
    except FileNotFoundError:
        return ()


def _write_synced(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, PRIVATE_FILE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
