"""The markers beside the leases, by which processors agree on who creates them.

``{prefix}.info`` says that the leases were created; with it, a .NET host creates none.
``{prefix}.lock`` says that a host is creating them; a .NET host waits for it to go.

Our hosts create every missing lease at any time, and several at once do no harm: a lease
has one id, and the first to create it settles where it starts. So they wait for the lock
of another kind of processor only, which writes leases without positions; and they leave
``.info`` behind for it. The lock goes by its time to live, if the container has that
switched on. If not, a crash would leave it for ever: a lock that has stood still as long
as we have watched it, for its whole life and a bit, is taken over.
"""

import asyncio
from contextlib import suppress

from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.items import Document, Items

_LOCK_SECONDS = 30
_LOCK_SLACK = 5.0
_LOOK_AGAIN = 5.0
_OURS = "changefeed"


class Markers:
    """The markers of one prefix, as one client of the container tends to them."""

    def __init__(self, items: Items, names: DocumentIds) -> None:
        self._items = items
        self._names = names
        self._turn = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._open = False
        self._lock: str | None = None
        self._unfinished = False
        self._watched: tuple[str, float] | None = None

    async def begin(self) -> None:
        """Be allowed to create leases. Raise ``StoreUnavailable`` while others do."""
        async with self._turn:
            if self._open:
                return
            if await self._items.read(self._names.info) is None:
                await self._take_lock()
                self._unfinished = True
            self._open = True

    async def finish(self, *, listed: bool) -> None:
        """Say that all leases are there, if that was not said before.

        Where some are ``listed`` and none was created from here, their creator may have died.
        """
        if listed and not self._open:
            with suppress(StoreUnavailable):  # another processor creates the others
                await self.begin()
        if not self._unfinished:
            return
        async with self._turn:
            if self._unfinished:
                assert self._open, "the mark is made by a host that was allowed to create"
                await self._items.create(self._items.keyed({"id": self._names.info}))
                await self._drop_lock()
                self._unfinished = False

    async def _take_lock(self) -> None:
        assert self._lock is None, "who holds the lock may create leases"
        lock = self._items.keyed({"id": self._names.lock, "ttl": _LOCK_SECONDS, "owner": _OURS})
        made = await self._items.create(lock)
        if made is not None:
            self._lock = made["_etag"]
            return
        found = await self._items.read(self._names.lock)
        if found is not None and found.get("owner") != _OURS:
            await self._take_over(found, lock)

    async def _take_over(self, found: Document, lock: Document) -> None:
        now = self._clock()
        etag, since = self._watched or ("", now)
        if etag != found["_etag"]:
            since = now
        assert since <= now, f"the lock was first seen at {since}, and it is {now}"
        self._watched = (found["_etag"], since)
        if now - since < _LOCK_SECONDS + _LOCK_SLACK:
            raise StoreUnavailable(
                f"another processor is creating the leases (it holds {self._names.lock!r}); "
                f"if it is dead, its lock is taken over within {_LOCK_SECONDS} s",
                _LOOK_AGAIN,
            )
        self._lock = await self._items.replace(lock, found["_etag"])
        if self._lock is None:
            raise StoreUnavailable(
                f"the lock {self._names.lock!r} has just changed", _LOOK_AGAIN
            )

    async def _drop_lock(self) -> None:
        if self._lock is not None:
            # Refused, it went by itself, or another host took it over.
            await self._items.delete(self._names.lock, self._lock)
            self._lock = None
