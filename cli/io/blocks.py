"""Reading a file, a pipe or a terminal without making anybody wait for it.

A thread reads ahead, a few blocks at most. Where input comes slowly, each block is what
has come; where it comes fast, many lines. The thread cannot be interrupted while it waits
for a pipe, so it does not hold up the end of the process.
"""

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress

_BLOCK = 256 * 1024
_AHEAD = 8


class BlockReader:
    """The bytes of an open file, block by block. Made on the event loop."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._read: deque[bytes | OSError] = deque()
        self._news = asyncio.Event()
        self._stopped = False
        threading.Thread(target=self._read_on, name="read-blocks", daemon=True).start()

    def stop(self) -> None:
        """Let ``next`` return nothing more."""
        self._stopped = True
        self._news.set()

    @property
    def stopped(self) -> bool:
        return self._stopped

    async def next(self) -> bytes | None:
        """Return some bytes, none at the end of the file, and ``None`` once stopped."""
        while not self._read and not self._stopped:
            self._news.clear()
            await self._news.wait()
        if self._stopped:
            return None
        block = self._read.popleft()
        self._room.release()
        if isinstance(block, OSError):
            raise block
        return block

    def _read_on(self) -> None:
        block: bytes | OSError = b"-"
        while block and not isinstance(block, OSError):
            self._room.acquire()
            try:
                block = os.read(self._file, _BLOCK)
            except OSError as error:
                block = error
            with suppress(RuntimeError):  # the loop is closed: it is not wanted any more
                self._loop.call_soon_threadsafe(self._arrived, block)

    def _arrived(self, block: bytes | OSError) -> None:
        self._read.append(block)
        self._news.set()
