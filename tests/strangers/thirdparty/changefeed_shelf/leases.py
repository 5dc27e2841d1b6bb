"""``shelf:DIRECTORY``: leases and members in JSON files, each changed under a file lock."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic

import msgspec

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.lease import Lease, Member, Version
from changefeed.leases.tables import KEEP, Decision, Record, TableLeases
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem
from changefeed_shelf.settings import ShelfSettings

_PAUSE = 0.005


class _Content(msgspec.Struct, Generic[Record]):
    written: int = 0
    records: dict[str, Record] = {}


class FileTable(Generic[Record]):
    def __init__(self, file: Path, kind: type[Record], lock_timeout: float) -> None:
        self._file = file
        form: Any = _Content[kind]  # type: ignore[valid-type]
        self._decoder: msgspec.json.Decoder[_Content[Record]] = msgspec.json.Decoder(form)
        self._lock_timeout = lock_timeout

    async def all(self) -> Sequence[Record]:
        content = await asyncio.to_thread(self._read)
        return list(content.records.values())

    async def get(self, key: str) -> Record | None:
        content = await asyncio.to_thread(self._read)
        return content.records.get(key)

    async def change(
        self, key: str, decide: Callable[[Record | None], Decision[Record]]
    ) -> Record | None:
        return await asyncio.to_thread(partial(self._change, key, decide))

    def _change(
        self, key: str, decide: Callable[[Record | None], Decision[Record]]
    ) -> Record | None:
        with self._locked():
            content = self._read()
            wanted = decide(content.records.get(key))
            if wanted is KEEP:
                return content.records.get(key)
            content.written += 1
            if wanted is None:
                written = content.records.pop(key, None)
            else:
                written = replace(wanted, version=Version(str(content.written)))
                content.records[key] = written
            fresh = self._file.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(content))
            fresh.rename(self._file)
            return None if wanted is None else written

    def _read(self) -> _Content[Record]:
        try:
            return self._decoder.decode(self._file.read_bytes())
        except FileNotFoundError:
            return _Content()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self._file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        try:
            limit = time.monotonic() + self._lock_timeout
            while not _try_lock(handle):
                if time.monotonic() > limit:
                    raise ContainerUnavailable(f"{self._file}: another process holds its lock")
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
async def _open(address: Address, options: OpenOptions) -> AsyncIterator[LeaseContainer]:
    settings: ShelfSettings = options.settings
    directory = Path(address.place)
    try:
        await asyncio.to_thread(partial(directory.mkdir, exist_ok=True))
    except OSError as error:
        raise ContainerRefused(f"{directory}: {error.strerror}") from error
    yield TableLeases(
        FileTable(directory / "leases.json", Lease, settings.lock_timeout),
        FileTable(directory / "members.json", Member, settings.lock_timeout),
    )


async def _check(address: Address, _: OpenOptions, *, feed: str) -> AsyncIterator[Diagnostic]:
    place = Path(address.place)
    existing = place if place.exists() else place.absolute().parent  # noqa: ASYNC240
    if os.access(existing, os.W_OK):
        yield fine("directory", f"{existing} can be written to")
    else:
        yield problem("directory", f"{existing} cannot be written to", "chmod u+w")
    if feed == str(address):
        yield problem("directory", "feed and leases have one address", "give each its own")


async def _exists(address: Address, _: OpenOptions) -> bool:
    return await asyncio.to_thread(Path(address.place).exists)


BACKEND = LeaseBackend(
    name="shelf",
    place="DIRECTORY",
    open_container=_open,
    check=_check,
    exists=_exists,
    settings=ShelfSettings,
)
