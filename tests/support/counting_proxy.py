"""A proxy before a server that counts the bytes of both ways."""

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PIECE = 65536


class Counted:
    def __init__(self) -> None:
        self.bytes = 0
        self.port = 0

    async def forward(self, source: StreamReader, target: StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(_PIECE):
                self.bytes += len(piece)
                target.write(piece)
                await target.drain()
        target.close()


@asynccontextmanager
async def counting(port: int) -> AsyncIterator[Counted]:
    """Serve as long as the block lasts."""
    counted = Counted()
    serving = set[asyncio.Task[None]]()

    async def serve(client: StreamReader, to_client: StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            counted.forward(client, to_server), counted.forward(server, to_client)
        )

    def accept(client: StreamReader, to_client: StreamWriter) -> None:
        task = asyncio.create_task(serve(client, to_client))
        serving.add(task)
        task.add_done_callback(serving.discard)

    listening = await asyncio.start_server(accept, "127.0.0.1")
    counted.port = listening.sockets[0].getsockname()[1]
    try:
        yield counted
    finally:
        listening.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
