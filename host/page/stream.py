"""What changes on the page, for all who watch it, however many, and however slowly.

A look is taken each few seconds while somebody watches or asks. What has changed
since the one before is encoded once, and each watcher is sent the same bytes. A watcher that
has not read for a while misses some: it is sent word to ask for everything again, which is
one answer for all, too. So a watcher costs its connection, and nothing waits for it.
"""

import asyncio
import gzip
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from secrets import randbits

import msgspec
from aiohttp import web

from changefeed.host.page.state import PageState, news
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.logs import get_logger

_log = get_logger()
_KEPT = 8
"""How many differences are kept for watchers that are a little behind."""
_STILL_HERE = 15.0
_LOOK_UP = 1.0
_MIN_PAUSE = 0.05
_MAX_WATCHERS = 32
_GZIP_LEVEL = 3
_UNWATCHED = 30.0
"""Seconds between two looks while nobody watches: for the last hour, and for what moved."""

ASK_AGAIN = b"event: again\ndata: {}\n\n"
STILL_HERE = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class _Step:
    number: int
    event: bytes


@dataclass(slots=True)
class _Whole:
    number: int
    document: bytes
    packed: bytes | None = None


class EventStream:
    """``look`` says what the page shows; ``every`` is how many seconds lie between two looks,
    at least.
    """

    def __init__(self, look: Callable[[], Awaitable[PageState]], *, every: float) -> None:
        self._look = look
        self._every = every
        self._looking = asyncio.Lock()
        self._making = asyncio.Lock()
        self._looked_at = float("-inf")
        self._state: PageState | None = None
        self._trouble: str | None = None
        self._number = randbits(40)  # no watcher of an earlier process takes it for its own
        self._steps: deque[_Step] = deque(maxlen=_KEPT)
        self._changed = asyncio.Event()
        self._whole: _Whole | None = None
        self._watchers = 0
        self._asking = 0
        self._watched = asyncio.Event()
        self._closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")

    @property
    def is_watched(self) -> bool:
        """Whether anybody looks at the page just now."""
        return bool(self._watchers or self._asking)

    async def whole(self, *, compressed: bool) -> bytes:
        """Return everything, as one JSON document. Raise what the first look raised."""
        self._asking += 1
        try:
            await self.look_if_old()
        finally:
            self._asking -= 1
        if self._state is None:
            raise StoreUnavailable(self._trouble or "there was no look yet")
        async with self._making:
            made = self._whole
            if made is None or made.number != self._number:
                made = self._whole = _Whole(self._number, self._document(self._state))
            if compressed and made.packed is None:
                loop = asyncio.get_running_loop()
                made.packed = await loop.run_in_executor(
                    self._thread, gzip.compress, made.document, _GZIP_LEVEL
                )
            return made.packed if compressed and made.packed is not None else made.document

    def _document(self, state: PageState) -> bytes:
        return msgspec.json.encode(
            {"number": self._number, "trouble": self._trouble, "view": state.document()}
        )

    async def look_if_old(self) -> None:
        """Look, unless there was a look a moment ago; others who ask meanwhile share it."""
        clock = asyncio.get_running_loop().time
        async with self._looking:
            if clock() - self._looked_at < self._every:
                return
            try:
                self._take(await self._look(), None)
            except Exception as error:  # noqa: BLE001 - the page shows it, and goes on
                self._fail(error)
            self._looked_at = clock()

    def _fail(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text != self._trouble and self.is_watched:
            kind = type(error).__name__
            _log.warning("call.failed", operation="look for the page", error=text, kind=kind)
        self._take(self._state, text)

    def _take(self, state: PageState | None, trouble: str | None) -> None:
        before, self._state = self._state, state
        changed = {} if before is None or state is None else news(before, state)
        self._trouble = trouble
        self._number += 1
        change = msgspec.json.encode({"number": self._number, "trouble": trouble, **changed})
        event = b"event: change\ndata: " + change + b"\n\n"
        self._steps.append(_Step(self._number, event if before is not None else ASK_AGAIN))
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look on and on while the block runs, quickly while someone watches."""
        task = asyncio.create_task(self._keep_looking())
        try:
            yield
        finally:
            task.cancel()
            self.close()
            await asyncio.wait([task])

    async def _keep_looking(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_UNWATCHED):
                    await self._watched.wait()
            await asyncio.sleep(max(_MIN_PAUSE, self._looked_at + self._every - clock()))
            await self.look_if_old()

    def close(self) -> None:
        """Let every watcher go."""
        self._closing = True
        self._changed.set()
        self._thread.shutdown(wait=False)

    async def events(self, after: int, gone: Callable[[], bool]) -> AsyncGenerator[bytes]:
        """Yield what happens after that look, as server-sent events, until it is closed, or the
        watcher is ``gone``. Raise ``web.HTTPException`` where as many watch as are served.
        """
        if self._watchers >= _MAX_WATCHERS:
            raise web.HTTPServiceUnavailable(text="too many watch this page at once")
        self._watchers += 1
        self._watched.set()
        try:
            quiet = 0.0
            while not (self._closing or gone()):
                sent = self._after(after)
                if sent is None and quiet >= _STILL_HERE:
                    sent = STILL_HERE
                if sent is not None:
                    after, quiet = self._number, 0.0
                    yield sent
                    continue
                try:
                    async with asyncio.timeout(_LOOK_UP):
                        await self._changed.wait()
                except TimeoutError:
                    quiet += _LOOK_UP
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    def _after(self, number: int) -> bytes | None:
        if number == self._number:
            return None
        steps = [x for x in self._steps if x.number > number]
        if number > self._number or len(steps) != self._number - number:
            return ASK_AGAIN
        return b"".join(x.event for x in steps)
