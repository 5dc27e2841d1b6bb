"""The port of a host's own process, for what ``changefeed.host.endpoints`` answers.

The port is taken before the host joins, because its member record names it. Clients may connect
from then on, and are answered a moment later: to import what answers takes as long as all else
that a host needs until its first change. So it is imported after the first changes, and in a
thread. The port is on this machine only, unless ``web.bind`` says otherwise.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Final

from changefeed.host.settings import WebSettings
from changefeed.runtime.errors import UserError
from changefeed.runtime.garbage import freeze_startup_objects
from changefeed.runtime.listening import address_of, machine_address, take_port

HEAD_START: Final = 0.5
"""Seconds that the first changes have before anybody is answered. Probes wait for 1 s."""


def listening_socket(settings: WebSettings) -> socket.socket:
    """Take the port. Raise ``UserError`` if that cannot be had."""
    assert settings.port != "off", "there is a port to listen at"
    return take_port(settings.bind, settings.port)


def url_of(listening: socket.socket) -> str:
    """Return where others find it."""
    return f"http://{address_of(listening, machine_address)}"


@asynccontextmanager
async def serving_soon(
    serve: Callable[[], AbstractAsyncContextManager[None]], failed: Callable[[], object]
) -> AsyncIterator[None]:
    """Serve until the block is left, by ``serve``, which is called when ``host.endpoints`` was
    imported. If that fails, ``failed`` is called, and why is raised at the end of the block:
    ``UserError`` if the import failed.
    """
    task = asyncio.create_task(_serve_later(serve))
    task.add_done_callback(lambda x: x.cancelled() or failed())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()


async def _serve_later(serve: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    await asyncio.sleep(HEAD_START)
    # A thread of its own: user code may keep those of the loop busy.
    thread = ThreadPoolExecutor(1, thread_name_prefix="web-import")
    name = "changefeed.host.endpoints"
    try:
        await asyncio.get_running_loop().run_in_executor(thread, import_module, name)
    except ImportError as error:
        raise UserError(
            f"the web endpoints cannot be imported: {error}. Install changefeed-host and its "
            f'packages again, or run without endpoints: web.port = "off"'
        ) from error
    async with serve():
        freeze_startup_objects()
        await asyncio.Event().wait()  # until cancelled
