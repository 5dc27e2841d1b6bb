"""Group commit: what waits for a row while it is written is written together, next.

No clock decides how long a record waits for others: the disk does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from changefeed.log.stores.frame_writer import FrameWriter

T = TypeVar("T")
_COMMIT_BYTES: Final = 64 * 1024 * 1024
_Waiting = tuple[bytes, "asyncio.Future[bool | None]"]


class _Call(Protocol):
    def __call__(self, act: Callable[[], T], what: str, /) -> Awaitable[T]: ...


class Commits:
    """Writes what waits for a row in the order of its numbers, all that is there at once."""

    def __init__(self, writer: FrameWriter, call: _Call, last: int = 0) -> None:
        self.writer = writer
        self._call = call
        self._next = last + 1
        self._waiting: dict[int, _Waiting] = {}
        self._running: asyncio.Task[None] | None = None

    async def append(self, number: int, data: bytes) -> bool | None:
        """Return whether an object was written; once it is durable. A number waits for those
        before it.

        ``False``: there is one of this number. ``None``: the row was closed, with this object
        or without. Raise ``StoreError`` where it may be tried again.
        """
        assert number > 0, f"numbers of a row count from 1: {number}"
        if number < self._next:
            return False
        if self.writer.is_over:
            return None
        if number in self._waiting:
            await asyncio.wait([self._waiting[number][1]])
            return await self.append(number, data)
        done: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = data, done
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await done

    @property
    def is_idle(self) -> bool:
        return self._running is None and not self._waiting

    async def _run(self) -> None:
        try:
            while self._next in self._waiting:
                await self._commit(self._taken())
                for number in [x for x in self._waiting if x < self._next]:
                    _answer([self._waiting.pop(number)], False)
            if self.writer.is_over:
                _answer([self._waiting.pop(x) for x in [*self._waiting]], None)
        finally:
            self._running = None

    def _taken(self) -> Sequence[_Waiting]:
        number, size, taken = self._next, 0, []
        while number in self._waiting and size < _COMMIT_BYTES:
            taken.append(self._waiting.pop(number))
            size += len(taken[-1][0])
            number += 1
        return taken

    async def _commit(self, taken: Sequence[_Waiting]) -> None:
        assert taken, f"a commit of nothing at {self._next}"
        objects = [data for data, _ in taken]
        try:
            written = await self._call(lambda: self.writer.append(objects), "wal")
        except Exception as error:  # noqa: BLE001 - it is raised by those who wait
            _answer(taken, error)
        else:
            self._next += len(taken) if written else 0
            _answer(taken, True if written else None)


def _answer(waiting: Iterable[_Waiting], outcome: bool | Exception | None) -> None:  # noqa: FBT001
    for _, done in waiting:
        if done.done():
            continue  # its caller has gone
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)
