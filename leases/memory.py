"""Leases in memory: for one process, and for tests and simulations of many hosts.

Not test doubles: they keep the whole contract. No call ever waits, so each is one step
of the event loop, and the same calls in the same order give the same versions.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Generic, NoReturn

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.errors import ContainerRefused, MemberConflict
from changefeed.leases.lease import Checkpoint, Lease, Member, Version
from changefeed.leases.listing import ListedFleet
from changefeed.leases.tables import (
    KEEP,
    Decision,
    Record,
    TableChanges,
    TableCheckpoints,
    TableLeases,
    TableOwnership,
)
from changefeed.runtime.backends import Address


class MemoryTable(Generic[Record]):
    def __init__(self) -> None:
        self._versions = count(1)
        self._records: dict[str, Record] = {}

    async def all(self) -> Sequence[Record]:
        return list(self._records.values())

    async def changes_since(self, token: str) -> TableChanges[Record]:
        since = int(token or 0)
        found = [x for x in self._records.values() if int(x.version) > since]
        newest = max((int(x.version) for x in found), default=since)
        return TableChanges(records=found, total=len(self._records), token=str(newest))

    async def get(self, key: str) -> Record | None:
        return self._records.get(key)

    async def change(
        self, key: str, decide: Callable[[Record | None], Decision[Record]]
    ) -> Record | None:
        stored = self._records.get(key)
        wanted = decide(stored)
        if wanted is KEEP:
            return stored
        if wanted is None:
            self._records.pop(key, None)
            return None
        written = replace(wanted, version=Version(str(next(self._versions))))
        assert stored is None or int(written.version) > int(stored.version), (
            f"{key!r}: version {written.version} after {stored.version}"
        )
        self._records[key] = written
        return written


class _ListsFleet(TableOwnership):
    """No call waits, so several are one step."""

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        written = None
        if heartbeat is not None:
            with suppress(MemberConflict):
                written = await self.put_member(heartbeat)
        changes = await self.changes_since(token)
        if changes is None:
            return None
        return ListedFleet(changes=changes, members=await self.members(), heartbeat=written)


class MemoryLeases(_ListsFleet, TableLeases):
    """A lease container for the hosts of one process; its leases end with it."""

    def __init__(self) -> None:
        super().__init__(MemoryTable[Lease](), MemoryTable[Member]())


class MemoryOwnership(_ListsFleet):
    def __init__(self) -> None:
        super().__init__(MemoryTable[Lease](), MemoryTable[Member]())


class MemoryCheckpoints(TableCheckpoints):
    def __init__(self) -> None:
        super().__init__(MemoryTable[Checkpoint]())


def _refuse(_: Address, __: OpenOptions) -> NoReturn:
    raise ContainerRefused(
        "leases in memory are seen by one process only, and forgotten when it ends: use"
        " sqlite:PATH, or make MemoryLeases() in a program that runs all its hosts"
    )


BACKEND = LeaseBackend(
    name="memory",
    place="",
    open_container=_refuse,
    open_ownership=_refuse,
    open_checkpoints=_refuse,
)
