"""What the leases of a world are kept in, and who tells of every write to it."""

from collections.abc import Callable
from random import Random
from typing import Any

from changefeed.feeds.feed import FeedRange
from changefeed.leases.lease import Checkpoint, Lease
from changefeed.leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership

from .checkers import Checker

_WRITES = ("create", "replace", "acquire", "checkpoint", "write")


def memory_stores(random: Random) -> list[object]:
    """Return a container, or stores for ownership and for checkpoints."""
    if random.random() < 0.5:
        return [MemoryLeases()]
    return [MemoryOwnership(), MemoryCheckpoints()]


class Witness:
    """A store that tells of every write, as the server does it: ``created`` of new leases."""

    def __init__(
        self, store: Any, checker: Checker, writer: str, created: Callable[[FeedRange], None]
    ) -> None:
        self._store = store
        self._checker = checker
        self._writer = writer
        self._created = created

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name == "delete":
            return self._delete
        if name not in _WRITES:
            return method

        async def watched(record: Lease | Checkpoint) -> Any:
            before = await self._store.read(record.range_id)
            try:
                answer = await method(record)
            finally:
                after = await self._store.read(record.range_id)
                if after is not None and after != before:
                    self._checker.stored(before, after, self._writer)
            if name == "create" and isinstance(record, Lease):
                self._created(record.range)
            return answer

        return watched

    async def _delete(self, record: Any) -> None:
        if isinstance(record, str):  # a checkpoint, whose lease has gone before
            await self._store.delete(record)
            return
        before = await self._store.read(record.range_id)
        try:
            await self._store.delete(record)
        finally:
            if before is not None and await self._store.read(record.range_id) is None:
                self._checker.deleted(before, self._writer)
