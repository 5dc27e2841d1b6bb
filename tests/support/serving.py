"""Connections that a test serves in its own way."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

PIECE = 65536
"""So many bytes are passed on at once."""


@asynccontextmanager
async def serving(
    serve: Callable[[StreamReader, StreamWriter], Coroutine[None, None, None]],
) -> AsyncIterator[int]:
    """Serve each connection to the port that this returns, as long as the block lasts."""
    served = set[asyncio.Task[None]]()

    def accept(client: StreamReader, to_client: StreamWriter) -> None:
        task = asyncio.create_task(serve(client, to_client))
        served.add(task)
        task.add_done_callback(served.discard)

    server = await asyncio.start_server(accept, "127.0.0.1")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
