"""Accounts for tests of programs that use Cosmos DB.

They are served by the loop of a test, or by a thread of its process.

An account is empty, keeps everything in memory, and is gone at the end of its block. One takes
a few milliseconds, so each test can have its own.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from cosmos_emulator.auth import key_bytes, signed_headers
from cosmos_emulator.server import serve
from cosmos_emulator.settings import DEVELOPMENT_KEY, EmulatorSettings

_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account that is served, here or elsewhere, as in a container.

    Its methods do what only an emulator can do.
    They wait for the answer, and raise ``ValueError`` with the emulator's advice if it refuses.
    """

    url: str
    key: str = DEVELOPMENT_KEY

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self.url};AccountKey={self.key};"

    def split(self, database: str, container: str, **how: Any) -> list[dict[str, Any]]:
        """Split a range (``range="0"``, ``at="1F…"``); return its children."""
        body = {"database": database, "container": container, **how}
        made: list[dict[str, Any]] = self.control("POST", "split", **body)
        return made

    def merge(self, database: str, container: str, ranges: Sequence[str]) -> dict[str, Any]:
        """Merge neighbours; return the range that takes their place."""
        body = {"database": database, "container": container, "ranges": [*ranges]}
        made: dict[str, Any] = self.control("POST", "merge", **body)
        return made

    def fault(self, effect: str, operation: str, **more: Any) -> None:
        """Add a fault, such as ``fault("error", "create_item", status=503, times=2)``."""
        self.control("POST", "faults", effect=effect, operation=operation, **more)

    def heal(self) -> None:
        """End all faults."""
        self.control("DELETE", "faults")

    def region(self, name: str, **what: Any) -> list[dict[str, Any]]:
        """Let a region write (``writes=True``), go down (``down=True``), lag (``lag=2.0``)."""
        now: list[dict[str, Any]] = self.control("POST", "regions", region=name, **what)
        return now

    def snapshot(self) -> None:
        """Keep the account as it is now, for ``reset``."""
        self.control("POST", "snapshot")

    def reset(self) -> None:
        """Go back to the snapshot, or to an empty account; end all faults."""
        self.control("POST", "reset")

    def exported(self) -> bytes:
        """Return an exact copy of the account."""
        return self._asked("GET", "export", b"")

    def imported(self, copy: bytes) -> None:
        """Put an account that was exported in the place of what is there."""
        self._asked("POST", "import", copy)

    def control(self, verb: str, path: str, **body: Any) -> Any:
        """Ask a control endpoint, ``/_emulator/…``; return its answer."""
        return json.loads(self._asked(verb, path, json.dumps(body).encode()))

    def _asked(self, verb: str, path: str, data: bytes) -> bytes:
        link = f"_emulator/{path}"
        headers = signed_headers(key_bytes(self.key), verb, "", link, time.time())
        where = self.url.rstrip("/") + "/" + link
        asked = Request(where, data, headers, method=verb)  # noqa: S310 - it is ours
        try:
            with urlopen(asked, timeout=_SECONDS) as answer:  # noqa: S310 - likewise
                found: bytes = answer.read()
                return found
        except HTTPError as refused:
            raise ValueError(refused.read().decode()) from refused
        except URLError as error:
            raise OSError(f"nothing answers at {self.url}: {error.reason}") from error


@asynccontextmanager
async def running(settings: EmulatorSettings | None = None) -> AsyncIterator[str]:
    """Serve on this loop as long as the block lasts, and give the URL.

    Without settings it is an account in memory, on any free port.
    """
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    settings = settings or EmulatorSettings(port=0)
    server = asyncio.create_task(serve(settings, ready=url.set_result))
    first: list[asyncio.Future[Any]] = [server, url]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        await server
    try:
        yield await url
    finally:
        server.cancel()
        await asyncio.wait({server})


@contextmanager
def account_in_thread(settings: EmulatorSettings | None = None) -> Iterator[Account]:
    """Serve in a thread as long as the block lasts: also for clients that block."""
    settings = settings or EmulatorSettings(port=0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cosmos-emulator", daemon=True)
    thread.start()
    block = running(settings)
    try:
        opening = asyncio.run_coroutine_threadsafe(block.__aenter__(), loop)
        url = opening.result(_SECONDS)
        try:
            yield Account(url=url, key=settings.key)
        finally:
            closing = asyncio.run_coroutine_threadsafe(block.__aexit__(None, None, None), loop)
            closing.result(_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
