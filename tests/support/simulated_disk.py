"""A disk in memory that loses power: what was not synced may be there afterwards, or not.

``SimulatedDisk`` stands in for the modules ``os`` and ``fcntl`` of who writes to it. It has two
states. What processes see is all that was done. What a loss of power leaves of a file is what
was synced, and of each write and each change of its length since then: all of it, a piece, or
nothing, in any order. The same of names in a folder. A call can be made to fail, or something
else be done between two calls, as another process would.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace

Step = Callable[[], None]


class _File:
    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = bytearray()
        self.synced = b""
        self.since: list[tuple[int, bytes]] = []
        self.sync_failed = False
        self.syncs_after_failure = 0


class SimulatedDisk:
    """``fails`` are errors by the number of the call; ``between`` is done ahead of a call."""

    O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
    LOCK_EX, LOCK_SH, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB
    O_CREAT, O_EXCL, O_CLOEXEC = os.O_CREAT, os.O_EXCL, os.O_CLOEXEC

    def __init__(self, random: Random) -> None:
        self.random = random
        self.calls = 0
        self.fails: dict[str, list[OSError]] = {}
        self.between: dict[int, Step] = {}
        self.short_writes = False
        self._files = count(1)
        self._open: dict[int, _File | Path] = {}
        self._handles = count(3)
        self._locks: dict[int, int] = {}
        self.names: dict[Path, dict[str, _File]] = {}
        self._synced_names: dict[Path, dict[str, _File]] = {}

    def make_folder(self, folder: Path) -> None:
        """Make a folder that is there for good."""
        self.names.setdefault(folder, {})
        self._synced_names.setdefault(folder, {})

    # what processes call

    def open(self, path: Path, flags: int, _mode: int = 0o600) -> int:
        self._call("open")
        handle = next(self._handles)
        if path in self.names:
            self._open[handle] = path
            return handle
        names = self.names.get(path.parent, {})
        found = names.get(path.name)
        if found is None and not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, str(path))
        if found is not None and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, str(path))
        if found is None:
            found = names[path.name] = _File(next(self._files))
        self._open[handle] = found
        return handle

    def close(self, handle: int) -> None:
        del self._open[handle]
        self._locks.pop(handle, None)

    def flock(self, handle: int, how: int) -> None:
        file = self._file(handle)
        for other, held in self._locks.items():
            excludes = self.LOCK_EX in (held, how & ~self.LOCK_NB)
            if excludes and other != handle and self._open[other] is file:
                raise BlockingIOError(errno.EWOULDBLOCK, "it is locked")
        self._locks[handle] = how & ~self.LOCK_NB

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        self._call("pwrite")
        if self.short_writes and len(data) > 1:
            data = data[: self.random.randint(1, len(data))]
        self._write(self._file(handle), offset, bytes(data))
        return len(data)

    def ftruncate(self, handle: int, size: int) -> None:
        self._call("ftruncate")
        file = self._file(handle)
        del file.seen[size:]

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return bytes(self._file(handle).seen[offset : offset + size])

    def fsync(self, handle: int) -> None:
        self._call("fsync")
        there = self._open[handle]
        if isinstance(there, Path):
            self._synced_names[there] = {**self.names[there]}
        else:
            self._sync(there)

    def fdatasync(self, handle: int) -> None:
        file = self._file(handle)
        try:
            self._call("fdatasync")
        except OSError:  # what it could not write the kernel calls clean from then on
            file.synced, file.since, file.sync_failed = self._left_of(file), [], True
            raise
        self._sync(file)

    def stat(self, path: Path) -> SimpleNamespace:
        file = self.names.get(path.parent, {}).get(path.name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, str(path))
        return SimpleNamespace(
            st_dev=1, st_ino=file.number, st_mode=stat.S_IFREG, st_size=len(file.seen)
        )

    def fstat(self, handle: int) -> SimpleNamespace:
        file = self._file(handle)
        links = sum(x is file for names in self.names.values() for x in names.values())
        return SimpleNamespace(
            st_dev=1, st_ino=file.number, st_size=len(file.seen), st_nlink=links
        )

    def link(self, old: Path, new: Path) -> None:
        self._call("link")
        names = self.names[new.parent]
        if new.name in names:
            raise FileExistsError(errno.EEXIST, str(new))
        names[new.name] = self.names[old.parent][old.name]

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        if self.names.get(path.parent, {}).pop(path.name, None) is None:
            raise FileNotFoundError(errno.ENOENT, str(path))

    def listdir(self, folder: Path) -> list[str]:
        if folder not in self.names:
            raise FileNotFoundError(errno.ENOENT, str(folder))
        return [*self.names[folder]]

    def getpid(self) -> int:
        return self.random.getrandbits(20)

    # what happens to it

    def end_process(self) -> None:
        """Close what all processes have open, and give up their locks."""
        self._open.clear()
        self._locks.clear()

    def lose_power(self) -> None:
        """Leave of what was not synced what chance leaves. No process outlives it."""
        for folder, seen in self.names.items():
            synced = self._synced_names[folder]
            left = {
                name: (seen if self.random.random() < 0.5 else synced).get(name)
                for name in {**seen, **synced}
            }
            self.names[folder] = {x: y for x, y in left.items() if y is not None}
            self._synced_names[folder] = {**self.names[folder]}
        for file in {id(y): y for x in self.names.values() for y in x.values()}.values():
            file.synced, file.since = self._left_of(file), []
            file.seen = bytearray(file.synced)
        self.end_process()

    def cut(self, path: Path, size: int) -> None:
        del self.names[path.parent][path.name].seen[size:]

    def flip(self, path: Path, place: int) -> None:
        self.names[path.parent][path.name].seen[place] ^= 0x10

    def size(self, path: Path) -> int:
        return len(self.names[path.parent][path.name].seen)

    @property
    def syncs_after_failure(self) -> int:
        files = [y for x in self.names.values() for y in x.values()]
        return sum(x.syncs_after_failure for x in files)

    def _call(self, name: str) -> None:
        self.calls += 1
        step = self.between.pop(self.calls, None)
        if step is not None:
            step()
        if self.fails.get(name):
            raise self.fails[name].pop(0)

    def _file(self, handle: int) -> _File:
        found = self._open[handle]
        assert isinstance(found, _File), f"{found} is a folder"
        return found

    def _sync(self, file: _File) -> None:
        file.syncs_after_failure += file.sync_failed
        synced = bytearray(file.synced)
        for offset, data in file.since:  # what a failed sync has lost is not among them
            _put(synced, offset, data)
        file.synced, file.since = bytes(synced[: len(file.seen)]), []

    def _write(self, file: _File, offset: int, data: bytes) -> None:
        _put(file.seen, offset, data)
        file.since.append((offset, data))

    def _left_of(self, file: _File) -> bytes:
        left = bytearray(file.synced)
        since = [*file.since]
        self.random.shuffle(since)
        for offset, data in since:
            fate = self.random.choice(["all", "piece", "length", "nothing"])
            begin, end = sorted(self.random.choices(range(len(data) + 1), k=2))
            if fate == "all":
                _put(left, offset, data)
            elif fate == "piece":
                _put(left, offset + begin, data[begin:end])
            elif fate == "length":
                _put(left, max(len(left), offset + len(data)), b"")
        return bytes(left)


def _put(into: bytearray, offset: int, data: bytes) -> None:
    if offset > len(into):
        into.extend(bytes(offset - len(into)))
    into[offset : offset + len(data)] = data
