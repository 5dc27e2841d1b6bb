"""``shelf:DIRECTORY``: records in a JSON file, which is changed under a file lock."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from changefeed.backends import (
    WHOLE,
    Address,
    Diagnostic,
    Listed,
    OpenOptions,
    Record,
    Store,
    StoreBackend,
    StoreMissing,
    StoreRefused,
    StoreUnavailable,
    fine,
    written_over,
)
from changefeed_shelf.settings import ShelfSettings

_PAUSE = 0.005


class _Content(msgspec.Struct):
    """All that the file holds. ``written`` counts the writes: a version is never used twice."""

    written: int = 0
    records: dict[str, Record] = {}


class ShelfStore(Store):
    """A ``Store`` in one file, which is written whole."""

    def __init__(self, file: Path, lock_timeout: float) -> None:
        self.file = file
        self._lock_timeout = lock_timeout

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        written = None if put is None else await self.put(put)
        content = await asyncio.to_thread(self._read)
        here = [replace(x, position=None) for x in content.records.values() if x.kind in kinds]
        new = [x for x in here if int(x.version) > int(since or 0)]
        return Listed(records=new, total=len(here), token=str(content.written), put=written)

    async def get(self, kind: str, key: str) -> Record | None:
        return (await asyncio.to_thread(self._read)).records.get(f"{kind} {key}")

    async def put(self, record: Record) -> Record | None:
        return await asyncio.to_thread(self._put, record)

    async def delete(self, kind: str, key: str, version: str) -> bool:
        return await asyncio.to_thread(self._delete, f"{kind} {key}", version)

    def _put(self, record: Record) -> Record | None:
        place = f"{record.kind} {record.key}"
        with self._changing() as content:
            wanted = written_over(content.records.get(place), record)
            if wanted is None:
                return None
            content.written += 1
            content.records[place] = replace(wanted, version=str(content.written))
            return content.records[place]

    def _delete(self, place: str, version: str) -> bool:
        with self._changing() as content:
            stored = content.records.get(place)
            if stored is None or stored.version != version:
                return False
            del content.records[place]
            return True

    @contextmanager
    def _changing(self) -> Iterator[_Content]:
        """Yield what there is, and write it as it was left. No reader sees half of it."""
        with _locked(self.file.with_suffix(".lock"), self._lock_timeout):
            content, fresh = self._read(), self.file.with_suffix(".new")
            yield content
            fresh.write_bytes(msgspec.json.encode(content))
            fresh.rename(self.file)

    def _read(self) -> _Content:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=_Content)
        except FileNotFoundError:
            return _Content()


@contextmanager
def _locked(file: Path, timeout: float) -> Iterator[None]:
    handle = os.open(file, os.O_CREAT | os.O_RDWR)
    try:
        limit = time.monotonic() + timeout
        while not _try_lock(handle):
            if time.monotonic() > limit:
                raise StoreUnavailable(f"{file}: another process holds this lock")
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@asynccontextmanager
async def _open(address: Address, options: OpenOptions) -> AsyncIterator[ShelfStore]:
    settings: ShelfSettings = options.settings
    directory = Path(address.place)
    if options.must_exist and not await asyncio.to_thread(directory.exists):
        raise StoreMissing(f"there are no leases at {directory} yet", made_by_run=True)
    try:
        await asyncio.to_thread(partial(directory.mkdir, exist_ok=True))
    except OSError as error:
        raise StoreRefused(f"{directory}: {error.strerror}") from error
    yield ShelfStore(directory / "records.json", settings.lock_timeout)


async def _check(store: ShelfStore) -> AsyncIterator[Diagnostic]:
    yield fine("file", f"records are in {store.file}")


BACKEND = StoreBackend(
    name="shelf",
    place="DIRECTORY",
    open_store=_open,
    check=_check,
    settings=ShelfSettings,
)
