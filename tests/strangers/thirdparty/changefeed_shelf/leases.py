"""``shelf:DIRECTORY``: records in a JSON file, which is changed under a file lock."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem
from changefeed.runtime.errors import StoreMissing, StoreRefused, StoreUnavailable
from changefeed.stores.backend import StoreBackend
from changefeed.stores.store import WHOLE, Listed, Record, Store, written_over
from changefeed_shelf.settings import ShelfSettings

_PAUSE = 0.005


class _Content(msgspec.Struct):
    written: int = 0
    records: list[Record] = []


class ShelfStore(Store):
    """A ``Store`` in one file."""

    def __init__(self, file: Path, lock_timeout: float) -> None:
        self._file = file
        self._lock_timeout = lock_timeout

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        written = None if put is None else await self.put(put)
        content = await asyncio.to_thread(self._read)
        found = [replace(x, position=None) for x in content.records if x.kind in kinds]
        new = [x for x in found if int(x.version) > int(since or 0)]
        return Listed(records=new, total=len(found), token=str(content.written), put=written)

    async def get(self, kind: str, key: str) -> Record | None:
        content = await asyncio.to_thread(self._read)
        return _found(content, kind, key)

    async def put(self, record: Record) -> Record | None:
        return await asyncio.to_thread(self._put, record)

    async def delete(self, kind: str, key: str, version: str) -> bool:
        return await asyncio.to_thread(self._delete, kind, key, version)

    def _put(self, record: Record) -> Record | None:
        with self._locked():
            content = self._read()
            stored = _found(content, record.kind, record.key)
            wanted = written_over(stored, record)
            if wanted is None:
                return None
            if stored is not None:
                content.records.remove(stored)
            content.written += 1
            written = replace(wanted, version=str(content.written))
            content.records.append(written)
            self._write(content)
            return written

    def _delete(self, kind: str, key: str, version: str) -> bool:
        with self._locked():
            content = self._read()
            stored = _found(content, kind, key)
            if stored is None or stored.version != version:
                return False
            content.records.remove(stored)
            self._write(content)
            return True

    def _write(self, content: _Content) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(content))
        fresh.rename(self._file)

    def _read(self) -> _Content:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Content)
        except FileNotFoundError:
            return _Content()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self._file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        try:
            limit = time.monotonic() + self._lock_timeout
            while not _try_lock(handle):
                if time.monotonic() > limit:
                    raise StoreUnavailable(f"{self._file}: another process holds its lock")
                time.sleep(_PAUSE)
            yield
        finally:
            os.close(handle)


def _found(content: _Content, kind: str, key: str) -> Record | None:
    return next((x for x in content.records if (x.kind, x.key) == (kind, key)), None)


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


async def _check(address: Address, _: OpenOptions, *, feed: str) -> AsyncIterator[Diagnostic]:
    place = Path(address.place)
    existing = place if place.exists() else place.absolute().parent  # noqa: ASYNC240
    if os.access(existing, os.W_OK):
        yield fine("directory", f"{existing} can be written to")
    else:
        yield problem("directory", f"{existing} cannot be written to", "chmod u+w")
    if feed == str(address):
        yield problem("directory", "feed and leases have one address", "give each its own")


BACKEND = StoreBackend(
    name="shelf",
    place="DIRECTORY",
    open_store=_open,
    check=_check,
    settings=ShelfSettings,
)
